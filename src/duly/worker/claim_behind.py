"""A claim that an idle worker sends behind its blocking call, on the same connection.

The server carries it out as soon as the blocking call ends. So a message reaches an idle worker after one trip instead
of two. The claim takes one message at most, and no expired leases. It has the number of its stream like any other call:
if the connection breaks, the call is repeated, and its answer shows what the server has leased (I6).
"""

import asyncio
import time
from typing import Any, Final

from duly._async.link import AsyncLink
from duly._async.pool import AsyncPool
from duly._async.wire import UNREACHABLE, AsyncWire
from duly._core.call import Call
from duly._core.replies import Claimed
from duly._core.resp import ReplyError

LIMIT: Final = 1
"""Messages at the most. A worker that is frozen, or cut off unnoticed, keeps no more from the others for a lease."""


class ClaimBehind:
    """A claim that is pending on the server, until its answer is taken or it is withdrawn."""

    def __init__(self, link: AsyncLink, call: Call[Claimed]) -> None:
        self._link = link
        self._call = call
        self._stream = link.connections.take_stream()
        self._pool: AsyncPool | None = None
        self._expected_at = 0.0
        self._reading: asyncio.Future[Any] | None = None

    def send(self, pool: AsyncPool, wire: AsyncWire, expected_at: float) -> None:
        """Write the claim to a connection that blocks. Its reply is expected by a time of the monotonic clock."""
        self._pool, self._expected_at = pool, expected_at
        self._reading = wire.begin_next(self._call.command(b"EVALSHA", self._call.script.sha, self._stream))

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer, or will be none on this connection."""
        return self._reading is None or self._reading.done()

    async def answer(self) -> Claimed:
        """Return the answer. If the connection is broken, the call is repeated until there is one."""
        assert self._pool is not None
        assert self._reading is not None
        try:
            claimed = self._call.decode(self._reading.result())
        except (UNREACHABLE, ReplyError, asyncio.CancelledError):
            claimed = await self._link.run_claim(self._call, self._stream)
        else:
            self._link.note_confirmed(self._call, self._stream, self._pool)
            self._link.connections.give_stream(self._stream)
        self._pool.outage.note_delay(self._expected_at, time.monotonic())
        return claimed

    async def withdraw(self, call: Call[Claimed]) -> Claimed:
        """Return what the server has leased. If it has not carried out the claim yet, it never will.

        `call` takes nothing. It has the number of the claim, so the server carries out one of the two.
        """
        return await self._link.run_claim(call, self._stream)
