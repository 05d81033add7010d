"""Whether the leases of a worker are known to be valid.

A process that was stopped for longer than a lease, or cut off from the server, may hold messages that were redelivered
to other workers. No handler starts until a renewal has shown which leases are still valid.
"""

import asyncio
import threading
import time


class LeaseValidity:
    """Valid until a point in time. The renewer's thread moves it. Runners check it before a handler starts."""

    def __init__(self, until: float) -> None:
        self.until: float = until
        """Only the renewer's thread writes it."""
        self._renewed = threading.Condition()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def is_valid(self) -> bool:
        """Return whether all messages that are held are known to be leased now."""
        return time.monotonic() < self.until

    def renew(self, until: float) -> None:
        """Note that all messages that are held are leased until then."""
        self.until = until
        with self._renewed:
            self._renewed.notify_all()
            waiting, self._waiting = self._waiting, []
        for loop, waiter in waiting:
            loop.call_soon_threadsafe(_set, waiter)

    async def wait(self) -> None:
        """Wait in a task until the leases are valid."""
        loop = asyncio.get_running_loop()
        while not self.is_valid():
            waiter = loop.create_future()
            with self._renewed:
                self._waiting.append((loop, waiter))
            await waiter

    def wait_in_thread(self) -> None:
        """Wait in a thread until the leases are valid."""
        with self._renewed:
            while not self.is_valid():
                self._renewed.wait()


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
