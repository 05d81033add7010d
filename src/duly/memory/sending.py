"""New messages: send, and send_checked, which looks at what is there first."""

from collections.abc import Sequence
from heapq import merge
from math import inf
from typing import Any, Final, NamedTuple

from duly._core.codec import FLAG_KEY, FLAG_OWN_ID, FLAG_REPLACE, stamped
from duly._core.replies import DUPLICATE, FULL, REPLACED
from duly.memory.calls import Kept
from duly.memory.message import Options, StoredMessage, flags_of, options_of, priority_of
from duly.memory.state import QueueState

_DROPPED_BESIDE: Final = 100
_FIRST_CHECKED: Final = 4
_WAITING: Final = ("waiting", "parked")


def due_at(now: int, ahead: int, when: bytes) -> int:
    """Read when a message is due: `0` now, `+us` from now, `=us` since the epoch."""
    if when == b"0":
        return now
    us = int(when[1:])
    return now + us if when[:1] == b"+" else max(now, us + ahead)


class _Incoming(NamedTuple):
    """A message on its way in."""

    id: bytes
    part: bytes
    when: bytes

    def record_at(self, tick: int, ahead: int) -> tuple[int, bytes]:
        """Write the record, and say when it is due."""
        due = due_at(tick, ahead, self.when)
        return due, stamped(tick, due, self.part)


def _incoming(args: list[bytes]) -> list[_Incoming]:
    return [_Incoming(*row) for row in zip(args[0::3], args[1::3], args[2::3], strict=True)]


def send(queue: QueueState, args: list[bytes]) -> Kept:
    """Store messages that need no look at what is there."""
    messages = _incoming(args[2:])
    queue.is_keyed = queue.is_keyed or args[1] == b"1"
    _store(queue, queue.tick(), queue.ahead(), messages)
    queue.count("sent", len(messages))
    return Kept(1)


def _store(queue: QueueState, now: int, ahead: int, messages: Sequence[_Incoming]) -> None:
    """Give each message its own tick of the clock and its place, and wake somebody if one is next."""
    priorities, earliest, size = set(), inf, 0
    for tick, incoming in enumerate(messages, now):
        due, record = incoming.record_at(tick, ahead)
        message = StoredMessage(incoming.id, record, priority_of(record))
        queue.add(message, due)
        priorities.add(message.priority)
        earliest = min(earliest, due)
        size += len(record)
    queue.clock = now + len(messages) - 1
    queue.count("bytes", size)
    heads = (queue.waiting[priority].score_at(0) for priority in priorities)
    is_next = earliest <= queue.clock or any(head >= earliest for head in heads)
    if is_next and queue.paused is None and not queue.is_limited:
        queue.leave_token()


class _Candidate(NamedTuple):
    """A message for which there may be no room, or which may be there already."""

    incoming: _Incoming
    flags: int
    options: Options
    size: int


def _candidate(incoming: _Incoming) -> _Candidate:
    record = stamped(0, 0, incoming.part)
    return _Candidate(incoming, flags_of(record), options_of(record), len(record))


class _Admission:
    """Decides what becomes of each message of a call. Writes nothing; later messages see the earlier ones."""

    def __init__(self, queue: QueueState, now: int, max_length: int, max_bytes: int) -> None:
        self._queue = queue
        self._now = now
        self._max_length = max_length
        self._max_bytes = max_bytes
        self.length_left: float = inf
        self.bytes_left: float = inf
        if max_length >= 0:
            self.length_left = max_length - queue.count_live()
        if max_bytes >= 0:
            self.bytes_left = max_bytes - queue.stats.get("bytes", 0)
        self.accepted: list[_Candidate] = []
        self.replaced: list[StoredMessage] = []
        self.expired: dict[bytes, StoredMessage] = {}
        """Past their ttl, not swept yet, and in the way of an id of the caller's own or of a dedup value."""
        self.outcomes: list[tuple[int, int, bytes]] = []
        self.index_of: dict[bytes, int] = {}
        self._dedup_here: dict[bytes, bytes] = {}

    def decide(self, position: int, candidate: _Candidate, *, refuses: bool) -> None:
        """Accept a message, let it take the place of another, or refuse it."""
        outcome, id_ = self._known_as(candidate)
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
        return self._max_length != 0 and (self._max_bytes < 0 or candidate.size <= self._max_bytes)

    def oldest_to_drop(self, at_most: int) -> list[StoredMessage] | None:
        """Choose waiting messages that must go so that all fits, oldest due first; None: that is not enough."""
        dropped: list[StoredMessage] = []
        looked_at = at_most + len(self.index_of)
        rows = [self._queue.waiting[priority].first(looked_at) for priority in self._queue.priorities_in_use]
        kept = (*self.index_of, *self.expired)  # they take a new body, or go anyway
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

    def _known_as(self, candidate: _Candidate) -> tuple[int | None, bytes]:
        """Tell what a message is: new, or an outcome and the id that it is about."""
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
        """Tell whether the message that had a value first still waits. Its id may be another message's by now."""
        message = self._queue.messages.get(id_)
        if message is None or message.place not in _WAITING or message.flaw:
            return False
        return options_of(message.intact).dedup == dedup

    def _is_kept(self, id_: bytes) -> bool:
        """Tell whether an id is in the queue. Finished ones are not, nor is one past its ttl."""
        message = self._queue.find(id_)
        return message is not None and message.place != "done" and not self._is_over(message)

    def _is_over(self, message: StoredMessage) -> bool:
        """Tell whether a message waits past its ttl, unswept: then it is gone for whoever asks."""
        expiry = message.expiry if message.place in _WAITING and not message.flaw else None
        if expiry is None or expiry > self._now:
            return False
        if message.id not in self.expired:
            self.expired[message.id] = message
            self.length_left += 1
            self.bytes_left += message.size
        return True

    def _accept(self, candidate: _Candidate) -> None:
        self.index_of[candidate.incoming.id] = len(self.accepted)
        self.accepted.append(candidate)
        self.length_left -= 1
        self.bytes_left -= candidate.size

    def _accept_instead(self, candidate: _Candidate) -> None:
        index = self.index_of.get(candidate.incoming.id)
        if index is not None:  # of one in this call
            self.bytes_left += self.accepted[index].size - candidate.size
            self.accepted[index] = candidate
            return
        old = self._queue.messages[candidate.incoming.id]
        self.replaced.append(old)
        self.length_left += 1
        self.bytes_left += old.size
        self._accept(candidate)


def send_checked(queue: QueueState, args: list[bytes]) -> Kept:
    """Store messages within bounds, once per dedup value and id of the caller's own."""
    max_length, max_bytes, on_full = int(args[1]), int(args[2]), args[3]
    messages = _incoming(args[_FIRST_CHECKED:])
    now, ahead = queue.tick(), queue.ahead()
    if max_length >= 0 or max_bytes >= 0:
        queue.clock = now
        queue.expire_some(now, len(messages))
    admission = _Admission(queue, now, max_length, max_bytes)
    for position, message in enumerate(messages, 1):
        admission.decide(position, _candidate(message), refuses=on_full != b"drop")
    if on_full == b"all" and any(outcome == FULL for _, outcome, _ in admission.outcomes):
        return _all_refused(now, messages, admission)
    dropped = admission.oldest_to_drop(len(messages) + _DROPPED_BESIDE) if on_full == b"drop" else []
    if dropped is None:
        return _all_refused(now, messages, admission)
    _write(queue, now, ahead, admission, dropped)
    return Kept([now, *(value for row in admission.outcomes for value in row)])


def _all_refused(now: int, messages: Sequence[_Incoming], admission: _Admission) -> Kept:
    """Answer that nothing is stored: what is known keeps its answer, everything else found no room."""
    known = {
        position: id_
        for position, outcome, id_ in admission.outcomes
        if outcome == DUPLICATE and id_ not in admission.index_of
    }
    reply: list[Any] = [now]
    for position, message in enumerate(messages, 1):
        reply += (position, DUPLICATE, known[position]) if position in known else (position, FULL, message.id)
    return Kept(reply)


def _write(queue: QueueState, now: int, ahead: int, admission: _Admission, dropped: Sequence[StoredMessage]) -> None:
    queue.clock = now
    has_next = False
    for message in dropped:
        has_next = queue.leave_lane(message, now) or has_next
        queue.free_dedup(message)
        queue.forget(message)
        queue.count("bytes", -message.size)
        queue.count("dropped", 1)
    for message in admission.expired.values():
        queue.drop_expired(message, now)
    for message in admission.replaced:
        has_next = queue.leave_lane(message, now) or has_next
        queue.forget(message)
        queue.count("bytes", -message.size)
    if has_next:
        queue.leave_token()
    _make_room_in_done(queue, admission.accepted)
    if admission.accepted:
        has_keys = any(candidate.flags & FLAG_KEY for candidate in admission.accepted)
        queue.is_keyed = queue.is_keyed or has_keys
        _store(queue, now, ahead, [candidate.incoming for candidate in admission.accepted])
        if len(admission.accepted) > len(admission.replaced):
            queue.count("sent", len(admission.accepted) - len(admission.replaced))
        _open_windows(queue, now, admission.accepted)
    for counter, counted in (("duplicates", DUPLICATE), ("replaced", REPLACED)):
        total = sum(outcome == counted for _, outcome, _ in admission.outcomes)
        if total:
            queue.count(counter, total)


def _make_room_in_done(queue: QueueState, accepted: Sequence[_Candidate]) -> None:
    """Let go of finished messages whose ids are used again."""
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
