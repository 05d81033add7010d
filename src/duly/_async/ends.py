"""Waits for the ends of messages. All waits for one queue share one connection.

One of the waits reads the stream `ends` for all of them. When it stops, another one continues at its position.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Self

from duly._async.primitives import AsyncBell

Position = tuple[int, int]
"""The id of a stream entry: its time and its sequence number."""

EndEntries = list[tuple[str, str]]
"""Ids of entries of the stream `ends`, each with the id of its message."""

Read = Callable[[str, float], Awaitable[EndEntries]]
"""Reads the entries after an entry, and waits up to the given number of seconds for the first."""


class AsyncEnds:
    """All waits for ends of messages of one queue, in this process. Threads or tasks may share it."""

    def __init__(self, read: Read) -> None:
        self.read = read
        self._lock = threading.Lock()
        self._watches: defaultdict[str, list[AsyncEndWatch]] = defaultdict(list)
        self._reader: AsyncEndWatch | None = None
        self._position: Position | None = None
        """The last entry that was read; None: there are no waits."""

    def watch(self, id: str) -> "AsyncEndWatch":  # noqa: A002
        """Return a watch for the end of a message. Enter it before the first check, or an end in between is missed."""
        return AsyncEndWatch(self, id)

    def add(self, watch: "AsyncEndWatch") -> None:
        """Notify a watch of entries from now on."""
        with self._lock:
            self._watches[watch.id].append(watch)

    def remove(self, watch: "AsyncEndWatch") -> None:
        """Stop notifying a watch. If it was to read next, another watch does."""
        with self._lock:
            those = self._watches[watch.id]
            those.remove(watch)
            if not those:
                del self._watches[watch.id]
            if not self._watches:
                self._position = None
        self._find_reader()

    def is_to_read(self, watch: "AsyncEndWatch", after: str) -> bool:
        """Make a watch the reader if there is none. It starts where the last reader stopped, or at `after`."""
        with self._lock:
            if self._reader is not None:
                return False
            self._reader = watch
            begin = _position(after)
            # `begin` is earlier if the stream has expired and the server's clock has stepped back.
            self._position = begin if self._position is None else min(self._position, begin)
            return True

    def stop_reading(self) -> None:
        """Let another watch read."""
        with self._lock:
            self._reader = None
        self._find_reader()

    @property
    def position(self) -> str:
        """The entry after which to read."""
        ms, number = self._position or (0, 0)
        return f"{ms}-{number}"

    def notify(self, entries: EndEntries) -> None:
        """Wake the watches of the messages that have ended."""
        with self._lock:
            self._position = _position(entries[-1][0])
            found = [watch for _, id_ in entries for watch in self._watches.get(id_, ())]
        for watch in found:
            watch.bell.ring()

    def ring_all(self) -> None:
        """Wake all watches, because the app is closed."""
        with self._lock:
            found = [watch for those in self._watches.values() for watch in those]
        for watch in found:
            watch.bell.ring()

    def _find_reader(self) -> None:
        with self._lock:
            those = next(iter(self._watches.values()), None) if self._reader is None else None
            chosen = those[0] if those else None
        if chosen is not None:
            chosen.bell.ring()


class AsyncEndWatch:
    """One wait for the end of a message."""

    def __init__(self, ends: AsyncEnds, id: str) -> None:  # noqa: A002
        self.id = id
        self.bell: AsyncBell = AsyncBell()
        self._ends = ends

    def __enter__(self) -> Self:
        self._ends.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.remove(self)

    async def wait(self, after: str, seconds: float) -> None:
        """Wait up to `seconds` until the message may have ended. `after` is the position of the last check."""
        if self._ends.is_to_read(self, after):
            try:
                await self._read(seconds)
            finally:
                self._ends.stop_reading()
        else:
            await self.bell.wait(seconds)

    async def _read(self, seconds: float) -> None:
        """Read entries for all watches until this message has ended."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            entries = await self._ends.read(self._ends.position, left)
            if entries:
                self._ends.notify(entries)
            if any(id_ == self.id for _, id_ in entries):
                return


def _position(entry: str) -> Position:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)
