"""A process of the demo, from both sides: how the scenario starts, stops and kills it, and how it runs.

A process reads its plan from standard input, and stops when standard input ends: on request, or because its parent has
died.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Literal

import duly
from duly.demo.history import History, Tally
from duly.demo.plan import Plan, from_line, to_line

Body = Callable[[Plan, str, duly.Duly, History], None]
Role = Literal["producer", "consumer"]

_GRACE: Final = 10.0
_over: Final = threading.Event()


# Inside the process


def run_process(body: Body, arguments: Sequence[str]) -> None:
    """Run as a process of the demo."""
    (name,) = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops this process
    line = sys.stdin.buffer.readline()
    if not line:  # the parent has died already
        return
    plan = from_line(line)
    threading.Thread(target=_watch_input, daemon=True).start()
    history = History(plan.history_of(name))
    with plan.open_app() as app:
        body(plan, name, app, history)
    history.close()


def is_over() -> bool:
    """Whether this process should stop."""
    return _over.is_set()


def _watch_input() -> None:
    while os.read(0, 1024):
        pass
    _over.set()


# In the parent


class DemoProcess:
    """A process that the scenario has started."""

    def __init__(self, role: Role, name: str, plan: Plan) -> None:
        self.role = role
        self.name = name
        self.tally: Tally = Tally(plan.history_of(name))
        self.ending = ""
        """How the process ended, if it was killed."""
        self._log = plan.log_of(name)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", f"duly.demo.{role}", name],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        self.pid: int = self._process.pid
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it failed at once; `problem` reports why
            self._process.stdin.write(to_line(plan))

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    @property
    def state(self) -> str:
        """A short description of its state."""
        if self.ending:
            return self.ending
        if self.is_running:
            return "running"
        return "finished" if self._process.returncode == 0 else f"failed ({self._process.returncode})"

    def freeze(self) -> None:
        """Suspend it, so that its leases can be read."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with -9."""
        self._process.kill()
        self._process.wait()
        self._close_input()

    def request_stop(self) -> None:
        """Ask it to stop when it has finished its messages."""
        self._close_input()

    def problem(self) -> str | None:
        """Wait until it has stopped. Returns a description if it failed."""
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not stop within {_GRACE:g} s"
        if status != 0 and not self.ending:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return f"{self.name} failed with status {status}: {lines[-1] if lines else 'no output'}"
        return None

    def _close_input(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
