"""claim: return expired leases to the queue, then take due messages, highest priority first."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from math import ceil, floor, inf
from typing import Any, NamedTuple, Self

from duly._core.bounds import BYTES_PER_CALL, FLAG_HAS_COUNTS, GRAIN_US, RECLAIMED_PER_CALL, TOLERANCE_US
from duly._core.codec import Lease
from duly._core.replies import LIMITED, OPEN, PASSED_OVER, PAUSED, is_suspect
from duly.memory import wire
from duly.memory.calls import Kept
from duly.memory.message import StoredMessage, flags_of
from duly.memory.ordered import ScoredIds
from duly.memory.past import Past
from duly.memory.points import note_minute
from duly.memory.state import UNTIL_A_LEASE_ENDS, Keep, QueueState


class Terms(NamedTuple):
    """The terms that the caller of a claim sets."""

    limit: int
    lease_us: int
    crash_limit: int
    consumer: str
    then: bytes
    suspects: bytes
    keep: Keep
    blocks: bool
    interval: float
    in_flight: int
    retry_share: float

    @classmethod
    def read(cls, args: Sequence[bytes]) -> "Terms":
        """Read the arguments of a call."""
        limit, lease_us, crash_limit = map(int, args[1:4])
        keep = Keep(*map(int, args[7:10]))
        limits = float(args[11]), int(args[12]), float(args[13])
        blocks = args[10] == b"block"
        return cls(limit, lease_us, crash_limit, args[4].decode(), args[5], args[6], keep, blocks, *limits)


def claim(queue: QueueState, args: list[bytes]) -> Kept:
    """Take due messages, and store the holder and the deadline of each."""
    return carried_out(Round.of(queue, args))


def carried_out(round_: "Round") -> Kept:
    """Execute a claim, and answer it."""
    if round_.queue.is_used:
        note_minute(round_.queue, round_.now)
    round_.reclaim_leases()
    round_.prepare()
    any_counts = round_.queue.with_counts > 0
    round_.take()
    round_.trim_dead()
    round_.note_deliveries()
    round_.note_clock()
    round_.note_limits()
    schedules = round_.queue.name_due_schedules(round_.now)
    next_us = round_.until_next()
    fence = round_.now if round_.taken else 0
    ids, records, counts = _rows(round_.taken)
    rows = [ids, records, counts if any_counts else [], round_.reclaimed, schedules, *round_.position(next_us)]
    # An empty answer is kept as well. Otherwise a late copy of this call would take messages for a caller that is gone.
    return Kept([round_.state, round_.now, next_us, fence, *rows], partial(_repeated_answer, fence, ids))


def _rows(messages: list[StoredMessage]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    ids = [message.id for message in messages]
    return ids, [wire.record(each) for each in messages], [wire.counts(each) for each in messages]


def _repeated_answer(fence: int, ids: list[bytes], queue: QueueState) -> list[Any]:
    """Answer a repeat: the same messages and fence, without those that have been settled or lost since."""
    known = [queue.messages[id_] for id_ in ids if id_ in queue.messages]
    held = [each for each in known if each.lease and each.lease.fence == fence and each.record is not None]
    return [OPEN, queue.tick(), 0, fence, *_rows(held), [], []]


class _Room(NamedTuple):
    """How many messages may be delivered, and whether a lease must end before there may be more."""

    allowed: int
    needs_lease_to_end: bool


def _room(queue: QueueState, now: int, terms: Terms, pace_from: int) -> _Room:
    by_rate, by_leases = inf, inf
    if terms.interval > 0:
        by_rate = max(floor((now - pace_from) / terms.interval) + 1, 0)
    if terms.in_flight >= 0:
        by_leases = max(terms.in_flight - len(queue.leased), 0)
    allowed = min(by_rate, by_leases, terms.limit)
    return _Room(int(allowed), terms.in_flight >= 0 and by_leases <= by_rate)


class Round:
    """One claim while it is executed."""

    def __init__(self, queue: QueueState, terms: Terms) -> None:
        now = queue.tick()
        self.now: int = now
        self.queue = queue
        self._terms = terms
        self._was_keyed = queue.is_keyed
        self.taken: list[StoredMessage] = []
        self.reclaimed: list[Any] = []
        self.buried: int = 0
        self.lateness: int = 0
        self._room = _Room(terms.limit, needs_lease_to_end=False)
        self._bytes = 0
        self._is_full = False
        """Whether more messages may be due."""
        self._has_passed_over = False
        self._is_limited = False
        self._is_isolating = terms.suspects != b"with" and terms.crash_limit > 1
        self._was_kept_by_rate = terms.interval > 0 and queue.limited not in (None, UNTIL_A_LEASE_ENDS)
        # If no message was kept back, there is nothing to catch up with.
        tat = min(queue.tat, now + ceil(terms.interval))  # a slower rate may have written it
        self._pace_from = max(tat, now - TOLERANCE_US if self._was_kept_by_rate else now)

    @classmethod
    def of(cls, queue: QueueState, args: Sequence[bytes]) -> Self:
        """Begin a claim."""
        return cls(queue, Terms.read(args))

    @property
    def state(self) -> int:
        """Whether the queue is paused, whether suspects were passed over, and whether a limit keeps messages back."""
        if self.queue.paused is not None:
            return PAUSED
        if self._has_passed_over:
            return PASSED_OVER
        return LIMITED if self._is_limited else OPEN

    def prepare(self) -> None:
        """Prepare the search for due messages. A queue needs nothing."""

    def reclaim_leases(self) -> None:
        """Return messages with expired leases to their own places, with one more crash. At the limit they are dead."""
        if self._terms.then == b"behind":  # the server may have hung since it was sent: holders renew first
            return
        for deadline, id_ in self.queue.leased.up_to(self.now, RECLAIMED_PER_CALL):
            message = self.queue.messages[id_]
            assert message.lease is not None
            consumer = message.lease.consumer.rstrip(" ").encode()
            is_dead = self._reclaim(message, message.lease)
            self.reclaimed += (id_, consumer, self.now - deadline, int(is_dead))

    def _reclaim(self, message: StoredMessage, lease: Lease) -> bool:
        counts, flaw, past = message.counted(), message.flaw, Past.of(message)
        counts.crashes += 1
        past.add_event(self.now, "crash", lease)
        self.queue.count("crashed", 1)
        if flaw or counts.crashes >= self._terms.crash_limit:
            self.queue.bury(
                message, lease.size, flaw or "poison", counts, past, self.now, key=lease.key, blocks=self._terms.blocks
            )
            self.buried += 1
            return True
        message.why = past.row_of_live()
        self.queue.set_counts(message, counts)
        self.queue.wait(message, message.own_place)
        return False

    def take(self) -> None:
        """Take the messages that may be delivered."""
        self.queue.expire_some(self.now)
        if self.queue.paused is None:
            self._room = _room(self.queue, self.now, self._terms, self._pace_from)
            self.take_due()

    def take_due(self) -> None:
        """Take the due messages that have their turn, highest priority first."""
        for priority in self.queue.priorities_in_use:
            if self._wants_more and self._terms.retry_share and self.queue.with_counts:
                self._take_by_share(self.queue.waiting[priority])
            passed_over = 0
            while self._wants_more and (message := self._due(priority, passed_over)) is not None:
                passed_over += self._passes_over(message)

    def _take_by_share(self, waiting: ScoredIds) -> None:
        """While new messages and retries of one priority are due, give each kind its share."""
        if waiting.count_up_to(self.now) <= self._room.allowed - len(self.taken):
            return
        due = [self.queue.messages[id_] for _, id_ in waiting.up_to(self.now)]
        new, retries = (deque(each for each in due if each.has_begun == kind) for kind in (False, True))
        while self._wants_more and self._has_next(new) and self._has_next(retries):
            credit, taken = self.queue.retry_credit + self._terms.retry_share, len(self.taken)
            if credit < 1:
                self._passes_over(new.popleft())
            else:
                self._passes_over(retries.popleft())
                credit -= 1
            if len(self.taken) > taken:
                self.queue.retry_credit = credit

    def _has_next(self, kind: deque[StoredMessage]) -> bool:
        """Return whether this caller may have another message of a kind. Suspects in front of it are passed over."""
        while kind and self._is_isolating and self._is_suspect(kind[0]) and not self._accepts_suspect:
            self._has_passed_over = True
            kind.popleft()
        return bool(kind)

    @property
    def _wants_more(self) -> bool:
        return len(self.taken) < self._room.allowed and not self._is_full

    def _due(self, priority: int, rank: int) -> StoredMessage | None:
        """Return the due message of a priority and rank."""
        row = self.queue.waiting[priority].row(rank)
        return None if row is None or row[0] > self.now else self.queue.messages[row[1]]

    def _passes_over(self, message: StoredMessage) -> bool:
        """Return whether a due message stays where it is. Otherwise it has been taken, parked or ended."""
        if self._is_isolating and self._is_suspect(message):
            if not self._may_go_alone(message):
                self._has_passed_over = True
                return True
            self._is_full = True  # no other message is delivered with it
        flaw = message.flaw
        if flaw:
            self.queue.bury_flawed(message, flaw, message.size, self.now)
            self.buried += 1
            return False
        expiry, key = message.expiry_and_key
        if expiry is not None and expiry <= self.now:
            self.queue.drop_expired(message, self.now)
        elif self._bytes + message.size > BYTES_PER_CALL and self.taken:
            self._is_full = True
        elif self._has_turn(message, key):
            self._bytes += message.size
            self.lateness = max(self.lateness, self.now - message.own_place)
            self.take_one(message, key)
        return False

    def _is_suspect(self, message: StoredMessage) -> bool:
        return message.counts is not None and is_suspect(message.counts, self._terms.crash_limit)

    def _may_go_alone(self, message: StoredMessage) -> bool:  # noqa: ARG002 - the model tests use it
        """Return whether the caller may have a suspect alone: it is the first message that can be delivered."""
        return self._accepts_suspect

    @property
    def _accepts_suspect(self) -> bool:
        return self._terms.suspects == b"alone" and not self.taken

    def _has_turn(self, message: StoredMessage, key: bytes | None) -> bool:
        """Return whether a message has its turn in its lane. It owns the lane then; otherwise it is parked."""
        if key is None or self.queue.lanes.take(key, message.id):
            return True
        self.queue.park(message, key)
        return False

    def take_one(self, message: StoredMessage, key: bytes | None) -> None:
        """Deliver a message, and store its holder. The fence is the time of the claim, so it grows with each claim."""
        self.taken.append(message)
        flags = flags_of(message.intact) | (FLAG_HAS_COUNTS if message.counts else 0)
        self.queue.move(message, "leased", self.now + self._terms.lease_us)
        message.lease = Lease(
            self.now, message.size, flags, message.priority, self._terms.consumer, None if key is None else key.decode()
        )

    def trim_dead(self) -> None:
        """Keep dead letters within their bounds. A lane that waits for a removed dead letter continues."""
        if self.buried or (self._terms.blocks and self._was_keyed):
            self.queue.trim(self.queue.dead, "dead", self._terms.keep, self.now, self.buried)

    def note_deliveries(self) -> None:
        """Count the delivered messages."""
        if self.taken:
            self.queue.lateness = self.lateness
            self.queue.count("delivered", len(self.taken))

    def note_clock(self) -> None:
        """Store the time of the claim."""
        if self.taken or self.reclaimed or self.buried:
            self.queue.clock = self.now

    def note_limits(self) -> None:
        """Store when the next delivery is on time by the rate, and whether a limit keeps due messages back."""
        queue, count, interval = self.queue, len(self.taken), self._terms.interval
        tat = ceil(self._pace_from + count * interval)
        is_shortened = interval > 0 and self._pace_from < queue.tat  # else its interval began with each claim
        if is_shortened or (interval > 0 and count):
            queue.tat = tat
        is_at_limit = count == self._room.allowed < self._terms.limit
        is_left = (is_at_limit or self._was_kept_by_rate) and self._is_any_due()
        self._is_limited = is_left and is_at_limit
        if self._terms.limit:
            queue.limited = None
        if self._is_limited:
            free_at = ceil(tat + max(GRAIN_US - interval, 0))
            queue.limited = UNTIL_A_LEASE_ENDS if self._room.needs_lease_to_end else free_at
        elif is_left:
            queue.limited = tat  # a caller that wanted no more does not end the catching up of others

    def _is_any_due(self) -> bool:
        queue = self.queue
        return queue.paused is None and any(queue.waiting[each].up_to(self.now, 1) for each in queue.priorities_in_use)

    def until_next(self) -> int:
        """Count the microseconds until a claim may find more; 0: now, -1: never."""
        # A claim behind a block takes one message although there is room for more, so it finds the next one.
        goes_on = self._terms.limit == 0 or (self._terms.then == b"behind" and not self._has_passed_over)
        may_find_more = self._is_full or (len(self.taken) == self._terms.limit and not goes_on)
        if len(self.reclaimed) == 4 * RECLAIMED_PER_CALL or (may_find_more and not self._is_limited):
            return 0
        moment = self.next_moment()
        return -1 if moment is None else max(moment - self.now, 0)

    def next_moment(self) -> int | None:
        """Return when a claim may find more. Due messages that were passed over do not count."""
        above = self.now if self._has_passed_over else None
        return self.queue.next_moment(self.queue.limited if self._is_limited else None, above)

    def position(self, _next_us: int) -> list[list[bytes]]:
        """Return the entry to wait behind. A queue has none."""
        return []
