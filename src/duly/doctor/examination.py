"""The examination of a server: reach it, collect the facts, and have every check judge them."""

from collections.abc import Mapping
from typing import Final

from redis.exceptions import RedisError

from duly._async.app import AsyncDuly
from duly._core.address import Address
from duly._core.server import read_info
from duly._sync.app import Duly
from duly._sync.wire import Wire
from duly.doctor import keyspace, measurements
from duly.doctor.checks import CHECKS, network
from duly.doctor.client import Asker, reached
from duly.doctor.facts import Facts, Missing, Version, product_of, read_version
from duly.doctor.permissions import find_absent, find_rights
from duly.doctor.report import Report
from duly.errors import DulyError

SETTINGS: Final = (
    "maxmemory-policy", "maxmemory", "appendonly", "appendfsync", "save", "no-appendfsync-on-rewrite",
    "stop-writes-on-bgsave-error", "min-replicas-to-write", "min-replicas-max-lag", "timeout", "tcp-keepalive",
    "maxclients", "lua-time-limit", "busy-reply-threshold", "slowlog-log-slower-than", "latency-monitor-threshold",
    "zset-max-listpack-value", "hash-max-listpack-value", "zset-max-listpack-entries", "hash-max-listpack-entries",
    "zset-max-ziplist-value", "hash-max-ziplist-value", "zset-max-ziplist-entries", "hash-max-ziplist-entries",
)  # fmt: skip
"""By name, one at a time: `CONFIG GET *` would show passwords, and old servers take one name only."""


def collect(wire: Wire, address: Address, namespace: str) -> Facts:
    """Ask for everything that the checks go by."""
    asker = Asker(wire, namespace)
    info = _info(asker)
    user = _user(asker, address)
    skew, server_us = measurements.compare_clocks(asker)
    return Facts(
        shown=address.shown,
        kind=address.kind,
        namespace=namespace,
        info=info,
        settings=_settings(asker),
        skew=skew,
        pings=measurements.round_trips(asker, measurements.PINGS, "PING"),
        scripts=measurements.round_trips(asker, measurements.SCRIPTS, "EVAL", "return 1", 0),
        blocked=measurements.wait_in_vain(asker, namespace),
        slow=measurements.slow_commands(asker, namespace, server_us),
        stalls=measurements.stalls(asker, server_us),
        keyspace=keyspace.look(asker, namespace, server_us),
        rights=find_rights(asker, namespace, user, _version(info)),
        absent=find_absent(asker, namespace),
        cluster=_cluster(asker, info),
        user=user,
        place=address.place,
    )


def _info(asker: Asker) -> dict[str, str] | Missing:
    """Ask for INFO. How often each command ran is in a section of its own."""
    told, counts = asker.ask("INFO"), asker.ask("INFO", "commandstats")
    if isinstance(told, Missing):
        return told
    return read_info(told) | ({} if isinstance(counts, Missing) else read_info(counts))


def _version(info: Mapping[str, str] | Missing) -> Version:
    return (0, 0, 0) if isinstance(info, Missing) else read_version(product_of(info)[1])


def _cluster(asker: Asker, info: Mapping[str, str] | Missing) -> Mapping[str, str] | Missing:
    if isinstance(info, Missing) or info.get("cluster_enabled", "0") != "1":
        return {}
    told = asker.ask("CLUSTER", "INFO")
    return told if isinstance(told, Missing) else read_info(told)


def _user(asker: Asker, address: Address) -> str:
    told = asker.ask("ACL", "WHOAMI")
    return told.decode() if isinstance(told, bytes) else str(address.options.get("username", "default"))


def _settings(asker: Asker) -> dict[str, str] | Missing:
    found: dict[str, str] = {}
    for name in SETTINGS:
        told = asker.ask("CONFIG", "GET", name)
        if isinstance(told, Missing):
            return told
        found |= {
            key.decode(): value.decode(errors="replace") for key, value in zip(told[0::2], told[1::2], strict=True)
        }
    return found


# The examination itself: reach the server, collect the facts, have every check look at them.


def examine(app: Duly | AsyncDuly) -> Report:
    """Examine the server and the namespace of an app, also a server that it would refuse. Blocks, for either colour.

    Takes a moment: some hundred short questions and a bounded walk through the keys of the namespace. Changes
    nothing. A server that cannot be reached is one finding, not an error.
    """
    address = app._address
    if address.kind == "memory":
        return Report(address.shown, (network.nothing_to_examine(address),))
    try:
        with reached(address) as wire:
            facts = collect(wire, address, app.namespace)
    except (RedisError, OSError, DulyError) as error:
        return Report(address.shown, (network.unreachable(address, error),))
    return Report(address.shown, (network.reachable(address), *(check(facts) for check in CHECKS.values())))
