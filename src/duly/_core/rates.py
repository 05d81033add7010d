"""Rates of queues: messages per second between two samples of stats, and their history as a sparkline."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from duly.message import Stats

_BARS: Final = "▁▂▃▄▅▆▇█"
_ASCII_BARS: Final = "_.-=+*#@"
_KEPT: Final = 60


@dataclass
class Course:
    """The rates of one queue over the last samples. The three lists are equally long."""

    at: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """The time of each sample, in seconds."""
    sent: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    acked: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))


class Rates:
    """Sent and acked messages per second, by queue."""

    def __init__(self) -> None:
        self._last: Mapping[str, Stats] = {}
        self._last_at = 0.0
        self._courses: dict[str, Course] = {}

    def add(self, found: Mapping[str, Stats], at: float) -> None:
        """Add a sample, taken at a time in seconds. A queue needs two samples for its first rate."""
        passed = at - self._last_at
        for name, stats in found.items():
            course = self._courses.setdefault(name, Course())
            if (before := self._last.get(name)) is not None and passed > 0:
                course.at.append(at)
                # A queue that was deleted in the meantime counts from 0 again.
                course.sent.append(max(0, stats.sent - before.sent) / passed)
                course.acked.append(max(0, stats.acked - before.acked) / passed)
        self._courses = {name: self._courses[name] for name in found}
        self._last, self._last_at = dict(found), at

    def of(self, name: str) -> Course:
        """Return the rates of a queue."""
        return self._courses.get(name) or Course()

    def total(self) -> Course:
        """Return the sum over all queues, as far back as the longest history."""
        courses = list(self._courses.values())
        total = Course()
        total.at.extend(max(courses, key=lambda each: len(each.at), default=total).at)
        total.sent.extend(_sums([each.sent for each in courses]))
        total.acked.extend(_sums([each.acked for each in courses]))
        return total


def _sums(rows: Sequence[Sequence[float]]) -> Iterable[float]:
    longest = max(map(len, rows), default=0)
    return (sum(row[-back] for row in rows if len(row) >= back) for back in range(longest, 0, -1))


def sparkline(values: Iterable[float], width: int, *, is_unicode: bool = True) -> str:
    """Draw the last `width` values as bars, the largest as the highest; 0 is always the lowest."""
    shown = list(values)[-width:]
    bars = _BARS if is_unicode else _ASCII_BARS
    top = max(shown, default=0) or 1
    return "".join(bars[min(len(bars) - 1, int(value / top * (len(bars) - 1) + 0.999))] for value in shown).rjust(width)
