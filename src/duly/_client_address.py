"""The address of a redis-py client that a user passes, versions 5 to 8. Duly does not use the client's connections.

redis-py is optional. Its classes are recognised by their names, so that this module does not import it.
"""

from collections.abc import Mapping
from typing import Any, Final

from duly._core.address import Address, Kind
from duly._core.topology import Node
from duly.errors import UsageError

_USED_OPTIONS: Final = ("host", "port", "path", "db", "username", "password", "client_name")


def address_of_client(client: Any) -> Address:
    """Read the address and credentials from a `redis.Redis`, `redis.asyncio.Redis` or `RedisCluster`.

    The client may be one of a `Sentinel`.
    """
    if isinstance(nodes := getattr(getattr(client, "nodes_manager", None), "startup_nodes", None), Mapping):
        return _address_of_cluster(client.nodes_manager, list(nodes.values()))
    pool: Any = getattr(client, "connection_pool", None)
    if not isinstance(getattr(pool, "connection_kwargs", None), Mapping):
        raise UsageError(f"expected a URL or a redis-py client, not {type(client).__name__}")
    if hasattr(pool, "sentinel_manager"):
        return _address_by_sentinels(pool)
    kind, used = _kind_of(pool.connection_class), _options_of(pool.connection_kwargs)
    if kind == "unix":
        return Address(kind, f"unix://{used.get('path')}", used)
    used.setdefault("host", "localhost")
    used.setdefault("port", 6379)
    return Address(kind, f"redis://{used['host']}:{used['port']}/{used.get('db', 0)}", used)


def _address_of_cluster(manager: Any, nodes: list[Any]) -> Address:
    options = manager.connection_kwargs
    kind = _kind_of(options.get("connection_class", object))
    if options.get("ssl"):  # as the client for threads keeps it
        kind = "tls"
    used = {name: value for name, value in _options_of(options).items() if name not in ("host", "port", "path", "db")}
    seeds = tuple(Node(str(node.host), int(node.port)) for node in nodes)
    return Address(kind, f"redis+cluster://{','.join(map(str, seeds))}", used, topology="cluster", seeds=seeds)


def _address_by_sentinels(pool: Any) -> Address:
    """Read the address of a client that `Sentinel.master_for` returns."""
    service = str(pool.service_name)
    if not pool.is_master:
        raise UsageError(f"a client of the replicas of {service!r} cannot write: pass one of master_for({service!r})")
    pools = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    kind = _kind_of(pool.connection_class)
    if any(_kind_of(each.connection_class) != kind for each in pools):
        raise UsageError("the sentinels and the servers must all use TLS, or none of them")
    at_sentinels = [_options_of(each.connection_kwargs) for each in pools]
    seeds = tuple(Node(each.pop("host"), each.pop("port")) for each in at_sentinels)
    shown = f"redis+sentinel://{','.join(map(str, seeds))}/{service}"
    return Address(
        kind,
        shown,
        _options_of(pool.connection_kwargs),
        topology="sentinel",
        seeds=seeds,
        service=service,
        sentinel_options=at_sentinels[0],  # redis-py gives all sentinels the same options
    )


def _options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    used = {name: options[name] for name in _USED_OPTIONS if options.get(name) is not None}
    used |= {name: value for name, value in options.items() if name.startswith("ssl_") and value is not None}
    if "ssl_cert_reqs" in options and options["ssl_cert_reqs"] is None:
        used["ssl_cert_reqs"] = "none"  # as redis-py reads it
    if (provider := options.get("credential_provider")) is not None:
        used["credentials"] = provider.get_credentials
    return used


def _kind_of(connection: type) -> Kind:
    names = {base.__name__ for base in connection.__mro__}
    if "UnixDomainSocketConnection" in names:
        return "unix"
    return "tls" if "SSLConnection" in names else "tcp"
