"""What can only be measured, and what the server has noted of the last day."""

import time
from typing import Final

from duly import _lua
from duly._core.call import Arg
from duly._core.keys import ProbeKeys, head_of
from duly.doctor.client import Asker
from duly.doctor.facts import PAUSE, Missing, Skew, SlowCommand, Stall

PINGS: Final = 100
SCRIPTS: Final = 50
_LOOKS: Final = 5
_LONGEST: Final = 2.0
"""Seconds that round trips may be measured; a slow server is asked less often."""


def compare_clocks(asker: Asker) -> tuple[Skew | Missing, int]:
    """Compare clocks; the shortest of some round trips says it best. Also the server's time, in microseconds."""
    best: Skew | Missing = Missing("the server does not tell the time")
    server_us = time.time_ns() // 1000
    for _ in range(_LOOKS):
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


def round_trips(asker: Asker, times: int, *command: Arg) -> tuple[float, ...] | Missing:
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


def wait_in_vain(asker: Asker, namespace: str) -> float | Missing:
    """Wait for a moment on a key that nobody fills."""
    before = time.perf_counter()
    told = asker.ask("BLPOP", ProbeKeys(namespace).key("wake"), str(PAUSE))
    return told if isinstance(told, Missing) else time.perf_counter() - before


# What the server has noted of the last day: its slow log, and what its latency monitor saw.

_DAY: Final = 86_400
_ROWS: Final = 128


def slow_commands(asker: Asker, namespace: str, server_us: int) -> tuple[SlowCommand, ...] | Missing:
    """Read the slow log."""
    rows = asker.ask("SLOWLOG", "GET", _ROWS)
    if isinstance(rows, Missing):
        return rows
    recent = [row for row in rows if row[1] > server_us / 1_000_000 - _DAY]
    head = head_of(namespace)
    return tuple(
        SlowCommand(_said(row[3]), row[2] / 1_000_000, any(word.startswith(head) for word in row[3])) for row in recent
    )


def stalls(asker: Asker, server_us: int) -> tuple[Stall, ...] | Missing:
    """Read what the latency monitor noted."""
    rows = asker.ask("LATENCY", "LATEST")
    if isinstance(rows, Missing):
        return rows
    recent = [row for row in rows if row[1] > server_us / 1_000_000 - _DAY]
    return tuple(Stall(row[0].decode(errors="replace"), row[3] / 1000) for row in recent)


def _said(words: list[bytes]) -> str:
    """Name a command, and of a script of ours which it is."""
    name = words[0].decode(errors="replace").upper()
    if name == "EVALSHA" and len(words) > 1:
        return f"{name} {_names_by_hash().get(words[1].decode(errors='replace'), '')}".strip()
    return name


def _names_by_hash() -> dict[str, str]:
    kinds: tuple[_lua.Kind, ...] = ("queue", "topic", "group", "freeing")
    return {_lua.script(name, kind).sha: name for name in _lua.names() for kind in kinds}
