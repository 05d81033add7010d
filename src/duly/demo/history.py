"""The history of a process: a file with one line of JSON per event.

Each line is appended before the process continues, so a kill -9 loses no line that was written. Times are the
server's, in microseconds since the epoch.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """An event of one message, as seen by one process."""

    process: str
    queue: str
    id: str


class Sent(Event, frozen=True, kw_only=True, tag="sent"):
    """A send that returned."""

    delay: float = 0.0
    """The requested delay in seconds."""


class Delivered(Event, frozen=True, kw_only=True, tag="delivered"):
    """A message that was delivered."""

    fence: int
    """Also the server's time of the delivery, which shows whether a message was early."""
    attempt: int = 0
    sent_at: int | None = None
    due_at: int | None = None


class Acking(Event, frozen=True, kw_only=True, tag="acking"):
    """An ack that is about to be sent. If the process dies now, the result of the ack is unknown."""

    fence: int


class Acked(Event, frozen=True, kw_only=True, tag="acked"):
    """An ack that was answered."""

    fence: int
    lost: bool = False
    """The ack was refused, since the lease was lost."""


class Held(Event, frozen=True, kw_only=True, tag="held"):
    """A message that a process held when it was killed with -9, according to the server's list of leases."""

    fence: int


AnyEvent = Sent | Delivered | Acking | Acked | Held

_encode = msgspec.json.Encoder(enc_hook=str).encode_lines  # an id is a subclass of str
_decode = msgspec.json.Decoder(AnyEvent).decode


class History:
    """The file of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, events: Iterable[AnyEvent]) -> None:
        """Append events."""
        os.write(self._file, _encode(events))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(paths: Iterable[Path]) -> list[AnyEvent]:
    """Read histories. An incomplete last line is ignored."""
    lines = (line for path in paths for line in path.read_bytes().split(b"\n")[:-1])
    return [_decode(line) for line in lines if line]


class Tally:
    """Counts the events of a growing history, for the table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.count: dict[str, int] = {"sent": 0, "delivered": 0, "acked": 0}

    def update(self) -> None:
        """Count the events that were added since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            added = file.read()
        self._offset += len(added)
        for event in self.count:
            self.count[event] += added.count(b'"event":"%s"' % event.encode())
