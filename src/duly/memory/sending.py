"""New messages: send, and send_checked, which looks at what is there first."""

from collections.abc import Iterator, Sequence
from heapq import merge
from math import inf
from typing import Any, Final, NamedTuple

from duly._core.codec import FLAG_OWN_ID, FLAG_REPLACE
from duly._core.replies import DUPLICATE, FULL, REPLACED
from duly.memory.calls import Kept
from duly.memory.message import STAMPS_SIZE, StoredMessage, flags_of, options_of, priority_of
from duly.memory.state import QueueState

_DROPPED_A_CALL: Final = 1000
_FIRST_CHECKED: Final = 4


class Incoming(NamedTuple):
    """A message on its way in."""

    id: bytes
    part: bytes
    when: bytes

    @property
    def size(self) -> int:
        """Bytes of the record that it will be."""
        return STAMPS_SIZE + len(self.part)


def due_at(now: int, when: bytes) -> int:
    """Read when a message is due: `0` now, `+us` from now, `=us` since the epoch."""
    if when == b"0":
        return now
    us = int(when[1:])
    return now + us if when[:1] == b"+" else max(now, us)


def send(queue: QueueState, args: list[bytes]) -> Kept:
    """Store messages that need no look at what is there."""
    messages = _incoming(args[1:])
    now = queue.tick()
    _store(queue, now, messages)
    queue.count("sent", len(messages))
    return Kept([now])


def _incoming(args: list[bytes]) -> list[Incoming]:
    return [Incoming(*row) for row in zip(args[0::3], args[1::3], args[2::3], strict=True)]


def _store(queue: QueueState, now: int, messages: Sequence[Incoming]) -> None:
    """Give each message its own tick of the clock and its place, and wake somebody if one is next."""
    stored, earliest = [], inf
    for tick, (id_, part, when) in enumerate(messages, now):
        message = StoredMessage(id_, part, tick, due_at(tick, when), priority_of(part))
        queue.add(message, message.due)
        stored.append(message)
        earliest = min(earliest, message.due)
    queue.clock = now + len(messages) - 1
    queue.count("bytes", sum(message.size for message in stored))
    heads = (queue.waiting[message.priority].first_score() for message in stored)
    is_next = earliest <= queue.clock or any(head is not None and head >= earliest for head in heads)
    if is_next and queue.paused is None:
        queue.leave_token()


class _Admission:
    """Decides what becomes of each message of a call. Writes nothing; later messages see the earlier ones."""

    def __init__(self, queue: QueueState, now: int, max_length: int, max_bytes: int) -> None:
        self._queue = queue
        self._now = now
        self.length_left: float = inf
        self.bytes_left: float = inf
        if max_length >= 0:
            self.length_left = max_length - (queue.bodies - len(queue.dead) - len(queue.done))
        if max_bytes >= 0:
            self.bytes_left = max_bytes - queue.stats.get("bytes", 0)
        self.accepted: list[Incoming] = []
        self.replaced: list[StoredMessage] = []
        self.outcomes: list[tuple[int, int, bytes]] = []
        self._index_of: dict[bytes, int] = {}
        self._dedup_here: dict[bytes, bytes] = {}

    def decide(self, position: int, message: Incoming, *, refuses: bool) -> None:
        """Accept a message, let it take the place of another, or refuse it."""
        dedup = options_of(message.part).dedup
        outcome, id_ = self._known_as(message, dedup)
        if outcome == REPLACED:
            self._accept_instead(message._replace(id=id_))
        elif outcome is None and refuses and (self.length_left < 1 or self.bytes_left < message.size):
            outcome = FULL
        elif outcome is None:
            self._accept(message)
        if dedup is not None and outcome in (None, REPLACED):
            self._dedup_here[dedup] = id_
        if outcome is not None:
            self.outcomes.append((position, outcome, id_))

    def oldest_to_drop(self, at_most: int) -> list[StoredMessage] | None:
        """Choose waiting messages that must go so that all fits, oldest due first; None: that is not enough."""
        dropped: list[StoredMessage] = []
        oldest = self._oldest_first()
        while (self.length_left < 0 or self.bytes_left < 0) and len(dropped) < at_most:
            message = next(oldest, None)
            if message is None:
                return None
            self.length_left += 1
            self.bytes_left += message.size
            dropped.append(message)
        return dropped

    def _oldest_first(self) -> Iterator[StoredMessage]:
        for _, id_ in merge(*self._queue.all_waiting(), key=lambda row: row[0]):
            if id_ not in self._index_of:  # not one that takes a new body
                yield self._queue.messages[id_]

    def _known_as(self, message: Incoming, dedup: bytes | None) -> tuple[int | None, bytes]:
        """Tell what a message is: new, or an outcome and the id that it is about."""
        flags = flags_of(message.part)
        first = None if dedup is None else self._dedup_here.get(dedup) or self._queue.dedup.first(dedup, self._now)
        if first is not None and not flags & FLAG_REPLACE:
            return DUPLICATE, first
        if first is not None and (first in self._index_of or self._waiting(first) is not None):
            return REPLACED, first
        if flags & FLAG_OWN_ID and (message.id in self._index_of or self._is_kept(message.id)):
            return DUPLICATE, message.id
        return None, message.id

    def _waiting(self, id_: bytes) -> StoredMessage | None:
        message = self._queue.messages.get(id_)
        return message if message and message.place == "waiting" and not message.is_lost else None

    def _is_kept(self, id_: bytes) -> bool:
        message = self._queue.messages.get(id_)
        return message is not None and (message.place == "dead" if message.is_lost else message.place != "done")

    def _accept(self, message: Incoming) -> None:
        self._index_of[message.id] = len(self.accepted)
        self.accepted.append(message)
        self.length_left -= 1
        self.bytes_left -= message.size

    def _accept_instead(self, message: Incoming) -> None:
        index = self._index_of.get(message.id)
        if index is not None:  # of one in this call
            self.bytes_left += self.accepted[index].size - message.size
            self.accepted[index] = message
            return
        old = self._queue.messages[message.id]
        self.replaced.append(old)
        self.length_left += 1
        self.bytes_left += old.size
        self._accept(message)


def send_checked(queue: QueueState, args: list[bytes]) -> Any:
    """Store messages within bounds, once per dedup value and id of the caller's own."""
    max_length, max_bytes, on_full = int(args[1]), int(args[2]), args[3]
    messages = _incoming(args[_FIRST_CHECKED:])
    now = queue.tick()
    if max_length >= 0 or max_bytes >= 0:
        queue.clock = now
        queue.expire_some(now)
    admission = _Admission(queue, now, max_length, max_bytes)
    for position, message in enumerate(messages, 1):
        admission.decide(position, message, refuses=on_full != b"drop")
    if on_full == b"all" and any(outcome == FULL for _, outcome, _ in admission.outcomes):
        return _all_refused(now, messages)
    dropped = admission.oldest_to_drop(_DROPPED_A_CALL + len(messages)) if on_full == b"drop" else []
    if dropped is None:
        return _all_refused(now, messages)
    _write(queue, now, admission, dropped)
    return Kept([now, *(value for row in admission.outcomes for value in row)])


def _all_refused(now: int, messages: Sequence[Incoming]) -> list[Any]:
    reply: list[Any] = [now]
    for position, message in enumerate(messages, 1):
        reply += (position, FULL, message.id)
    return reply


def _write(queue: QueueState, now: int, admission: _Admission, dropped: Sequence[StoredMessage]) -> None:
    queue.clock = now
    for message in dropped:
        queue.forget(message)
        queue.count("bytes", -message.size)
        queue.count("dropped", 1)
    for message in admission.replaced:
        queue.forget(message)
        queue.count("bytes", -message.size)
    _make_room_in_done(queue, admission.accepted)
    if admission.accepted:
        _store(queue, now, admission.accepted)
        if len(admission.accepted) > len(admission.replaced):
            queue.count("sent", len(admission.accepted) - len(admission.replaced))
        _open_windows(queue, now, admission.accepted)
    for counter, counted in (("duplicates", DUPLICATE), ("replaced", REPLACED)):
        total = sum(outcome == counted for _, outcome, _ in admission.outcomes)
        if total:
            queue.count(counter, total)


def _make_room_in_done(queue: QueueState, accepted: Sequence[Incoming]) -> None:
    """Let go of finished messages whose ids are used again."""
    for message in accepted:
        finished = queue.messages.get(message.id)
        if finished is not None and finished.place == "done":
            queue.count("done_bytes", -finished.size)
            queue.count("done_trimmed", 1)
            queue.forget(finished)


def _open_windows(queue: QueueState, now: int, accepted: Sequence[Incoming]) -> None:
    windows = 0
    for message in accepted:
        options = options_of(message.part)
        if options.dedup is not None:
            queue.dedup.open(options.dedup, message.id, now, options.dedup_for, queue.server_us // 1000)
            windows += 1
    queue.dedup.sweep(now, 2 * windows)
