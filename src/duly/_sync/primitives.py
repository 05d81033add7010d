"""The primitives of threads that asyncio does not share: sleep, permits, wake-ups.

The async counterpart of this file is written by hand as well.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Lock = threading.Lock
sleep = time.sleep

LEAVING_TIMEOUT: Final = 1.0
"""Seconds that an interrupted caller waits for its clean-up."""


class Gate:
    """Does not limit calls: threads are few, and each has its own connection."""

    def __init__(self, _most: int) -> None:
        """Count nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that blocks."""
    return function(*args, **kwargs)


def nothing_in_background() -> None:
    """Wait for nothing: there is no background."""


def uninterrupted(result: T, if_abandoned: Callable[[T], object] | None = None) -> T:  # noqa: ARG001
    """Return a result. A thread is not cancelled; where a signal handler may raise, `Link.run_whole` is used."""
    return result


class Bell:
    """Wakes a thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """End the current or next wait."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a ring."""
        self._event.wait(max(seconds, 0))
        self._event.clear()
