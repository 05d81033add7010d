"""Waits for the wake tokens of all queues of a worker, on one connection.

One block names the `wake` keys of all queues that have nothing to give at the moment. It stays out while the
worker does other things; its end is announced by a callback. Due times are the fetcher's: it has timers.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from duly._async.link import AsyncLink
from duly._async.memory import AsyncMemoryLink
from duly._async.wire import UNREACHABLE, AsyncWire
from duly._core import patience
from duly._core.keys import QueueKeys
from duly.errors import DulyError

_LATE: Final = 5.0
"""Seconds after which a server that has not ended a block in time is taken for gone."""


class ServerWaiter:
    """Watches queues of a server. `on_change` is called when `tokens` has something to say."""

    def __init__(self, link: AsyncLink, on_change: Callable[[], None]) -> None:
        self._link = link
        self._on_change = on_change
        self._wire: AsyncWire | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._watched: dict[bytes, QueueKeys] = {}
        self._ends_at = 0.0
        self._fails = 0
        self._is_backing_off = False

    async def watch(self, queues: Sequence[QueueKeys], seconds: float) -> None:
        """Watch these queues, so long; those that are watched already go on being watched.

        A block that has to name more queues is ended and begun anew.
        """
        if self._reading is not None:
            if time.monotonic() > self._ends_at + _LATE:
                await self._give_up()
            elif self._reading.done() or all(keys.key("wake") in self._watched for keys in queues):
                return
            else:
                await self._end_block()
                return
        if queues and not self._is_backing_off:
            try:
                await self._begin_block(queues, seconds)
            except (*UNREACHABLE, RedisError, DulyError):
                await self._give_up()

    def tokens(self) -> list[QueueKeys]:
        """Take what has come: the queues that have something to look at."""
        reading = self._reading
        if reading is None or not reading.done():
            return []
        self._reading = None
        try:
            reply = reading.result()
        except (*UNREACHABLE, RedisError, asyncio.CancelledError):
            self._back_off()
            return []
        self._fails = 0
        return [] if reply is None else [self._watched[reply[0]]]

    async def aclose(self) -> list[QueueKeys]:
        """Watch nothing more. Whatever was watched is returned: a token may be lost, and somebody else must know."""
        watched = list(self._watched.values()) if self._reading is not None else []
        if self._wire is not None:
            await self._link.waiter.cut(self._wire)
            await self._wire.close()
        self._reading = None
        return watched

    async def _begin_block(self, queues: Sequence[QueueKeys], seconds: float) -> None:
        if self._wire is None or not self._wire.is_open:
            self._wire = await self._link.connections.take_waiting()
        self._watched = {keys.key("wake"): keys for keys in queues}
        self._ends_at = time.monotonic() + seconds
        self._reading = await self._wire.begin([b"BLPOP", *self._watched, f"{seconds:.3f}"])
        self._reading.add_done_callback(lambda _: self._on_change())

    async def _end_block(self) -> None:
        """Have the server end the block. Its end is announced like any other, with a token or without."""
        assert self._wire is not None
        try:
            await self._link.waiter.unblock(self._wire)
        except (*UNREACHABLE, RedisError, DulyError):
            await self._give_up()

    async def _give_up(self) -> None:
        """Wait for this block no more."""
        self._reading = None
        if self._wire is not None:
            await self._wire.close()
        self._back_off()

    def _back_off(self) -> None:
        """Leave a server that is away alone for a moment. The link says that it is: claims notice, too."""
        if self._wire is not None:
            self._wire.hang_up()
            self._wire = None
        pause = patience.backoff(self._fails, random.random)
        self._fails += 1
        self._is_backing_off = True
        asyncio.get_running_loop().call_later(pause, self._come_back)

    def _come_back(self) -> None:
        self._is_backing_off = False
        self._on_change()


class MemoryWaiter:
    """Watches queues of `memory://`. When its clock is moved, all of them are worth a look."""

    def __init__(self, link: AsyncMemoryLink, on_change: Callable[[], None]) -> None:
        self._engine = link.engine
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._callbacks: dict[QueueKeys, Callable[[], None]] = {}
        self._come: list[QueueKeys] = []
        self._engine.clock.watch(self._on_move)

    async def watch(self, queues: Sequence[QueueKeys], seconds: float) -> None:  # noqa: ARG002
        """Watch these queues."""
        for keys in queues:
            if keys not in self._callbacks:
                self._callbacks[keys] = self._noter(keys)
                self._engine.subscribe(keys, self._callbacks[keys])

    def tokens(self) -> list[QueueKeys]:
        """Take what has come."""
        come, self._come = self._come, []
        return come

    async def aclose(self) -> list[QueueKeys]:
        """Watch nothing more."""
        self._engine.clock.unwatch(self._on_move)
        for keys, callback in self._callbacks.items():
            self._engine.unsubscribe(keys, callback)
        return list(self._callbacks)

    def _noter(self, keys: QueueKeys) -> Callable[[], None]:
        return lambda: self._tell(self._note, keys)

    def _note(self, keys: QueueKeys) -> None:
        del self._callbacks[keys]
        self._come.append(keys)
        self._on_change()

    def _on_move(self) -> None:
        self._tell(self._look_everywhere)

    def _look_everywhere(self) -> None:
        self._come += self._callbacks
        self._on_change()

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)


Waiter = ServerWaiter | MemoryWaiter


def waiter_for(link: AsyncLink | AsyncMemoryLink, on_change: Callable[[], None]) -> Waiter:
    """Make the waiter that fits a link."""
    return MemoryWaiter(link, on_change) if isinstance(link, AsyncMemoryLink) else ServerWaiter(link, on_change)
