"""Waits for signals and for the end of children at the same time, without polling."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING, Any, Final, Self

from duly.worker.parent_pipe import STOP_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Sequence

_WATCHED_SIGNALS: Final = (*STOP_SIGNALS, signal.SIGCHLD)
_LONGEST_WAIT: Final = 5.0
"""Seconds after which the supervisor checks its children even without a signal."""


class SignalPipe:
    """While it is open, SIGTERM, SIGINT and SIGCHLD end a `wait` and do nothing else. For the main thread."""

    def __enter__(self) -> Self:
        """Install the pipe and the signal handlers."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._fd_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # Python writes the number of a signal to the pipe only if there is a handler for it.
        self._handlers_before: dict[int, Any] = {each: signal.signal(each, _do_nothing) for each in _WATCHED_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float | None) -> Sequence[int]:
        """Wait for a signal, or until the time is over. Return the stop signals in the order of their arrival."""
        longest = _LONGEST_WAIT if seconds is None else min(max(seconds, 0.0), _LONGEST_WAIT)
        select.select([self._reader], [], [], longest)
        with contextlib.suppress(BlockingIOError):
            return [number for number in os.read(self._reader, 4096) if number in STOP_SIGNALS]
        return []


def _do_nothing(*_: object) -> None:
    pass
