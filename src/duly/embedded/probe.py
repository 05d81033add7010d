"""The few commands of the server's protocol that the keeper and the command line need.

It uses raw sockets, with one command per connection. Everything else uses a wire.
"""

from __future__ import annotations

import socket
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT = 2.0


class Answer(Enum):
    """The answer of a server to PING."""

    READY = "ready"
    LOADING = "loading"
    SILENT = "silent"
    """No server listens, or it did not answer in time."""


def ping(path: str | Path) -> Answer:
    """Check whether the server accepts commands."""
    try:
        reply = _ask(path, b"PING")
    except OSError:
        return Answer.SILENT
    if reply.startswith(b"-LOADING"):
        return Answer.LOADING
    # Any other error (NOAUTH, BUSY, MISCONF) is from a running server. The client handles it.
    return Answer.READY if reply else Answer.SILENT


def read_info(path: str | Path) -> dict[str, str]:
    """Return the server's INFO. Empty if it does not answer: it is down, loading, or has a password."""
    try:
        reply = _ask(path, b"INFO")
    except OSError:
        return {}
    lines = reply.decode("utf-8", "replace").splitlines()[1:]
    return dict(line.split(":", 1) for line in lines if ":" in line)


def shut_down(path: str | Path) -> None:
    """Make the server write its data to disk and end. Raises OSError if it refuses or does not run."""
    # NOSAVE concerns the snapshot, which is off. The append-only file is synced in any
    # case. A server that is busy with a long script accepts only this form.
    try:
        reply = _ask(path, b"SHUTDOWN NOSAVE")
    except ConnectionResetError:
        return
    if reply:
        raise OSError(reply.decode("utf-8", "replace").strip())


def _ask(path: str | Path, command: bytes) -> bytes:
    """Send an inline command and return the raw reply."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT)
        connection.connect(str(path))
        connection.sendall(command + b"\r\n")
        return _read_reply(connection)


def _read_reply(connection: socket.socket) -> bytes:
    reply = b""
    while not _is_complete(reply):
        chunk = connection.recv(65536)
        if not chunk:
            break
        reply += chunk
    return reply


def _is_complete(reply: bytes) -> bool:
    head, newline, rest = reply.partition(b"\r\n")
    if not newline:
        return False
    return len(rest) >= int(head[1:]) + 2 if head.startswith(b"$") else True
