"""Whether the leases that are held are known to hold.

A process that was stopped for longer than a lease, or cut off from the server, wakes up with messages that
others may have by now. Nothing is started from then on until a renewal has said which are still ours.
"""

import asyncio
import threading
import time


class LeaseValidity:
    """Known until a point in time. The renewer's thread moves it; handlers ask before they start."""

    def __init__(self, until: float) -> None:
        self.until = until
        """Only the renewer's thread moves it."""
        self._renewed = threading.Condition()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def is_valid(self) -> bool:
        """Whether all that is held is known to be leased now."""
        return time.monotonic() < self.until

    def renew(self, until: float) -> None:
        """Note that all that is held is leased until then."""
        self.until = until
        with self._renewed:
            self._renewed.notify_all()
            waiting, self._waiting = self._waiting, []
        for loop, waiter in waiting:
            loop.call_soon_threadsafe(_set, waiter)

    async def wait(self) -> None:
        """Let a task wait until it is given."""
        loop = asyncio.get_running_loop()
        while not self.is_valid():
            waiter = loop.create_future()
            with self._renewed:
                self._waiting.append((loop, waiter))
            await waiter

    def wait_in_thread(self) -> None:
        """Let a thread wait until it is given."""
        with self._renewed:
            while not self.is_valid():
                self._renewed.wait()


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
