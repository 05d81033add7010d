"""One child process, as its parent sees it: started, asked to stop, killed, collected."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from duly.worker.parent_pipe import STOP_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Sequence


class Child:
    """A process that this one has started. `parent_pipe.py` is the child's side."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = _start(command)
        self._started = time.monotonic()
        self.kill_at: float | None = None
        """When to kill it. None: it was not asked to stop."""
        self.was_killed: bool = False

    @property
    def pid(self) -> int:
        """The id of the process and of its session."""
        return self._process.pid

    @property
    def lived(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def poll(self) -> int | None:
        """Return the exit status once it has ended, negative for a signal."""
        status = self._process.poll()
        if status is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return status

    def ask_to_stop(self, number: int, patience: float) -> None:
        """Send a signal, and set the deadline `kill_at`. A later request never extends it."""
        kill_at = time.monotonic() + patience
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # the child has ended
            # Before the signal: if the parent is killed in between, the child must not get two.
            self._process.stdin.write(b".")
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the child, and all processes that its handlers have started."""
        self.was_killed = True
        if self._process.poll() is None:  # not collected yet: the id cannot belong to another process
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


def describe_status(status: int) -> dict[str, int | str]:
    """Return the fields of a log line that show how a process ended."""
    if status >= 0:
        return {"status": status}
    try:
        return {"signal": signal.Signals(-status).name}
    except ValueError:  # a real-time signal
        return {"signal": -status}


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # inherited; see parent_pipe.py
    try:
        return subprocess.Popen(  # noqa: S603 - our own program, no shell
            command,
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # an interrupt at the terminal goes to the parent, which forwards it
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
