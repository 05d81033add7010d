"""Dedup windows: which message came first with a value, and until when that counts."""

from collections.abc import Iterator
from math import ceil

from duly.memory.ordered import ScoredIds

_KEPT_BEHIND_MS = 1000


class DedupWindows:
    """The windows of one queue. All of them go together once the last to end has ended."""

    def __init__(self) -> None:
        self._first: dict[bytes, bytes] = {}
        self._ends = ScoredIds()
        self._gone_ms = 0

    def __len__(self) -> int:
        return len(self._first)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._first)

    def first(self, value: bytes, now: int) -> bytes | None:
        """Return the id that has a value, while its window is open."""
        ends = self._ends.score(value)
        return self._first[value] if ends is not None and ends > now else None

    def open(self, value: bytes, id_: bytes, now: int, window: int, server_ms: int) -> None:
        """Open a window, or open it anew."""
        kept_ms = ceil(window / 1000) + _KEPT_BEHIND_MS
        if not self._first or self._gone_ms - server_ms < kept_ms:
            self._gone_ms = server_ms + kept_ms
        self._first[value] = id_
        self._ends.put(value, now + window)

    def free(self, value: bytes, id_: bytes) -> None:
        """Give a value back, unless a later message has it by now."""
        if self._first.get(value) == id_:
            self._close(value)

    def sweep(self, now: int, limit: int) -> int:
        """Close windows that have ended, a bounded number; tell how many."""
        ended = self._ends.up_to(now, limit)
        for _, value in ended:
            self._close(value)
        return len(ended)

    def lapse(self, server_ms: int) -> None:
        """Close everything when the last window has ended for long enough."""
        if server_ms > self._gone_ms:
            self._first.clear()
            self._ends = ScoredIds()

    def _close(self, value: bytes) -> None:
        del self._first[value]
        self._ends.remove(value)
