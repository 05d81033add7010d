"""New messages: send, and send_checked, which checks the stored messages first."""

from collections.abc import Sequence
from heapq import merge
from itertools import islice
from math import inf
from typing import Any, Final, NamedTuple

from duly._core.bounds import EXPIRED_PER_CALL, EXTRA_DROPPED
from duly._core.codec import FLAG_KEY, FLAG_OWN_ID, FLAG_REPLACE, stamped
from duly._core.replies import DUPLICATE, FULL, REPLACED
from duly.memory.calls import Kept
from duly.memory.message import Options, StoredMessage, flags_of, options_of, priority_of
from duly.memory.points import note_minute, note_minute_of_send
from duly.memory.state import QueueState

_FIRST_CHECKED: Final = 4
_WAITING: Final = ("waiting", "parked")


def due_at(now: int, ahead: int, when: bytes) -> int:
    """Read when a message is due: `0` now, `+us` from now, `=us` since the epoch."""
    if when == b"0":
        return now
    us = int(when[1:])
    return now + us if when[:1] == b"+" else max(now, us + ahead)


class Bounds(NamedTuple):
    """How much a queue may hold, -1: any number, and how a message that does not fit is treated."""

    length: int
    size: int
    on_full: bytes

    @classmethod
    def read(cls, args: Sequence[bytes]) -> "Bounds":
        """Read the arguments of a call."""
        return cls(int(args[0]), int(args[1]), args[2])


class _Incoming(NamedTuple):
    """A message that is being sent."""

    id: bytes
    part: bytes
    when: bytes

    def record_at(self, tick: int, ahead: int) -> tuple[int, bytes]:
        """Write the record, and return when it is due."""
        due = due_at(tick, ahead, self.when)
        return due, stamped(tick, due, self.part)


def _incoming(args: list[bytes]) -> list[_Incoming]:
    return [_Incoming(*row) for row in zip(args[0::3], args[1::3], args[2::3], strict=True)]


def send(queue: QueueState, args: list[bytes]) -> Kept:
    """Store messages that need no check of the stored ones."""
    note_minute_of_send(queue, queue.tick(), int(args[0]))
    store_unchecked(queue, args[2:], has_keys=args[1] == b"1")
    return Kept(1)


def store_unchecked(queue: QueueState, rows: list[bytes], *, has_keys: bool) -> None:
    """Store the messages of the rows of a call, each as a new one."""
    messages = _incoming(rows)
    queue.is_keyed = queue.is_keyed or has_keys
    _store(queue, queue.tick(), queue.ahead(), messages)
    queue.count("sent", len(messages))


def _store(queue: QueueState, now: int, ahead: int, messages: Sequence[_Incoming]) -> None:
    """Give each message its own tick of the clock and its place."""
    size = 0
    for tick, incoming in enumerate(messages, now):
        due, record = incoming.record_at(tick, ahead)
        queue.add(StoredMessage(incoming.id, record, priority_of(record)), due)
        size += len(record)
    queue.clock = now + len(messages) - 1
    queue.count("bytes", size)


class _Candidate(NamedTuple):
    """A message for which there may be no room, or which may be stored already."""

    incoming: _Incoming
    flags: int
    options: Options
    size: int


def _candidate(incoming: _Incoming) -> _Candidate:
    record = stamped(0, 0, incoming.part)
    return _Candidate(incoming, flags_of(record), options_of(record), len(record))


class _Admission:
    """Decides the outcome of each message of a call. Writes nothing; later messages see the earlier ones."""

    def __init__(self, queue: QueueState, now: int, bounds: Bounds, leaving: StoredMessage | None) -> None:
        self._queue = queue
        self._now = now
        self._bounds = bounds
        self._leaving = leaving
        self.length_left: float = inf
        self.bytes_left: float = inf
        self.accepted: list[_Candidate] = []
        self.replaced: list[StoredMessage] = []
        self.expired: dict[bytes, StoredMessage] = {}
        """Past their ttl and not swept yet. They take no room, no id and no dedup value."""
        self.unwatched: list[bytes] = []
        """Past their ttl, but flawed. The claim that finds them removes them."""
        self.outcomes: list[tuple[int, int, bytes]] = []
        self.index_of: dict[bytes, int] = {}
        self._dedup_here: dict[bytes, bytes] = {}

    def measure_room(self, incoming: int) -> None:
        """Compute the free room. Messages past their ttl take no room, nor do those that the same call finishes."""
        if self._bounds.length >= 0:
            self.length_left = self._bounds.length - self._queue.count_live()
        if self._bounds.size >= 0:
            self.bytes_left = self._bounds.size - self._queue.stats.get("bytes", 0)
        for _, id_ in self._queue.expires.up_to(self._now, incoming + EXPIRED_PER_CALL):
            message = self._queue.messages[id_]
            if message.flaw:
                self.unwatched.append(id_)
            else:
                self._note_expired(message)
        if self._leaving is not None:
            self.length_left += 1
            self.bytes_left += self._leaving.held_size

    def decide(self, position: int, candidate: _Candidate, *, refuses: bool) -> None:
        """Accept a message, let it replace another, or refuse it."""
        outcome, id_ = self._classify(candidate)
        if outcome == REPLACED:
            self._accept_instead(candidate._replace(incoming=candidate.incoming._replace(id=id_)))
        elif outcome is None and self._has_no_room(candidate) and (refuses or not self._can_ever_fit(candidate)):
            outcome = FULL
        elif outcome is None:
            self._accept(candidate)
        dedup = candidate.options.dedup
        if dedup is not None and outcome in (None, REPLACED):
            self._dedup_here[dedup] = id_
        if outcome is not None:
            self.outcomes.append((position, outcome, id_))

    def _has_no_room(self, candidate: _Candidate) -> bool:
        return self.length_left < 1 or self.bytes_left < candidate.size

    def _can_ever_fit(self, candidate: _Candidate) -> bool:
        return self._bounds.length != 0 and (self._bounds.size < 0 or candidate.size <= self._bounds.size)

    def oldest_to_drop(self, at_most: int) -> list[StoredMessage] | None:
        """Choose waiting messages to drop so that all new ones fit, oldest due first; None: that is not enough."""
        dropped: list[StoredMessage] = []
        looked_at = at_most + len(self.index_of) + len(self.expired)
        rows: list[list[tuple[float, bytes]]] = [
            [*self._queue.waiting[priority].first(looked_at)] for priority in self._queue.priorities_in_use
        ]
        # Parked messages come after all waiting ones: they have no order across lanes.
        rows.append([(inf, each.id) for each in islice(self._queue.lanes, looked_at)])
        kept = (*self.index_of, *self.expired)  # they get a new body, or are removed anyway
        free = [[row for row in each if row[1] not in kept] for each in rows]
        oldest = merge(*free, key=lambda row: row[0])
        while (self.length_left < 0 or self.bytes_left < 0) and len(dropped) < at_most:
            row = next(oldest, None)
            if row is None:
                return None
            message = self._queue.messages[row[1]]
            self.length_left += 1
            self.bytes_left += message.size
            dropped.append(message)
        return dropped

    def _classify(self, candidate: _Candidate) -> tuple[int | None, bytes]:
        """Classify a message: None and its id if it is new, else an outcome and the id that it refers to."""
        id_, dedup = candidate.incoming.id, candidate.options.dedup
        first = None if dedup is None else self._dedup_here.get(dedup) or self._first_with(dedup)
        if first is not None and not candidate.flags & FLAG_REPLACE:
            return DUPLICATE, first
        if first is not None and dedup is not None and (dedup in self._dedup_here or self._waits_with(first, dedup)):
            return REPLACED, first
        if candidate.flags & FLAG_OWN_ID and (id_ in self.index_of or self._is_kept(id_)):
            return DUPLICATE, id_
        return None, id_

    def _first_with(self, dedup: bytes) -> bytes | None:
        """Return the id that has a dedup value."""
        id_ = self._queue.dedup.first(dedup, self._now)
        message = None if id_ is None else self._queue.messages.get(id_)
        return None if message is not None and self._is_over(message) else id_

    def _waits_with(self, id_: bytes, dedup: bytes) -> bool:
        """Return whether the first message with a value still waits. Another message may have its id now."""
        message = self._queue.messages.get(id_)
        if message is None or message.place not in _WAITING or message.flaw:
            return False
        return options_of(message.intact).dedup == dedup

    def _is_kept(self, id_: bytes) -> bool:
        """Return whether an id is stored. Finished ones are not, nor one past its ttl or finished by this call."""
        message = self._queue.find(id_)
        if message is None or message is self._leaving:
            return False
        return message.place != "done" and not self._is_over(message)

    def _is_over(self, message: StoredMessage) -> bool:
        """Return whether a message waits past its ttl and is not swept yet. Callers treat it as removed."""
        expiry = message.expiry if message.place in _WAITING and not message.flaw else None
        if expiry is None or expiry > self._now:
            return False
        self._note_expired(message)
        return True

    def _note_expired(self, message: StoredMessage) -> None:
        if message.id not in self.expired:
            self.expired[message.id] = message
            self.length_left += 1
            self.bytes_left += message.size

    def _accept(self, candidate: _Candidate) -> None:
        self.index_of[candidate.incoming.id] = len(self.accepted)
        self.accepted.append(candidate)
        self.length_left -= 1
        self.bytes_left -= candidate.size

    def _accept_instead(self, candidate: _Candidate) -> None:
        index = self.index_of.get(candidate.incoming.id)
        if index is not None:  # a message of this call
            self.bytes_left += self.accepted[index].size - candidate.size
            self.accepted[index] = candidate
            return
        old = self._queue.messages[candidate.incoming.id]
        self.replaced.append(old)
        self.length_left += 1
        self.bytes_left += old.size
        self._accept(candidate)


class Plan(NamedTuple):
    """The outcome of the messages of a call in one queue. Planning wrote nothing."""

    queue: QueueState
    now: int
    ahead: int
    messages: list[_Incoming]
    admission: _Admission
    dropped: list[StoredMessage]
    is_refused: bool
    """The plan must not be executed: some messages found no room."""


def plan_sends(queue: QueueState, args: list[bytes], bounds: Bounds, leaving: StoredMessage | None = None) -> Plan:
    """Decide the outcome of messages. `leaving` is a held message that the same call finishes."""
    messages = _incoming(args)
    now, ahead = queue.tick(), queue.ahead()
    admission = _Admission(queue, now, bounds, leaving)
    if bounds.length >= 0 or bounds.size >= 0:
        admission.measure_room(len(messages))
    for position, message in enumerate(messages, 1):
        admission.decide(position, _candidate(message), refuses=bounds.on_full != b"drop")
    is_refused = bounds.on_full == b"all" and any(outcome == FULL for _, outcome, _ in admission.outcomes)
    dropped = admission.oldest_to_drop(len(messages) + EXTRA_DROPPED) if bounds.on_full == b"drop" else []
    return Plan(queue, now, ahead, messages, admission, dropped or [], is_refused or dropped is None)


def send_checked(queue: QueueState, args: list[bytes]) -> Kept:
    """Store messages within bounds, once per dedup value and per id that the caller chose."""
    plan = plan_sends(queue, args[_FIRST_CHECKED:], Bounds.read(args[1:4]))
    if plan.is_refused:
        _sweep(plan)
        return Kept(_refusals(plan))
    carry_out(plan)
    return Kept([plan.now, *outcomes(plan)])


def outcomes(plan: Plan, before: int = 0) -> list[Any]:
    """Return the outcomes other than "stored"; `before` messages of the call belong to other plans."""
    return [value for position, *rest in plan.admission.outcomes for value in (before + position, *rest)]


def _refusals(plan: Plan) -> list[Any]:
    """Answer that nothing is stored: known messages keep their outcomes, all others found no room."""
    known = {
        position: id_
        for position, outcome, id_ in plan.admission.outcomes
        if outcome == DUPLICATE and id_ not in plan.admission.index_of
    }
    reply: list[Any] = [plan.now]
    for position, message in enumerate(plan.messages, 1):
        reply += (position, DUPLICATE, known[position]) if position in known else (position, FULL, message.id)
    return reply


def _sweep(plan: Plan) -> None:
    """Drop the messages that were found past their ttl."""
    plan.queue.clock = plan.now
    for id_ in plan.admission.unwatched:
        plan.queue.expires.remove(id_)
    for message in plan.admission.expired.values():
        plan.queue.drop_expired(message, plan.now)


def carry_out(plan: Plan) -> None:
    """Execute a plan."""
    queue, now, admission = plan.queue, plan.now, plan.admission
    _sweep(plan)
    note_minute(queue, now)
    for message in plan.dropped:
        queue.leave_lane(message, now)
        queue.free_dedup(message)
        queue.forget(message)
        queue.count("bytes", -message.size)
        queue.count("dropped", 1)
    for message in admission.replaced:
        queue.leave_lane(message, now)
        queue.forget(message)
        queue.count("bytes", -message.size)
    _make_room_in_done(queue, admission.accepted)
    if admission.accepted:
        has_keys = any(candidate.flags & FLAG_KEY for candidate in admission.accepted)
        queue.is_keyed = queue.is_keyed or has_keys
        _store(queue, now, plan.ahead, [candidate.incoming for candidate in admission.accepted])
        if len(admission.accepted) > len(admission.replaced):
            queue.count("sent", len(admission.accepted) - len(admission.replaced))
        _open_windows(queue, now, admission.accepted)
    for counter, counted in (("duplicates", DUPLICATE), ("replaced", REPLACED)):
        total = sum(outcome == counted for _, outcome, _ in admission.outcomes)
        if total:
            queue.count(counter, total)


def _make_room_in_done(queue: QueueState, accepted: Sequence[_Candidate]) -> None:
    """Remove finished messages whose ids are used again."""
    for candidate in accepted:
        finished = queue.messages.get(candidate.incoming.id)
        if finished is not None and finished.place == "done":
            queue.count("done_bytes", -finished.size)
            queue.count("done_trimmed", 1)
            queue.forget(finished)


def _open_windows(queue: QueueState, now: int, accepted: Sequence[_Candidate]) -> None:
    windows = 0
    for candidate in accepted:
        options = candidate.options
        if options.dedup is not None:
            queue.dedup.open(options.dedup, candidate.incoming.id, now, options.dedup_for, queue.server_us // 1000)
            windows += 1
    queue.dedup.sweep(now, 2 * windows)
