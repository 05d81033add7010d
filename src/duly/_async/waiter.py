"""Waits for the token that says: there is something to look at."""

import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError

from duly._async.connections import AsyncConnections
from duly._async.wire import UNREACHABLE, AsyncWire, before_leaving, sleep
from duly._core import ops, patience
from duly._core.call import Arg, Call
from duly._core.keys import QueueKeys


class AsyncWaiter:
    """Blocks on `wake`, never on data. The seam for servers where one wait cannot watch several queues."""

    def __init__(self, connections: AsyncConnections, carry: Callable[[Call[bool]], Awaitable[object]]) -> None:
        self._connections = connections
        self._carry = carry
        self._blocked: dict[AsyncWire, QueueKeys] = {}

    async def wait(self, keys: QueueKeys, seconds: float, *, exact: bool) -> bool:
        """Wait for a token, so long at the most. True: one was taken.

        `exact`: the end of the wait is a due time. A server's time-out fires up to 100 ms late and not at
        all when its clock steps back, so the end is kept here; the server's is a backstop.
        """
        if seconds <= 0:
            return False
        wire = None
        try:
            wire = await self._connections.take_waiting()
            self._blocked[wire] = keys
            backstop = max(seconds, 0.001) + (5 if exact else 0)
            await wire.begin([b"BLPOP", keys.key("wake"), f"{backstop:.3f}"])
            if not await wire.poll(seconds if exact else seconds + 0.3):
                await self.unblock(wire)
            token = await wire.finish() is not None
        except (*UNREACHABLE, RedisError):
            if wire is not None:
                await wire.close()
            await sleep(min(seconds, patience.backoff(6, random.random)))
            return False
        except BaseException:
            # --- async only
            await before_leaving(self._leave(wire, keys))
            # --- sync only
            # | self._leave(wire, keys)
            # --- end
            raise
        finally:
            if wire is not None:
                self._blocked.pop(wire, None)
        self._connections.give_waiting(wire)
        return token

    async def leave_all(self) -> None:
        """End all waits: the app is closed. What they watched is handed on."""
        for wire, keys in list(self._blocked.items()):
            await self.cut(wire)
            wire.hang_up()
            await self._carry(ops.wake(keys))

    async def unblock(self, wire: AsyncWire) -> None:
        """End a blocking call from outside: the connection stays usable and no token is lost.

        On its own connection this may overtake the blocking call, and find nothing to end: then it is said
        again, unless the reply has come by itself.
        """
        for tries in range(11):
            is_ended = await self._ask_beside([b"CLIENT", b"UNBLOCK", wire.client_id])
            if is_ended or await wire.poll(0.001 * 2**tries):
                break

    async def cut(self, wire: AsyncWire) -> None:
        """Have the server forget a connection now: a token that is left next must not go to one that is gone."""
        with contextlib.suppress(*UNREACHABLE, RedisError):
            await self._ask_beside([b"CLIENT", b"KILL", b"ID", wire.client_id])

    async def _ask_beside(self, command: list[Arg]) -> Any:
        """Ask something on another connection."""
        async with self._connections.gate:
            slot = self._connections.take()
            try:
                return await (await self._connections.opened(slot)).ask(command)
            finally:
                self._connections.give(slot)

    async def _leave(self, wire: AsyncWire | None, keys: QueueKeys) -> None:
        """Stop waiting in the middle: the token, if one was taken, and the watch go to the next."""
        try:
            if wire is not None:
                await self.cut(wire)
                await wire.close()
            await self._carry(ops.wake(keys))
        except Exception:  # noqa: BLE001, S110 - leaving: whoever waits looks again by itself after a while
            pass
