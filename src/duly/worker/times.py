"""Lateness and handling times of one queue, collected until the next report to the history on the server."""

from bisect import bisect_left
from collections.abc import Sequence
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

    def add(self, times: Sequence[float]) -> None:
        counts = self.counts
        for us in times:
            counts[bisect_left(_BOUNDS_US, us)] += 1
        self.total += round(sum(times))

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
        lateness: list[float] = []
        for record, counts in zip(claimed.records, claimed.counts, strict=True):
            sent, due = codec.STAMPS.unpack_from(record)
            if counts:
                due = codec.read_counts(counts).due or due
            elif self._is_group:  # an entry is due when it is published; its due time is when the group has read it
                due = sent
            lateness.append(max(claimed.fence - due, 0))
        self._lateness.add(lateness)
        self.has_any = self.has_any or bool(lateness)

    def add_handling(self, seconds: Sequence[float]) -> None:
        """Note the times that handlers took."""
        self._handling.add([each * 1_000_000 for each in seconds])
        self.has_any = self.has_any or bool(seconds)

    def take(self) -> tuple[str, str]:
        """Return lateness and handling times as the server stores them, and begin again."""
        texts = self._lateness.written(), self._handling.written()
        self._begin()
        return texts
