"""A network with a long way, as a proxy: every byte arrives half a round trip after it was sent, in both directions.

`python -m benchmarks.slow_network PORT TARGET SECONDS` is the proxy's process. Threads sleep more exactly than an event
loop, whose timers may count whole milliseconds.
"""

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.brokers import HOST, Broker, BrokerMissing, answers, free_port

_ROOT: Final = Path(__file__).parents[1]
_CHUNK: Final = 1 << 18


@contextmanager
def before(broker: Broker, round_trip: float) -> Iterator[str]:
    """Put the network between parties and a server, and return the URL of its near end."""
    port = free_port()
    arguments = [str(port), str(broker.port), str(round_trip / 2)]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.slow_network", *arguments], cwd=_ROOT)
    try:
        deadline = time.monotonic() + 30
        while not answers(port):
            if time.monotonic() > deadline:
                raise BrokerMissing("the slow network did not start")
            time.sleep(0.02)
        yield broker.url.replace(f":{broker.port}", f":{port}")
    finally:
        process.kill()
        process.wait()


def _carry(source: socket.socket, target: socket.socket, delay: float) -> None:
    """Carry all bytes of one direction, each after the delay."""
    under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_deliver, args=(under_way, target), daemon=True).start()
    while True:
        try:
            received = source.recv(_CHUNK)
        except OSError:
            received = b""
        under_way.put((time.monotonic() + delay, received))
        if not received:
            return


def _deliver(under_way: "queue.SimpleQueue[tuple[float, bytes]]", target: socket.socket) -> None:
    while True:
        moment, data = under_way.get()
        if (left := moment - time.monotonic()) > 0:
            time.sleep(left)
        try:
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)
        except OSError:
            return


def main(port: int, target: int, delay: float) -> None:
    """Listen, until killed."""
    listener = socket.create_server((HOST, port), backlog=1024)
    while True:
        near, _ = listener.accept()
        far = socket.create_connection((HOST, target))
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_carry, args=(near, far, delay), daemon=True).start()
        threading.Thread(target=_carry, args=(far, near, delay), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
