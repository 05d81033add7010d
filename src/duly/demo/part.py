"""A process of the demonstration, from both sides: how the story starts, stops and kills it, and how it lives.

A part reads its plan from standard input, and leaves when that ends: because it was told to, or because whoever
started it is gone.
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

Play = Callable[[Plan, str, duly.Duly, History], None]
Role = Literal["producer", "consumer"]

_GRACE: Final = 10.0
_over: Final = threading.Event()


# --- Inside the process


def run_part(play: Play, arguments: Sequence[str]) -> None:
    """Be a process of the demonstration."""
    (name,) = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at the keyboard it is meant for the story, which ends us
    line = sys.stdin.buffer.readline()
    if not line:  # whoever started us is gone already
        return
    plan = from_line(line)
    threading.Thread(target=_watch_input, daemon=True).start()
    history = History(plan.history_of(name))
    with plan.open_app() as app:
        play(plan, name, app, history)
    history.close()


def is_over() -> bool:
    """Whether this process should leave."""
    return _over.is_set()


def _watch_input() -> None:
    while os.read(0, 1024):
        pass
    _over.set()


# --- Outside of it


class Part:
    """A process that the story has started."""

    def __init__(self, role: Role, name: str, plan: Plan) -> None:
        self.role = role
        self.name = name
        self.tally: Tally = Tally(plan.history_of(name))
        self.fate = ""
        """What became of it, when that is not the usual."""
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
        with suppress(BrokenPipeError):  # it failed at once, and will be asked why
            self._process.stdin.write(to_line(plan))

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    @property
    def state(self) -> str:
        """Say in a word or two how it is."""
        if self.fate:
            return self.fate
        if self.is_running:
            return "at work"
        return "finished" if self._process.returncode == 0 else f"failed ({self._process.returncode})"

    def freeze(self) -> None:
        """Stop it where it stands, so that what it holds can be seen."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with -9: it can do nothing about it."""
        self._process.kill()
        self._process.wait()
        self._close_input()

    def dismiss(self) -> None:
        """Tell it to leave when it has finished what it holds."""
        self._close_input()

    def problem(self) -> str | None:
        """Wait until it has left; say what is wrong with how it did."""
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not leave within {_GRACE:g} s"
        if status != 0 and not self.fate:
            words = self._log.read_text(errors="replace").strip().splitlines()
            return f"{self.name} failed with status {status}: {words[-1] if words else 'no output'}"
        return None

    def _close_input(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
