"""A call that is written in the turn of its caller, on a connection that is free. A callback gets its reply.

A task would begin in the next turn of the event loop, so that the server got the call later. After a failure, a task
repeats the call with its number (I6).
"""

import asyncio
import time
from typing import Any, Final, Generic, TypeVar

from duly._async.connections import AsyncConnections
from duly._async.pool import AsyncPool
from duly._async.wire import UNREACHABLE, AsyncWire
from duly._core.call import Call, CallStream
from duly._core.rollback import Confirmed

T = TypeVar("T")


class AsyncBegunCall(Generic[T]):
    """A call on a connection with a permit. The last call on the connection gives both back."""

    __slots__ = ("_asked", "_confirmed", "_connections", "_is_followed", "_wire", "call", "pool", "reading", "stream")

    def __init__(
        self,
        connections: AsyncConnections,
        pool: AsyncPool,
        wire: AsyncWire,
        call: Call[T],
        confirmed: Confirmed | None,
    ) -> None:
        """Write the call on a wire of the pool. `confirmed`: the confirmed calls of its queue.

        If it cannot be written, the caller keeps the wire.
        """
        self.call: Final = call
        self.stream: Final[CallStream] = connections.take_stream()
        try:
            reading = wire.send(call.command(b"EVALSHA", call.script.sha, self.stream))
        except BaseException:
            connections.give_stream(self.stream)
            raise
        self.reading: Final[asyncio.Future[Any]] = reading
        """Ends with the reply."""
        self.pool: Final = pool
        self._connections = connections
        self._wire = wire
        self._confirmed = confirmed
        self._asked = pool.incarnation
        self._is_followed = False

    @property
    def may_be_followed(self) -> bool:
        """Whether the server would answer a call behind this one, and there is nothing to check before it."""
        confirmed, pool = self._confirmed, self.pool
        is_compared = confirmed is None or confirmed.by is pool.incarnation
        return self._wire.is_open and is_compared and not pool.outage.is_on and not self._connections.is_closed

    def follow(self, call: Call[T]) -> "AsyncBegunCall[T]":
        """Write a call of the same queue behind this one, on the same wire. The server carries it out after this one.

        The new call gives back the permit and the connection, since its reply is the later one.
        """
        follower = AsyncBegunCall(self._connections, self.pool, self._wire, call, self._confirmed)
        self._is_followed = True
        return follower

    def result(self) -> T:
        """Return the decoded reply, once. Raises OSError or ReplyError if there is none."""
        try:
            reply = self.reading.result()
        except UNREACHABLE as error:  # which closes a wire
            self._connections.router.doubt(self.pool, error)
            self.pool.may_be_restarted = True
            raise
        finally:
            if not self._is_followed:
                self.pool.give_with_permit(self._wire)
        if self._confirmed is not None:
            self._confirmed.add(self.stream, self._asked, time.monotonic())
        self._connections.give_stream(self.stream)
        return self.call.decode(reply)
