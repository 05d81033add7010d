"""A stream as a server has it: entries in the order of their ids, and groups that read them."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

Id = tuple[int, int]
"""Milliseconds, and the number within them."""

BEGINNING: Final[Id] = (0, 0)
_ENTRY_OVERHEAD: Final = 16
_STREAM_OVERHEAD: Final = 256


def read_id(text: bytes) -> Id:
    """Read an id; its number may be left out."""
    ms, _, number = text.partition(b"-")
    return int(ms), int(number or 0)


def written_id(id_: Id) -> bytes:
    """Write an id."""
    return b"%d-%d" % id_


def next_id(last: Id, server_ms: int) -> Id:
    """Make the id of an entry that is added at a time. Ids grow even if the clock does not."""
    ms, number = last
    return (server_ms, 0) if server_ms > ms else (ms, number + 1)


class Entry(NamedTuple):
    """An entry. Its fields are names and values, in turn."""

    id: Id
    fields: Sequence[bytes]


@dataclass(slots=True)
class Pending:
    """An entry that was delivered and not acked."""

    consumer: bytes
    delivered_ms: int
    deliveries: int


@dataclass(slots=True)
class Consumer:
    """A member of a group."""

    seen_ms: int
    pending: int = 0


class ConsumerGroup:
    """The stream's state of a group: its last read entry, and the holders of pending entries."""

    def __init__(self, last: Id) -> None:
        self.last = last
        self.consumers: dict[bytes, Consumer] = {}
        self._pending: dict[Id, Pending] = {}
        self._order: list[Id] = []

    def __len__(self) -> int:
        """Count the pending entries."""
        return len(self._order)

    def pending_from(self, begin: Id, *, is_included: bool = True) -> Iterator[tuple[Id, Pending]]:
        """Iterate over the pending entries, in the order of ids."""
        at = (bisect_left if is_included else bisect_right)(self._order, begin)
        return ((id_, self._pending[id_]) for id_ in self._order[at:])

    @property
    def first_pending(self) -> Id | None:
        """The smallest pending id."""
        return self._order[0] if self._order else None

    def see(self, consumer: bytes, server_ms: int) -> None:
        """Store the time of a consumer's last call."""
        self.consumers.setdefault(consumer, Consumer(server_ms)).seen_ms = server_ms

    def give(self, id_: Id, consumer: bytes, server_ms: int) -> None:
        """Deliver an entry to a consumer that was seen. It is pending for that consumer from now on."""
        self.ack(id_)
        self._pending[id_] = Pending(consumer, server_ms, 1)
        insort(self._order, id_)
        self.consumers[consumer].pending += 1

    def ack(self, id_: Id) -> None:
        """Remove an entry from the pending ones."""
        row = self._pending.pop(id_, None)
        if row is not None:
            del self._order[bisect_left(self._order, id_)]
            self.consumers[row.consumer].pending -= 1

    def claim(self, id_: Id, consumer: bytes, server_ms: int, *, is_there: bool, forces: bool) -> None:
        """Give an entry to a consumer that was seen, without counting a delivery. Ack it if it is no longer stored."""
        row = self._pending.get(id_)
        if not is_there:
            self.ack(id_)
        elif row is None and forces:
            self.give(id_, consumer, server_ms)
        elif row is not None:
            self.consumers[row.consumer].pending -= 1
            self.consumers[consumer].pending += 1
            row.consumer, row.delivered_ms = consumer, server_ms

    def forget_idle(self, consumer: bytes) -> None:
        """Remove a consumer that has nothing pending."""
        if consumer in self.consumers and not self.consumers[consumer].pending:
            del self.consumers[consumer]


class Stream:
    """The entries, and the groups by name. A stream that does not exist is empty."""

    def __init__(self) -> None:
        self.is_there: bool = False
        self.last: Id = BEGINNING
        """The id given last, even if its entry has been removed."""
        self.groups: dict[bytes, ConsumerGroup] = {}
        self._ids: list[Id] = []
        self._fields: dict[Id, Sequence[bytes]] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id_: Id) -> bool:
        return id_ in self._fields

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _STREAM_OVERHEAD + self._size if self.is_there else 0

    @property
    def first_entry(self) -> Id | None:
        """The id of the first entry."""
        return self._ids[0] if self._ids else None

    @property
    def last_entry(self) -> Id | None:
        """The id of the last entry."""
        return self._ids[-1] if self._ids else None

    def named_groups(self) -> list[tuple[bytes, ConsumerGroup]]:
        """List the groups, in the order of their names."""
        return sorted(self.groups.items())

    def add(self, fields: Sequence[bytes], server_ms: int) -> Id:
        """Add an entry."""
        self.is_there = True
        self.last = next_id(self.last, server_ms)
        self._ids.append(self.last)
        self._fields[self.last] = fields
        self._size += _size_of(fields)
        return self.last

    def from_(self, begin: Id, count: int) -> list[Entry]:
        """Return the first entries from an id on."""
        at = bisect_left(self._ids, begin)
        return [Entry(id_, self._fields[id_]) for id_ in self._ids[at : at + count]]

    def behind(self, id_: Id, count: int) -> list[Entry]:
        """Return the first entries behind an id."""
        at = bisect_right(self._ids, id_)
        return [Entry(each, self._fields[each]) for each in self._ids[at : at + count]]

    def count_behind(self, id_: Id) -> int:
        """Count the entries behind an id."""
        return len(self._ids) - bisect_right(self._ids, id_)

    def trim_to(self, length: int) -> None:
        """Remove the oldest entries, so that at most `length` are left."""
        self._remove_first(max(len(self._ids) - length, 0))

    def trim_before(self, id_: Id) -> None:
        """Remove the entries before an id."""
        self._remove_first(bisect_left(self._ids, id_))

    def trim_up_to(self, id_: Id) -> None:
        """Remove the entries up to and including an id."""
        self._remove_first(bisect_right(self._ids, id_))

    def _remove_first(self, count: int) -> None:
        for id_ in self._ids[:count]:
            self._size -= _size_of(self._fields.pop(id_))
        del self._ids[:count]

    def add_group(self, name: bytes, behind: bytes) -> bool:
        """Make a group that begins behind an id, `$` for the last; False: it existed. This creates the stream."""
        self.is_there = True
        if name in self.groups:
            return False
        self.groups[name] = ConsumerGroup(self.position(behind))
        return True

    def position(self, behind: bytes) -> Id:
        """Read the position at which a group begins."""
        return self.last if behind == b"$" else read_id(behind)

    def read_group(self, group: ConsumerGroup, consumer: bytes, count: int, server_ms: int) -> list[Entry]:
        """Deliver the next entries to a consumer of a group."""
        group.see(consumer, server_ms)
        entries = self.behind(group.last, count)
        for entry in entries:
            group.give(entry.id, consumer, server_ms)
            group.last = entry.id
        return entries

    def claim(
        self, group: ConsumerGroup, consumer: bytes, ids: Iterable[Id], server_ms: int, *, forces: bool = False
    ) -> None:
        """Give entries to a consumer: pending ones or, with `forces`, any."""
        group.see(consumer, server_ms)
        for id_ in ids:
            group.claim(id_, consumer, server_ms, is_there=id_ in self, forces=forces)


def _size_of(fields: Sequence[bytes]) -> int:
    return _ENTRY_OVERHEAD + sum(map(len, fields))
