"""One connection to one server, for threads. It has no policy: no retries, no backoff.

The async counterpart of this file is written by hand as well.
"""

import contextlib
import select
import socket
import ssl
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

from duly import _sockets
from duly._core.address import Kind
from duly._core.resp import (
    REPLY_TYPES,
    UNFINISHED,
    Arg,
    ErrorReply,
    Greeting,
    UnfinishedReply,
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
_CHUNK: Final = 1 << 16


class Wire:
    """A connection that is opened once, for one thread at a time.

    After a failure other than an error reply it is closed: a late reply must not be read by another call.
    """

    def __init__(self, kind: Kind, options: Mapping[str, Any], name: str = "") -> None:
        """`name` is for CLIENT LIST. It is ignored if the user may not set a name."""
        self._kind = kind
        self._options = options
        self._name = name
        self._socket: socket.socket | None = None
        self._timeout = 0.0
        """The timeout of the socket. It is set only if it changes, since that is a system call."""
        self._reader = new_reader()
        self.client_id = 0
        """The id for CLIENT UNBLOCK, set for connections that block."""
        self.idle_since: float = 0.0
        """When its last call ended, by the monotonic clock."""

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._socket is not None

    def open(self, timeout: float | None = None) -> None:
        """Connect, log in and select the database. Raises OSError, or ErrorReply if the server refuses it."""
        ends_at = time.monotonic() + (CONNECT_TIMEOUT if timeout is None else timeout)
        self._socket = connection = self._connected(ends_at)
        weakref.finalize(self, connection.close)  # for an app that was not closed
        try:
            self._greet(greetings(self._options, login_of(self._options), self._name), ends_at)
        except BaseException:
            self.close()
            raise

    def _greet(self, commands: Sequence[Greeting], ends_at: float) -> None:
        """Send all commands in one write."""
        if commands:
            self._send([b"".join(piece for each in commands for piece in packed(each.command))], _left(ends_at))
        for each in commands:
            try:
                self._read(_left(ends_at))
            except ErrorReply as error:
                if each.is_required or not error.leaves_command_out:
                    raise

    def _connected(self, ends_at: float) -> socket.socket:
        if self._kind in ("unix", "embedded"):
            return self._connected_to_socket(self._options["path"], _left(ends_at))
        host, port = self._options["host"], self._options["port"]
        place = f"{host}:{port}"
        tls = _sockets.tls_context(self._options) if self._kind == "tls" else None
        errors: list[Exception] = []
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise _sockets.unreachable(place, [error]) from error
        for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
            share = _left(ends_at) / left  # an address that does not answer leaves time for the others
            try:
                return _connected_to(socket.socket(family, kind, protocol), address, tls, host, share)
            except OSError as error:
                errors.append(error)
        raise _sockets.unreachable(place, errors) from errors[-1]

    def _connected_to_socket(self, path: str, timeout: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(path)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise _sockets.unreachable(path, [error]) from error
            raise
        return connection

    def ask(self, command: Sequence[Arg], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a command and return its reply. Raises ErrorReply, MalformedReply or OSError."""
        try:
            self._send(packed(command), timeout)
            return self._read(timeout)
        except ErrorReply:
            raise  # the reply was read completely
        except BaseException:
            self.close()
            raise

    def ask_both(self, first: Sequence[Arg], second: Sequence[Arg], timeout: float = REPLY_TIMEOUT) -> list[Any]:
        """Send two commands in one write, so that the server runs them in a row. Return both replies."""
        try:
            self._send(packed_both(first, second), timeout)
            replies = [self._read_any(timeout), self._read_any(timeout)]
        except BaseException:
            self.close()
            raise
        for reply in replies:
            if type(reply) is ErrorReply:
                raise reply
        return replies

    def begin(self, command: Sequence[Arg]) -> None:
        """Send a command with a slow reply."""
        self._send(packed(command), REPLY_TIMEOUT)

    def poll(self, seconds: float) -> bool:
        """Wait up to `seconds` for the reply to `begin`, without reading it."""
        connection = self._open_socket()
        if isinstance(connection, ssl.SSLSocket) and connection.pending():
            return True
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        return bool(poller.poll(max(seconds, 0) * 1000))

    def finish(self, timeout: float = REPLY_TIMEOUT) -> Any:
        """Read the reply to `begin`."""
        return self._read(timeout)

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def abandon(self) -> None:
        """Disconnect."""
        self.close()

    def hang_up(self) -> None:
        """Abort the connection from any thread. A pending read fails."""
        if (connection := self._socket) is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # that of a TLS socket is not for other threads

    def _open_socket(self) -> socket.socket:
        if (connection := self._socket) is None:
            raise ConnectionError("the connection is closed")
        return connection

    def _send(self, pieces: Sequence[bytes], timeout: float) -> None:
        connection = self._open_socket()
        if self._reader.has_data():
            raise unexpected(self._reader.gets())
        if len(pieces) == 1:
            self._limit(connection, timeout)
            connection.sendall(pieces[0])
            return
        ends_at = time.monotonic() + timeout
        for piece in pieces:
            self._limit(connection, _left(ends_at))
            connection.sendall(piece)

    def _read(self, timeout: float) -> Any:
        """Read one reply, and raise it if it is an error."""
        reply = self._read_any(timeout)
        if type(reply) is ErrorReply:
            raise reply
        return reply

    def _read_any(self, timeout: float) -> Any:
        """Read one reply. It must be complete within `timeout` seconds, however slowly its bytes arrive."""
        reply = self._reader.gets()
        if reply is UNFINISHED:
            reply = self._received(timeout)
        if type(reply) not in REPLY_TYPES:
            raise unexpected(reply)
        return reply

    def _received(self, timeout: float) -> Any:
        connection, reader = self._open_socket(), self._reader
        self._limit(connection, timeout)
        ends_at = time.monotonic() + timeout
        try:
            reader.feed(_some_bytes(connection))
        except TimeoutError:
            raise TimeoutError("the server did not reply in time") from None
        while (reply := reader.gets()) is UNFINISHED:
            self._limit(connection, _left(ends_at))
            try:
                reader.feed(_some_bytes(connection))
            except TimeoutError:
                raise UnfinishedReply from None
        return reply

    def _limit(self, connection: socket.socket, timeout: float) -> None:
        if timeout != self._timeout:
            connection.settimeout(timeout)
            self._timeout = timeout


def _connected_to(
    connection: socket.socket, address: Any, tls: ssl.SSLContext | None, host: str, timeout: float
) -> socket.socket:
    ends_at = time.monotonic() + timeout
    try:
        connection.settimeout(timeout)
        _sockets.prepare(connection)
        connection.connect(address)
        if tls is not None:
            connection.settimeout(_left(ends_at))
            connection = tls.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise
    return connection


def _left(ends_at: float) -> float:
    """Return the seconds until a deadline. They are more than none, which a socket takes for "do not wait"."""
    return max(ends_at - time.monotonic(), 0.001)


def _some_bytes(connection: socket.socket) -> bytes:
    if not (data := connection.recv(_CHUNK)):
        raise ConnectionError("the server closed the connection")
    return data
