"""The connections of one app: a pool for each node, and the streams of numbered calls. Dropped after a fork."""

import asyncio
import logging
import os
import re
import secrets
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Final, Literal

from duly._async.ends import AsyncEnds
from duly._async.pool import AsyncPool, NotPrimary
from duly._async.primitives import in_thread
from duly._async.sentinels import AsyncSentinels
from duly._async.wire import AsyncWire
from duly._core.address import Address
from duly._core.call import CallStream
from duly._core.topology import Node

# --- sync only
# | from duly._sync import blocked_loop
# --- end

if TYPE_CHECKING:
    from duly.embedded import EmbeddedServer

_LOG: Final = logging.getLogger("duly")
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
        self._sentinels = AsyncSentinels(self.address) if self.address.topology == "sentinel" else None
        self.pool: AsyncPool = self._new_pool(None)
        """The pool of the only server, or of the primary that was used last."""
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
        self._abandon()

    def _abandon(self) -> None:
        """Drop all connections that are not in use, from any thread."""
        self.pool.abandon()
        if self._sentinels is not None:
            self._sentinels.abandon()

    def rebind_loop(self) -> None:
        """Drop the connections of a previous event loop, if asyncio.run() was called again."""
        loop = asyncio.get_running_loop()
        if self._loop is None:  # there are no connections yet, and the consumer name of the first claim is kept
            self._loop = loop
        elif self._loop is not loop:
            self._abandon()
            server, is_closed = self._server, self.is_closed
            self._reset()
            self._loop, self._server, self.is_closed = loop, server, is_closed
            if is_closed:
                self.pool.mark_closed()

    def close_from_outside(self) -> None:
        """Close everything from a thread that has no event loop."""
        self.is_closed = True
        self.pool.mark_closed()
        self._abandon()
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
        if self._sentinels is not None:
            await self._sentinels.aclose()
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

    async def serving_pool(self) -> AsyncPool:
        """Return the pool of the node to send the next call to."""
        if self._sentinels is not None and not self.is_closed:
            node = await self._sentinels.primary()
            if node is None:
                self.pool.retire(f"no sentinel names the primary: {self._sentinels.silence}")
            elif node != self.pool.node:
                self._switch(node)
        return self.pool

    def _switch(self, node: Node) -> None:
        """Use another primary. Blocked calls are aborted, so that their callers claim there."""
        with self._opening:
            if node == self.pool.node:  # another thread was faster
                return
            old, self.pool = self.pool, self._new_pool(node)
        if old.node is not None:
            _LOG.warning("%s: the primary is %s now, and was %s", self.address.shown, node, old.node)
            self.pool.is_down = old.is_down  # the outage of the service ends with the first answer
            old.retire(f"{old.node} is no longer the primary")

    def doubt(self, pool: AsyncPool, error: Exception | None = None) -> None:
        """Ask the sentinels again before the next call, since a call to this pool failed."""
        if self._sentinels is None or pool.node is None:
            return
        self._sentinels.doubt(pool.node)
        if isinstance(error, NotPrimary) and error.primary is not None:
            self._sentinels.learn(error.primary)

    def _new_pool(self, node: Node | None) -> AsyncPool:
        # A method of the proxy would keep this object alive, and an app that was not closed would not be collected.
        own = weakref.proxy(self)
        return AsyncPool(
            self.address.shown if node is None else f"{self.address.shown} at {node}",
            lambda: own._new_wire(node),
            lambda: own.ensure_server(),  # noqa: PLW0108
            allow_eviction=self._allow_eviction,
            node=node,
        )

    def _new_wire(self, node: Node | None) -> AsyncWire:
        options = self.address.options
        if node is not None:
            options = {**options, "host": node.host, "port": node.port}
        if self.address.kind == "embedded":
            options = {"path": str(self._server.socket_path) if self._server else ""}
        return AsyncWire(self.address.kind, options, f"duly:{self.role}:{_HOST}:{os.getpid()}")


_alive: Final[weakref.WeakSet[AsyncConnections]] = weakref.WeakSet()

# A child process must not close inherited connections, not even by garbage collection. It shares the poll set of the
# event loop with its parent, which would get no more events of these connections.
_inherited: Final[list[object]] = []


def _forget_after_fork() -> None:
    for connections in list(_alive):
        _inherited.append((connections.pool.disown(), connections._sentinels))
        connections._reset()


os.register_at_fork(after_in_child=_forget_after_fork)
