"""claim in a group: beside what the group has in its store, it is given what the stream has and it has not read."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from duly._core.bounds import BYTES_A_CALL, LARGE, READ_A_CALL, RECLAIMED_A_CALL
from duly._core.codec import Lease
from duly._core.publishing import opened
from duly.memory import groups
from duly.memory.calls import Kept
from duly.memory.claiming import Round, Terms, carried_out
from duly.memory.entries import record_of
from duly.memory.message import StoredMessage
from duly.memory.stream import Entry, Id, read_id, written_id
from duly.memory.topic_state import GroupState

_READ_AT_ONCE: Final = 100
_FIRST_FEED: Final = 13


def claim(group: GroupState, args: list[bytes]) -> Kept:
    """Take what is due, then what the stream has, and note who holds it until when."""
    start, *pairs = args[_FIRST_FEED:]
    return carried_out(_GroupRound(group, Terms.read(args), start, _Filter(pairs)))


class _Filter:
    """What the headers of an entry must be: for each that is named, one of the values."""

    def __init__(self, pairs: Sequence[bytes]) -> None:
        self._wanted: defaultdict[str, set[str]] = defaultdict(set)
        for name, value in zip(pairs[0::2], pairs[1::2], strict=True):
            self._wanted[name.decode()].add(value.decode())

    def lets_pass(self, entry: Entry) -> bool:
        if not self._wanted:
            return True
        headers = opened(entry.fields).headers
        return all(headers.get(name) in values for name, values in self._wanted.items())


class _GroupRound(Round):
    """One claim of a group at work."""

    def __init__(self, group: GroupState, terms: Terms, start: bytes, filter_: _Filter) -> None:
        super().__init__(group, terms)
        self._group = group
        self._consumer = terms.consumer.encode()
        self._start = start
        self._filter = filter_
        self._fed = group.fed
        self._again: set[Id] = set()
        """What was taken from the store: it is pending when the claim is over, if the stream has it then."""
        self._seen = 0
        """Bytes of the entries that were looked at, if they are large."""
        self._next_entry: int | None = None
        group.put_freeing_off()
        self._clock = self.now
        """Each entry has its own tick, so that the group has the order of the stream."""

    def _reclaim(self, message: StoredMessage, lease: Lease) -> bool:
        is_dead = super()._reclaim(message, lease)
        if self._group.consumers is not None:
            # It leaves no trace; should it live, its next read makes it known again.
            self._group.consumers.forget_idle(lease.consumer.rstrip(" ").encode())
        return is_dead

    def prepare(self) -> None:
        """Let in what is due in the topic. There are no other programs here from which to take anything over."""
        if len(self.reclaimed) == 4 * RECLAIMED_A_CALL:
            self._is_full = True  # there are more, perhaps earlier ones: nothing goes before they have their places
        self._next_entry = self._group.topic.let_in()
        is_time = self.now - (self._group.swept or 0) >= self._terms.lease_us / 2
        if is_time and self._group.swept is not None:
            self._group.free()  # on a server, groups of other programs may have acked something
        if is_time and self._group.consumers is not None:
            self._group.swept = self.now

    def take(self, *, any_counts: bool) -> None:
        """Take what may be handed out, and free what every group is done with then."""
        super().take(any_counts=any_counts)
        self._group.free_at_last()

    def take_what_is_due(self, *, is_isolating: bool) -> None:
        """Take what is due in the store, then entries."""
        super().take_what_is_due(is_isolating=is_isolating)
        self._again = {read_id(message.id) for message in self.taken}
        if self._wants_more and not self._is_full:
            self._read_entries()
        if self._again and self._group.consumers is not None:
            stream = self._group.topic.stream
            stream.claim(self._group.consumers, self._consumer, self._again, self._group.server_ms, forces=True)

    @property
    def _wants_more(self) -> bool:
        return len(self.taken) < self._room.allowed

    def _read_entries(self) -> None:
        looked_at = 0
        while self._wants_more and not self._is_full:
            count = self._count_to_ask_for()
            entries = self._next_entries(count)
            self._take_entries(entries)
            looked_at += len(entries)
            if self._largest > LARGE:  # a thousand others fit
                self._seen += sum(len(text) for entry in entries for text in entry.fields)
            if entries:
                self._group.fed = max(self._group.fed or entries[-1].id, entries[-1].id)
            if len(entries) < count:
                return
            is_enough = looked_at >= READ_A_CALL or max(self._bytes, self._seen) >= BYTES_A_CALL
            self._is_full = is_enough and self._wants_more

    @property
    def _largest(self) -> int:
        return self._group.topic.stats.get("largest", 0)

    def _count_to_ask_for(self) -> int:
        """Tell how many entries to ask for: large ones are read few at a time, since nobody knows their size before."""
        wanted, size = min(self._room.allowed - len(self.taken), _READ_AT_ONCE), self._largest
        if size <= LARGE:
            return wanted
        return min(wanted, max((BYTES_A_CALL - max(self._bytes, self._seen)) // size, 1))

    def _next_entries(self, count: int) -> list[Entry]:
        """Read on under the consumer's name."""
        if self._group.consumers is None:
            groups.create(self._group, self._beginning())
        assert self._group.consumers is not None
        stream = self._group.topic.stream
        return stream.read_group(self._group.consumers, self._consumer, count, self._group.server_ms)

    def _beginning(self) -> bytes:
        """Tell where a group begins that the stream does not know: where the caller says.

        One that somebody has removed does not begin behind entries that it never had: it goes on where it was, and
        in a stream that is new as well, with the first.
        """
        if self._start != b"$" or self._fed is None:
            return self._start
        return b"0" if self._group.topic.stream.last < self._fed else written_id(self._fed)

    def _take_entries(self, entries: Sequence[Entry]) -> None:
        """Store entries, and lease those whose turn it is."""
        if entries and self._fed is not None and entries[0].id <= self._fed:
            entries = [entry for entry in entries if not self._is_live(entry)]
        matching = [entry for entry in entries if self._filter.lets_pass(entry)]
        if len(matching) < len(entries):  # the others are nothing to this group
            self._group.ack([entry.id for entry in entries if not self._filter.lets_pass(entry)])
            self._group.count("filtered", len(entries) - len(matching))
        if matching:
            self._store(matching)

    def _is_live(self, entry: Entry) -> bool:
        """Tell whether an entry that is read again is where it belongs. A dead one begins anew, unless filtered now."""
        message = self._group.messages.get(written_id(entry.id))
        if message is None:
            return False
        if message.place == "dead" and self._filter.lets_pass(entry):
            self._group.forget(message)
            self._group.count("dead_bytes", -message.size)
            self._group.count("redriven", 1)
            self._group.count("sent", -1)  # it is counted as if it came for the first time
            return False
        if message.lease is None or entry.id in self._again:
            self._group.ack([entry.id])
        else:
            self._group.renew_lease(message.id, message.lease.consumer)
        return True

    def _store(self, entries: Sequence[Entry]) -> None:
        stored = []
        for entry in entries:
            self._clock += 1
            record = record_of(entry, self._clock)
            stored.append(StoredMessage(written_id(entry.id), record, priority=0))
            self._group.add(stored[-1], self._clock)
            self._group.topic.note_largest(len(record))
        self._group.has_large = self._group.has_large or self._largest > LARGE
        chosen = stored
        if any(message.key is not None for message in stored):
            self._group.is_keyed = True
            chosen = self._in_turn(stored, len(stored))
            self._group.ack([read_id(message.id) for message in stored if message.place == "parked"])
        for message in chosen:
            self.taken.append(message)
            self._lease_out(message)
        size = sum(message.size for message in stored)
        self._bytes += size
        self.lateness = max(self.lateness, self.now - entries[0].id[0] * 1000)
        self._group.count("sent", len(stored))
        self._group.count("bytes", size)

    def note_clock(self) -> None:
        """Note the time of what was done."""
        super().note_clock()
        if self._clock > self.now:
            self._group.clock = self._clock

    def next_moment(self) -> int | None:
        """Return when a claim may find more, also because a delayed publish enters the stream."""
        stored, wait = super().next_moment(), self._next_entry
        entry = None if wait is None else self.now + wait
        return entry if stored is None else stored if entry is None else min(stored, entry)

    def position(self, next_us: int) -> list[list[bytes]]:
        """Say behind which entry to wait. There are no bells: the engine knows what a claim may find."""
        if next_us == 0 or self._terms.then == b"leave":
            return [[]]
        group = self._group.consumers
        return [[b"0-0" if group is None else written_id(group.last), b"0-0", b"0-0"]]
