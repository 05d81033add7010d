"""The clock of `memory://`: real time plus an offset that tests move. A move wakes all waiting consumers."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from duly.errors import UsageError
from duly.memory import forks
from duly.options import Seconds, checked_seconds

Watcher = Callable[[], None]


class Clock:
    """Follows real time until it is frozen; `advance` moves it forward in either case. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset_us = 0
        self._frozen_us: int | None = None
        self._watchers: list[Watcher] = []
        self._moves = 0
        forks.renew(self)

    def renew_after_fork(self) -> None:
        """Replace the lock and drop the watchers in a child process: their threads exist only in the parent."""
        self._lock = threading.Lock()
        self._watchers.clear()

    def now_us(self) -> int:
        """Return the time, in microseconds since the epoch."""
        with self._lock:
            return self._now_us()

    @property
    def moves(self) -> int:
        """How often the clock was moved. Two readings that differ show that it was moved in between."""
        with self._lock:
            return self._moves

    @property
    def is_frozen(self) -> bool:
        """Whether the clock is frozen."""
        with self._lock:
            return self._frozen_us is not None

    def advance(self, duration: Seconds) -> None:
        """Move the clock forward. Each waiting consumer polls again."""
        us = round(checked_seconds(duration, "advance") * 1_000_000)
        with self._lock:
            if self._frozen_us is None:
                self._offset_us += us
            else:
                self._frozen_us += us
        self._notify_watchers()

    def freeze(self) -> None:
        """Stop the clock. Only `advance` and `set_us` move it then, apart from about a microsecond per call."""
        with self._lock:
            self._frozen_us = self._now_us()

    def unfreeze(self) -> None:
        """Let the clock run again from its present time."""
        with self._lock:
            if self._frozen_us is not None:
                self._offset_us = self._frozen_us - _real_us()
                self._frozen_us = None

    def set_us(self, us: int) -> None:
        """Set a frozen clock. It may go back, since the clocks of servers can."""
        with self._lock:
            if self._frozen_us is None:
                raise UsageError("set_us needs a frozen clock: call freeze() first")
            self._frozen_us = us
        self._notify_watchers()

    def creep_to(self, us: int) -> None:
        """Move a frozen clock up to the time that a queue has shown, never back. No watcher is called."""
        with self._lock:
            if self._frozen_us is not None:
                self._frozen_us = max(self._frozen_us, us)

    def reset(self) -> None:
        """Follow real time again."""
        with self._lock:
            self._offset_us, self._frozen_us = 0, None
        self._notify_watchers()

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` whenever the clock is moved."""
        with self._lock:
            self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Undo `watch`."""
        with self._lock, contextlib.suppress(ValueError):  # a fork in between has removed it
            self._watchers.remove(watcher)

    def _now_us(self) -> int:
        return _real_us() + self._offset_us if self._frozen_us is None else self._frozen_us

    def _notify_watchers(self) -> None:
        with self._lock:
            self._moves += 1
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()


def _real_us() -> int:
    return time.time_ns() // 1000


clock: Final = Clock()
"""The clock of all `memory://` apps of this process."""
