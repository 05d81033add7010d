"""Dedup windows: the first message with each value, and the end of its window."""

from collections.abc import Iterator
from math import ceil

from duly.memory.ordered import ScoredIds

_KEPT_BEHIND_MS = 1000


class DedupWindows:
    """The windows of one queue. All of them are removed once the last one has ended."""

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
        """Open a window, or restart it."""
        kept_ms = ceil(window / 1000) + _KEPT_BEHIND_MS
        if not self._first or self._gone_ms - server_ms < kept_ms:
            self._gone_ms = server_ms + kept_ms
        self._first[value] = id_
        self._ends.put(value, now + window)

    def free(self, value: bytes, id_: bytes) -> None:
        """Free a value, unless a later message has it now."""
        if self._first.get(value) == id_:
            self._close(value)

    def sweep(self, now: int, limit: int) -> int:
        """Close windows that have ended, up to a limit; return how many."""
        ended = self._ends.up_to(now, limit)
        for _, value in ended:
            self._close(value)
        return len(ended)

    def lapse(self, server_ms: int) -> None:
        """Close all windows once the last one has ended long enough ago."""
        if server_ms > self._gone_ms:
            self._first.clear()
            self._ends = ScoredIds()

    def _close(self, value: bytes) -> None:
        del self._first[value]
        self._ends.remove(value)
