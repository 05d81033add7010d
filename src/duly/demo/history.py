"""What each process writes down, a line of JSON for each event, and how it is read again.

A line is one append to the file, made before the process goes on: a kill -9 loses none that was written.
Times are the server's, in microseconds since the epoch.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """One thing that happened to one message, as one process saw it."""

    process: str
    queue: str
    id: str


class Sent(Event, frozen=True, kw_only=True, tag="sent"):
    """A send that returned."""

    delay: float = 0.0
    """Seconds that were asked for."""


class Delivered(Event, frozen=True, kw_only=True, tag="delivered"):
    """A message that was handed out."""

    fence: int
    """Also the server's time of the claim: that is how it can be told whether a message was early."""
    attempt: int = 0
    sent_at: int | None = None
    due_at: int | None = None


class Acking(Event, frozen=True, kw_only=True, tag="acking"):
    """An ack that is about to be made: if the process dies now, nobody knows whether it was."""

    fence: int


class Acked(Event, frozen=True, kw_only=True, tag="acked"):
    """An ack that was answered."""

    fence: int
    lost: bool = False
    """Refused: the lease had moved on."""


class Held(Event, frozen=True, kw_only=True, tag="held"):
    """A message that a process held, by the server's own list of leases, when it was killed with -9."""

    fence: int


AnyEvent = Sent | Delivered | Acking | Acked | Held

_encode = msgspec.json.Encoder().encode_lines
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
    """Read histories. A last line without an end was never written and is left out."""
    lines = (line for path in paths for line in path.read_bytes().split(b"\n")[:-1])
    return [_decode(line) for line in lines if line]


class Tally:
    """Counts the lines of a history while it grows, for the table."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.count: dict[str, int] = {"sent": 0, "delivered": 0, "acked": 0}

    def update(self) -> None:
        """Count what was added since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            added = file.read()
        self._offset += len(added)
        for event in self.count:
            self.count[event] += added.count(b'"event":"%s"' % event.encode())
