"""Lanes (I7): of the messages of one key, one is out at a time; the others are parked behind it."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from duly.memory.message import StoredMessage


class Parked(NamedTuple):
    """A parked message. Those of one key are ordered by priority, due time and id."""

    key: bytes
    rank: int
    """Minus its priority."""
    due: int
    id: bytes


class Lanes:
    """The lanes of one queue."""

    def __init__(self) -> None:
        self.owners: dict[bytes, bytes] = {}
        """By key, the message that a lane belongs to."""
        self._parked: list[Parked] = []
        self._rows: dict[bytes, Parked] = {}

    def __len__(self) -> int:
        """Count what is parked."""
        return len(self._parked)

    def __iter__(self) -> Iterator[Parked]:
        return iter(self._parked)

    def owner(self, key: bytes | None) -> bytes | None:
        """Name the message that a lane belongs to."""
        return None if key is None else self.owners.get(key)

    def take(self, key: bytes, id_: bytes) -> bool:
        """Give a lane to a message; False: it belongs to another one."""
        return self.owners.setdefault(key, id_) == id_

    def park(self, message: StoredMessage, key: bytes) -> None:
        """Put a message behind the one that its lane belongs to."""
        row = self._rows[message.id] = Parked(key, -message.priority, message.due, message.id)
        insort(self._parked, row)

    def unpark(self, id_: bytes) -> None:
        """Take a message out, whatever became of its record."""
        del self._parked[bisect_left(self._parked, self._rows.pop(id_))]

    def row(self, id_: bytes) -> Parked:
        """Return where a parked message is, whatever became of its record."""
        return self._rows[id_]

    def first_parked(self, key: bytes, count: int) -> list[Parked]:
        """Name the first that are parked in a lane."""
        begin = bisect_left(self._parked, (key,))
        return [row for row in self._parked[begin : begin + count] if row.key == key]
