"""The address of a redis-py client that a user passes. Duly does not use the client's connections."""

from typing import Any, Final

from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.asyncio.connection import UnixDomainSocketConnection as AsyncUnixConnection
from redis.connection import SSLConnection, UnixDomainSocketConnection

from duly._core.address import Address, Kind
from duly.errors import UsageError

_USED_OPTIONS: Final = ("host", "port", "path", "db", "username", "password", "credential_provider", "client_name")


def address_of_client(client: Any) -> Address:
    """Read the address and credentials from a `redis.Redis` or `redis.asyncio.Redis`."""
    pool: Any = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None)
    if options is None:
        raise UsageError(
            f"expected a URL or a redis-py client, not {type(client).__name__}: "
            "clusters and sentinels are not supported yet"
        )
    used = {name: options[name] for name in _USED_OPTIONS if options.get(name) is not None}
    used |= {name: value for name, value in options.items() if name.startswith("ssl_") and value is not None}
    kind = _kind_of(pool.connection_class)
    if kind == "unix":
        return Address(kind, f"unix://{used.get('path')}", used)
    used.setdefault("host", "localhost")
    used.setdefault("port", 6379)
    return Address(kind, f"redis://{used['host']}:{used['port']}/{used.get('db', 0)}", used)


def _kind_of(connection: type) -> Kind:
    if issubclass(connection, UnixDomainSocketConnection | AsyncUnixConnection):
        return "unix"
    return "tls" if issubclass(connection, SSLConnection | AsyncSSLConnection) else "tcp"
