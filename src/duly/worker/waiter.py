"""Waits for the wake tokens of all queues of a worker, on one connection.

One block names the `wake` keys of all queues that have nothing to give at the moment. It stays out while the
worker does other things; its end is announced by a callback. Due times are the fetcher's: it has timers.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from duly._async.link import AsyncLink
from duly._async.memory import AsyncMemoryLink
from duly._core.keys import QueueKeys
from duly.worker.block import Block


class ServerWaiter:
    """Watches queues of a server. `on_change` is called when `tokens` has something to say."""

    def __init__(self, link: AsyncLink, on_change: Callable[[], None]) -> None:
        self._block = Block(link, on_change)
        self._watched: dict[bytes, QueueKeys] = {}

    async def watch(self, queues: Sequence[QueueKeys], seconds: float) -> None:
        """Watch these queues, so long; those that are watched already go on being watched.

        A block that has to name more queues is ended and begun anew.
        """
        suffices = all(keys.key("wake") in self._watched for keys in queues)
        if await self._block.may_begin(suffices=suffices) and queues:
            self._watched = {keys.key("wake"): keys for keys in queues}
            await self._block.begin([b"BLPOP", *self._watched, f"{seconds:.3f}"], seconds)

    def tokens(self) -> list[QueueKeys]:
        """Take what has come: the queues that have something to look at."""
        reply = self._block.reply()
        return [] if reply is None else [self._watched[reply[0]]]

    async def aclose(self) -> list[QueueKeys]:
        """Watch nothing more. Whatever was watched is returned: a token may be lost, and somebody else must know."""
        watched = list(self._watched.values()) if self._block.is_out else []
        await self._block.cut()
        await self._block.aclose()
        return watched


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
