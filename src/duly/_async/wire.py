"""One connection to one server, for asyncio. It has no policy: no retries, no backoff.

The sync counterpart of this file is written by hand as well.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from duly import _sockets
from duly._async.primitives import in_thread
from duly._core.address import Kind
from duly._core.resp import (
    REPLY_TYPES,
    UNFINISHED,
    Arg,
    ErrorReply,
    Greeting,
    MalformedReply,
    copied,
    greetings,
    login_of,
    new_reader,
    packed,
    packed_both,
    unexpected,
)

UNREACHABLE: Final = OSError
"""The exception of a wire if the server cannot be reached or does not answer. Timeouts and TLS errors are OSErrors."""

CONNECT_TIMEOUT: Final = 5.0
REPLY_TIMEOUT: Final = 5.0
"""Seconds that a server may take to reply. All scripts are bounded, so a server that takes longer is stuck."""


class AsyncWire(asyncio.Protocol):
    """A connection that is opened once. Commands may overlap: the server replies in their order.

    A caller may be cancelled. Its reply is read and dropped, and the wire stays usable. After all other failures the
    wire is closed: a late reply must not be read by another call.
    """

    def __init__(self, kind: Kind, options: Mapping[str, Any], name: str = "") -> None:
        """`name` is for CLIENT LIST. It is ignored if the user may not set a name."""
        self._kind = kind
        self._options = options
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: asyncio.Transport | None = None
        self._reader = new_reader()
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        """The replies that are due, in order, each with its deadline by the clock of the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._end: Exception | None = None
        """Why the wire is closed."""
        self._begun: asyncio.Future[Any] | None = None
        self.listener: Callable[[], None] | None = None
        """Called in the turn of the event loop in which replies have arrived, or in which the connection has ended. The
        callback of a future would be called a turn later."""
        self.client_id = 0
        """The id for CLIENT UNBLOCK, set for connections that block."""
        self.idle_since: float = 0.0
        """When its last call ended, by the monotonic clock."""

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._transport is not None

    async def open(self, timeout: float | None = None) -> None:
        """Connect, log in and select the database. Raises OSError, or ErrorReply if the server refuses it."""
        timeout = CONNECT_TIMEOUT if timeout is None else timeout
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                await self._connect(self._loop.time() + timeout)
                login = await self._login()
                await self._greet(greetings(self._options, login, self._name), timeout)
        except BaseException as error:
            self._close(ConnectionError("the connection was not completed"))
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"no connection within {timeout:g} s") from None
            raise

    async def _login(self) -> list[Arg]:
        if "credentials" in self._options:  # it may ask a token service
            return await in_thread(login_of, self._options)
        return login_of(self._options)

    async def _greet(self, commands: Sequence[Greeting], timeout: float) -> None:
        """Send all commands in one write."""
        pieces = [b"".join(piece for each in commands for piece in packed(each.command))]
        waiting = self._send(pieces, timeout, len(commands))
        for each, reply in zip(commands, waiting, strict=True):
            try:
                await reply
            except ErrorReply as error:
                if each.is_required or not error.leaves_command_out:
                    raise

    async def _connect(self, ends_at: float) -> None:
        assert self._loop is not None
        if self._kind in ("unix", "embedded"):
            await self._connect_to_socket(self._options["path"])
            return
        host, port = self._options["host"], self._options["port"]
        place = f"{host}:{port}"
        tls = await self._tls()
        errors: list[Exception] = []
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise _sockets.unreachable(place, [error]) from error
        for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
            share = (ends_at - self._loop.time()) / left  # an address that does not answer leaves time for the others
            try:
                async with asyncio.timeout(share):
                    await self._connect_to(socket.socket(family, kind, protocol), address, tls, host)
            except OSError as error:
                errors.append(error)
            else:
                return
        raise _sockets.unreachable(place, errors) from errors[-1]

    async def _tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings. The certificates of the system take tens of milliseconds to load."""
        return await in_thread(_sockets.tls_context, self._options) if self._kind == "tls" else None

    async def _connect_to_socket(self, path: str) -> None:
        assert self._loop is not None
        try:
            await self._loop.create_unix_connection(lambda: self, path)
        except OSError as error:
            raise _sockets.unreachable(path, [error]) from error

    async def _connect_to(self, connection: socket.socket, address: Any, tls: ssl.SSLContext | None, host: str) -> None:
        assert self._loop is not None
        try:
            connection.setblocking(False)
            _sockets.prepare(connection)
            await self._loop.sock_connect(connection, address)
            name = host if tls is not None else None
            await self._loop.create_connection(lambda: self, sock=connection, ssl=tls, server_hostname=name)
        except BaseException:
            connection.close()
            raise

    async def ask(self, command: Sequence[Arg], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a command and return its reply. Raises ErrorReply, MalformedReply or OSError."""
        return await self._send(packed(command), timeout)[0]

    async def ask_both(self, first: Sequence[Arg], second: Sequence[Arg], timeout: float = REPLY_TIMEOUT) -> list[Any]:
        """Send two commands in one write, so that the server runs them in a row. Return both replies."""
        before, reply = self._send(packed_both(first, second), timeout, 2)
        return [await before, await reply]

    def send(self, command: Sequence[Arg], timeout: float = REPLY_TIMEOUT) -> asyncio.Future[Any]:
        """Send a command in this turn of the event loop. The future ends with its reply."""
        return self._send(packed(command), timeout)[0]

    async def begin(self, command: Sequence[Arg]) -> asyncio.Future[Any]:
        """Send a command with a slow reply. The future ends when the reply is there, and `finish` returns it."""
        (self._begun,) = self._send(packed(command), None)
        return self._begun

    def begin_next(self, command: Sequence[Arg]) -> asyncio.Future[Any]:
        """Send a command that the server carries out after the one of `begin`. The future ends with its reply."""
        return self._send(packed(command), None)[0]

    async def poll(self, seconds: float) -> bool:
        """Wait up to `seconds` for the reply to `begin`, without reading it."""
        assert self._begun is not None
        done, _ = await asyncio.wait({self._begun}, timeout=seconds)
        return bool(done)

    async def finish(self, timeout: float = REPLY_TIMEOUT) -> Any:
        """Return the reply to `begin`."""
        assert self._begun is not None
        begun, self._begun = self._begun, None
        async with asyncio.timeout(timeout):
            return await begun

    async def close(self) -> None:
        """Disconnect. Safe to repeat."""
        self._close(ConnectionError("the connection is closed"))

    def hang_up(self) -> None:
        """Abort the connection. Pending calls fail."""
        self._close(ConnectionError("the connection is closed"))

    def abandon(self) -> None:
        """Drop a connection from any thread. Its event loop may have ended, so that nothing can be awaited on it."""
        transport, self._transport = self._transport, None
        if transport is None or self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(transport.abort)
        except RuntimeError:
            _close_socket(transport)

    # Sending

    def _send(self, pieces: Sequence[bytes], timeout: float | None, replies: int = 1) -> list[asyncio.Future[Any]]:
        """Write commands, and return the futures of their replies."""
        if self._transport is None or self._loop is None:
            raise copied(self._end or ConnectionError("the connection is not open"))
        for piece in pieces:
            self._transport.write(piece)
        deadline = float("inf") if timeout is None else self._loop.time() + timeout
        waiting = [self._loop.create_future() for _ in range(replies)]
        self._pending.extend((future, deadline) for future in waiting)
        if timeout is not None:
            self._watch(deadline)
        return waiting

    def _watch(self, deadline: float) -> None:
        """Check the deadlines at this time. One timer serves many calls, since nearly all end in time."""
        assert self._loop is not None
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        assert self._loop is not None
        self._timer = None
        if not self._pending:
            return
        earliest = min(deadline for _, deadline in self._pending)
        if earliest <= self._loop.time():
            self._close(TimeoutError("the server did not reply in time"))
        elif earliest != float("inf"):
            self._watch(earliest)

    # Receiving: called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop has no common class

    def data_received(self, data: bytes) -> None:
        """Give each reply to its call."""
        reader, pending = self._reader, self._pending
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not UNFINISHED:
                if not pending or type(reply) not in REPLY_TYPES:
                    self._close(unexpected(reply))
                    return
                future, _ = pending.popleft()
                if not future.done():  # otherwise the caller was cancelled
                    _settle(future, reply)
        except MalformedReply as error:
            self._close(error)
        else:
            if self.listener is not None:
                self.listener()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending calls."""
        self._close(exc if isinstance(exc, OSError) else ConnectionError("the server closed the connection"))

    def _close(self, why: Exception) -> None:
        """Disconnect, and fail all pending calls. Only the first reason counts."""
        transport, self._transport = self._transport, None
        if self._end is None:
            self._end = why
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if transport is not None:
            try:
                transport.abort()
            except RuntimeError:
                _close_socket(transport)
        failed, self._pending = self._pending, deque()
        _fail((future for future, _ in failed), self._end)
        if self.listener is not None:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                self.listener()


def _close_socket(transport: Any) -> None:
    """Close the socket of a transport as its event loop would have done, which is closed."""
    with contextlib.suppress(Exception):  # that of uvloop has closed it
        tls = getattr(transport, "_ssl_protocol", None)
        (transport if tls is None else tls._transport)._call_connection_lost(None)


def _settle(future: asyncio.Future[Any], reply: Any) -> None:
    if isinstance(reply, ErrorReply):
        _fail([future], reply)
    else:
        future.set_result(reply)


def _fail(futures: Iterable[asyncio.Future[Any]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                future.set_exception(copied(error))
                future.exception()  # the event loop does not report it if the caller is gone
