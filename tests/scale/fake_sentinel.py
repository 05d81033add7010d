"""A sentinel whose answers the test sets."""

import socketserver
import threading
from typing import Any, Final, Self

import hiredis

from duly._core.topology import Node
from tests.servers import LOOPBACK

SERVICE: Final = "mymaster"


class FakeSentinel:
    """Names a primary with an epoch. `heard` are the commands that it got."""

    def __init__(self, primary: Node, epoch: int = 0, password: str = "") -> None:
        self.primary, self.epoch = primary, epoch
        self.heard: list[list[str]] = []
        self._password = password
        self._connections: set[Any] = set()
        self._server = _Server((LOOPBACK, 0), _handler_for(self))
        self.node = Node(*self._server.server_address)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def reply(self, words: list[str], *, is_logged_in: bool) -> bytes:
        """Answer one command."""
        self.heard.append(words)
        if words[0] == "AUTH":
            return b"+OK\r\n" if words[-1] == self._password else b"-WRONGPASS invalid username-password pair\r\n"
        if self._password and not is_logged_in:
            return b"-NOAUTH Authentication required.\r\n"
        kind, service = words[1:]
        if service != SERVICE:
            return b"-ERR No such master with that name\r\n" if kind == "MASTER" else b"*-1\r\n"
        if kind == "MASTER":
            return _array("name", service, "flags", "master", "config-epoch", str(self.epoch))
        return _array(self.primary.host, str(self.primary.port))

    def stop(self) -> None:
        """Close all connections, and accept no more."""
        self._server.shutdown()
        self._server.server_close()
        for each in list(self._connections):
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True


def _handler_for(sentinel: FakeSentinel) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            sentinel._connections.add(self.request)
            reader, is_logged_in = hiredis.Reader(encoding="utf-8"), False
            try:
                while data := self.request.recv(1 << 16):
                    reader.feed(data)
                    while (words := reader.gets()) is not False:
                        reply = sentinel.reply(words, is_logged_in=is_logged_in)
                        is_logged_in |= words[0] == "AUTH" and reply == b"+OK\r\n"
                        self.request.sendall(reply)
            except OSError:  # the test has closed the connection
                pass

    return Handler


def _array(*texts: str) -> bytes:
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text.encode()) for text in texts)


def url_of(*sentinels: FakeSentinel, service: str = SERVICE) -> str:
    """Return the address for Duly."""
    return f"redis+sentinel://{','.join(str(each.node) for each in sentinels)}/{service}"
