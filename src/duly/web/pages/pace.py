"""How fast the queues go whose pages somebody looks at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from duly._core.rates import Course, Rates
from duly.message import Stats

_SHORTEST: Final = 1.0
"""Two looks within this time, in seconds, are one: a rate between them would be chance."""
_LONGEST: Final = 30.0
"""After this time without a look the course begins anew."""
_MOST_KEPT: Final = 200


class Paces:
    """The course of each queue and group that was looked at lately, by label."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[Rates, float]] = {}

    def course(self, label: str, stats: Stats) -> Course:
        """Take in what a look found, and give the course so far."""
        now = self._clock()
        rates, last = self._kept.pop(label, (Rates(), now))
        if now - last > _LONGEST:
            rates, last = Rates(), now
        if now == last or now - last >= _SHORTEST:
            rates.add({label: stats}, now)
            last = now
        self._kept[label] = (rates, last)  # as the newest
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return rates.of(label)
