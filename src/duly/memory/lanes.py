"""Lanes (I7): of the messages with one key, one is in flight at a time. The others are parked behind it."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from duly.memory.message import StoredMessage


class Parked(NamedTuple):
    """A parked message. The messages of one key are ordered by priority, due time and id."""

    key: bytes
    rank: int
    """Minus its priority."""
    due: int
    id: bytes


class Lanes:
    """The lanes of one queue."""

    def __init__(self) -> None:
        self.owners: dict[bytes, bytes] = {}
        """The message that owns the lane, by key."""
        self._parked: list[Parked] = []
        self._rows: dict[bytes, Parked] = {}

    def __len__(self) -> int:
        """Count the parked messages."""
        return len(self._parked)

    def __iter__(self) -> Iterator[Parked]:
        return iter(self._parked)

    def owner(self, key: bytes | None) -> bytes | None:
        """Return the message that owns a lane."""
        return None if key is None else self.owners.get(key)

    def take(self, key: bytes, id_: bytes) -> bool:
        """Give a lane to a message; False: another message owns it."""
        return self.owners.setdefault(key, id_) == id_

    def park(self, message: StoredMessage, key: bytes) -> None:
        """Park a message behind the owner of its lane."""
        row = self._rows[message.id] = Parked(key, -message.priority, message.due, message.id)
        insort(self._parked, row)

    def unpark(self, id_: bytes) -> None:
        """Remove a message, even if its record is lost."""
        del self._parked[bisect_left(self._parked, self._rows.pop(id_))]

    def row(self, id_: bytes) -> Parked:
        """Return the row of a parked message, even if its record is lost."""
        return self._rows[id_]

    def first_parked(self, key: bytes, count: int) -> list[Parked]:
        """Return the first parked messages of a lane."""
        begin = bisect_left(self._parked, (key,))
        return [row for row in self._parked[begin : begin + count] if row.key == key]
