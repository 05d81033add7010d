"""Rates of a queue over the last minutes: collected while pages are open, and drawn as small lines."""

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
"""Longest gap in seconds between two samples that are joined by a line."""


def trend(values: Sequence[float], at: Sequence[float]) -> str:
    """Draw values over time as an SVG path, the newest at the right edge and 0 at the bottom. Gaps stay empty."""
    now = at[-1] if at else 0.0
    points = [(when, value) for when, value in zip(at, values, strict=True) if now - when <= _SECONDS]
    top = max((value for _, value in points), default=0) or 1
    path, before = "", None
    for when, value in points:
        is_joined = before is not None and when - before <= _MAX_STEP
        path += f"{'L' if is_joined else 'M'}{_x(now - when):.1f} {_y(value / top):.1f}"
        path += "" if is_joined else "h0"  # a point without neighbours stays visible
        before = when
    return path


def axis() -> str:
    """Draw the time axis, with a tick for every half minute."""
    ticks = (f"M{_x(at * _TICK):.1f} {HEIGHT}v-2" for at in range(int(_SECONDS / _TICK) + 1))
    return f"M0 {HEIGHT}H{WIDTH}" + "".join(ticks)


def _x(seconds_ago: float) -> float:
    return WIDTH * (1 - seconds_ago / _SECONDS)


def _y(part: float) -> float:
    return HEIGHT - _MARGIN - part * (HEIGHT - 2 * _MARGIN)


_MIN_STEP: Final = 1.0
"""Minimum seconds between two samples. A rate over less time would be noise."""
_MAX_GAP: Final = 30.0
"""After this many seconds without a sample, the history starts from the beginning."""
_MAX_ENTRIES: Final = 200


class RateHistory:
    """The rates of the queues and groups that were shown recently, by label."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[str, tuple[Rates, float]] = {}

    def add(self, label: str, stats: Stats) -> Course:
        """Add a sample and return the rates so far."""
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
