"""The child's side of a supervised worker: how it begins, and that it never outlives its parent for long.

The parent starts a child with SIGTERM and SIGINT blocked, so that none can end it before it knows how to stop.
Standard input is a pipe that only the parent can write to. It writes a byte with each signal that it sends; the end
of the pipe means that the parent is gone, however it went.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

MARGIN: Final = 10.0
"""Seconds beyond the grace that a worker has to give back its messages and end, before it is killed."""

_has_run: Final = threading.Event()
_stop_requests = 0


class StoppedEarly(BaseException):
    """A signal came before the worker was running: nothing was fetched, nothing is lost."""


def accept_signals() -> None:
    """Let signals through: until the worker puts its own handlers in place they end the process in order."""
    for number in STOP_SIGNALS:
        signal.signal(number, _stop_early)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_signals() -> None:
    """Let nothing disturb the way out: the work is done, and the exit status is to tell how."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def follow_parent(patience: float) -> None:
    """Stop as on SIGTERM when the parent is gone, and be killed when that takes longer than `patience` seconds."""
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what handlers start must not read from our pipe
    os.close(nothing)
    threading.Thread(target=_watch, args=(pipe, patience), name="duly-parent-pipe", daemon=True).start()


def mark_running() -> None:
    """Say that the worker has begun, with handlers of its own: a signal after its end has nothing left to stop."""
    _has_run.set()


def _stop_early(*_: object) -> None:
    if not _has_run.is_set():
        raise StoppedEarly


def stop_requests() -> int:
    """Count how often the parent has told us to stop: it signals, too, but so may others."""
    return _stop_requests


def _watch(pipe: int, patience: float) -> None:
    global _stop_requests  # noqa: PLW0603 - this thread alone writes it
    while requested := os.read(pipe, 64):
        _stop_requests += len(requested)
    if not _stop_requests:  # a second signal would cut off what the first one lets finish
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience)
    os.kill(os.getpid(), signal.SIGKILL)
