"""Lists and sorted sets that your own program uses as queues: LPUSH and BRPOP, or ZADD with due times as scores."""

from collections.abc import Iterable, Sequence

import duly
from duly.importing.source import Arrival, BodyFormat, Entry, Judged, Place, checked_format, unreadable


class PlainList:
    """A list. Its entries have no identity: two equal entries are two messages."""

    origin = "list"

    def __init__(self, app: duly.Duly, key: str, *, body: BodyFormat = "json", pop: str = "right") -> None:
        self.app = app
        self._place = Place(key, "list", oldest="left" if pop == "left" else "right")
        self._format = checked_format(body)

    def places(self) -> Iterable[Place]:
        """Return the list."""
        return [self._place]

    def judge(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:  # noqa: ARG002
        """Move each entry whose body can be read."""
        return [unreadable(each.member, self._format) or Arrival(None, each.member, self._format) for each in entries]

    def others(self) -> dict[str, int]:
        """Return nothing: all that there is can be moved."""
        return {}


class PlainSortedSet:
    """A sorted set whose scores are due times, in seconds since the epoch or in another unit.

    Its members have no identity: one that is added again after it was moved is another message.
    """

    origin = "sorted-set"

    def __init__(self, app: duly.Duly, key: str, *, body: BodyFormat = "json", unit: float = 1.0) -> None:
        self.app = app
        self._place = Place(key, "delayed", kind="sorted")
        self._format = checked_format(body)
        self._unit = unit

    def places(self) -> Iterable[Place]:
        """Return the sorted set."""
        return [self._place]

    def judge(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:  # noqa: ARG002
        """Move each member whose body can be read, with its due time."""
        return [
            unreadable(each.member, self._format)
            or Arrival(None, each.member, self._format, at=each.score * self._unit)
            for each in entries
        ]

    def others(self) -> dict[str, int]:
        """Return nothing: all that there is can be moved."""
        return {}
