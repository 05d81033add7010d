"""claim: leases that ran out go back, then what is due is taken, highest priority first."""

from functools import partial
from typing import Any, Final

from duly._core.codec import Lease
from duly._core.replies import OPEN, PASSED_OVER, PAUSED, is_suspect
from duly.memory import wire
from duly.memory.calls import Kept
from duly.memory.message import StoredMessage, flags_of
from duly.memory.state import Keep, QueueState

RECLAIMED_A_CALL: Final = 100
BYTES_A_CALL: Final = 4 << 20
LOOKED_PAST: Final = 100
FLAG_TROUBLED: Final = 128


def claim(queue: QueueState, args: list[bytes]) -> Kept:
    """Take what is due, and note who holds it until when."""
    limit, lease_us, crash_limit, consumer, then = int(args[1]), int(args[2]), int(args[3]), args[4], args[5]
    now = queue.tick()
    round_ = _Round(queue, now, limit, crash_limit, suspects=args[6])
    round_.reclaim_leases()
    queue.expire_some(now)
    any_counts = queue.troubled > 0
    if queue.paused is None:
        round_.take_what_is_due()
    if round_.buried:
        queue.trim(queue.dead, "dead", Keep(*map(int, args[7:10])), now, round_.buried)
    if round_.taken:
        round_.lease_out(lease_us, consumer.decode())
        queue.lateness = round_.lateness
        queue.count("delivered", len(round_.taken))
    if round_.taken or round_.reclaimed or round_.buried:
        queue.clock = now
    next_us = round_.until_next()
    _hand_the_token_on(queue, round_, then, next_us)
    fence = now if round_.taken else 0
    ids, records, counts = _rows(round_.taken)
    reply = [round_.state, now, next_us, fence, ids, records, counts if any_counts else [], round_.reclaimed]
    # Also of nothing, or a late copy of this call would take messages for nobody.
    return Kept(reply, partial(_given_again, fence, ids))


def _hand_the_token_on(queue: QueueState, round_: "_Round", then: bytes, next_us: int) -> None:
    is_watching = (then == b"stay" and next_us != 0) or (then == b"watch" and not round_.taken)
    is_passing = then == b"pass" and next_us >= 0 and round_.state == OPEN
    if round_.state == PASSED_OVER:
        queue.leave_token()  # for a consumer that holds nothing
    elif is_watching:
        queue.has_token = False  # this consumer has seen everything and watches from now on
    elif round_.taken or then == b"stay" or is_passing:
        queue.leave_token()  # somebody else must watch what waits and what is leased
    else:
        queue.take_token_if_empty()


def _rows(messages: list[StoredMessage]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    ids = [message.id for message in messages]
    return ids, [wire.record(each) for each in messages], [wire.counts(each) for each in messages]


def _given_again(fence: int, ids: list[bytes], queue: QueueState) -> list[Any]:
    """Answer a repeat: the same messages and fence, without those that were settled or lost since."""
    known = [queue.messages[id_] for id_ in ids if id_ in queue.messages]
    held = [each for each in known if each.lease and each.lease.fence == fence and each.record is not None]
    return [OPEN, queue.tick(), 0, fence, *_rows(held), []]


class _Round:
    """One claim at work."""

    def __init__(self, queue: QueueState, now: int, limit: int, crash_limit: int, suspects: bytes) -> None:
        self.now = now
        self._queue = queue
        self._limit = limit
        self._crash_limit = crash_limit
        self._suspects = suspects
        self.taken: list[StoredMessage] = []
        self.reclaimed: list[Any] = []
        self.buried = 0
        self.lateness = 0
        self._bytes = 0
        self._is_full = False
        self._has_passed_over = False

    @property
    def state(self) -> int:
        """Whether the queue is paused, and whether suspects were passed over."""
        if self._queue.paused is not None:
            return PAUSED
        return PASSED_OVER if self._has_passed_over else OPEN

    def reclaim_leases(self) -> None:
        """Take leases back that ran out: to its own place, one crash more, dead at the limit."""
        for deadline, id_ in self._queue.leased.up_to(self.now, RECLAIMED_A_CALL):
            message = self._queue.messages[id_]
            assert message.lease is not None
            consumer = message.lease.consumer.rstrip(" ").encode()
            is_dead = self._reclaim(message, message.lease)
            self.reclaimed += (id_, consumer, self.now - deadline, int(is_dead))

    def _reclaim(self, message: StoredMessage, lease: Lease) -> bool:
        counts, flaw = message.counted(), message.flaw
        counts.crashes += 1
        self._queue.count("crashed", 1)
        if flaw or counts.crashes >= self._crash_limit:
            self._queue.bury(message, lease.size, flaw or "poison", counts, message.errors, self.now)
            self.buried += 1
            return True
        self._queue.set_counts(message, counts)
        self._queue.wait(message, message.own_place)
        return False

    def take_what_is_due(self) -> None:
        """Take due messages until the call is full."""
        is_isolating = self._suspects != b"with" and self._crash_limit > 1 and self._queue.troubled > 0
        for priority in self._queue.priorities_in_use:
            if len(self.taken) < self._limit and not self._is_full:
                wanted = self._limit - len(self.taken)
                looked_at = wanted + LOOKED_PAST if is_isolating else wanted
                rows = self._queue.waiting[priority].up_to(self.now, looked_at)
                due = [self._queue.messages[id_] for _, id_ in rows]
                self._take_all(self._that_fit(self._without_suspects(due, wanted) if is_isolating else due))

    def _without_suspects(self, due: list[StoredMessage], wanted: int) -> list[StoredMessage]:
        """Choose what the caller may have: the first that are no suspects, or a suspect by itself."""
        if due and self._is_suspect(due[0]) and self._suspects == b"alone" and not self.taken:
            self._is_full = True  # nothing goes with it
            return due[:1]
        chosen: list[StoredMessage] = []
        for message in due:
            if self._is_suspect(message):
                self._has_passed_over = True
            else:
                chosen.append(message)
            if len(chosen) == wanted:
                break
        # There may be more where these came from; where none came from, another look would find the same.
        self._is_full = len(chosen) == wanted or (bool(chosen) and len(due) == wanted + LOOKED_PAST)
        return chosen

    def _is_suspect(self, message: StoredMessage) -> bool:
        return message.counts is not None and is_suspect(message.counts, self._crash_limit)

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
        # An empty-handed caller may have a suspect that came behind what could not be delivered.
        may_have_it_now = self._has_passed_over and self._suspects == b"alone" and not self.taken
        if is_cut_short or may_have_it_now or len(self.taken) == self._limit:
            return 0
        to_come = [self._queue.leased.first_score()]
        if self._queue.paused is None:
            waiting = [self._queue.waiting[priority] for priority in self._queue.priorities_in_use]
            # What is due and was passed over is not to come.
            behind = self.now if self._has_passed_over else None
            to_come += [each.first_score(behind) for each in waiting]
        heads = [head for head in to_come if head is not None]
        return max(min(heads) - self.now, 0) if heads else -1
