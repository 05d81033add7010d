"""The primitives of asyncio that threads do not share: sleep, permits, cancellation, wake-ups.

The sync counterpart of this file is written by hand as well.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

Lock = asyncio.Lock
sleep = asyncio.sleep
in_thread = asyncio.to_thread

LEAVING_TIMEOUT: Final = 1.0
"""Seconds that a cancelled caller waits for its clean-up."""
_background: Final[set[asyncio.Future[Any]]] = set()


class Gate(asyncio.Semaphore):
    """Limits the number of concurrent calls."""

    def enter_at_once(self) -> None:
        """Take a permit of a gate that is not locked."""
        with contextlib.suppress(StopIteration):
            self.acquire().send(None)  # returns without a wait


async def uninterrupted(work: Awaitable[T], if_abandoned: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Finish `work` even if the caller is cancelled, and then pass its result to `if_abandoned`.

    A call that is cut off would leave a connection with an unread reply, and leased messages without a consumer.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await before_leaving(_clean_up(task, if_abandoned))
        raise


async def _clean_up(task: asyncio.Future[T], if_abandoned: Callable[[T], Awaitable[object]] | None) -> None:
    try:
        result = await task
        if if_abandoned is not None:
            await if_abandoned(result)
    except Exception:  # noqa: BLE001, S110 - the caller is gone; the lease or a timeout ends it
        pass


async def before_leaving(work: Awaitable[object]) -> None:
    """Clean up after a cancellation: block briefly, then finish in the background."""
    task = in_background(work)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait({task}, timeout=LEAVING_TIMEOUT)


async def nothing_in_background() -> None:
    """Wait briefly for the background tasks of this event loop."""
    loop, here = asyncio.get_running_loop(), asyncio.current_task()
    known = list(_background)  # threads with other event loops add to it
    _background.difference_update(task for task in known if task.get_loop().is_closed())
    if others := {task for task in known if task.get_loop() is loop and task is not here}:
        await asyncio.wait(others, timeout=LEAVING_TIMEOUT)


def in_background(work: Awaitable[T]) -> asyncio.Future[T]:
    """Run something to its end without waiting for it."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


class AsyncBell:
    """Wakes a task from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """End the current or next wait."""
        with contextlib.suppress(RuntimeError):  # its event loop is closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a ring."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._event.wait()
        self._event.clear()
