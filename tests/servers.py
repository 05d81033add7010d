"""Real servers for tests: started on free ports in their own directory, and removed with the test run."""

import atexit
import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.binaries import Kind, find_binary

LOOPBACK = "127.0.0.1"
START_TIMEOUT = 20.0
_libc = ctypes.CDLL(None)  # loaded before a fork, not after


class Server:
    """One server process. A value in `config` is written to its configuration file as it stands.

    Start it in the main thread: the kernel ends it when the thread that started it ends.
    """

    host = LOOPBACK

    def __init__(self, kind: Kind, config: Mapping[str, str] = {}, environment: Mapping[str, str] = {}) -> None:
        self.kind = kind
        self.binary = find_binary(kind)
        self.environment = dict(environment)
        self.directory = Path(tempfile.mkdtemp(prefix="duly-"))
        self.socket = self.directory / "server.sock"
        self._reservation = _Reservation()
        self.port = self._reservation.port
        self.config = {
            "bind": self.host,
            "port": str(self.port),
            "unixsocket": str(self.socket),
            "dir": str(self.directory),
            "save": '""',
            "appendonly": "no",
            **config,
        }
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.socket}?db=0"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it answers, with its data loaded."""
        self._launch()
        self._wait_until_up()

    def _launch(self) -> None:
        self._write_config(self.directory / "server.conf")
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent([self.binary, "server.conf", *self._arguments]),
                cwd=self.directory,
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt at the keyboard is for pytest, which stops us in order
                preexec_fn=self._before_start,  # noqa: PLW1509, system calls only, no locks
            )

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.kill9()
                log_tail = (self.directory / "server.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.kind} did not start:\n{log_tail}")
            time.sleep(0.01)

    _arguments: tuple[str, ...] = ()

    def _write_config(self, path: Path) -> None:
        path.write_text("".join(f"{name} {value}\n" for name, value in self.config.items()))

    @property
    def _before_start(self) -> Callable[[], None] | None:
        """The first step of the new process. Usually none, since a copy of the test process costs 15 ms."""
        return None

    def kill9(self) -> None:
        """End it as a crash would, with a child that rewrites or saves its data. The files stay."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                os.killpg(self._process.pid, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order. The files stay."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it without ending it: its connections stay open, and it does not answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """End a freeze."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start again on the same files and ports, after a stop if it runs."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it and remove its files."""
        self.kill9()
        self._reservation.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:  # stopped by SIGSTOP, or saving a lot
                process.kill()
                process.wait()

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False


class _Reservation:
    """A free port, and the one 10,000 above it, where a cluster node has its bus.

    The UDP ports of the same numbers are bound until `close`. Servers do not use them, and other test processes, which
    reserve ports in the same way, find them taken. The ports are below the range from which the kernel chooses, so that
    no client can take one between a stop and a start.
    """

    def __init__(self) -> None:
        # Each process of a run begins in another thousand, so that it seldom finds a port taken.
        worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
        first = 10_000 + 1000 * (int(worker) % 10 if worker else random.randrange(10))
        for port in random.sample(range(first, first + 1000), 200):
            self._held: list[socket.socket] = []
            try:
                self._hold(port)
                self._hold(port + 10_000)
            except OSError:
                self.close()
                continue
            self.port = port
            return
        raise RuntimeError("no free port")

    def _hold(self, port: int) -> None:
        held = socket.socket(type=socket.SOCK_DGRAM)
        self._held.append(held)
        held.bind((LOOPBACK, port))
        with socket.socket() as probe:
            probe.bind((LOOPBACK, port))

    def close(self) -> None:
        for held in self._held:
            held.close()


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    if sys.platform == "linux":
        _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def dying_with_parent(command: Sequence[str | Path]) -> Sequence[str | Path]:
    """Return a command whose process the kernel kills when the thread that started it ends.

    With `preexec_fn`, `Popen` would copy the page tables of the test process each time, which takes 15 ms.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return command if setpriv is None else [setpriv, "--pdeathsig", "KILL", *command]
