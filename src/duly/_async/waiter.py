"""Waits for the token that says: there is something to look at."""

import random
from collections.abc import Awaitable, Callable

from redis.exceptions import RedisError

from duly._async.connections import AsyncConnections
from duly._async.wire import UNREACHABLE, AsyncWire, in_background, sleep
from duly._core import ops, patience
from duly._core.call import Call
from duly._core.keys import QueueKeys


class AsyncWaiter:
    """Blocks on `wake`, never on data. The seam for servers where one wait cannot watch several queues."""

    def __init__(self, connections: AsyncConnections, carry: Callable[[Call[bool]], Awaitable[object]]) -> None:
        self._connections = connections
        self._carry = carry

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
            await wire.begin([b"BLPOP", keys.key("wake"), f"{seconds + (5 if exact else 0):.3f}"])
        except BaseException as error:
            if wire is not None:
                await wire.close()  # nobody knows what was asked on it
            if not isinstance(error, (*UNREACHABLE, RedisError)):
                raise
            await sleep(min(seconds, patience.backoff(6, random.random)))
            return False
        try:
            if not await wire.poll(seconds if exact else seconds + 0.3):
                await self._unblock(wire)
            token = await wire.finish() is not None
        except (*UNREACHABLE, RedisError):
            await wire.close()
            return False
        except BaseException:
            # --- async only
            in_background(self._leave(wire, keys))
            # --- sync only
            # | self._leave(wire, keys)
            # --- end
            raise
        self._connections.give_waiting(wire)
        return token

    async def _unblock(self, wire: AsyncWire) -> None:
        """End a blocking call from outside: the connection stays usable and no token is lost.

        On its own connection this may overtake the blocking call, and find nothing to end: then it is said
        again, unless the reply has come by itself.
        """
        async with self._connections.gate:
            slot = self._connections.take()
            try:
                other = await self._connections.opened(slot)
                for tries in range(11):
                    is_ended = await other.ask([b"CLIENT", b"UNBLOCK", wire.client_id])
                    if is_ended or await wire.poll(0.001 * 2**tries):
                        break
            finally:
                self._connections.give(slot)

    async def _leave(self, wire: AsyncWire, keys: QueueKeys) -> None:
        """Stop waiting in the middle: a token that was taken meanwhile goes to the next."""
        try:
            await self._unblock(wire)
            await wire.finish()
            await self._carry(ops.wake(keys))  # for the token, if it took one, and for what it was watching
            self._connections.give_waiting(wire)
        except Exception:  # noqa: BLE001 - leaving: whoever waits looks again by itself after a while
            await wire.close()
