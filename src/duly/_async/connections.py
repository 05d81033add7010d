"""The connections of one app: made when needed, used again, never shared, forgotten after a fork."""

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
from duly._async.wire import AsyncWire, Gate, in_thread
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
"""As CLIENT SETNAME takes it: without spaces and control characters."""
_LOOK_AGAIN_AFTER: Final = 60.0
"""Seconds after which a new connection looks again whether the server may evict keys."""
_CLOSE_AFTER: Final = 60.0
"""Seconds without use after which a connection is closed, as soon as another call ends."""


class AsyncSlot:
    """One connection and its stream of calls: one call outstanding, numbered."""

    __slots__ = ("sequence", "stream", "wire")

    def __init__(self, wire: AsyncWire) -> None:
        self.wire: AsyncWire = wire
        self.stream: bytes = secrets.token_hex(8).encode()
        self.sequence: int = 0


class AsyncConnections:
    """Slots for calls, and wires for those that wait. `gate` bounds how many calls are under way."""

    def __init__(self, address: Address, *, allow_eviction: bool) -> None:
        self.address = address
        self.role: Literal["client", "worker"] = "client"
        """What CLIENT LIST shows of new connections."""
        self._allow_eviction = allow_eviction
        self._start_anew()
        _alive.add(self)

    def _start_anew(self) -> None:
        """Own no connection: at the beginning, and in a child process, where the old ones are the parent's."""
        self.gate: Gate = Gate(_MAX_CALLS_AT_ONCE)
        self.consumer: str = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._free: list[AsyncSlot] = []
        """The slot that was used last is at the end, and is taken first."""
        self._resting: list[AsyncSlot] = []
        """Slots whose connection was closed. They keep their stream: a stream leaves a key in each queue."""
        self._waiting: list[AsyncWire] = []
        self.ends: dict[bytes, AsyncEnds] = {}
        """Who waits for ends of messages, by the prefix of their queue's keys."""
        self._server: EmbeddedServer | None = None
        self._opening = threading.Lock()
        self.is_checked: bool = False
        """Whether a server was ever reached, and found fit."""
        self._look_at = 0.0
        self._may_evict = False
        self.is_closed: bool = False
        # --- async only
        self._loop: asyncio.AbstractEventLoop | None = None
        # --- end

    # --- async only
    def mind_the_loop(self) -> None:
        """Own no connection of another event loop: asyncio.run() was called again."""
        loop = asyncio.get_running_loop()
        if self._loop is None:  # it owns nothing yet, and keeps the name that its first claim was made under
            self._loop = loop
        elif self._loop is not loop:
            self.abandon()
            server, is_closed = self._server, self.is_closed
            self._start_anew()
            self._loop, self._server, self.is_closed = loop, server, is_closed

    def abandon(self) -> None:
        """Drop all connections without their event loop."""
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
    # | def mind_the_loop(self) -> None:
    # |     """Warn, once in a process, when this thread runs an event loop, which the call would block."""
    # |     if asyncio._get_running_loop() is not None:
    # |         blocked_loop.warn()
    # |
    # --- end
    def take(self) -> AsyncSlot:
        """Take a slot that nobody uses. Its wire may be closed."""
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
        """Connect a slot if it is not; look at the server the first time."""
        if slot.wire.is_open:
            return slot.wire
        await self.ensure_server()
        slot.wire = self._new_wire()
        await slot.wire.open()
        if not self.is_checked:
            await self._check_server(slot.wire)
        elif time.monotonic() >= self._look_at:
            await self.look_again(slot.wire)
        return slot.wire

    async def _check_server(self, wire: AsyncWire) -> None:
        """Look whether the server is fit. A connection to one that is not must not serve the next call, either."""
        try:
            info = read_info(await wire.ask([b"INFO"]))
            check_server(info, self.address.shown, allow_eviction=self._allow_eviction)
        except BaseException:
            await wire.close()
            raise
        self.is_checked = True
        self._look_at = time.monotonic() + _LOOK_AGAIN_AFTER

    async def look_again(self, wire: AsyncWire) -> None:
        """Log when a server that was found fit may evict keys by now, and when it no longer may.

        Nothing is refused: what is leased has to be settled.
        """
        self._look_at = time.monotonic() + _LOOK_AGAIN_AFTER
        if self._allow_eviction:
            return
        danger = eviction_of(read_info(await wire.ask([b"INFO", b"memory"])), self.address.shown)
        may_evict, self._may_evict = self._may_evict, bool(danger)
        if danger and not may_evict:
            _LOG.error("%s", danger)
        elif may_evict and not danger:
            _LOG.warning("%s evicts no keys any more", self.address.shown)

    async def take_waiting(self) -> AsyncWire:
        """Take a connection to block on, with its client id known."""
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
        """Put a connection to block on back."""
        if self.is_closed:
            wire.abandon()
        now = wire.idle_since = time.monotonic()
        if self._waiting and (idle := _popped_idle(self._waiting, lambda waiting: waiting.idle_since, now)):
            idle.abandon()
        self._waiting.append(wire)

    async def aclose(self) -> None:
        """Close everything, what is in use as soon as it comes back, and leave the embedded server."""
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
        """Start the embedded server, where it is one and does not run.

        Raises Unavailable when it cannot be started, and ConnectionError when it was stopped by force: then it is
        away, as any server may be, and a call waits for it as long as its patience lasts.
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
    """Take one that is spare. Threads share the list, so looking before taking would not do."""
    try:
        return spare.pop()
    except IndexError:
        return None


def _popped_idle(spare: list[T], idle_since: Callable[[T], float], now: float) -> T | None:
    """Take the one that was not used for the longest time, if that is long. Threads share the list."""
    try:
        if now - idle_since(spare[0]) < _CLOSE_AFTER:
            return None
        oldest = spare.pop(0)
    except IndexError:
        return None
    if now - idle_since(oldest) >= _CLOSE_AFTER:
        return oldest
    spare.insert(0, oldest)  # another thread took the one that was looked at
    return None


# What a child inherits must not be closed there, not even by the garbage collector: an event loop's poll
# set is shared with the parent, which would then never hear of its own connections again.
_inherited: Final[list[object]] = []


def _forget_after_fork() -> None:
    for connections in list(_alive):
        _inherited.append((connections._free, connections._waiting))
        connections._start_anew()


os.register_at_fork(after_in_child=_forget_after_fork)
