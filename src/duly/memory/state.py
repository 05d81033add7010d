"""The state of one queue, and the moves that several operations share. No operation is implemented here."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from duly._core.bounds import EXPIRED_PER_CALL, EXTRA_TRIMMED, LOOK_AGAIN_US, SCHEDULES_PER_CALL
from duly._core.codec import Counts, size_of_why
from duly.memory.dedup import DedupWindows
from duly.memory.lanes import Lanes
from duly.memory.message import BODY_LOST, HIGHEST_PRIORITY, Place, StoredMessage, flaw_of, head_of, options_of
from duly.memory.ordered import ScoredIds
from duly.memory.past import Past

PRIORITIES: Final = range(HIGHEST_PRIORITY + 1)
UNTIL_A_LEASE_ENDS: Final = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """How many ended messages are kept; -1: no bound. The age is in microseconds."""

    count: int
    age: int
    bytes: int


class QueueState:
    """A queue. A message is in exactly one place, and the passing of time moves nothing."""

    has_history: ClassVar[bool] = True

    def __init__(self) -> None:
        self.server_us: int = 0
        """The server's clock, at the call that is being executed."""
        self.clear()

    def clear(self) -> None:
        """Reset to a queue that was never used."""
        self.messages: dict[bytes, StoredMessage] = {}
        self.waiting: dict[int, ScoredIds] = {priority: ScoredIds() for priority in PRIORITIES}
        self.leased: ScoredIds = ScoredIds()
        self.dead: ScoredIds = ScoredIds()
        self.done: ScoredIds = ScoredIds()
        self.expires: ScoredIds = ScoredIds()
        self.dedup: DedupWindows = DedupWindows()
        self.lanes: Lanes = Lanes()
        self._ended: list[bytes] = []
        """Ended messages that have not been announced to their waiters yet."""
        self.row_bytes: dict[str, int] = {"dead": 0, "done": 0}
        """Bytes of the rows of dead and of done messages."""
        self.lost_bodies: int = 0
        self.with_counts: int = 0
        """How many messages have counts."""
        self.stats: dict[str, int] = {}
        self.clock: int | None = None
        self.paused: bytes | None = None
        self.priorities: set[int] = {0}
        self.is_keyed = False
        """Whether a message with a key was ever stored: then claims check lanes."""
        self.tat = 0
        """When the next delivery is on time, if deliveries are spaced evenly."""
        self.limited: int | None = None
        """Until when a rate keeps messages back, or 0 while leases must end first."""
        self.retry_credit: float = 0.0
        """The part of a delivery that retries have saved, of their share."""
        self.lateness = 0
        self.history: dict[bytes, bytes] = {}
        """Points by their places in the rings, and sums of times."""
        self.point_ends: int | None = None
        """When the minute of the last point ends."""
        self.schedules: dict[bytes, bytes] = {}
        self.next_runs: ScoredIds = ScoredIds()
        """When to check each schedule next. Paused ones are absent."""
        self._named_until = 0
        """Claims have named the schedules that run up to this time."""
        self._name_again_at: int | None = None
        """When to claim again, if more schedules were due than a claim names."""

    @property
    def server_ms(self) -> int:
        """The server's clock, in the unit of stream ids."""
        return self.server_us // 1000

    @property
    def is_known(self) -> bool:
        """Whether the queue was used: something that outlives its messages is stored."""
        return any(each is not None for each in (self.clock, self.paused, self.point_ends)) or bool(self.stats)

    @property
    def is_used(self) -> bool:
        """Whether something was ever sent: then claims take points."""
        return self.clock is not None

    @property
    def priorities_in_use(self) -> list[int]:
        """The priorities ever used, highest first."""
        return sorted(self.priorities, reverse=True)

    @property
    def bodies(self) -> int:
        """The number of stored bodies, in all states."""
        return len(self.messages) - self.lost_bodies

    def tick(self) -> int:
        """Return the queue's time. It is the server's, but it never shows a time twice and never goes back."""
        if self.clock is not None and self.clock >= self.server_us:
            return self.clock + 1
        return self.server_us

    def set_time(self, server_us: int) -> None:
        """Set the server's time, of the call that is being executed."""
        self.server_us = server_us
        self.dedup.lapse(server_us // 1000)

    def ahead(self) -> int:
        """Return how far the queue's time is ahead of the server's. A time that a caller names is moved by it."""
        return self.tick() - self.server_us

    def count(self, counter: str, difference: int) -> None:
        """Add to a counter; the first addition creates it."""
        self.stats[counter] = self.stats.get(counter, 0) + difference

    def set_counts(self, message: StoredMessage, counts: Counts | None) -> None:
        """Store the counts of a message's failures."""
        self.with_counts += (counts is not None) - (message.counts is not None)
        message.counts = counts

    @property
    def is_limited(self) -> bool:
        """Whether a limit keeps due messages back."""
        return self.limited is not None and (self.limited == UNTIL_A_LEASE_ENDS or self.limited > self.tick())

    def next_poll(self) -> int | None:
        """Return when a claim may find something; a time in the past: now. None: never."""
        return self.next_moment(self.limited if self.is_limited else None)

    @property
    def has_something(self) -> bool:
        """Whether a claim may find something now."""
        moment = self.next_poll()
        return moment is not None and moment <= self.tick()

    def next_moment(self, limited: int | None, above: int | None = None) -> int | None:
        """Return when a claim may find something, if a limit lasts until `limited`; None: there is no limit.

        Of waiting messages, only those with a due time `above` another count.
        """
        moments = [self.leased.first_score(), self.next_runs.first_score(self._named_until), self._name_again_at]
        if self.lanes:  # the expiry of a message may let another of its lane in
            moments.append(self.expires.first_score())
        if limited is not None:
            moments.append(None if limited == UNTIL_A_LEASE_ENDS else limited)
        elif self.paused is None:
            moments += [self.waiting[priority].first_score(above) for priority in self.priorities]
        return min((moment for moment in moments if moment is not None), default=None)

    def set_next_run(self, name: bytes, at: int) -> None:
        """Have the first claim from a time on name a schedule."""
        self.next_runs.put(name, at)
        self._named_until = min(self._named_until, at - 1)

    def name_due_schedules(self, now: int) -> list[bytes]:
        """List due schedules, with their rows. If there are many, the clock selects others each time."""
        due = [name for _, name in self.next_runs.up_to(now)]
        self._named_until = now
        self._name_again_at = None
        if len(due) > SCHEDULES_PER_CALL:
            first = now % len(due)
            due = [*due[first:], *due[:first]][:SCHEDULES_PER_CALL]
            self._name_again_at = now + LOOK_AGAIN_US
        return [text for name in due for text in (name, self.schedules.get(name, b""))]

    def announce_ends(self, ids: list[bytes]) -> None:
        """Announce the ends of messages to their waiters."""
        self._ended += ids

    def take_ended(self) -> list[bytes]:
        """Return the messages that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def find(self, id_: bytes) -> StoredMessage | None:
        """Return a message, if it can be found by its id."""
        message = self.messages.get(id_)
        return None if message is None or message.is_lost_from_lane else message

    def score_of(self, message: StoredMessage) -> int:
        """Return the due time, deadline or end of a message, as its place has it."""
        if message.place == "parked":
            return message.due
        score = self.holding(message).score(message.id)
        assert score is not None
        return score

    def holding(self, message: StoredMessage) -> ScoredIds:
        """Return the set that holds a message that is not parked."""
        return self.waiting[message.priority] if message.place == "waiting" else self.of_place(message.place)

    def of_place(self, place: Place | str) -> ScoredIds:
        """Return the set of a place that has only one."""
        return {"leased": self.leased, "dead": self.dead, "done": self.done}[place]

    def all_waiting(self) -> Iterator[ScoredIds]:
        """Iterate over the waiting messages, one set per priority, highest first."""
        for priority in reversed(PRIORITIES):
            yield self.waiting[priority]

    def count_live(self) -> int:
        """Count the messages that wait, are parked or are leased, with or without a body."""
        return len(self.leased) + len(self.lanes) + sum(map(len, self.waiting.values()))

    def backlog(self, now: int) -> tuple[int, int]:
        """Count the due messages that wait, and return for how long the oldest has been due; -1: there is none."""
        due = [(waiting, waiting.count_up_to(now)) for waiting in self.waiting.values()]
        oldest = min((waiting.score_at(0) for waiting, count in due if count), default=None)
        return sum(count for _, count in due) + len(self.lanes), -1 if oldest is None else max(now - oldest, 0)

    def add(self, message: StoredMessage, due: int) -> None:
        """Add a new message; it replaces one with the same id."""
        if message.id in self.messages:
            self.forget(self.messages[message.id])
        self.messages[message.id] = message
        self.priorities.add(message.priority)
        self.waiting[message.priority].put(message.id, due)
        self.watch_expiry(message)

    def move(self, message: StoredMessage, place: Place, score: int) -> None:
        """Move a message from its place to another. Leaving the leased place ends the lease."""
        self._take_out(message)
        self.expires.remove(message.id)
        message.place, message.lease = place, None
        self.holding(message).put(message.id, score)
        self.count_row(message)

    def count_row(self, message: StoredMessage) -> None:
        """Count the bytes of the row of a dead or done message, again if it was counted before."""
        if message.place in self.row_bytes and message.why is not None:
            self.row_bytes[message.place] += size_of_why(message.why) - message.row_size
            message.row_size = size_of_why(message.why)

    def wait(self, message: StoredMessage, due: int) -> None:
        """Return a message to the waiting ones."""
        self.move(message, "waiting", due)
        self.watch_expiry(message)

    def _take_out(self, message: StoredMessage) -> None:
        if message.place in self.row_bytes:
            self.row_bytes[message.place] -= message.row_size
            message.row_size = 0
        if message.place == "parked":
            self.lanes.unpark(message.id)
        else:
            self.holding(message).remove(message.id)
        if message.place == "leased":
            if self.limited == UNTIL_A_LEASE_ENDS:
                self.limited = None
            self.end_lease(message.id)

    def end_lease(self, id_: bytes) -> None:
        """Apply the end of a lease to the outside. A queue needs nothing."""

    def renew_lease(self, id_: bytes, consumer: str) -> None:
        """Apply the renewal of a lease to the outside. A queue needs nothing."""

    def park(self, message: StoredMessage, key: bytes) -> None:
        """Park a waiting message behind the owner of its lane. Its ttl continues."""
        self._take_out(message)
        message.place = "parked"
        self.lanes.park(message, key)

    def hand_on(self, key: bytes, id_: bytes, now: int) -> bool:
        """End the hold of a message on its lane; return whether the first parked message owns it now.

        A long lane takes turns with the others: its next message is due now. The last one keeps its due time.
        """
        if self.lanes.owners.get(key) != id_:
            return False
        parked = self.lanes.first_parked(key, 2)
        if not parked:
            del self.lanes.owners[key]
            return False
        message = self.messages[parked[0].id]
        self._take_out(message)
        message.place = "waiting"
        self.waiting[message.priority].put(message.id, now if len(parked) > 1 else parked[0].due)
        self.lanes.owners[key] = message.id
        return True

    def leave_lane(self, message: StoredMessage, now: int) -> None:
        """Release the lane of a message that ends, if it has one."""
        lease = message.lease
        key = message.key if lease is None or lease.key is None else lease.key.encode()
        if key is not None and self.hand_on(key, message.id, now):
            self.clock = now  # otherwise a server clock that steps back would hide the next message

    def watch_expiry(self, message: StoredMessage) -> None:
        """Store when a waiting message expires."""
        expiry = message.expiry
        if expiry is not None:
            self.expires.put(message.id, expiry)

    def forget(self, message: StoredMessage) -> None:
        """Remove a message and all its rows. The caller counts the reason."""
        self._take_out(message)
        self.expires.remove(message.id)
        self.lost_bodies -= message.record is None
        self.with_counts -= message.counts is not None
        del self.messages[message.id]

    def free_dedup(self, message: StoredMessage) -> None:
        """Free the dedup value of a message that ends undelivered, unless a later message has it now."""
        dedup = None if message.flaw else options_of(message.intact).dedup
        if dedup is not None:
            self.dedup.free(dedup, message.id)

    def why_undeliverable(self, message: StoredMessage) -> str | None:
        """Return why a message cannot be delivered from here; None: it can."""
        return message.flaw

    def lose_body(self, id_: bytes) -> None:
        """Remove a record without any bookkeeping."""
        message = self.messages[id_]
        self.lost_bodies += message.record is not None
        message.record = None

    def damage(self, id_: bytes, record: bytes) -> None:
        """Overwrite a record without any bookkeeping: with a flaw, or only behind the options."""
        message = self.messages[id_]
        if not flaw_of(record) and (message.flaw or head_of(record) != head_of(message.intact)):
            raise ValueError("a record that can be delivered must keep its stamps, flags, priority and options")
        self.lost_bodies -= message.record is None
        message.record = record

    def bury(  # noqa: PLR0913
        self,
        message: StoredMessage,
        size: int,
        reason: str,
        counts: Counts,
        past: Past,
        now: int,
        rejects: int = 0,
        key: str | None = None,
        *,
        blocks: bool = False,
    ) -> None:
        """Make a message dead. `size` is its share of `bytes`. A lost record overrides `reason`.

        `key` is its lane, if it is known to have one; `blocks`: the lane waits for it.
        """
        is_lost = message.record is None
        message.why = past.row_of_ended(BODY_LOST if is_lost else reason, counts, rejects)
        self.set_counts(message, None)
        self.move(message, "dead", now)
        self.count("buried", 1)
        self.count("bytes", -size)
        if not is_lost:
            self.count("dead_bytes", message.size)
        # A message that cannot be delivered cannot be redriven either, so its lane does not wait for it.
        is_waited_for = blocks and not message.flaw
        if key is not None and not is_waited_for:
            self.hand_on(key.encode(), message.id, now)

    def bury_flawed(self, message: StoredMessage, flaw: str, size: int, now: int, key: str | None = None) -> None:
        """Make a message dead that cannot be delivered."""
        self.bury(message, size, flaw, message.counted(), Past.of(message), now, key=key)

    def drop_expired(self, message: StoredMessage, now: int) -> None:
        """End a message that is past its ttl."""
        self.leave_lane(message, now)
        self.free_dedup(message)
        self.forget(message)
        self.count("bytes", -message.size)
        self.count("expired", 1)

    def expire_some(self, now: int, brought_in: int = 0) -> int:
        """Drop messages past their ttl, up to a limit; return how many were checked.

        A flawed message is left to the claim that finds it.
        """
        over = self.expires.up_to(now, brought_in + EXPIRED_PER_CALL)
        for _, id_ in over:
            message = self.messages[id_]
            if message.flaw:
                self.expires.remove(id_)
            else:
                self.drop_expired(message, now)
        return len(over)

    def trim(self, place: ScoredIds, kind: str, keep: Keep, now: int, added: int) -> int:
        """Keep `dead` or `done` within its bounds: remove and count the oldest, up to a limit; return how many."""
        bytes_counter, counter = f"{kind}_bytes", {"dead": "trimmed", "done": "done_trimmed"}[kind]
        excess = len(place) - keep.count if keep.count >= 0 else 0
        trimmed = freed = 0
        for at, id_ in place.first(added + EXTRA_TRIMMED):
            is_old = keep.age >= 0 and at <= now - keep.age
            held = self.stats.get(bytes_counter, 0) - freed + self.row_bytes[kind]
            is_heavy = 0 <= keep.bytes < held
            if not (trimmed < excess or is_old or is_heavy):
                break
            message = self.messages[id_]
            freed += message.size
            if kind == "dead":
                self.leave_lane(message, now)
            self.forget(message)
            trimmed += 1
        if trimmed:
            self.count(counter, trimmed)
            self.count(bytes_counter, -freed)
        return trimmed
