"""The state of a worker process, for probes and metrics. A child of a supervisor shows it to its parent by a socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import msgspec

_READ_TIMEOUT: Final = 1.0
"""Seconds that a child may take to show its state. A probe of Kubernetes waits for one second by default."""


class QueueVitals(msgspec.Struct, frozen=True):
    """One queue or group of a worker process."""

    name: str
    in_flight: int
    handled: int
    last_poll: float
    """Seconds since the process asked for messages."""


class Vitals(msgspec.Struct, frozen=True):
    """The state of one worker process."""

    pid: int
    trouble: str | None
    """Why the process is unhealthy. None: it polls, and its server answers."""
    concurrency: int = 0
    rolled_back: int = 0
    queues: tuple[QueueVitals, ...] = ()


class LoopProbe:
    """Finds out from other threads whether an event loop runs. It costs nothing between two questions."""

    def __init__(self) -> None:
        self._asked_at: float | None = None

    def blocked_for(self, loop: asyncio.AbstractEventLoop) -> float:
        """Return for how many seconds the loop has not answered the last question, and ask again if it has."""
        asked_at = self._asked_at
        if asked_at is not None:
            return time.monotonic() - asked_at
        self._asked_at = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._note_answer)
        return 0.0

    def _note_answer(self) -> None:
        self._asked_at = None


class VitalsSocket:
    """Shows the state of this process to its parent, in a thread."""

    def __init__(self, directory: str, vitals: Callable[[], Vitals]) -> None:
        self._path = _socket_path(directory, os.getpid())
        self._vitals = vitals
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Self:
        self._socket.bind(str(self._path))
        self._socket.listen()
        threading.Thread(target=self._serve, name="duly-vitals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError):  # the parent no longer waits
                    connection.settimeout(_READ_TIMEOUT)
                    connection.sendall(msgspec.json.encode(self._vitals()))


def read_vitals(directory: str, pid: int) -> Vitals:
    """Read the state of a child. If it shows none, `trouble` has the reason."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_READ_TIMEOUT)
            connection.connect(str(_socket_path(directory, pid)))
            text = b"".join(iter(lambda: connection.recv(65_536), b""))
        return msgspec.json.decode(text, type=Vitals)
    except FileNotFoundError:
        return Vitals(pid, "the process is starting")
    except (OSError, msgspec.MsgspecError) as error:
        return Vitals(pid, f"the process does not show its state: {error}")


def _socket_path(directory: str, pid: int) -> Path:
    return Path(directory) / f"{pid}.sock"
