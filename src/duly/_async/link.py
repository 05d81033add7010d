"""The link between the client and one server: carries calls, as often as it takes.

Own policy instead of redis-py's silent repeats: a call keeps its stream and sequence number however
often it is sent, so the server does it once (I6).
"""

import asyncio
import logging
import os
import random
import secrets
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from duly._async.wire import REPLY_TIMEOUT, AsyncWire, Gate, in_background, in_thread, sleep, uninterrupted
from duly._core import keys as key_names
from duly._core import ops, patience, replies
from duly._core.address import Address
from duly._core.call import Arg, Call
from duly._core.keys import QueueKeys
from duly._core.server import check_server, is_unknown_command, read_info
from duly.errors import QueueFull, ServerError, Unavailable
from duly.options import Durable

if TYPE_CHECKING:
    from duly.embedded import EmbeddedServer

T = TypeVar("T")
U = TypeVar("U")

_LOG: Final = logging.getLogger("duly")
_MAX_CONNECTIONS: Final = 32
_DURABLE_MS: Final = 5000
_UNREACHABLE: Final = (RedisConnectionError, RedisTimeoutError, OSError)
_REFUSED: Final = (AuthenticationError, AuthorizationError, NoPermissionError)

_links: Final[weakref.WeakSet["AsyncLink"]] = weakref.WeakSet()


class _Slot:
    """One connection and its stream of calls: one call outstanding, numbered."""

    __slots__ = ("sequence", "stream", "wire")

    def __init__(self, wire: AsyncWire) -> None:
        self.wire = wire
        self.stream = secrets.token_hex(8).encode()
        self.sequence = 0


class AsyncLink:
    """All connections of one app to one server. May be shared by tasks; survives a fork."""

    def __init__(self, address: Address, *, patience: float, allow_eviction: bool) -> None:
        self._address = address
        self._patience = patience
        self._allow_eviction = allow_eviction
        self._start_anew()
        _links.add(self)

    def _start_anew(self) -> None:
        """Own no connection: at the beginning, and in a child process, where the old ones are the parent's."""
        self._gate = Gate(_MAX_CONNECTIONS)
        self._free: list[_Slot] = []
        self._waiters: list[AsyncWire] = []
        self._server: EmbeddedServer | None = None
        self._is_checked = False
        self._is_down = False
        self._opening = threading.Lock()
        # --- async only
        self._loop: asyncio.AbstractEventLoop | None = None
        # --- end
        self.consumer = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"

    # --- async only
    def _mind_the_loop(self) -> None:
        """Own no connection of another event loop: asyncio.run() was called again."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            for wire in (*self._waiters, *(slot.wire for slot in self._free)):
                wire.abandon()
            server = self._server
            self._start_anew()
            self._loop, self._server = loop, server

    def close_from_outside(self) -> None:
        """Drop all connections from a thread that has no event loop."""
        for wire in (*self._waiters, *(slot.wire for slot in self._free)):
            wire.abandon()
        self._waiters.clear()
        self._free.clear()

    # --- end
    async def run(self, call: Call[T]) -> T:
        """Carry a call to the server and read its answer. A cancelled caller does not cut it off."""
        return call.decode(await uninterrupted(self._carry(call)))

    async def run_now(self, call: Call[T]) -> T:
        """Do as `run`, for callers that are never cancelled."""
        return call.decode(await self._carry(call))

    async def run_durably(self, call: Call[T], durable: Durable) -> tuple[T, str]:
        """Carry a call and wait until it is as durable as asked; the text says why it is not."""
        unconfirmed: list[str] = []
        reply = await uninterrupted(self._carry(call, durable, unconfirmed))
        return call.decode(reply), unconfirmed[-1] if unconfirmed else ""

    async def _carry(self, call: Call[Any], durable: Durable = None, unconfirmed: list[str] | None = None) -> Any:
        """Send a call until it is answered, or patience is over."""
        # --- async only
        self._mind_the_loop()
        # --- end
        async with self._gate:
            slot = self._take_slot()
            slot.sequence += 1
            try:
                return await self._insist(slot, call, durable, unconfirmed)
            finally:
                self._free.append(slot)

    def _take_slot(self) -> _Slot:
        return _popped(self._free) or _Slot(self._new_wire())

    async def _insist(self, slot: _Slot, call: Call[Any], durable: Durable, unconfirmed: list[str] | None) -> Any:
        give_up_at, tries = 0.0, 0
        while True:
            try:
                reply = await self._try(slot, call)
                if durable is not None and unconfirmed is not None:
                    unconfirmed.append(await self._confirm(slot.wire, durable))
                if self._is_down:
                    self._note_up()
                return reply
            except _REFUSED as error:
                raise ServerError(f"{self._address.shown} refused the connection or the command: {error}") from error
            except _UNREACHABLE as error:
                await slot.wire.close()
                trouble: Exception = error
            except RedisError as error:
                await self._handle(slot, call, error)
                trouble = error
            now = time.monotonic()
            give_up_at = give_up_at or now + self._patience
            if tries:  # a single cut is no outage: an idle connection was closed, say
                self._note_down(trouble)
            if now >= give_up_at:
                raise self._unavailable(call, trouble) from trouble
            await sleep(patience.backoff(tries, random.random))
            tries += 1

    async def _try(self, slot: _Slot, call: Call[Any]) -> Any:
        wire = slot.wire
        if not wire.is_open:
            wire = await self._open(slot)
        script = call.script
        try:
            return await wire.ask(call.command(b"EVALSHA", script.sha, slot.stream, slot.sequence))
        except ResponseError as error:
            if replies.trouble_of(error) != "noscript":
                raise
            return await wire.ask(call.command(b"EVAL", script.text, slot.stream, slot.sequence))

    async def _handle(self, slot: _Slot, call: Call[Any], error: RedisError) -> None:
        """Return when the call may be tried again; raise what it means otherwise."""
        trouble = replies.trouble_of(error)
        queue = call.keys.name
        if trouble == "full":
            raise QueueFull(
                f"{self._address.shown} is at maxmemory: {call.script.name} on queue {queue!r} was refused and nothing "
                "was written. Let consumers drain it, or raise maxmemory"
            ) from error
        if trouble == "reconnect":
            await slot.wire.close()
        elif trouble != "retry":
            raise ServerError(
                f"{call.script.name} on queue {queue!r} failed on {self._address.shown}: {error}"
            ) from error

    async def _open(self, slot: _Slot) -> AsyncWire:
        """Connect a slot; look at the server the first time."""
        if self._address.kind == "embedded":
            await in_thread(self._ensure_embedded)
            slot.wire = self._new_wire()
        await slot.wire.open()
        if not self._is_checked:
            info = read_info(await slot.wire.ask([b"INFO"]))
            check_server(info, self._address.shown, allow_eviction=self._allow_eviction)
            self._is_checked = True
        return slot.wire

    def _ensure_embedded(self) -> None:
        from duly.embedded import open_server

        with self._opening:
            if self._server is None:
                self._server = open_server(self._address.place)
            else:
                self._server.ensure_running()

    def _new_wire(self) -> AsyncWire:
        options = self._address.options
        if self._address.kind == "embedded":
            options = {"path": str(self._server.socket_path) if self._server else ""}
        return AsyncWire(self._address.kind, options)

    async def _confirm(self, wire: AsyncWire, durable: Durable) -> str:
        """Wait until the last write of this connection is safe; say what is missing."""
        timeout = _DURABLE_MS / 1000 + REPLY_TIMEOUT
        if durable == "fsync":
            return await self._confirm_fsync(wire, timeout)
        wanted = 1 if durable == "replica" else int(durable or 0)
        confirmed = await wire.ask([b"WAIT", wanted, _DURABLE_MS], timeout)
        if confirmed >= wanted:
            return ""
        return f"{confirmed} of {wanted} replicas confirmed it within {_DURABLE_MS / 1000:g} s"

    async def _confirm_fsync(self, wire: AsyncWire, timeout: float) -> str:
        """Wait for the append-only file, and believe it only of a server that syncs every write.

        With `appendfsync everysec` WAITAOF may answer before the file is synced: Redis from 7.4 until
        redis/redis#13793, and Valkey 9.1, where a power failure was seen to take what it had confirmed.
        """
        try:
            local, _ = await wire.ask([b"WAITAOF", 1, 0, _DURABLE_MS], timeout)
        except ResponseError as error:
            if not is_unknown_command(str(error)):
                return f"the server did not confirm it: {error}"
            local = 1  # Redis before 7.2: the setting alone decides
        if local < 1:
            return f"the server did not sync its append-only file within {_DURABLE_MS / 1000:g} s"
        return await self._confirm_always(wire)

    async def _confirm_always(self, wire: AsyncWire) -> str:
        """Look whether the server syncs before it answers: then the reply itself is the proof."""
        settings: dict[bytes, bytes] = {}
        try:
            for name in (b"appendonly", b"appendfsync"):
                found = await wire.ask([b"CONFIG", b"GET", name])
                settings.update(zip(found[0::2], found[1::2], strict=True))
        except ResponseError as error:
            return f"the server does not tell whether it syncs every write: {error}"
        if settings.get(b"appendonly") == b"yes" and settings.get(b"appendfsync") == b"always":
            return ""
        return "the server does not sync every write (appendonly yes, appendfsync always)"

    async def wait_for_token(self, keys: QueueKeys, seconds: float, *, exact: bool) -> bool:
        """Wait until somebody says that there is something to look at. True: a token was taken.

        `exact`: the end of the wait is a due time. A server's time-out fires up to 100 ms late and not at
        all when its clock steps back, so the end is kept here; the server's is a backstop.
        """
        if seconds <= 0:
            return False
        # --- async only
        self._mind_the_loop()
        # --- end
        wire = _popped(self._waiters)
        try:
            wire = await self._waiting_wire(wire)
            await wire.begin([b"BLPOP", keys.key("wake"), f"{seconds + (5 if exact else 0):.3f}"])
        except (*_UNREACHABLE, RedisError):
            if wire is not None:
                await wire.close()
            await sleep(min(seconds, patience.backoff(6, random.random)))
            return False
        except BaseException:  # cancelled: nobody knows what was asked on it
            if wire is not None:
                await wire.close()
            raise
        try:
            if not await wire.poll(seconds if exact else seconds + 0.3):
                await self._unblock(wire)
            token = await wire.finish() is not None
        except (*_UNREACHABLE, RedisError):
            await wire.close()
            return False
        except BaseException:
            in_background(self._leave(wire, keys))
            raise
        self._waiters.append(wire)
        return token

    async def _waiting_wire(self, wire: AsyncWire | None) -> AsyncWire:
        if wire is None or not wire.is_open:
            if self._address.kind == "embedded":
                await in_thread(self._ensure_embedded)
            wire = self._new_wire()
            try:
                await wire.open()
                wire.client_id = await wire.ask([b"CLIENT", b"ID"])
            except BaseException:
                await wire.close()
                raise
        return wire

    async def _unblock(self, wire: AsyncWire) -> None:
        """End a blocking call from outside: the connection stays usable and no token is lost.

        On its own connection this may overtake the blocking call, and find nothing to end: then it is said
        again, unless the reply has come by itself.
        """
        async with self._gate:
            slot = self._take_slot()
            try:
                if not slot.wire.is_open:
                    await self._open(slot)
                for tries in range(11):
                    is_ended = await slot.wire.ask([b"CLIENT", b"UNBLOCK", wire.client_id])
                    if is_ended or await wire.poll(0.001 * 2**tries):
                        break
            finally:
                self._free.append(slot)

    async def _leave(self, wire: AsyncWire, keys: QueueKeys) -> None:
        """Stop waiting in the middle: a token that was taken meanwhile goes to the next."""
        try:
            await self._unblock(wire)
            if await wire.finish() is not None:
                await self._carry(ops.wake(keys))
            self._waiters.append(wire)
        except Exception:  # noqa: BLE001 - leaving: whoever waits looks again by itself after a while
            await wire.close()

    async def queues(self, namespace: str) -> list[str]:
        """Find the queues that were ever used. Keys are few: none belongs to a single message."""
        # --- async only
        self._mind_the_loop()
        # --- end
        found: set[str] = set()
        cursor: bytes | int = 0
        async with self._gate:
            slot = self._take_slot()
            try:
                if not slot.wire.is_open:
                    await self._open(slot)
                while True:
                    command: list[Arg] = [b"SCAN", cursor, b"MATCH", key_names.queue_pattern(namespace), b"COUNT", 1000]
                    cursor, page = await slot.wire.ask(command)
                    found.update(key_names.queue_of_key(namespace, key) for key in page)
                    if cursor in (b"0", 0):
                        return sorted(found)
            except _UNREACHABLE as error:
                await slot.wire.close()
                raise Unavailable(f"{self._address.shown} did not answer: {_described(error)}") from error
            finally:
                self._free.append(slot)

    async def aclose(self) -> None:
        """Close all connections, and leave the embedded server. Queued data stays."""
        for slot in self._free:
            await slot.wire.close()
        for wire in self._waiters:
            await wire.close()
        self._free.clear()
        self._waiters.clear()
        server, self._server = self._server, None
        if server is not None:
            await in_thread(server.release)

    def _note_down(self, trouble: Exception) -> None:
        if not self._is_down:
            self._is_down = True
            _LOG.warning("%s does not answer: %s", self._address.shown, _described(trouble))

    def _note_up(self) -> None:
        self._is_down = False
        _LOG.warning("%s answers again", self._address.shown)

    def _unavailable(self, call: Call[Any], trouble: Exception) -> Unavailable:
        return Unavailable(
            f"{self._address.shown} did not answer within {self._patience:g} s: {call.script.name} on queue "
            f"{call.keys.name!r} may or may not have been carried out ({_described(trouble)}). Check that the server "
            "runs and can be reached, and send again with the same id= or dedup= if it must not be stored twice"
        )


def _popped(spare: list[U]) -> U | None:
    """Take one that is spare. Threads share the list, so looking before taking would not do."""
    try:
        return spare.pop()
    except IndexError:
        return None


def _described(error: Exception) -> str:
    return str(error) or type(error).__name__


def _forget_after_fork() -> None:
    for link in list(_links):
        link._start_anew()


os.register_at_fork(after_in_child=_forget_after_fork)
