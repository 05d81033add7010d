"""The course of the rates of a queue: collected while somebody looks, and drawn as a small line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from duly._port import Course, Rates
from duly.message import Stats

WIDTH: Final = 96
HEIGHT: Final = 20
MINUTES: Final = 2
_SECONDS: Final = MINUTES * 60.0
_TICK: Final = 30.0
_MARGIN: Final = 1.5
_MAX_STEP: Final = 10.0
"""Seconds between two looks, above which nothing is known of the time between them."""


def trend(values: Sequence[float], at: Sequence[float]) -> str:
    """Draw the values by their times, the newest at the right edge; 0 is at the bottom. Gaps stay empty."""
    now = at[-1] if at else 0.0
    points = [(when, value) for when, value in zip(at, values, strict=True) if now - when <= _SECONDS]
    top = max((value for _, value in points), default=0) or 1
    path, before = "", None
    for when, value in points:
        is_joined = before is not None and when - before <= _MAX_STEP
        path += f"{'L' if is_joined else 'M'}{_x(now - when):.1f} {_y(value / top):.1f}"
        path += "" if is_joined else "h0"  # a point without neighbours is seen, too
        before = when
    return path


def axis() -> str:
    """Draw the line of time, with a tick for every half minute."""
    ticks = (f"M{_x(at * _TICK):.1f} {HEIGHT}v-2" for at in range(int(_SECONDS / _TICK) + 1))
    return f"M0 {HEIGHT}H{WIDTH}" + "".join(ticks)


def _x(seconds_ago: float) -> float:
    return WIDTH * (1 - seconds_ago / _SECONDS)


def _y(part: float) -> float:
    return HEIGHT - _MARGIN - part * (HEIGHT - 2 * _MARGIN)


_MIN_STEP: Final = 1.0
"""Two looks within this time, in seconds, are one: a rate between them would be chance."""
_MAX_GAP: Final = 30.0
"""After this time without a look the course begins anew."""
_MAX_ENTRIES: Final = 200


class RateHistory:
    """The course of each queue and group that was looked at lately, by label."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[str, tuple[Rates, float]] = {}

    def add(self, label: str, stats: Stats) -> Course:
        """Take in what a look found, and give the course so far."""
        now = self._clock()
        rates, last = self._entries.pop(label, (Rates(), now))
        if now - last > _MAX_GAP:
            rates, last = Rates(), now
        if now == last or now - last >= _MIN_STEP:
            rates.add({label: stats}, now)
            last = now
        self._entries[label] = (rates, last)  # as the newest
        if len(self._entries) > _MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        return rates.of(label)
