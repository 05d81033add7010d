"""claim: leases that ran out go back, then what is due is taken, highest priority first."""

from functools import partial
from typing import Any, Final

from duly._core.codec import Lease
from duly.memory import wire
from duly.memory.calls import Kept
from duly.memory.message import StoredMessage, flags_of
from duly.memory.ordered import ScoredIds
from duly.memory.state import Keep, QueueState

RECLAIMED_A_CALL: Final = 100
BYTES_A_CALL: Final = 4 << 20
FLAG_TROUBLED: Final = 128
_OPEN, _PAUSED = 0, 1


def claim(queue: QueueState, args: list[bytes]) -> Kept:
    """Take what is due, and note who holds it until when."""
    limit, lease_us, crash_limit, consumer, then = int(args[1]), int(args[2]), int(args[3]), args[4], args[5]
    now = queue.tick()
    round_ = _Round(queue, now, limit)
    round_.reclaim_leases(crash_limit)
    queue.expire_some(now)
    any_counts = queue.troubled > 0
    if queue.paused is None:
        round_.take_what_is_due()
    if round_.buried:
        queue.trim(queue.dead, "dead", Keep(*map(int, args[6:9])), now, round_.buried)
    if not round_.taken:
        return _empty_handed(queue, round_, then)
    round_.lease_out(lease_us, consumer.decode())
    queue.clock = now
    queue.lateness = round_.lateness
    queue.count("delivered", len(round_.taken))
    queue.leave_token()  # the holder is busy now: somebody else must watch what waits and what is leased
    ids, records, counts = _rows(round_.taken)
    reply = [_OPEN, now, round_.until_next(), now, ids, records, counts if any_counts else [], round_.reclaimed]
    return Kept(reply, partial(_given_again, now, ids))


def _empty_handed(queue: QueueState, round_: "_Round", then: bytes) -> Kept:
    state, next_us = _OPEN if queue.paused is None else _PAUSED, round_.until_next()
    if then == b"watch":
        queue.has_token = False  # this consumer has seen everything and watches from now on
    elif then == b"pass" and next_us >= 0 and state == _OPEN:
        queue.leave_token()
    else:
        queue.take_token_if_empty()
    if round_.reclaimed or round_.buried:
        queue.clock = round_.now
    reply = [state, round_.now, next_us, 0, [], [], [], round_.reclaimed]
    return Kept(reply, partial(_given_again, 0, []))  # or a late copy of this call would take messages for nobody


def _rows(messages: list[StoredMessage]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    ids = [message.id for message in messages]
    return ids, [wire.record(each) for each in messages], [wire.counts(each) for each in messages]


def _given_again(fence: int, ids: list[bytes], queue: QueueState) -> list[Any]:
    """Answer a repeat: the same messages and fence, without those that were settled or lost since."""
    known = [queue.messages[id_] for id_ in ids if id_ in queue.messages]
    held = [each for each in known if each.lease and each.lease.fence == fence and each.record is not None]
    return [_OPEN, queue.tick(), 0, fence, *_rows(held), []]


class _Round:
    """One claim at work."""

    def __init__(self, queue: QueueState, now: int, limit: int) -> None:
        self.now = now
        self._queue = queue
        self._limit = limit
        self.taken: list[StoredMessage] = []
        self.reclaimed: list[Any] = []
        self.buried = 0
        self.lateness = 0
        self._bytes = 0
        self._is_full = False

    def reclaim_leases(self, crash_limit: int) -> None:
        """Take leases back that ran out: to its own place, one crash more, dead at the limit."""
        for deadline, id_ in self._queue.leased.up_to(self.now, RECLAIMED_A_CALL):
            message = self._queue.messages[id_]
            assert message.lease is not None
            consumer = message.lease.consumer.rstrip(" ").encode()
            is_dead = self._reclaim(message, message.lease, crash_limit)
            self.reclaimed += (id_, consumer, self.now - deadline, int(is_dead))

    def _reclaim(self, message: StoredMessage, lease: Lease, crash_limit: int) -> bool:
        counts, flaw = message.counted(), message.flaw
        counts.crashes += 1
        self._queue.count("crashed", 1)
        if flaw or counts.crashes >= crash_limit:
            self._queue.bury(message, lease.size, flaw or "poison", counts, message.errors, self.now)
            self.buried += 1
            return True
        self._queue.set_counts(message, counts)
        self._queue.wait(message, message.own_place)
        return False

    def take_what_is_due(self) -> None:
        """Take due messages until the call is full."""
        for priority in self._queue.priorities_in_use:
            if len(self.taken) < self._limit and not self._is_full:
                due = self._queue.waiting[priority].up_to(self.now, self._limit - len(self.taken))
                self._take_all(self._that_fit([self._queue.messages[id_] for _, id_ in due]))

    def _take_all(self, candidates: list[StoredMessage]) -> None:
        first = len(self.taken)
        for message in candidates:
            self._take(message)
        if len(self.taken) > first:
            self.lateness = max(self.lateness, self.now - self.taken[first].own_place)

    def _that_fit(self, candidates: list[StoredMessage]) -> list[StoredMessage]:
        """Cut off what exceeds the bytes of a call; the first message of a call always fits."""
        if not self._queue.has_large:
            return candidates
        total = self._bytes
        for index, message in enumerate(candidates):
            total += message.size
            if total > BYTES_A_CALL and len(self.taken) + index > 0:
                self._is_full = True
                return candidates[:index]
        return candidates

    def _take(self, message: StoredMessage) -> None:
        flaw = message.flaw
        if flaw:
            self._queue.bury_flawed(message, flaw, message.size, self.now)
            self.buried += 1
        elif (expiry := message.expiry) is not None and expiry <= self.now:
            self._queue.drop_expired(message)
        else:
            self.taken.append(message)
            self._bytes += message.size

    def lease_out(self, lease_us: int, consumer: str) -> None:
        """Note who holds what was taken. The fence is the time of the claim: it grows with each one."""
        for message in self.taken:
            flags = flags_of(message.intact) | (FLAG_TROUBLED if message.counts else 0)
            self._queue.move(message, "leased", self.now + lease_us)
            message.lease = Lease(self.now, message.size, flags, message.priority, consumer)

    def until_next(self) -> int:
        """Count the microseconds to the moment at which a claim may find more; -1: nothing to come."""
        is_cut_short = self._is_full or len(self.reclaimed) == 4 * RECLAIMED_A_CALL
        if is_cut_short or len(self.taken) == self._limit:
            return 0
        places: list[ScoredIds] = [self._queue.leased]
        if self._queue.paused is None:
            places += [self._queue.waiting[priority] for priority in self._queue.priorities_in_use]
        heads = [head for place in places if (head := place.first_score()) is not None]
        return max(min(heads) - self.now, 0) if heads else -1
