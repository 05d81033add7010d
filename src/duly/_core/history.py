"""The history of a queue: reads the points that scripts store, and computes what happened in each interval.

A point has the counters before the first send or claim of its minute. So nothing was sent or claimed between the
minute of a point and the next point, and what the two differ by belongs to the minute of the first.
"""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

from duly._core.durations import read_duration
from duly.errors import UsageError
from duly.message import Histogram, HistoryPoint
from duly.options import checked_seconds

MINUTE_US: Final = 60_000_000
_MINUTE: Final = 60

COUNTED: Final = ("sent", "delivered", "acked", "retried", "crashed", "buried", "expired")
"""The counters of a point, by their fields in `meta`."""

_PREFIX: Final = b"history:"
"""Begins the fields of the history in the reply to stats."""
_NUMBERS: Final = 3 + len(COUNTED)
"""Numbers at the beginning of a point. The sums of times follow."""


class Ring(NamedTuple):
    """A ring of points: one for each interval, the oldest is overwritten."""

    name: str
    minutes: int
    size: int

    @property
    def seconds(self) -> int:
        """How far back it goes."""
        return self.minutes * self.size * 60


RINGS: Final = (Ring("m", 1, 60), Ring("t", 10, 144), Ring("h", 60, 168))
"""An hour by minutes, a day by ten minutes, a week by hours."""
LONGEST: Final = RINGS[-1].seconds
"""Seconds of history."""


def checked_span(value: object) -> float:
    """Read how much history is asked for: at least a minute, at most a week."""
    seconds = read_duration(value) if isinstance(value, str) else checked_seconds(value, "history")
    if seconds is None:
        raise UsageError(f"history must be a duration like '10m', '1h' or '7d', or seconds, not {value!r}")
    if not _MINUTE <= seconds <= LONGEST:
        raise UsageError(f"history must be a minute at least and a week at most, not {value!r}")
    return seconds


def ring_of(seconds: float) -> Ring:
    """Choose the finest ring that goes back far enough."""
    return next((ring for ring in RINGS if seconds <= ring.seconds), RINGS[-1])


class Sums(NamedTuple):
    """Times since the queue was created: their total in microseconds, and the number in each bucket."""

    total: int = 0
    counts: tuple[int, ...] = ()

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Read the text that the server stores."""
        total, *counts = map(int, text.split(b",")) if text else (0,)
        return cls(total, tuple(counts))

    def written(self) -> str:
        """Write the text."""
        return ",".join(map(str, (self.total, *self.counts)))

    def histogram(self, since: "Sums | None" = None) -> Histogram:
        """Return the times, or those that were added since."""
        before = since or Sums()
        counts = [0] * len(Histogram.empty().counts)
        for at, count in enumerate(self.counts[: len(counts)]):
            counts[at] = max(count - (before.counts[at] if at < len(before.counts) else 0), 0)
        return Histogram(tuple(counts), max(self.total - before.total, 0) / 1e6)


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters at one moment. A depth of -1 is unknown; an age of -1: nothing was due, or both are unknown."""

    at: int
    counted: tuple[int, ...]
    depth: int
    oldest_age: int
    lateness: Sums
    handling: Sums

    @property
    def minute(self) -> int:
        """The minute that the sample stands before."""
        return self.at // MINUTE_US

    @property
    def knows_age(self) -> bool:
        """Whether it is known for how long the oldest message had been due. Of some samples, only the age is known."""
        return self.depth >= 0 or self.oldest_age >= 0

    def backlog_at(self, us: int) -> tuple[int | None, float | None]:
        """Return depth and age at an earlier moment, if nothing was sent or claimed between."""
        if not self.knows_age:
            return None, None
        depth = None if self.depth < 0 else self.depth
        if self.oldest_age < 0:
            return depth, 0.0
        age = us - (self.at - self.oldest_age)
        if age >= 0:
            return depth, age / 1e6
        return None if depth is None else 0, 0.0

    def with_age_from(self, later: Self) -> Self:
        """Infer an unknown age from a later sample, if nothing but sends was counted between.

        The oldest message that was due then had been due before. The depth remains unknown, because nothing shows how
        many of the messages became due between.
        """
        if self.knows_age or not later.knows_age or self.counted[1:] != later.counted[1:]:
            return self
        due_since = later.at - max(later.oldest_age, 0)
        return replace(self, oldest_age=max(self.at - due_since, 0))


def read_sample(text: bytes) -> Sample | None:
    """Read a point; None: another program has overwritten it."""
    words = text.split()
    if len(words) != _NUMBERS + 2:
        return None
    try:
        numbers = [int(word) for word in words[:_NUMBERS]]
        sums = [Sums.read(word) for word in words[_NUMBERS:]]
    except ValueError:
        return None
    return Sample(numbers[0], tuple(numbers[1:-2]), numbers[-2], numbers[-1], *sums)


def sums_of(fields: Mapping[bytes, bytes], name: str) -> Sums:
    """Read the sums of `lateness` or `handling` from the reply to stats."""
    try:
        return Sums.read(fields.get(_PREFIX + name.encode(), b""))
    except ValueError:
        return Sums()


def samples(fields: Mapping[bytes, bytes], now: Sample) -> list[Sample]:
    """Read the points of a ring from the reply to stats, the oldest first. `now` is the last.

    Points that do not know the age of their backlog get it from later ones, if possible.
    """
    points = (read_sample(value) for name, value in fields.items() if _is_place(name))
    earlier = {sample.minute: sample for sample in points if sample is not None and sample.at <= now.at}
    found = [now]
    for minute in sorted(earlier, reverse=True):
        found.append(earlier[minute].with_age_from(found[-1]))
    return found[::-1]


def _is_place(name: bytes) -> bool:
    place = name.removeprefix(_PREFIX)
    return place != name and place[:1] in b"mth" and place[1:].isdigit()


def points(found: Sequence[Sample], seconds: float) -> tuple[HistoryPoint, ...]:
    """Return one point for each interval of the last seconds, the oldest first. The last interval is not over yet."""
    if len(found) == 1:
        return ()
    now, step = found[-1], ring_of(seconds).minutes
    this = now.minute // step * step
    first = max(this - (int(seconds) // 60 // step - 1) * step, found[0].minute // step * step)
    minutes = [sample.minute for sample in found[:-1]]

    def before(minute: int) -> Sample:
        """Return the first sample that was taken in this minute or later."""
        at = bisect.bisect_left(minutes, minute)
        return found[at]

    return tuple(_point(before(at), before(at + step), at, step) for at in range(first, this + 1, step))


def _point(begin: Sample, end: Sample, minute: int, step: int) -> HistoryPoint:
    counted = dict(zip(COUNTED, _differences(begin.counted, end.counted), strict=True))
    depth, oldest_age = begin.backlog_at(minute * MINUTE_US)
    return HistoryPoint(
        start=_moment(minute),
        end=_moment(minute + step),
        sent=counted["sent"],
        delivered=counted["delivered"],
        acked=counted["acked"],
        retried=counted["retried"],
        crashed=counted["crashed"],
        dead=counted["buried"],
        expired=counted["expired"],
        depth=depth,
        oldest_age=oldest_age,
        lateness=end.lateness.histogram(begin.lateness),
        handling=end.handling.histogram(begin.handling),
    )


def _differences(begin: Iterable[int], end: Iterable[int]) -> list[int]:
    """Return by how much counters have grown. An audit may have removed one that could not be read."""
    return [max(after - before, 0) for before, after in zip(begin, end, strict=True)]


def _moment(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)
