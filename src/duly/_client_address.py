"""The address of a redis-py client that a user passes, versions 5 to 8. Duly does not use the client's connections.

redis-py is optional. Its classes are recognised by their names, so that this module does not import it.
"""

from collections.abc import Mapping
from typing import Any, Final

from duly._core.address import Address, Kind
from duly.errors import UsageError

_USED_OPTIONS: Final = ("host", "port", "path", "db", "username", "password", "client_name")


def address_of_client(client: Any) -> Address:
    """Read the address and credentials from a `redis.Redis` or `redis.asyncio.Redis`."""
    pool: Any = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None)
    if not isinstance(options, Mapping) or hasattr(pool, "sentinel_manager"):
        raise UsageError(
            f"expected a URL or a redis-py client of one server, not {type(client).__name__} with "
            f"{type(pool).__name__}: for sentinels give a redis+sentinel:// URL. Clusters are not supported yet"
        )
    used = {name: options[name] for name in _USED_OPTIONS if options.get(name) is not None}
    used |= {name: value for name, value in options.items() if name.startswith("ssl_") and value is not None}
    if (provider := options.get("credential_provider")) is not None:
        used["credentials"] = provider.get_credentials
    kind = _kind_of(pool.connection_class)
    if kind == "unix":
        return Address(kind, f"unix://{used.get('path')}", used)
    used.setdefault("host", "localhost")
    used.setdefault("port", 6379)
    return Address(kind, f"redis://{used['host']}:{used['port']}/{used.get('db', 0)}", used)


def _kind_of(connection: type) -> Kind:
    names = {base.__name__ for base in connection.__mro__}
    if "UnixDomainSocketConnection" in names:
        return "unix"
    return "tls" if "SSLConnection" in names else "tcp"
