"""A server that follows a script: it sends the bytes of the test, and closes at the end of the script.

Each connection runs the script in its own thread. The script gets a `Peer`. When it returns, the connection is
closed. An error of a script fails the test, unless the client has gone.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import hiredis

from tests.servers import LOOPBACK
from tests.waiting import PATIENCE


class Gone(Exception):
    """The client has closed the connection."""


class Peer:
    """The server's side of one connection."""

    def __init__(self, connection: socket.socket, closing: threading.Event) -> None:
        self.socket = connection
        self._closing = closing
        self._reader = hiredis.Reader()

    def command(self) -> list[bytes]:
        """Read one command."""
        while (found := self._reader.gets()) is False:
            if not (data := self.socket.recv(1 << 16)):
                raise Gone
            self._reader.feed(data)
        assert isinstance(found, list)
        return found

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer_all(self, reply: Callable[[list[bytes]], bytes]) -> None:
        """Reply to each command until the client has gone."""
        while True:
            self.send(reply(self.command()))

    def stay_silent(self) -> None:
        """Keep the connection open, and do not read."""
        self._closing.wait(PATIENCE)

    def wait_for_end(self) -> None:
        """Read until the client has gone."""
        while self.socket.recv(1 << 16):
            pass
        raise Gone


Script = Callable[[Peer], object]


def echo(command: list[bytes]) -> bytes:
    """Reply with the last argument of a command."""
    return bulk(command[-1])


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def login_then(script: Script, commands: int = 1) -> Script:
    """Accept the commands that begin a session, and go on with a script."""

    def run(peer: Peer) -> None:
        for _ in range(commands):
            peer.command()
            peer.send(b"+OK\r\n")
        script(peer)

    return run


class ScriptedServer:
    """Listens on a free port of the loopback, or on a unix socket."""

    def __init__(
        self,
        script: Script,
        tls: ssl.SSLContext | None = None,
        path: Path | None = None,
        family: socket.AddressFamily = socket.AF_INET,
        host: str = LOOPBACK,
    ) -> None:
        self.script = script
        self.tls = tls
        self.connections = 0
        self._closing = threading.Event()
        self._errors: list[BaseException] = []
        self._listener = socket.socket(socket.AF_UNIX if path else family)
        self._listener.bind(str(path) if path else (host, 0))
        self._listener.listen(128)
        self.port = 0 if path else int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def options(self) -> dict[str, Any]:
        return {"host": LOOPBACK, "port": self.port}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        if self._errors:
            raise self._errors[0]

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
                self._sockets.append(connection)
            self.script(Peer(connection, self._closing))
        except (Gone, OSError):
            pass  # the client has gone, or does not like the certificate
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            self._errors.append(error)
        finally:
            connection.close()


REPLIES: Final[dict[str, tuple[bytes, Any]]] = {
    "simple": (b"+OK\r\n", b"OK"),
    "integer": (b":-12\r\n", -12),
    "bulk": (b"$5\r\nhe\r\no\r\n", b"he\r\no"),
    "empty": (b"$0\r\n\r\n", b""),
    "nothing": (b"$-1\r\n", None),
    "list": (b"*2\r\n*2\r\n:1\r\n$3\r\ntwo\r\n*1\r\n*0\r\n", [[1, b"two"], [[]]]),
    "error": (b"-NOPERM this user has no permissions\r\n", "NOPERM this user has no permissions"),
}
"""Replies as the server writes them, and as a caller gets them. An error is raised with this text."""
