"""Lateness and handling times of one queue, collected until the next report to the history on the server."""

from bisect import bisect_left
from typing import Final

from duly._core import codec
from duly._core.history import Sums
from duly._core.replies import Claimed
from duly.message import Histogram

_BOUNDS_US: Final = [round(bound * 1_000_000) for bound in Histogram.BOUNDS]


class _Collected:
    """Times in the buckets of a histogram, in microseconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_US) + 1)
        self.total = 0

    def add(self, us: int) -> None:
        self.counts[bisect_left(_BOUNDS_US, us)] += 1
        self.total += us

    def written(self) -> str:
        return Sums(self.total, tuple(self.counts)).written()


class Times:
    """The times since the last report. Only the event loop uses it."""

    __slots__ = ("_handling", "_is_group", "_lateness", "has_any")

    def __init__(self, *, is_group: bool) -> None:
        self._is_group = is_group
        self._begin()

    def _begin(self) -> None:
        self._lateness, self._handling = _Collected(), _Collected()
        self.has_any: bool = False

    def add_claimed(self, claimed: Claimed) -> None:
        """Note the lateness of each delivery. Both times are by the server's clock."""
        fence, add = claimed.fence, self._lateness.add
        for record, counts in zip(claimed.records, claimed.counts, strict=True):
            sent, due = codec.read_stamps(record)
            if counts:
                due = codec.read_counts(counts).due or due
            elif self._is_group:  # an entry is due when it is published; its due time is when the group has read it
                due = sent
            add(max(fence - due, 0))
        self.has_any = self.has_any or bool(claimed.records)

    def add_handling(self, seconds: float) -> None:
        """Note the time that a handler took."""
        self._handling.add(round(seconds * 1_000_000))
        self.has_any = True

    def take(self) -> tuple[str, str]:
        """Return lateness and handling times as the server stores them, and begin again."""
        texts = self._lateness.written(), self._handling.written()
        self._begin()
        return texts
