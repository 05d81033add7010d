"""The child's side of a supervised worker: how it starts, and how it ends soon after its parent.

The parent starts a child with SIGTERM and SIGINT blocked, so that no signal ends the child before its handlers are
installed. Standard input is a pipe that only the parent can write to. The parent writes a byte with each signal that it
sends. The end of the pipe means that the parent has ended, in whichever way.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

MARGIN: Final = 10.0
"""Seconds after the grace that a worker has to release its messages and end, before it is killed."""

_has_run: Final = threading.Event()
_stop_requests = 0


class StoppedEarly(BaseException):
    """A signal came before the worker was running. Nothing was claimed, so nothing is lost."""


def accept_signals() -> None:
    """Unblock signals. Until the worker installs its own handlers, a signal ends the process in order."""
    for number in STOP_SIGNALS:
        signal.signal(number, _stop_early)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_signals() -> None:
    """Ignore signals during the exit: the work is done, and a signal would change the exit status."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def follow_parent(patience: float) -> None:
    """Stop as on SIGTERM when the parent has ended. Kill this process if that takes more than `patience` seconds."""
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # processes that handlers start must not read from the pipe
    os.close(nothing)
    threading.Thread(target=_watch, args=(pipe, patience), name="duly-parent-pipe", daemon=True).start()


def mark_running() -> None:
    """Note that the worker has installed its own signal handlers. A signal after its end has nothing to stop."""
    _has_run.set()


def _stop_early(*_: object) -> None:
    if not _has_run.is_set():
        raise StoppedEarly


def stop_requests() -> int:
    """Return how often the parent has asked this process to stop. Unlike a signal, a byte can only be the parent's."""
    return _stop_requests


def _watch(pipe: int, patience: float) -> None:
    global _stop_requests  # noqa: PLW0603 - this thread alone writes it
    while requested := os.read(pipe, 64):
        _stop_requests += len(requested)
    if not _stop_requests:  # a second signal would cut off the handlers
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience)
    os.kill(os.getpid(), signal.SIGKILL)
