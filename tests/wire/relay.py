"""A door with TLS to a server without: the servers of the tests are built without TLS."""

import contextlib
import socket
import ssl
import threading

from tests.servers import LOOPBACK
from tests.wire.scripted import Peer, ScriptedServer


class TlsRelay(ScriptedServer):
    """Passes bytes on, in both directions."""

    def __init__(self, to_port: int, context: ssl.SSLContext) -> None:
        self._to_port = to_port
        super().__init__(self._relay, tls=context)

    def _relay(self, peer: Peer) -> None:
        with socket.create_connection((LOOPBACK, self._to_port)) as inner:
            back = threading.Thread(target=_pass_on, args=(inner, peer.socket), daemon=True)
            back.start()
            _pass_on(peer.socket, inner)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        socket.socket.shutdown(target, socket.SHUT_RDWR)
