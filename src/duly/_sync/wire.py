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
    UNFINISHED,
    Arg,
    ErrorReply,
    Greeting,
    UnfinishedReply,
    fixed_credentials,
    greetings,
    new_reader,
    packed,
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
        timeout = CONNECT_TIMEOUT if timeout is None else timeout
        ends_at = time.monotonic() + timeout
        self._socket = connection = self._connected(timeout)
        weakref.finalize(self, connection.close).atexit = False  # for an app that was not closed
        try:
            login = fixed_credentials(self._options)()
            self._greet(greetings(self._options, login, self._name), max(ends_at - time.monotonic(), 0.001))
        except BaseException:
            self.close()
            raise

    def _greet(self, commands: Sequence[Greeting], timeout: float) -> None:
        """Send all commands in one write."""
        if commands:
            self._send(b"".join(packed(each.command) for each in commands), timeout)
        refusals = [self._greeted(each, timeout) for each in commands]
        if refusal := next(filter(None, refusals), None):
            raise refusal

    def _greeted(self, command: Greeting, timeout: float) -> ErrorReply | None:
        try:
            self._read(timeout)
        except ErrorReply as error:
            return error if command.is_required or not error.leaves_command_out else None
        return None

    def _connected(self, timeout: float) -> socket.socket:
        if self._kind in ("unix", "embedded"):
            return self._connected_to_socket(self._options["path"], timeout)
        host, port = self._options["host"], self._options["port"]
        place = f"{host}:{port}"
        errors: list[Exception] = []
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise _sockets.unreachable(place, [error]) from error
        for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
            try:
                # An address that does not answer leaves time for the others.
                return self._connected_to(socket.socket(family, kind, protocol), address, timeout / left)
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

    def _connected_to(self, connection: socket.socket, address: Any, timeout: float) -> socket.socket:
        try:
            connection.settimeout(timeout)
            _sockets.prepare(connection)
            connection.connect(address)
            if self._kind == "tls":
                context = _sockets.tls_context(self._options)
                connection = context.wrap_socket(connection, server_hostname=self._options["host"])
        except BaseException:
            connection.close()
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
            self._send(packed(first) + packed(second), timeout)
            return [self._read(timeout), self._read(timeout)]
        except BaseException:
            self.close()  # after an error reply to the first command, the second reply is unread
            raise

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

    def _send(self, data: bytes, timeout: float) -> None:
        connection = self._open_socket()
        self._limit(connection, timeout)
        connection.sendall(data)

    def _read(self, timeout: float) -> Any:
        """Read one reply."""
        reader = self._reader
        reply = reader.gets()
        if reply is UNFINISHED:
            connection = self._open_socket()
            self._limit(connection, timeout)
            reader.feed(_received(connection))
            if (reply := reader.gets()) is UNFINISHED:
                reply = self._rest(connection, timeout)
        if isinstance(reply, ErrorReply):
            raise reply
        return reply

    def _rest(self, connection: socket.socket, timeout: float) -> Any:
        """Read on, up to `timeout` seconds in all, however slowly the bytes arrive."""
        ends_at = time.monotonic() + timeout
        while (left := ends_at - time.monotonic()) > 0:
            self._limit(connection, left)
            try:
                self._reader.feed(_received(connection))
            except TimeoutError:
                break
            if (reply := self._reader.gets()) is not UNFINISHED:
                return reply
        raise UnfinishedReply

    def _limit(self, connection: socket.socket, timeout: float) -> None:
        if timeout != self._timeout:
            connection.settimeout(timeout)
            self._timeout = timeout


def _received(connection: socket.socket) -> bytes:
    if not (data := connection.recv(_CHUNK)):
        raise ConnectionError("the server closed the connection")
    return data
