"""Lanes (I7): of the messages of one key, one is out at a time; the others are parked behind it."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, NamedTuple

from duly._core.bounds import DUE_DIGITS, NO_TIME
from duly.memory.message import HIGHEST_PRIORITY, StoredMessage

_SEPARATOR: Final = b"\0"
_BEHIND_ALL: Final = b"\1"


class Lane(NamedTuple):
    """Whom a lane belongs to, and whether somebody was parked behind it since."""

    id: bytes
    has_more: bool


class Parked(NamedTuple):
    """A parked message, in the order of the scripts: by the bytes that stand for it."""

    member: bytes
    id: bytes


def member_of(key: bytes, priority: int, due: int, id_: bytes) -> bytes:
    """Write what stands for a parked message: its lane, then the order within it."""
    due = due if 0 <= due < NO_TIME else 0  # somebody else wrote it: it must have its digits nevertheless
    return key + _SEPARATOR + b"%d%0*d" % (HIGHEST_PRIORITY - priority, DUE_DIGITS, due) + id_


class Lanes:
    """The lanes of one queue."""

    def __init__(self) -> None:
        self.lanes: dict[bytes, Lane] = {}
        self._parked: list[Parked] = []
        self._members: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        """Count what is parked."""
        return len(self._parked)

    def __iter__(self) -> Iterator[Parked]:
        return iter(self._parked)

    def owner(self, key: bytes | None) -> bytes | None:
        """Name the message that a lane belongs to."""
        lane = None if key is None else self.lanes.get(key)
        return None if lane is None else lane.id

    def park(self, message: StoredMessage, key: bytes) -> None:
        """Put a message behind the one that its lane belongs to."""
        member = member_of(key, message.priority, message.due, message.id)
        self._members[message.id] = member
        insort(self._parked, Parked(member, message.id))

    def unpark(self, id_: bytes) -> None:
        """Take a message out, whatever became of its record."""
        row = Parked(self._members.pop(id_), id_)
        del self._parked[bisect_left(self._parked, row)]

    def due(self, id_: bytes) -> int:
        """Return the due time of a parked message, whatever became of its record."""
        _, rest = self._members[id_].split(_SEPARATOR, 1)
        return int(rest[1 : 1 + DUE_DIGITS])

    def member(self, id_: bytes) -> bytes:
        """Return what stands for a parked message."""
        return self._members[id_]

    def first_parked(self, key: bytes, count: int) -> list[bytes]:
        """Name the first that are parked in a lane."""
        begin = bisect_left(self._parked, Parked(key + _SEPARATOR, b""))
        end = bisect_left(self._parked, Parked(key + _BEHIND_ALL, b""))
        return [row.id for row in self._parked[begin:end][:count]]
