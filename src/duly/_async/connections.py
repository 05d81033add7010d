"""The connections of one app: a pool for each node, and the streams of numbered calls. Dropped after a fork."""

import asyncio
import os
import re
import secrets
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Final, Literal

from duly._async.ends import AsyncEnds
from duly._async.pool import AsyncPool
from duly._async.primitives import in_thread
from duly._async.wire import AsyncWire
from duly._core.address import Address
from duly._core.call import CallStream

# --- sync only
# | from duly._sync import blocked_loop
# --- end

if TYPE_CHECKING:
    from duly.embedded import EmbeddedServer

_HOST: Final = re.sub(r"[^!-~]", "-", socket.gethostname())
"""The host name in a form that CLIENT SETNAME accepts: without spaces and control characters."""


class AsyncConnections:
    """The pool of the server, the consumer name of this process, and its streams."""

    def __init__(self, address: Address, *, allow_eviction: bool) -> None:
        self.address = address
        self.role: Literal["client", "worker"] = "client"
        """The role of new connections in CLIENT LIST."""
        self._allow_eviction = allow_eviction
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        """Start without connections: at first, and in a child process, where the old ones belong to the parent."""
        self.consumer: str = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.pool: AsyncPool = self._new_pool()
        self._streams: list[CallStream] = []
        """Streams that no call uses. They are reused, since each leaves a key in each queue."""
        self.ends: dict[bytes, AsyncEnds] = {}
        """The waits for ends of messages, by the prefix of the keys of their queue."""
        self._server: EmbeddedServer | None = None
        self._opening = threading.Lock()
        self.is_closed: bool = False
        # --- async only
        self._loop: asyncio.AbstractEventLoop | None = None
        # --- end

    # --- async only
    def __del__(self) -> None:
        """Drop the connections of an app that was not closed. The event loop would keep them open."""
        self.pool.abandon()

    def rebind_loop(self) -> None:
        """Drop the connections of a previous event loop, if asyncio.run() was called again."""
        loop = asyncio.get_running_loop()
        if self._loop is None:  # there are no connections yet, and the consumer name of the first claim is kept
            self._loop = loop
        elif self._loop is not loop:
            self.pool.abandon()
            server, is_closed = self._server, self.is_closed
            self._reset()
            self._loop, self._server, self.is_closed = loop, server, is_closed
            if is_closed:
                self.pool.mark_closed()

    def close_from_outside(self) -> None:
        """Close everything from a thread that has no event loop."""
        self.is_closed = True
        self.pool.mark_closed()
        self.pool.abandon()
        server, self._server = self._server, None
        if server is not None:
            server.release()

    # --- sync only
    # | def rebind_loop(self) -> None:
    # |     """Warn, once per process, if this thread runs an event loop, which the call would block."""
    # |     if asyncio._get_running_loop() is not None:
    # |         blocked_loop.warn()
    # |
    # --- end
    def take_stream(self) -> CallStream:
        """Take a stream for one call, with a new number."""
        try:
            stream = self._streams.pop()  # threads share the list, so a check before the pop would not be enough
        except IndexError:
            stream = CallStream(secrets.token_hex(8).encode())
        stream.sequence += 1
        return stream

    def give_stream(self, stream: CallStream) -> None:
        """Put a stream back. Its call has ended, or the next one overtakes it."""
        self._streams.append(stream)

    async def aclose(self) -> None:
        """Close all connections and release the embedded server. Connections in use are closed when put back."""
        self.is_closed = True
        await self.pool.aclose()
        server, self._server = self._server, None
        if server is not None:
            await in_thread(server.release)

    async def ensure_server(self) -> None:
        """Start the embedded server, if the address is one and it is not running.

        Raises Unavailable if it cannot be started, and ConnectionError if it was stopped by force. A call treats
        the second like an outage of any server, and retries.
        """
        if self.address.kind == "embedded":
            await in_thread(self._ensure_embedded)

    @property
    def has_new_server(self) -> bool:
        """Whether this is the first use of the embedded server's directory by any process."""
        return self._server is not None and self._server.is_new

    def _ensure_embedded(self) -> None:
        from duly.embedded import Halted, open_server

        with self._opening:
            try:
                if self._server is None:
                    self._server = open_server(self.address.place, is_default=self.address.is_default)
                else:
                    self._server.ensure_running()
            except Halted as error:
                raise ConnectionError(str(error)) from None

    def _new_pool(self) -> AsyncPool:
        # A method of the proxy would keep this object alive, and an app that was not closed would not be collected.
        own = weakref.proxy(self)
        return AsyncPool(
            self.address.shown,
            lambda: own._new_wire(),  # noqa: PLW0108
            lambda: own.ensure_server(),  # noqa: PLW0108
            allow_eviction=self._allow_eviction,
        )

    def _new_wire(self) -> AsyncWire:
        options = self.address.options
        if self.address.kind == "embedded":
            options = {"path": str(self._server.socket_path) if self._server else ""}
        return AsyncWire(self.address.kind, options, f"duly:{self.role}:{_HOST}:{os.getpid()}")


_alive: Final[weakref.WeakSet[AsyncConnections]] = weakref.WeakSet()

# A child process must not close inherited connections, not even by garbage collection. It shares the poll set of the
# event loop with its parent, which would get no more events of these connections.
_inherited: Final[list[object]] = []


def _forget_after_fork() -> None:
    for connections in list(_alive):
        _inherited.append(connections.pool.disown())
        connections._reset()


os.register_at_fork(after_in_child=_forget_after_fork)
