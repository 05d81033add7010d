"""Asks the server for all facts. Short questions, few of them, and nothing is changed."""

import time
from typing import Final

from duly import _lua
from duly._core.address import Address
from duly._core.call import Arg
from duly._core.keys import ProbeKeys, head_of
from duly._core.server import read_info
from duly._sync.wire import Wire
from duly.doctor import keyspace
from duly.doctor.acting import find_absent, find_rights
from duly.doctor.asking import Asker
from duly.doctor.facts import PAUSE, Facts, Missing, Skew, SlowCommand, Stall
from duly.doctor.flaws import read_version

SETTINGS: Final = (
    "maxmemory-policy", "maxmemory", "appendonly", "appendfsync", "save", "no-appendfsync-on-rewrite",
    "stop-writes-on-bgsave-error", "min-replicas-to-write", "min-replicas-max-lag", "timeout", "tcp-keepalive",
    "maxclients", "lua-time-limit", "busy-reply-threshold", "slowlog-log-slower-than", "latency-monitor-threshold",
    "zset-max-listpack-value", "hash-max-listpack-value", "zset-max-listpack-entries", "hash-max-listpack-entries",
    "zset-max-ziplist-value", "hash-max-ziplist-value", "zset-max-ziplist-entries", "hash-max-ziplist-entries",
)  # fmt: skip
"""By name, one at a time: `CONFIG GET *` would show passwords, and old servers take one name only."""

_PINGS: Final = 100
_SCRIPTS: Final = 50
_LONGEST: Final = 2.0
"""Seconds that measuring may take; a slow server is measured less often."""
_DAY: Final = 86_400
_ROWS: Final = 128


def collect(wire: Wire, address: Address, namespace: str) -> Facts:
    """Ask for everything that the checks go by."""
    asker = Asker(wire, namespace)
    told = asker.ask("INFO")
    info = told if isinstance(told, Missing) else read_info(told)
    version = (0, 0, 0) if isinstance(info, Missing) else _version(info)
    user = _user(asker, address)
    skew, server_us = _skew(asker)
    return Facts(
        shown=address.shown,
        kind=address.kind,
        namespace=namespace,
        info=info,
        settings=_settings(asker),
        skew=skew,
        pings=_round_trips(asker, _PINGS, "PING"),
        scripts=_round_trips(asker, _SCRIPTS, "EVAL", "return 1", 0),
        blocked=_blocked(asker, namespace),
        slow=_slow(asker, namespace, server_us),
        stalls=_stalls(asker, server_us),
        keyspace=keyspace.look(asker, namespace, server_us),
        rights=find_rights(asker, namespace, user, version),
        absent=find_absent(asker, namespace),
        user=user,
        place=address.place,
    )


def _version(info: dict[str, str]) -> tuple[int, int, int]:
    return read_version(info.get("valkey_version") or info.get("redis_version", "0"))


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


def _skew(asker: Asker) -> tuple[Skew | Missing, int]:
    """Compare clocks; the shortest of some round trips says it best. Also the server's time, in microseconds."""
    best: Skew | Missing = Missing("the server does not tell the time")
    server_us = time.time_ns() // 1000
    for _ in range(5):
        before = time.time()
        told = asker.ask("TIME")
        after = time.time()
        if isinstance(told, Missing):
            return told, server_us
        server_us = int(told[0]) * 1_000_000 + int(told[1])
        half = (after - before) / 2
        if isinstance(best, Missing) or half < best.give_or_take:
            best = Skew(server_us / 1_000_000 - (before + half), half)
    return best, server_us


def _round_trips(asker: Asker, times: int, *command: Arg) -> tuple[float, ...] | Missing:
    """Measure a command, some times; the first is not counted."""
    told = asker.ask(*command)
    if isinstance(told, Missing):
        return told
    took: list[float] = []
    while len(took) < times and sum(took) < _LONGEST:
        before = time.perf_counter()
        asker.ask(*command)
        took.append(time.perf_counter() - before)
    return tuple(took)


def _blocked(asker: Asker, namespace: str) -> float | Missing:
    before = time.perf_counter()
    told = asker.ask("BLPOP", ProbeKeys(namespace).key("wake"), str(PAUSE))
    return told if isinstance(told, Missing) else time.perf_counter() - before


def _slow(asker: Asker, namespace: str, server_us: int) -> tuple[SlowCommand, ...] | Missing:
    rows = asker.ask("SLOWLOG", "GET", _ROWS)
    if isinstance(rows, Missing):
        return rows
    recent = [row for row in rows if row[1] > server_us / 1_000_000 - _DAY]
    head = head_of(namespace)
    return tuple(
        SlowCommand(_said(row[3]), row[2] / 1_000_000, any(word.startswith(head) for word in row[3])) for row in recent
    )


def _said(words: list[bytes]) -> str:
    """Name a command, and of a script of ours which it is."""
    name = words[0].decode(errors="replace").upper()
    if name == "EVALSHA" and len(words) > 1:
        return f"{name} {_names_by_hash().get(words[1].decode(errors='replace'), '')}".strip()
    return name


def _names_by_hash() -> dict[str, str]:
    kinds: tuple[_lua.Kind, ...] = ("queue", "topic", "group", "freeing")
    return {_lua.script(name, kind).sha: name for name in _lua.names() for kind in kinds}


def _stalls(asker: Asker, server_us: int) -> tuple[Stall, ...] | Missing:
    rows = asker.ask("LATENCY", "LATEST")
    if isinstance(rows, Missing):
        return rows
    recent = [row for row in rows if row[1] > server_us / 1_000_000 - _DAY]
    return tuple(Stall(row[0].decode(errors="replace"), row[3] / 1000) for row in recent)
