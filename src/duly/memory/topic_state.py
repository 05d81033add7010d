"""The state of a topic, and of its groups: stores like a queue's, around a stream that feeds the groups."""

from collections.abc import Iterable

from duly._core.bounds import BYTES_LET_IN_PER_CALL, LET_IN_PER_CALL
from duly.errors import CodecError
from duly.memory.entries import fields_of
from duly.memory.message import DAMAGED, StoredMessage
from duly.memory.state import QueueState
from duly.memory.stream import BEGINNING, ConsumerGroup, Id, Stream, read_id


class TopicState(QueueState):
    """A topic: its stream, and its delayed entries. Its counters are all that a server has in `meta`."""

    has_history = False  # its groups have one each

    def clear(self) -> None:
        """Reset to a topic that was never used."""
        super().clear()
        self.stream: Stream = Stream()

    def next_poll_behind(self, entry: Id) -> int | None:
        """Return when there may be an entry behind another one; a time in the past: now."""
        return 0 if self.stream.count_behind(entry) else self.waiting[0].first_score()

    def let_in(self) -> int | None:
        """Move due entries into the stream, up to a limit.

        Returns the microseconds until the next one is due: 0 if there are more, None if there is none.
        """
        waiting = self.waiting[0]
        if not waiting:
            return None
        now, size = self.tick(), 0
        for _, id_ in waiting.up_to(now, LET_IN_PER_CALL):
            if size < BYTES_LET_IN_PER_CALL:
                size += self._let_one_in(self.messages[id_], now)
                self.clock: int | None = now
        following = waiting.first_score()
        return None if following is None else max(following - now, 0)

    def _let_one_in(self, message: StoredMessage, now: int) -> int:
        """Make an entry of a message; return its size. A message that was overwritten becomes a dead letter."""
        flaw = self.why_undeliverable(message)
        if flaw is not None:
            self.bury_flawed(message, flaw, message.size, now)
            return 0
        fields = fields_of(message.intact)
        self.forget(message)
        self.stream.add(fields, self.server_ms)
        self.count("bytes", -message.size)
        self.count("entered", 1)
        return message.size

    def why_undeliverable(self, message: StoredMessage) -> str | None:
        """Return why a message cannot become an entry. It is read to its end."""
        if message.flaw is None:
            try:
                fields_of(message.intact)
            except CodecError:
                return DAMAGED
        return message.flaw

    def free_acked(self) -> None:
        """Remove entries that every group has acked."""
        if not self.stream.groups:
            return
        # Every entry before the first one that is unread or pending in some group is finished.
        unread_behind = min(group.last for group in self.stream.groups.values())
        pending = [group.first_pending for group in self.stream.groups.values()]
        held = min((id_ for id_ in pending if id_ is not None), default=None)
        if held is not None and held <= unread_behind:
            self.stream.trim_before(held)
        else:
            self.stream.trim_up_to(unread_behind)


class GroupState(QueueState):
    """A group of a topic: a queue that is fed by a stream."""

    def __init__(self, topic: TopicState, name: bytes) -> None:
        self.topic = topic
        self.name = name
        self.frees = False
        """Whether entries that every group has acked are removed. The caller sets it."""
        self._is_put_off = False
        self._is_left_to_free = False
        super().__init__()

    def clear(self) -> None:
        """Reset to a group that was never used."""
        super().clear()
        self.fed: Id | None = None
        """The largest id that was ever read."""
        self.swept: int | None = None
        """The time of the last search for entries that other programs hold."""

    @property
    def is_known(self) -> bool:
        """Whether something is stored that outlives messages."""
        return super().is_known or self.swept is not None

    @property
    def consumers(self) -> ConsumerGroup | None:
        """The stream's state of the group."""
        return self.topic.stream.groups.get(self.name)

    def set_time(self, server_us: int) -> None:
        """Set the server's time, of the call that is being executed."""
        super().set_time(server_us)
        self.topic.set_time(server_us)

    def next_poll(self) -> int | None:
        """Return when a claim may find something: a message of the store, or an entry."""
        stored = super().next_poll()
        if self.paused is not None or self.is_limited:
            return stored
        entry = self.topic.next_poll_behind(BEGINNING if self.consumers is None else self.consumers.last)
        return entry if stored is None else stored if entry is None else min(stored, entry)

    def end_lease(self, id_: bytes) -> None:
        """Ack the entry: it is finished, or has its place in the store."""
        self.ack([read_id(id_)])

    def renew_lease(self, id_: bytes, consumer: str) -> None:
        """Show in the pending list that the holder is alive. Other programs rely on it."""
        if self.consumers is not None:
            self.topic.stream.claim(self.consumers, consumer.rstrip(" ").encode(), [read_id(id_)], self.server_ms)

    def ack(self, ids: Iterable[Id]) -> None:
        """Remove entries from the pending ones. If the topic keeps none, free those that all groups have finished."""
        for id_ in ids:
            if self.consumers is not None:
                self.consumers.ack(id_)
            self.free()

    def free(self) -> None:
        """Remove entries that every group has acked, if the topic keeps none. If freeing is deferred, do it later."""
        if self._is_put_off:
            self._is_left_to_free = True
        elif self.frees:
            self.topic.free_acked()

    def defer_freeing(self) -> None:
        """Defer freeing: a claim may deliver an entry again that it has just taken back."""
        self._is_put_off, self._is_left_to_free = True, False

    def free_deferred(self) -> None:
        """Do the deferred freeing."""
        self._is_put_off = False
        if self._is_left_to_free:
            self.free()

    def first_unread(self) -> Id | None:
        """Return the first entry that the group has not read."""
        found = [] if self.consumers is None else self.topic.stream.behind(self.consumers.last, 1)
        return found[0].id if found else None

    @property
    def is_used(self) -> bool:
        """Whether something was ever published."""
        return super().is_used or self.topic.stream.is_there

    def backlog(self, now: int) -> tuple[int, int]:
        """Count the due messages that wait and the unread entries, and return the age of the oldest; -1: none."""
        depth, age = super().backlog(now)
        first = self.first_unread()
        return depth + self.count_unread(), age if first is None else max(age, now - first[0] * 1000, 0)

    def count_unread(self) -> int:
        """Count the entries that the group has not read."""
        return 0 if self.consumers is None else self.topic.stream.count_behind(self.consumers.last)
