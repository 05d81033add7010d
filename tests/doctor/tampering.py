"""A proxy between a client and its server that changes commands."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers import LOOPBACK


@contextmanager
def tampering_proxy(port: int, asked: bytes, passed_on: bytes) -> Iterator[str]:
    """Yield the address of a proxy for one connection, which replaces bytes by others of the same length."""
    assert len(asked) == len(passed_on)
    with socket.create_server((LOOPBACK, 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client, socket.create_connection((LOOPBACK, port)) as server:
                back = threading.Thread(target=_pump, args=(server, client))
                back.start()
                _pump(client, server, asked, passed_on)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"redis://{LOOPBACK}:{listening.getsockname()[1]}/0"
        thread.join()


def _pump(source: socket.socket, target: socket.socket, old: bytes = b"", new: bytes = b"") -> None:
    """Forward until the source ends. A short command arrives in one piece."""
    while piece := source.recv(65_536):
        target.sendall(piece.replace(old, new) if old else piece)
    target.shutdown(socket.SHUT_WR)
