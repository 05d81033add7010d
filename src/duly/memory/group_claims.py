"""claim in a group: it takes messages of the group's store, then entries of the stream that the group has not read."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Self

from duly._core.bounds import BYTES_PER_CALL, READ_PER_CALL, RECLAIMED_PER_CALL
from duly._core.codec import Lease
from duly._core.publishing import opened
from duly.memory import groups
from duly.memory.calls import Kept
from duly.memory.claims import Round, Terms, carried_out
from duly.memory.entries import record_of
from duly.memory.message import StoredMessage
from duly.memory.state import QueueState
from duly.memory.stream import Entry, Id, read_id, written_id
from duly.memory.topic_state import GroupState

_FIRST_FEED: Final = 14


def claim(group: GroupState, args: list[bytes]) -> Kept:
    """Take due messages, then entries of the stream, and store the holder and the deadline of each."""
    return carried_out(GroupRound.of(group, args))


class _Filter:
    """The values that an entry's headers must have: for each named header, one of several."""

    def __init__(self, pairs: Sequence[bytes]) -> None:
        self._wanted: defaultdict[str, set[str]] = defaultdict(set)
        for name, value in zip(pairs[0::2], pairs[1::2], strict=True):
            self._wanted[name.decode()].add(value.decode())

    def accepts(self, entry: Entry) -> bool:
        if not self._wanted:
            return True
        headers = opened(entry.fields).headers
        return all(headers.get(name) in values for name, values in self._wanted.items())


class GroupRound(Round):
    """One claim of a group while it is executed."""

    def __init__(self, group: GroupState, terms: Terms, start: bytes, filter_: _Filter) -> None:
        super().__init__(group, terms)
        self._group = group
        self._consumer = terms.consumer.encode()
        self._start = start
        self._filter = filter_
        self._fed = group.fed
        self._again: set[Id] = set()
        """Messages taken from the store. They become pending at the end of the claim if their entries still exist."""
        self._next_entry: int | None = None
        group.defer_freeing()
        self._clock = self.now
        """Each entry has its own tick, so that the group keeps the order of the stream."""

    @classmethod
    def of(cls, queue: QueueState, args: Sequence[bytes]) -> Self:
        """Begin a claim."""
        assert isinstance(queue, GroupState)
        start, *pairs = args[_FIRST_FEED:]
        return cls(queue, Terms.read(args), start, _Filter(pairs))

    def _reclaim(self, message: StoredMessage, lease: Lease) -> bool:
        is_dead = super()._reclaim(message, lease)
        if self._group.consumers is not None:
            # It leaves no trace. If it is alive, its next read makes it known again.
            self._group.consumers.forget_idle(lease.consumer.rstrip(" ").encode())
        return is_dead

    def prepare(self) -> None:
        """Move due entries of the topic into the stream. There are no other programs to take entries over from."""
        if len(self.reclaimed) == 4 * RECLAIMED_PER_CALL:
            self._is_full = True  # there are more, perhaps earlier ones: they must get their places first
        self._next_entry = self._group.topic.let_in()
        is_time = self.now - (self._group.swept or 0) >= self._terms.lease_us / 2
        if is_time and self._group.swept is not None:
            self._group.free()  # on a server, groups of other programs may have acked something
        if is_time and self._group.consumers is not None:
            self._group.swept = self.now

    def take(self) -> None:
        """Take the messages that may be delivered, then free entries that every group has finished."""
        super().take()
        if self.queue.paused is None:
            self._read_on()
        self._group.free_deferred()

    def _read_on(self) -> None:
        """Take entries after the due messages of the store, and make everything that was taken pending."""
        self._again = {read_id(message.id) for message in self.taken}
        if self._wants_more:
            self._read_entries()
        if self._again and self._group.consumers is not None:
            stream = self._group.topic.stream
            stream.claim(self._group.consumers, self._consumer, self._again, self._group.server_ms, forces=True)

    def _read_entries(self) -> None:
        count = 0
        while self._wants_more:
            entries = self._next_entries(1)
            if not entries:
                return
            self._take_entry(entries[0])
            self._bytes += sum(map(len, entries[0].fields))
            count += 1
            if count == READ_PER_CALL or self._bytes >= BYTES_PER_CALL:
                self._is_full = self._wants_more

    def _next_entries(self, count: int) -> list[Entry]:
        """Read the next entries under the consumer's name."""
        if self._group.consumers is None:
            groups.create(self._group, self._beginning())
        assert self._group.consumers is not None
        stream = self._group.topic.stream
        return stream.read_group(self._group.consumers, self._consumer, count, self._group.server_ms)

    def _beginning(self) -> bytes:
        """Return where a group begins that the stream does not know: the caller sets it.

        A group that another program has removed must not skip entries that it never had. It continues where it was, or,
        if the stream is new as well, with the first entry.
        """
        if self._start != b"$" or self._fed is None:
            return self._start
        return b"0" if self._group.topic.stream.last < self._fed else written_id(self._fed)

    def _take_entry(self, entry: Entry) -> None:
        """Store an entry that the group wants, and lease it if it has its turn."""
        self._group.fed = max(self._group.fed or entry.id, entry.id)
        if self._fed is not None and entry.id <= self._fed and self._is_live(entry):
            return
        if self._filter.accepts(entry):
            self._store(entry)
        else:  # the group does not want it
            self._group.ack([entry.id])
            self._group.count("filtered", 1)

    def _is_live(self, entry: Entry) -> bool:
        """Return whether an entry that is read again is in its place. A dead one that passes the filter starts over."""
        message = self._group.messages.get(written_id(entry.id))
        if message is None:
            return False
        if message.place == "dead" and self._filter.accepts(entry):
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

    def _store(self, entry: Entry) -> None:
        group = self._group
        self._clock += 1
        message = StoredMessage(written_id(entry.id), record_of(entry, self._clock), priority=0)
        group.add(message, self._clock)
        key = message.key
        group.is_keyed = group.is_keyed or key is not None
        if self._has_turn(message, key):
            self.take_one(message, key)
        else:
            group.ack([entry.id])  # it waits in the store, and no consumer holds it
        self.lateness: int = max(self.lateness, self.now - entry.id[0] * 1000)
        group.count("sent", 1)
        group.count("bytes", message.size)

    def note_clock(self) -> None:
        """Store the time of the claim."""
        super().note_clock()
        if self._clock > self.now:
            self._group.clock = self._clock

    def next_moment(self) -> int | None:
        """Return when a claim may find more. A delayed publish that enters the stream counts as well."""
        stored, wait = super().next_moment(), self._next_entry
        entry = None if wait is None else self.now + wait
        return entry if stored is None else stored if entry is None else min(stored, entry)

    def position(self, next_us: int) -> list[list[bytes]]:
        """Return the entry to wait behind. There are no wake tokens: the engine knows what a claim may find."""
        if next_us == 0 or self._terms.then == b"leave":
            return [[]]
        group = self._group.consumers
        return [[b"0-0" if group is None else written_id(group.last), b"0-0", b"0-0"]]
