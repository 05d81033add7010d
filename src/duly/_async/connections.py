"""The connections of one app: a pool for each node, and the streams of numbered calls. Dropped after a fork."""

import asyncio
import os
import re
import secrets
import socket
import threading
import weakref
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Literal

from duly._async.ends import AsyncEnds
from duly._async.pool import AsyncPool, closed
from duly._async.primitives import in_thread
from duly._async.rollbacks import AsyncRollbacks
from duly._async.routing import AsyncClusterRouter, AsyncOneServer, AsyncRouter, AsyncSentinelRouter
from duly._async.wire import AsyncWire
from duly._core.address import Address
from duly._core.call import CallStream
from duly._core.topology import Node, Placed

# --- sync only
# | from duly._sync import blocked_loop
# --- end

if TYPE_CHECKING:
    from duly.embedded import EmbeddedServer

_HOST: Final = re.sub(r"[^!-~]", "-", socket.gethostname())
"""The host name in a form that CLIENT SETNAME accepts: without spaces and control characters."""


class AsyncConnections:
    """The pools of all nodes, the consumer name of this process, and its streams."""

    def __init__(self, address: Address, *, allow_eviction: bool) -> None:
        self.address = address
        self.role: Literal["client", "worker"] = "client"
        """The role of new connections in CLIENT LIST."""
        self._allow_eviction = allow_eviction
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        """Start without connections: at first, and in a child process, where the old ones belong to the parent."""
        self.is_closed: bool = False
        self.consumer: str = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.router: AsyncRouter = self._new_router()
        self.only_pool: AsyncPool | None = self.router.pools[0] if self.address.topology == "single" else None
        """The pool of the only server. It saves every call the way through the router."""
        self.rollbacks: AsyncRollbacks = AsyncRollbacks(self.router)
        self._streams: list[CallStream] = []
        """Streams that no call uses. They are reused, since each leaves a key in each queue."""
        self.ends: dict[bytes, AsyncEnds] = {}
        """The waits for ends of messages, by the prefix of the keys of their queue."""
        self._server: EmbeddedServer | None = None
        self._opening = threading.Lock()
        # --- async only
        self._loop: asyncio.AbstractEventLoop | None = None
        # --- end

    # --- async only
    def __del__(self) -> None:
        """Drop the connections of an app that was not closed. The event loop would keep them open."""
        self._abandon()
        for pool in self.router.pools:  # of calls that were in progress when their event loop ended
            pool.abandon_used()

    def _abandon(self) -> None:
        """Drop all connections that are not in use, from any thread."""
        self.router.abandon()
        for pool in self.router.pools:
            pool.abandon()

    def rebind_loop(self) -> None:
        """Drop the connections of a previous event loop, if asyncio.run() was called again."""
        loop = asyncio.get_running_loop()
        if self._loop is None:  # there are no connections yet, and the consumer name of the first claim is kept
            self._loop = loop
        elif self._loop is not loop:
            self._abandon()
            if self._loop.is_closed():  # it ended with calls in progress
                for pool in self.router.pools:
                    pool.abandon_used()
            server, is_closed = self._server, self.is_closed
            self._reset()
            self._loop, self._server, self.is_closed = loop, server, is_closed
            if is_closed:
                self._mark_closed()

    def close_from_outside(self) -> None:
        """Close everything from a thread that has no event loop."""
        self._mark_closed()
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
        self._mark_closed()
        await self.router.aclose()
        for pool in self.router.pools:
            await pool.aclose()
        server, self._server = self._server, None
        if server is not None:
            await in_thread(server.release)

    def _mark_closed(self) -> None:
        self.is_closed = True
        for pool in self.router.pools:
            pool.mark_closed()

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

    def serving_pool(self, keys: Placed | None = None) -> Awaitable[AsyncPool]:
        """Return the pool of the node that serves these keys. A try of a call asks each time, since slots move."""
        if self.is_closed:
            raise closed(self.address.shown)
        return self.router.pool_for(keys)

    def has_moved(self, pool: AsyncPool, error: Exception) -> bool:
        """Note why a blocking call on a pool failed. True: its slot has moved, and it may begin again at once."""
        route = self.router.redirected(pool, error)
        if route is None:
            self.router.doubt(pool, error)
        return route is not None and not route.is_asking  # while a slot moves, a call would fail again at once

    @property
    def is_connected(self) -> bool:
        """Whether a node was reached."""
        return any(pool.is_checked for pool in self.router.pools)

    @property
    def is_down(self) -> bool:
        """Whether an outage of a node was logged that has not ended yet."""
        return any(pool.outage.is_on for pool in self.router.pools)

    def _new_router(self) -> AsyncRouter:
        own = weakref.proxy(self)  # this object is not kept alive, or an app that was not closed would not be collected

        def make_pool(node: Node | None) -> AsyncPool:
            pool: AsyncPool = own._new_pool(node)
            return pool

        if self.address.topology == "sentinel":
            return AsyncSentinelRouter(self.address, make_pool)
        if self.address.topology == "cluster":
            return AsyncClusterRouter(self.address, make_pool)
        return AsyncOneServer(make_pool)

    def _new_pool(self, node: Node | None) -> AsyncPool:
        # A method of the proxy would keep this object alive, and an app that was not closed would not be collected.
        own = weakref.proxy(self)
        pool = AsyncPool(
            self.address.shown if node is None else f"{self.address.shown} at {node}",
            lambda: own._new_wire(node),
            lambda: own.ensure_server(),  # noqa: PLW0108
            allow_eviction=self._allow_eviction,
            node=node,
            checks_role=node is not None and self.address.topology == "sentinel",
            service=self.address.shown if self.address.topology == "sentinel" else "",
        )
        if self.is_closed:  # a call in progress was redirected to another node
            pool.mark_closed()
        return pool

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
        _inherited.append(([pool.disown() for pool in connections.router.pools], connections.router))
        connections._reset()


os.register_at_fork(after_in_child=_forget_after_fork)
