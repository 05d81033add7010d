"""The forecast of a queue: how many messages become due in each interval from now on."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from duly._core.durations import read_duration
from duly.errors import UsageError
from duly.message import Bucket
from duly.options import checked_seconds

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_MOST_STEPS: Final = 60
_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(each * _MINUTE for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR for each in (1, 2, 3, 6, 12)),
    *(each * _DAY for each in (1, 2, 7, 14, 28, 91)),
)
"""Lengths of an interval, in seconds. All are easy to read on an axis."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def checked_ahead(value: object) -> float:
    """Read how far a forecast goes: at least a second, at most ten years."""
    seconds = read_duration(value) if isinstance(value, str) else checked_seconds(value, "ahead")
    if seconds is None:
        raise UsageError(f"ahead must be a duration like '10m', '1h' or '7d', or seconds, not {value!r}")
    return checked_seconds(seconds, "ahead", least=1)


def step_of(ahead: float) -> int:
    """Return the length of the intervals in seconds: the shortest that gives at most 60 of them."""
    return next((step for step in _STEPS if ahead <= step * _MOST_STEPS), _STEPS[-1])


def buckets(ahead_us: int, step_us: int) -> Callable[[list[Any]], list[Bucket]]:
    """Return what decodes the reply to forecast."""

    def decode(reply: list[Any]) -> list[Bucket]:
        now, *counts = reply
        ends = [min((now // step_us + at) * step_us, now + ahead_us) for at in range(1, len(counts) + 1)]
        starts = [now, *ends]
        return [Bucket(_moment(start), _moment(end), n) for start, end, n in zip(starts, ends, counts, strict=False)]

    return decode


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
