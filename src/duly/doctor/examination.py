"""The examination of a server: reach it, collect the facts, and run every check on them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from duly._async.app import AsyncDuly
from duly._core.address import Address
from duly._core.resp import ReplyError
from duly._core.server import read_info
from duly._sync.app import Duly
from duly._sync.wire import Wire
from duly.doctor import keyspace, measurements
from duly.doctor.checks import CHECKS, network
from duly.doctor.client import Client, connected
from duly.doctor.cluster import examine_cluster
from duly.doctor.facts import Facts, Missing, Version, product_of, read_version
from duly.doctor.permissions import find_absent_commands, find_permissions
from duly.doctor.report import Report
from duly.doctor.sentinels import examine_service
from duly.errors import DulyError

SETTINGS: Final = (
    "maxmemory-policy", "maxmemory", "appendonly", "appendfsync", "save", "no-appendfsync-on-rewrite",
    "stop-writes-on-bgsave-error", "min-replicas-to-write", "min-replicas-max-lag", "timeout", "tcp-keepalive",
    "maxclients", "lua-time-limit", "busy-reply-threshold", "slowlog-log-slower-than", "latency-monitor-threshold",
    "cluster-require-full-coverage", "cluster-node-timeout",
    "zset-max-listpack-value", "hash-max-listpack-value", "zset-max-listpack-entries", "hash-max-listpack-entries",
    "zset-max-ziplist-value", "hash-max-ziplist-value", "zset-max-ziplist-entries", "hash-max-ziplist-entries",
)  # fmt: skip
"""Settings to read. They are read one by one: `CONFIG GET *` would show passwords, and old servers take one name."""


def collect(wire: Wire, address: Address, namespace: str) -> Facts:
    """Collect all facts that the checks use."""
    client = Client(wire, namespace)
    found, server_us = _collect_briefly(client, address, namespace)
    return replace(
        found,
        pings=measurements.round_trips(client, measurements.PINGS, "PING"),
        scripts=measurements.round_trips(client, measurements.SCRIPTS, "EVAL", "return 1", 0),
        blocked=measurements.measure_block(client, namespace),
        slow=measurements.slow_commands(client, namespace, server_us),
        stalls=measurements.stalls(client, server_us),
        keyspace=keyspace.examine_keys(client, namespace, server_us, in_cluster=_is_in_cluster(found.info)),
        absent=find_absent_commands(client, namespace),
        cluster=_cluster(client, found.info),
        place=address.place,
    )


def collect_of_replica(wire: Wire, address: Address, namespace: str) -> Facts:
    """Collect the facts of a replica that count if it becomes the primary. Its keys are copies."""
    found, _ = _collect_briefly(Client(wire, namespace), address, namespace)
    return found


_OF_PRIMARY: Final = Missing("only primaries are examined for this")


def _collect_briefly(client: Client, address: Address, namespace: str) -> tuple[Facts, int]:
    """Collect settings, clock and permissions. Also returns the server's time, in microseconds."""
    info = _info(client)
    user = _user(client, address)
    skew, server_us = measurements.compare_clocks(client)
    found = Facts(
        shown=address.shown,
        kind=address.kind,
        namespace=namespace,
        info=info,
        settings=_settings(client),
        skew=skew,
        pings=_OF_PRIMARY,
        scripts=_OF_PRIMARY,
        blocked=_OF_PRIMARY,
        slow=_OF_PRIMARY,
        stalls=_OF_PRIMARY,
        keyspace=_OF_PRIMARY,
        permissions=find_permissions(client, namespace, user, _version(info)),
        absent=_OF_PRIMARY,
        user=user,
    )
    return found, server_us


def _info(client: Client) -> dict[str, str] | Missing:
    """Read INFO, with the section that counts the calls of each command."""
    reply, counts = client.ask("INFO"), client.ask("INFO", "commandstats")
    if isinstance(reply, Missing):
        return reply
    return read_info(reply) | ({} if isinstance(counts, Missing) else read_info(counts))


def _version(info: Mapping[str, str] | Missing) -> Version:
    return (0, 0, 0) if isinstance(info, Missing) else read_version(product_of(info)[1])


def _cluster(client: Client, info: Mapping[str, str] | Missing) -> Mapping[str, str] | Missing:
    if not _is_in_cluster(info):
        return {}
    reply = client.ask("CLUSTER", "INFO")
    return reply if isinstance(reply, Missing) else read_info(reply)


def _is_in_cluster(info: Mapping[str, str] | Missing) -> bool:
    return not isinstance(info, Missing) and info.get("cluster_enabled", "0") == "1"


def _user(client: Client, address: Address) -> str:
    reply = client.ask("ACL", "WHOAMI")
    return reply.decode() if isinstance(reply, bytes) else str(address.options.get("username", "default"))


def _settings(client: Client) -> dict[str, str] | Missing:
    found: dict[str, str] = {}
    for name in SETTINGS:
        reply = client.ask("CONFIG", "GET", name)
        if isinstance(reply, Missing):
            return reply
        found |= {
            key.decode(): value.decode(errors="replace") for key, value in zip(reply[0::2], reply[1::2], strict=True)
        }
    return found


def examine(app: Duly | AsyncDuly) -> Report:
    """Examine the server and the namespace of a sync or async app, even a server that the app would refuse.

    The call blocks. It sends some hundred short commands, scans a bounded number of keys, and changes nothing.
    A server that cannot be reached is a finding, not an error.
    """
    address = app._address
    if address.kind == "memory":
        return Report(address.shown, (network.nothing_to_examine(address),))
    if address.topology == "cluster":
        return examine_cluster(address, app.namespace, collect, collect_of_replica)
    if address.topology == "sentinel":
        return examine_service(address, app.namespace, collect, collect_of_replica)
    try:
        with connected(address) as wire:
            facts = collect(wire, address, app.namespace)
    except (ReplyError, OSError, DulyError) as error:
        return Report(address.shown, (network.unreachable(address, error),))
    return Report(address.shown, (network.reachable(address), *(check(facts) for check in CHECKS.values())))
