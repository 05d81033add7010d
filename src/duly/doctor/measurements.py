"""Measurements: clocks, round trips and blocking calls, and the server's own logs of slow commands and stalls."""

import time
from typing import Final

from duly import _lua
from duly._core.keys import ProbeKeys, head_of
from duly._core.resp import Arg
from duly.doctor.client import Client
from duly.doctor.facts import PAUSE, Missing, Skew, SlowCommand, Stall

PINGS: Final = 100
SCRIPTS: Final = 50
_CLOCK_SAMPLES: Final = 5
_TIME_LIMIT: Final = 2.0
"""Seconds for a series of round trips. A slow server gets fewer of them."""


def server_time(client: Client) -> int | Missing:
    """Return the server's time, in microseconds."""
    reply = client.ask("TIME")
    return reply if isinstance(reply, Missing) else int(reply[0]) * 1_000_000 + int(reply[1])


def compare_clocks(client: Client) -> tuple[Skew | Missing, int]:
    """Compare clocks, by the shortest of several round trips. Also returns the server's time, in microseconds."""
    best: Skew | Missing = Missing("the server does not report its time")
    server_us = time.time_ns() // 1000
    for _ in range(_CLOCK_SAMPLES):
        before = time.time()
        now = server_time(client)
        after = time.time()
        if isinstance(now, Missing):
            return now, server_us
        server_us = now
        half = (after - before) / 2
        if isinstance(best, Missing) or half < best.margin:
            best = Skew(server_us / 1_000_000 - (before + half), half)
    return best, server_us


def round_trips(client: Client, times: int, *command: Arg) -> tuple[float, ...] | Missing:
    """Time a command repeatedly. The first call is not counted."""
    reply = client.ask(*command)
    if isinstance(reply, Missing):
        return reply
    took: list[float] = []
    while len(took) < times and sum(took) < _TIME_LIMIT:
        before = time.perf_counter()
        client.ask(*command)
        took.append(time.perf_counter() - before)
    return tuple(took)


def measure_block(client: Client, namespace: str) -> float | Missing:
    """Time a blocking call on an empty key."""
    before = time.perf_counter()
    reply = client.ask("BLPOP", ProbeKeys(namespace).key("wake"), str(PAUSE))
    if isinstance(reply, Missing) and "MOVED" in reply.reason:  # the key is on another node, which is examined as well
        return PAUSE
    return reply if isinstance(reply, Missing) else time.perf_counter() - before


_DAY: Final = 86_400
_ROWS: Final = 128


def slow_commands(client: Client, namespace: str, server_us: int) -> tuple[SlowCommand, ...] | Missing:
    """Read the slow log of the last day."""
    rows = client.ask("SLOWLOG", "GET", _ROWS)
    if isinstance(rows, Missing):
        return rows
    recent = [row for row in rows if row[1] > server_us / 1_000_000 - _DAY]
    head = head_of(namespace)
    return tuple(
        SlowCommand(_command_name(row[3]), row[2] / 1_000_000, any(word.startswith(head) for word in row[3]))
        for row in recent
    )


def stalls(client: Client, server_us: int) -> tuple[Stall, ...] | Missing:
    """Read the events of the latency monitor of the last day."""
    rows = client.ask("LATENCY", "LATEST")
    if isinstance(rows, Missing):
        return rows
    recent = [row for row in rows if row[1] > server_us / 1_000_000 - _DAY]
    return tuple(Stall(row[0].decode(errors="replace"), row[3] / 1000) for row in recent)


def _command_name(words: list[bytes]) -> str:
    """Name a command, and the script if it is one of Duly."""
    name = words[0].decode(errors="replace").upper()
    if name == "EVALSHA" and len(words) > 1:
        return f"{name} {_names_by_hash().get(words[1].decode(errors='replace'), '')}".strip()
    return name


def _names_by_hash() -> dict[str, str]:
    kinds: tuple[_lua.Kind, ...] = ("queue", "topic", "group", "freeing")
    return {_lua.script(name, kind).sha: name for name in _lua.names() for kind in kinds}
