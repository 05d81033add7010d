"""The connections of one app: opened when needed, reused, used by one caller at a time, and dropped after a fork."""

import asyncio
import logging
import os
import re
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from duly._async.ends import AsyncEnds
from duly._async.primitives import Gate, in_thread
from duly._async.wire import AsyncWire
from duly._core.address import Address
from duly._core.server import check_server, eviction_of, read_info

# --- sync only
# | from duly._sync import blocked_loop
# --- end
from duly.errors import UsageError

if TYPE_CHECKING:
    from duly.embedded import EmbeddedServer

T = TypeVar("T")

_LOG: Final = logging.getLogger("duly")
_MAX_CALLS_AT_ONCE: Final = 32
_HOST: Final = re.sub(r"[^!-~]", "-", socket.gethostname())
"""The host name in a form that CLIENT SETNAME accepts: without spaces and control characters."""
_CHECK_EVICTION_EVERY: Final = 60.0
"""Seconds after which a new connection checks again whether the server may evict keys."""
_CLOSE_AFTER: Final = 60.0
"""Seconds of idle time after which a connection is closed, when another call ends."""


class AsyncSlot:
    """One connection and its stream of numbered calls, one at a time."""

    __slots__ = ("sequence", "stream", "wire")

    def __init__(self, wire: AsyncWire) -> None:
        self.wire: AsyncWire = wire
        self.stream: bytes = secrets.token_hex(8).encode()
        self.sequence: int = 0


class AsyncConnections:
    """Slots for calls, and wires for blocking waits. `gate` limits the number of concurrent calls."""

    def __init__(self, address: Address, *, allow_eviction: bool) -> None:
        self.address = address
        self.role: Literal["client", "worker"] = "client"
        """The role of new connections in CLIENT LIST."""
        self._allow_eviction = allow_eviction
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        """Start without connections: at first, and in a child process, where the old ones belong to the parent."""
        self.gate: Gate = Gate(_MAX_CALLS_AT_ONCE)
        self.consumer: str = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._free: list[AsyncSlot] = []
        """The slot that was used last is at the end, and is reused first."""
        self._resting: list[AsyncSlot] = []
        """Slots whose connection was closed. Their streams are reused, since each stream leaves a key in each queue."""
        self._waiting: list[AsyncWire] = []
        self.ends: dict[bytes, AsyncEnds] = {}
        """The waits for ends of messages, by the prefix of the keys of their queue."""
        self._server: EmbeddedServer | None = None
        self._opening = threading.Lock()
        self.is_checked: bool = False
        """Whether a server was reached and passed the check."""
        self._check_eviction_at = 0.0
        self._may_evict = False
        self.is_closed: bool = False
        # --- async only
        self._loop: asyncio.AbstractEventLoop | None = None
        # --- end

    # --- async only
    def __del__(self) -> None:
        """Drop the connections of an app that was not closed. The event loop would keep them open."""
        self.abandon()

    def rebind_loop(self) -> None:
        """Drop the connections of a previous event loop, if asyncio.run() was called again."""
        loop = asyncio.get_running_loop()
        if self._loop is None:  # there are no connections yet, and the consumer name of the first claim is kept
            self._loop = loop
        elif self._loop is not loop:
            self.abandon()
            server, is_closed = self._server, self.is_closed
            self._reset()
            self._loop, self._server, self.is_closed = loop, server, is_closed

    def abandon(self) -> None:
        """Drop all connections without awaiting on their event loop."""
        for wire in (*self._waiting, *(slot.wire for slot in self._free)):
            wire.abandon()
        self._waiting.clear()
        self._free.clear()

    def close_from_outside(self) -> None:
        """Close everything from a thread that has no event loop."""
        self.is_closed = True
        self.abandon()
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
    def take(self) -> AsyncSlot:
        """Take a free slot. Its wire may be closed. Raises UsageError if the app is closed."""
        self._check_open()
        return _popped(self._free) or _popped(self._resting) or AsyncSlot(self._new_wire())

    def give(self, slot: AsyncSlot) -> None:
        """Put a slot back."""
        if self.is_closed:
            slot.wire.abandon()
        now = slot.wire.idle_since = time.monotonic()
        if self._free and (idle := _popped_idle(self._free, lambda free: free.wire.idle_since, now)):
            idle.wire.abandon()
            self._resting.append(idle)
        self._free.append(slot)

    async def opened(self, slot: AsyncSlot) -> AsyncWire:
        """Connect a slot if it is not connected. The first connection checks the server."""
        if slot.wire.is_open:
            return slot.wire
        await self.ensure_server()
        slot.wire = self._new_wire()
        await slot.wire.open()
        if not self.is_checked:
            await self._check_server(slot.wire)
        elif time.monotonic() >= self._check_eviction_at:
            await self.check_eviction(slot.wire)
        return slot.wire

    async def _check_server(self, wire: AsyncWire) -> None:
        """Check the server. If the check fails, close the connection, so that the next call does not use it."""
        try:
            info = read_info(await wire.ask([b"INFO"]))
            check_server(info, self.address.shown, allow_eviction=self._allow_eviction)
        except BaseException:
            await wire.close()
            raise
        self.is_checked = True
        self._check_eviction_at = time.monotonic() + _CHECK_EVICTION_EVERY

    async def check_eviction(self, wire: AsyncWire) -> None:
        """Log if the server may evict keys since the last check, and if it no longer may.

        Calls are not refused, since leased messages have to be settled.
        """
        self._check_eviction_at = time.monotonic() + _CHECK_EVICTION_EVERY
        if self._allow_eviction:
            return
        danger = eviction_of(read_info(await wire.ask([b"INFO", b"memory"])), self.address.shown)
        may_evict, self._may_evict = self._may_evict, bool(danger)
        if danger and not may_evict:
            _LOG.error("%s", danger)
        elif may_evict and not danger:
            _LOG.warning("%s no longer evicts keys", self.address.shown)

    async def take_waiting(self) -> AsyncWire:
        """Take a connection for a blocking command. Its client id is known."""
        self._check_open()
        wire = _popped(self._waiting)
        if wire is not None and wire.is_open:
            return wire
        await self.ensure_server()
        wire = self._new_wire()
        try:
            await wire.open()
            wire.client_id = await wire.ask([b"CLIENT", b"ID"])
        except BaseException:
            await wire.close()
            raise
        return wire

    def give_waiting(self, wire: AsyncWire) -> None:
        """Put a connection for blocking commands back."""
        if self.is_closed:
            wire.abandon()
        now = wire.idle_since = time.monotonic()
        if self._waiting and (idle := _popped_idle(self._waiting, lambda waiting: waiting.idle_since, now)):
            idle.abandon()
        self._waiting.append(wire)

    async def aclose(self) -> None:
        """Close all connections and release the embedded server. Connections in use are closed when put back."""
        self.is_closed = True
        while slot := _popped(self._free):
            await slot.wire.close()
        while wire := _popped(self._waiting):
            await wire.close()
        server, self._server = self._server, None
        if server is not None:
            await in_thread(server.release)

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"the app on {self.address.shown} is closed: open another one")

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

    def _new_wire(self) -> AsyncWire:
        options = self.address.options
        if self.address.kind == "embedded":
            options = {"path": str(self._server.socket_path) if self._server else ""}
        name = "" if "client_name" in options else f"duly:{self.role}:{_HOST}:{os.getpid()}"
        return AsyncWire(self.address.kind, options, name)


_alive: Final[weakref.WeakSet[AsyncConnections]] = weakref.WeakSet()


def _popped(spare: list[T]) -> T | None:
    """Pop an item, or return None. Threads share the list, so a check before the pop would not be enough."""
    try:
        return spare.pop()
    except IndexError:
        return None


def _popped_idle(spare: list[T], idle_since: Callable[[T], float], now: float) -> T | None:
    """Pop the item that was idle longest, if it was idle long enough. Threads share the list."""
    try:
        if now - idle_since(spare[0]) < _CLOSE_AFTER:
            return None
        oldest = spare.pop(0)
    except IndexError:
        return None
    if now - idle_since(oldest) >= _CLOSE_AFTER:
        return oldest
    spare.insert(0, oldest)  # another thread took the item that was checked
    return None


# A child process must not close inherited connections, not even by garbage collection. It shares the poll set of the
# event loop with its parent, which would get no more events of these connections.
_inherited: Final[list[object]] = []


def _forget_after_fork() -> None:
    for connections in list(_alive):
        _inherited.append((connections._free, connections._waiting))
        connections._reset()


os.register_at_fork(after_in_child=_forget_after_fork)
