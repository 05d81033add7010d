"""Wakes the fetcher at a due time, to a fraction of a millisecond.

The timers of event loops count milliseconds, and fire up to one too late. On Linux, a timer of the kernel is exact. It
is a file descriptor that the event loop reads, so nothing polls or spins. Elsewhere, the event loop has the timer.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC if sys.platform == "linux" else 0
_ABSOLUTE: Final = 1
"""TFD_TIMER_ABSTIME of `timerfd_settime`."""

_Setting = ctypes.c_long * 4
"""A `struct itimerspec` of 64-bit Linux: seconds and nanoseconds of the interval, then of the point in time."""


class DueTimer:
    """Calls `on_due` at a point in time of the monotonic clock. It belongs to the running event loop."""

    def __init__(self, on_due: Callable[[], None]) -> None:
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._kernel_timer = _new_kernel_timer()
        if self._kernel_timer is not None and not self._is_read(self._kernel_timer):
            self.close()
        self._moment: float | None = None
        """When it fires. None: not at all."""
        self._handle: asyncio.TimerHandle | None = None

    def set(self, moment: float | None) -> None:
        """Fire at this time, and no more at an earlier setting. None: do not fire."""
        if moment == self._moment:
            return
        self._moment = moment
        if self._kernel_timer is not None:
            _set_kernel_timer(self._kernel_timer, moment)
            return
        if self._handle is not None:
            self._handle.cancel()
        delay = 0.0 if moment is None else moment - time.monotonic()
        self._handle = None if moment is None else self._loop.call_later(max(delay, 0.0), self._fire)

    def close(self) -> None:
        """Fire no more. Safe to repeat."""
        kernel_timer, self._kernel_timer = self._kernel_timer, None
        if kernel_timer is not None:
            with contextlib.suppress(NotImplementedError):
                self._loop.remove_reader(kernel_timer)
            os.close(kernel_timer)
        else:
            self.set(None)

    def _is_read(self, kernel_timer: int) -> bool:
        """Let the event loop read the timer. False: the event loop cannot read file descriptors."""
        try:
            self._loop.add_reader(kernel_timer, self._read)
        except (NotImplementedError, OSError):
            return False
        return True

    def _read(self) -> None:
        try:
            os.read(self._kernel_timer or 0, 8)
        except BlockingIOError:  # it was set again since it fired
            return
        self._fire()

    def _fire(self) -> None:
        self._moment = None
        self._on_due()


def _kernel() -> Any:
    """Return the C library, if it has timers that are file descriptors."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None, use_errno=True)
        library.timerfd_settime.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Setting), ctypes.c_void_p]
        library.timerfd_create.argtypes = [ctypes.c_int, ctypes.c_int]
        return library
    return None


_KERNEL: Final = _kernel()


def _new_kernel_timer() -> int | None:
    """Make a timer of the monotonic clock. None: there is none on this system, or no file descriptor is free."""
    found = -1 if _KERNEL is None else int(_KERNEL.timerfd_create(time.CLOCK_MONOTONIC, _FLAGS))
    return None if found < 0 else found


def _set_kernel_timer(kernel_timer: int, moment: float | None) -> None:
    """Set a timer, or stop it. A point in time that is over fires at once."""
    nanoseconds = 0 if moment is None else max(int(moment * 1e9), 1)
    setting = _Setting(0, 0, nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
    _KERNEL.timerfd_settime(kernel_timer, _ABSOLUTE, ctypes.byref(setting), None)
