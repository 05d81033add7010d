"""claim: leases that ran out go back, then what is due is taken, highest priority first."""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, floor, inf
from typing import Any, Final, NamedTuple

from duly._core.bounds import BYTES_A_CALL, FLAG_TROUBLED, GRAIN_US, RECLAIMED_A_CALL, TOLERANCE_US
from duly._core.codec import Lease
from duly._core.replies import LIMITED, OPEN, PASSED_OVER, PAUSED, is_suspect
from duly.memory import wire
from duly.memory.calls import Kept
from duly.memory.lanes import Lane
from duly.memory.message import StoredMessage, flags_of
from duly.memory.past import Past
from duly.memory.state import UNTIL_A_LEASE_ENDS, Keep, QueueState

LOOKED_PAST: Final = 100
PARKED_A_CALL: Final = 1000
LOOKED_AHEAD: Final = 10
MOST_LOOKED_AHEAD: Final = 640


class Terms(NamedTuple):
    """What the caller of a claim says."""

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

    @classmethod
    def read(cls, args: Sequence[bytes]) -> "Terms":
        """Read the arguments of a call."""
        limit, lease_us, crash_limit = map(int, args[1:4])
        keep = Keep(*map(int, args[7:10]))
        limits = float(args[11]), int(args[12])
        blocks = args[10] == b"block"
        return cls(limit, lease_us, crash_limit, args[4].decode(), args[5], args[6], keep, blocks, *limits)


def claim(queue: QueueState, args: list[bytes]) -> Kept:
    """Take what is due, and note who holds it until when."""
    return carried_out(Round(queue, Terms.read(args)))


def carried_out(round_: "Round") -> Kept:
    """Carry a claim out, and answer it."""
    round_.reclaim_leases()
    round_.prepare()
    any_counts = round_.queue.troubled > 0
    round_.take(any_counts=any_counts)
    round_.trim_dead()
    round_.note_deliveries()
    round_.note_clock()
    round_.note_limits()
    schedules = round_.queue.name_due_schedules(round_.now)
    next_us = round_.until_next()
    fence = round_.now if round_.taken else 0
    ids, records, counts = _rows(round_.taken)
    rows = [ids, records, counts if any_counts else [], round_.reclaimed, schedules, *round_.position(next_us)]
    # Also of nothing, or a late copy of this call would take messages for nobody.
    return Kept([round_.state, round_.now, next_us, fence, *rows], partial(_given_again, fence, ids))


def _rows(messages: list[StoredMessage]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    ids = [message.id for message in messages]
    return ids, [wire.record(each) for each in messages], [wire.counts(each) for each in messages]


def _given_again(fence: int, ids: list[bytes], queue: QueueState) -> list[Any]:
    """Answer a repeat: the same messages and fence, without those that were settled or lost since."""
    known = [queue.messages[id_] for id_ in ids if id_ in queue.messages]
    held = [each for each in known if each.lease and each.lease.fence == fence and each.record is not None]
    return [OPEN, queue.tick(), 0, fence, *_rows(held), [], []]


class _Room(NamedTuple):
    """How many messages may be handed out, and whether a lease must end before there may be more."""

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
    """One claim at work."""

    def __init__(self, queue: QueueState, terms: Terms) -> None:
        now = self.now = queue.tick()
        self.queue = queue
        self._terms = terms
        self._was_keyed = queue.is_keyed
        self.taken: list[StoredMessage] = []
        self.reclaimed: list[Any] = []
        self.buried = 0
        self.lateness = 0
        self._room = _Room(terms.limit, needs_lease_to_end=False)
        self._bytes = 0
        self._parked = 0
        self._is_full = False
        self._has_passed_over = False
        self._is_limited = False
        self._is_isolating = False
        self._free_at = 0
        self._was_kept_by_rate = terms.interval > 0 and queue.limited not in (None, UNTIL_A_LEASE_ENDS)
        # What was not kept back has nothing to catch up with.
        tat = min(queue.tat, now + ceil(terms.interval))  # a slower rate may have written it
        self._pace_from = max(tat, now - TOLERANCE_US if self._was_kept_by_rate else now)

    @property
    def state(self) -> int:
        """Whether the queue is paused, whether suspects were passed over, and whether a limit keeps messages back."""
        if self.queue.paused is not None:
            return PAUSED
        if self._has_passed_over:
            return PASSED_OVER
        return LIMITED if self._is_limited else OPEN

    def prepare(self) -> None:
        """Do what comes before a look at what is due: for a queue, nothing."""

    def reclaim_leases(self) -> None:
        """Take leases back that ran out: to its own place, one crash more, dead at the limit."""
        for deadline, id_ in self.queue.leased.up_to(self.now, RECLAIMED_A_CALL):
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
        message.why = past.of_the_living()
        self.queue.set_counts(message, counts)
        self.queue.wait(message, message.own_place)
        return False

    def take(self, *, any_counts: bool) -> None:
        """Take what may be handed out; `any_counts`: there may be suspects, which may be apart."""
        self.queue.expire_some(self.now)
        if self.queue.paused is None:
            is_apart = self._terms.suspects != b"with" and self._terms.crash_limit > 1
            self.take_what_is_due(is_isolating=any_counts and is_apart)

    def take_what_is_due(self, *, is_isolating: bool) -> None:
        """Take due messages until the call is full; `is_isolating`: there may be suspects, which are apart."""
        self._room = _room(self.queue, self.now, self._terms, self._pace_from)
        self._is_isolating = is_isolating
        for priority in self.queue.priorities_in_use:
            if len(self.taken) < self._room.allowed and not self._is_full:
                self._take_in_turn(priority)

    def _take_in_turn(self, priority: int) -> None:
        """Take from one priority. What is parked makes room for a look at what is behind it."""
        ahead = 0
        while not self._is_full:
            parked_before = self._parked
            self._take_from(priority, ahead)
            if self._parked == parked_before:
                return
            # With half of what was wanted another look is not worth it: the answer says that there may be more.
            if self._parked >= PARKED_A_CALL or 2 * len(self.taken) >= self._room.allowed:
                self._is_full = True
            ahead = min(max(2 * ahead, LOOKED_AHEAD), MOST_LOOKED_AHEAD)  # a long lane is parked in few steps

    def _take_from(self, priority: int, ahead: int) -> None:
        wanted = self._room.allowed - len(self.taken)
        looked_at = min(wanted + ahead, PARKED_A_CALL - self._parked)  # all of them may have to be parked
        may_be_more = len(self._due(priority, looked_at)) == looked_at
        candidates = self._that_fit(self._chosen(partial(self._due, priority), looked_at))
        if self.queue.is_keyed:
            candidates = self._in_turn(candidates, wanted)
        first = len(self.taken)
        for message in candidates:
            self._take(message)
        if len(self.taken) - first < len(candidates) and (may_be_more or len(candidates) == wanted):
            self._is_full = True  # some could not be handed out: there may be more of this priority
        if len(self.taken) > first:
            self.lateness = max(self.lateness, self.now - self.taken[first].own_place)

    def _due(self, priority: int, count: int) -> list[StoredMessage]:
        return [self.queue.messages[id_] for _, id_ in self.queue.waiting[priority].up_to(self.now, count)]

    def _chosen(self, due: Callable[[int], list[StoredMessage]], wanted: int) -> list[StoredMessage]:
        """Choose what the caller may have: the first that are no suspects, or a suspect by itself."""
        if not self._is_isolating:
            return due(wanted)
        looked_at = due(wanted + LOOKED_PAST)
        if looked_at and self._is_suspect(looked_at[0]) and self._terms.suspects == b"alone" and not self.taken:
            self._is_full = True  # nothing goes with it
            return looked_at[:1]
        chosen: list[StoredMessage] = []
        for message in looked_at:
            if self._is_suspect(message):
                self._has_passed_over = True
            else:
                chosen.append(message)
            if len(chosen) == wanted:
                break
        # There may be more where these came from; where none came from, another look would find the same.
        self._is_full = len(chosen) == wanted or (bool(chosen) and len(looked_at) == wanted + LOOKED_PAST)
        return chosen

    def _is_suspect(self, message: StoredMessage) -> bool:
        return message.counts is not None and is_suspect(message.counts, self._terms.crash_limit)

    def _that_fit(self, candidates: list[StoredMessage]) -> list[StoredMessage]:
        """Cut off what exceeds the bytes of a call; the first message of a call always fits."""
        if not self.queue.has_large:
            return candidates
        total = self._bytes
        for index, message in enumerate(candidates):
            total += message.size
            if total > BYTES_A_CALL and len(self.taken) + index > 0:
                self._is_full = True
                return candidates[:index]
        return candidates

    def _in_turn(self, candidates: list[StoredMessage], wanted: int) -> list[StoredMessage]:
        """Choose those whose turn it is in their lanes, which are theirs from now on; park the others before them."""
        lanes = self.queue.lanes.lanes
        chosen: list[StoredMessage] = []
        for message in candidates:
            if len(chosen) == wanted:
                break
            key = self._lane_needed(message)
            lane = None if key is None else lanes.get(key)
            if key is not None and lane is not None and lane.id != message.id:
                lanes[key] = Lane(lane.id, has_more=True)
                self.queue.park(message, key)
                self._parked += 1
                continue
            if key is not None and lane is None:
                lanes[key] = Lane(message.id, has_more=False)
            chosen.append(message)
        return chosen

    def _lane_needed(self, message: StoredMessage) -> bytes | None:
        """Return the lane that a message must have before it is handed out; None: none, or it will not be."""
        key = message.key
        if key is None or self._is_over(message):
            return None
        return key

    def _is_over(self, message: StoredMessage) -> bool:
        return (expiry := message.expiry) is not None and expiry <= self.now

    def _take(self, message: StoredMessage) -> None:
        flaw = message.flaw
        if flaw:
            self.queue.bury_flawed(message, flaw, message.size, self.now)
            self.buried += 1
        elif self._is_over(message):
            self.queue.drop_expired(message, self.now)
        else:
            self.taken.append(message)
            self._bytes += message.size
            self._lease_out(message)

    def _lease_out(self, message: StoredMessage) -> None:
        """Note who holds what was taken. The fence is the time of the claim: it grows with each one."""
        flags = flags_of(message.intact) | (FLAG_TROUBLED if message.counts else 0)
        key = message.key
        self.queue.move(message, "leased", self.now + self._terms.lease_us)
        message.lease = Lease(
            self.now, message.size, flags, message.priority, self._terms.consumer, None if key is None else key.decode()
        )

    def trim_dead(self) -> None:
        """Keep dead letters within their bounds. A lane that waits for one that goes goes on."""
        if self.buried or (self._terms.blocks and self._was_keyed):
            self.queue.trim(self.queue.dead, "dead", self._terms.keep, self.now, self.buried)

    def note_deliveries(self) -> None:
        """Count what is handed out."""
        if self.taken:
            self.queue.lateness = self.lateness
            self.queue.count("delivered", len(self.taken))

    def note_clock(self) -> None:
        """Note the time of what was done."""
        if self.taken or self.reclaimed or self.buried:
            self.queue.clock = self.now

    def note_limits(self) -> None:
        """Note when the next delivery is on time by the rate, and whether a limit keeps back what is due."""
        queue, count, interval = self.queue, len(self.taken), self._terms.interval
        tat = ceil(self._pace_from + count * interval)
        self._free_at = ceil(tat + max(GRAIN_US - interval, 0))
        is_shortened = interval > 0 and self._pace_from < queue.tat  # else its interval began with each claim
        if is_shortened or (interval > 0 and count):
            queue.tat = tat
        is_at_limit = count == self._room.allowed < self._terms.limit
        is_left = (is_at_limit or self._was_kept_by_rate) and self._is_any_due()
        self._is_limited = is_left and is_at_limit
        queue.limited = None
        if self._is_limited:
            queue.limited = UNTIL_A_LEASE_ENDS if self._room.needs_lease_to_end else self._free_at
        elif is_left:
            queue.limited = tat  # a caller that wanted no more does not end the catching up of others

    def _is_any_due(self) -> bool:
        queue = self.queue
        return queue.paused is None and any(queue.waiting[each].up_to(self.now, 1) for each in queue.priorities_in_use)

    def until_next(self) -> int:
        """Count the microseconds to the moment at which a claim may find more; -1: nothing to come."""
        # An empty-handed caller may have a suspect that came behind what could not be delivered.
        may_have_it_now = self._has_passed_over and self._terms.suspects == b"alone" and not self.taken
        may_find_more = self._is_full or may_have_it_now or len(self.taken) == self._terms.limit
        if len(self.reclaimed) == 4 * RECLAIMED_A_CALL or (may_find_more and not self._is_limited):
            return 0
        moment = self.next_moment()
        return -1 if moment is None else max(moment - self.now, 0)

    def next_moment(self) -> int | None:
        """Return when a claim may find more. What is due and was passed over is not to come."""
        above = self.now if self._has_passed_over else None
        return self.queue.next_moment(self.queue.limited if self._is_limited else None, above)

    def position(self, _next_us: int) -> list[list[bytes]]:
        """Say behind what to wait: in a queue, nothing."""
        return []
