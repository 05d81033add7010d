"""Waits for the ends of messages. However many wait, one connection reads what is told of a queue.

The one who reads does it for all. When it leaves, another goes on where it stopped.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Self

from duly._async.wire import AsyncBell

Position = tuple[int, int]
"""An entry of a stream: its time, and its number within that."""

Told = list[tuple[str, str]]
"""Entries of `ends`, and the ids of the messages that they are about."""

Read = Callable[[str, float], Awaitable[Told]]
"""What is told behind an entry, waiting up to so many seconds for something."""


class AsyncEnds:
    """Those who wait for ends of one queue, in this process. Threads or tasks may share it."""

    def __init__(self, read: Read) -> None:
        self.read = read
        self._lock = threading.Lock()
        self._watches: defaultdict[str, list[AsyncEndWatch]] = defaultdict(list)
        self._reader: AsyncEndWatch | None = None
        self._position: Position | None = None
        """How far was read; None: nobody waits."""

    def watch(self, id: str) -> "AsyncEndWatch":  # noqa: A002
        """Wait for the end of a message. Begin before the first look, or an end in between is missed."""
        return AsyncEndWatch(self, id)

    def add(self, watch: "AsyncEndWatch") -> None:
        """Tell somebody what is read from now on."""
        with self._lock:
            self._watches[watch.id].append(watch)

    def remove(self, watch: "AsyncEndWatch") -> None:
        """Tell it nothing any more. If it was to read next, another does."""
        with self._lock:
            those = self._watches[watch.id]
            those.remove(watch)
            if not those:
                del self._watches[watch.id]
            if not self._watches:
                self._position = None
        self._find_reader()

    def is_to_read(self, watch: "AsyncEndWatch", after: str) -> bool:
        """Make somebody the reader if there is none. Read from where the last one stopped, or from `after`."""
        with self._lock:
            if self._reader is not None:
                return False
            self._reader = watch
            begin = _position(after)
            # An earlier one: the stream has expired, and the server's clock has stepped back.
            self._position = begin if self._position is None else min(self._position, begin)
            return True

    def stop_reading(self) -> None:
        """Leave the reading to another."""
        with self._lock:
            self._reader = None
        self._find_reader()

    @property
    def position(self) -> str:
        """The entry behind which to read."""
        ms, number = self._position or (0, 0)
        return f"{ms}-{number}"

    def tell(self, told: Told) -> None:
        """Pass on what was read."""
        with self._lock:
            self._position = _position(told[-1][0])
            found = [watch for _, id_ in told for watch in self._watches.get(id_, ())]
        for watch in found:
            watch.bell.ring()

    def ring_all(self) -> None:
        """Let all look again: the app is closed."""
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
    """The time during which somebody waits for the end of one message."""

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
        """Wait until it is worth looking again, so long at the most. `after` is what the last look said."""
        if self._ends.is_to_read(self, after):
            try:
                await self._read(seconds)
            finally:
                self._ends.stop_reading()
        else:
            await self.bell.wait(seconds)

    async def _read(self, seconds: float) -> None:
        """Read for all, until the own end is told."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            told = await self._ends.read(self._ends.position, left)
            if told:
                self._ends.tell(told)
            if any(id_ == self.id for _, id_ in told):
                return


def _position(entry: str) -> Position:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)
