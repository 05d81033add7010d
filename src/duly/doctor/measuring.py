"""What can only be measured: the server's clock against ours, round trips, and a wait."""

import time
from typing import Final

from duly._core.call import Arg
from duly._core.keys import ProbeKeys
from duly.doctor.asking import Asker
from duly.doctor.facts import PAUSE, Missing, Skew

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
