"""Blocks on a server: for the token that says that there is something to look at, for entries, for ends of messages."""

import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from duly._async.connections import AsyncConnections
from duly._async.ends import Told
from duly._async.wire import UNREACHABLE, AsyncWire, before_leaving, sleep
from duly._core import ops, patience
from duly._core.call import Arg, Call
from duly._core.keys import GroupKeys, QueueKeys, TopicKeys

_HELD_BACK_BY_A_PAUSE: Final[list[Arg]] = [b"EVAL", b"return 0", 0]
"""A script may write, so a server that pauses writes does not run it, nor what follows on its connection."""


class AsyncWaiter:
    """Blocks on `wake`, `ends` and the streams of topics, and takes none of their data.

    The seam for servers where one wait cannot watch several queues.
    """

    def __init__(self, connections: AsyncConnections, carry: Callable[[Call[bool]], Awaitable[object]]) -> None:
        self._connections = connections
        self._carry = carry
        self._blocked: dict[AsyncWire, QueueKeys | None] = {}
        """Who blocks, and the queue whose token it may have taken when it leaves."""

    async def wait(self, keys: QueueKeys, seconds: float, *, exact: bool) -> bool:
        """Wait for a token, so long at the most. True: one was taken.

        `exact`: the end of the wait is a due time. A server's time-out fires up to 100 ms late and not at
        all when its clock steps back, so the end is kept here; the server's is a backstop.
        """
        if seconds <= 0:
            return False
        backstop = max(seconds, 0.001) + (5 if exact else 0)
        command: list[Arg] = [b"BLPOP", keys.key("wake"), f"{backstop:.3f}"]
        return await self._block(command, seconds if exact else seconds + 0.3, keys) is not None

    async def wait_for_entry(
        self, keys: TopicKeys | GroupKeys, position: Sequence[bytes], seconds: float, *, exact: bool
    ) -> bool:
        """Wait for an entry, or the ring of a bell, behind a position, so long at the most. True: there is one.

        Nothing is taken, so there is nothing to hand on. `exact` as in `wait`.
        """
        if seconds <= 0:
            return False
        backstop = max(round((seconds + (5 if exact else 0)) * 1000), 1)
        command: list[Arg] = [b"XREAD", b"COUNT", 1, b"BLOCK", backstop, b"STREAMS", *keys.watched, *position]
        return bool(await self._block(command, seconds if exact else seconds + 0.3, None))

    async def read_ends(self, keys: QueueKeys, after: str, seconds: float) -> Told:
        """Read what is told of the ends of messages behind an entry, waiting so long at the most for something."""
        command: list[Arg] = [b"XREAD", b"COUNT", 1000, b"BLOCK", max(round(seconds * 1000), 1)]
        reply = await self._block([*command, b"STREAMS", keys.key("ends"), after], seconds + 0.3, None)
        return [(entry.decode(), fields[1].decode()) for entry, fields in reply[0][1]] if reply else []

    async def _block(self, command: list[Arg], seconds: float, keys: QueueKeys | None) -> Any:
        """Ask something that may take so long; None: it has not come. `keys` are of the queue whose token may come."""
        wire = None
        try:
            wire = await self._connections.take_waiting()
            self._blocked[wire] = keys
            await wire.begin(command)
            if not await wire.poll(seconds):
                await self.unblock(wire)
            reply = await wire.finish()
        except (*UNREACHABLE, RedisError):
            if wire is not None:
                await wire.close()
            await sleep(min(seconds, patience.backoff(6, random.random)))
            return None
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
        return reply

    async def leave_all(self) -> None:
        """End all waits: the app is closed. What they watched is handed on."""
        for wire, keys in list(self._blocked.items()):
            if keys is None:
                wire.hang_up()
                continue
            await self.cut(wire)
            wire.hang_up()
            await self._carry(ops.wake(keys))
        for ends in list(self._connections.ends.values()):
            ends.ring_all()

    async def unblock(self, wire: AsyncWire) -> None:
        """End a blocking call from outside: the connection stays usable and no token is lost.

        A server may hold the blocking call back: CLIENT PAUSE and a planned fail-over pause writes, and BLPOP is one.
        CLIENT UNBLOCK of such a client aborts Redis before 7.4.6 and 8.2, and Valkey before 8.1.2. So a script goes
        before it in the same write: while writes are paused the server runs neither, and afterwards one upon the
        other. No pause can begin in between.

        On its own connection this may overtake the blocking call, and find nothing to end. Then it is sent again,
        unless the reply has come by itself.
        """
        command: list[Arg] = [b"CLIENT", b"UNBLOCK", wire.client_id]
        for tries in range(11):
            is_ended = await self._beside(lambda other: other.ask_second(_HELD_BACK_BY_A_PAUSE, command))
            if is_ended or await wire.poll(0.001 * 2**tries):
                break

    async def cut(self, wire: AsyncWire) -> None:
        """Have the server forget a connection now: a token that is left next must not go to one that is gone."""
        with contextlib.suppress(*UNREACHABLE, RedisError):
            await self._beside(lambda other: other.ask([b"CLIENT", b"KILL", b"ID", wire.client_id]))

    async def _beside(self, ask: Callable[[AsyncWire], Awaitable[Any]]) -> Any:
        """Ask something on another connection."""
        async with self._connections.gate:
            slot = self._connections.take()
            try:
                return await ask(await self._connections.opened(slot))
            finally:
                self._connections.give(slot)

    async def _leave(self, wire: AsyncWire | None, keys: QueueKeys | None) -> None:
        """Stop waiting in the middle: the token, if one was taken, and the watch go to the next."""
        try:
            if wire is not None:
                if keys is not None:
                    await self.cut(wire)
                await wire.close()
            if keys is not None:
                await self._carry(ops.wake(keys))
        except Exception:  # noqa: BLE001, S110 - leaving: whoever waits looks again by itself after a while
            pass
