"""Inspection without changes: get, await_end, list, stats, pending."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from duly._core.bounds import BYTES_PER_CALL, INTERVALS_PER_CALL
from duly.memory import points, wire
from duly.memory.calls import ErrorReply
from duly.memory.lanes import Parked
from duly.memory.message import StoredMessage
from duly.memory.state import QueueState

_BEHIND: Final = 1 << 63
"""Later than any time."""


def _rows(message: StoredMessage) -> list[bytes]:
    return [wire.record(message), wire.counts(message), wire.why(message), wire.lease(message)]


def get(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Show everything that is known about one message."""
    message = queue.find(args[1])
    if message is None:
        return []
    now, score = queue.tick(), queue.score_of(message)
    owner = queue.lanes.owner(message.key) or b""
    ahead = _count_ahead(queue, message, now) if message.place == "waiting" and score <= now else 0
    around = [owner, ahead, queue.paused or b"", queue.tat, len(queue.leased), *_place_of_owner(queue, message, owner)]
    return [now, message.place.encode(), score, *_rows(message), *around]


def _place_of_owner(queue: QueueState, message: StoredMessage, owner: bytes) -> tuple[bytes, int]:
    """Return the place of the message that owns the lane of another one."""
    other = queue.find(owner) if owner != message.id else None
    return (b"", 0) if other is None else (other.place.encode(), queue.score_of(other))


def _count_ahead(queue: QueueState, message: StoredMessage, now: int) -> int:
    """Count the due messages that come before a due message."""
    higher = [priority for priority in queue.priorities_in_use if priority > message.priority]
    in_front = [id_ for _, id_ in queue.waiting[message.priority].up_to(now)].index(message.id)
    return sum(queue.waiting[priority].count_up_to(now) for priority in higher) + in_front


def await_end(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Show how a message ended. While it lives, answer that no end was announced: the engine announces it."""
    message = queue.find(args[1])
    if message is None or _is_expired(queue, message):
        return []
    if message.place in ("dead", "done") and not (message.why and message.why.result_until > queue.server_us):
        return [message.place.encode(), queue.score_of(message), wire.record(message), wire.why(message)]
    return [b"0-0"]


def _is_expired(queue: QueueState, message: StoredMessage) -> bool:
    """Return whether a message waits past its ttl. It is never delivered; the next call that finds it removes it."""
    if message.place not in ("waiting", "parked") or message.flaw:
        return False
    return message.expiry is not None and message.expiry <= queue.server_us


class _Row(NamedTuple):
    """A message of a list, in the order of the list."""

    rank: int | Parked
    """Minus the priority of a waiting message; the row of a parked one."""
    score: int
    id: bytes


def list_(queue: QueueState, args: list[bytes]) -> Any:
    """Show a page of the messages in one state."""
    state, limit, after_id = args[1].decode(), int(args[2]), args[3]
    now = queue.tick()
    after = None
    if after_id:
        after = _cursor(queue, state, after_id, args[4:7])
        if after is None:
            return -1
    reply: list[Any] = [now, 1]
    size = found = 0
    is_newest_first = args[7:] == [b"newest"]
    rows = list(_in_state(queue, state, now))
    for row in reversed(rows) if is_newest_first else rows:
        if after is not None and (row >= after if is_newest_first else row <= after):
            continue
        message = queue.messages[row.id]
        size += message.size
        if found == limit or (size > BYTES_PER_CALL and found):
            reply[1] = 0
            break
        found += 1
        reply += (row.id, row.score, *_rows(message))
    return reply


def _in_state(queue: QueueState, state: str, now: int) -> Iterator[_Row]:
    if state == "parked":
        yield from (_parked_row(queue, row) for row in queue.lanes)
        return
    if state not in ("ready", "delayed"):
        yield from (_Row(0, score, id_) for score, id_ in _set_of(queue, state))
        return
    for priority in queue.priorities_in_use:
        waiting = queue.waiting[priority]
        rows = waiting.up_to(now) if state == "ready" else waiting.above(now)
        yield from (_Row(-priority, score, id_) for score, id_ in rows)


def _parked_row(queue: QueueState, row: Parked) -> _Row:
    message = queue.messages[row.id]
    return _Row(row, 0 if message.flaw else message.due, row.id)


def _set_of(queue: QueueState, state: str) -> Iterator[tuple[int, bytes]]:
    if state not in ("leased", "dead", "done"):
        raise ErrorReply(f"ERR there is no state {state!r}")
    return iter(queue.of_place(state))


def _cursor(queue: QueueState, state: str, id_: bytes, where: list[bytes]) -> _Row | None:
    """Find the place behind which a page begins: as given, else where the message is now."""
    score, priority, key = where
    is_waiting = state in ("ready", "delayed")
    if score and state == "parked":
        return _Row(Parked(key, -int(priority), int(score), id_), _BEHIND, id_)
    if score:
        return _Row(-int(priority) if is_waiting else 0, int(score), id_)
    message = queue.find(id_)
    if message is None or message.place != ("waiting" if is_waiting else state):
        return None
    if message.place == "parked":
        return _Row(queue.lanes.row(id_), _BEHIND, id_)
    return _Row(-message.priority if is_waiting else 0, queue.score_of(message), id_)


def stats(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Show sizes and counters, at one moment."""
    now = queue.tick()
    due = [(waiting, waiting.count_up_to(now)) for waiting in queue.all_waiting()]
    ready = sum(count for _, count in due)
    delayed = sum(len(waiting) - count for waiting, count in due)
    sizes = [ready, delayed, len(queue.leased), len(queue.lanes), len(queue.dead), len(queue.done)]
    edges = [
        min((waiting.score_at(0) for waiting, count in due if count), default=-1),
        min((waiting.score_at(count) for waiting, count in due if count < len(waiting)), default=-1),
        queue.leased.score_at(0) if queue.leased else -1,
    ]
    numbers = queue.stats | {f"{place}_why_bytes": size for place, size in queue.row_bytes.items()}
    counters = [text.encode() for name, value in numbers.items() for text in (name, str(value))]
    return [
        now,
        *sizes,
        *edges,
        queue.paused or b"",
        queue.lateness,
        *counters,
        *points.shown(queue, args[1]),
    ]


def forecast(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Count the messages that become due in each interval."""
    now, ahead, step = queue.tick(), int(args[1]), int(args[2])
    ends = [*range(now - now % step + step, now + ahead, step), now + ahead]
    if len(ends) > INTERVALS_PER_CALL:
        raise ErrorReply(f"ERR a forecast has at most {INTERVALS_PER_CALL} intervals")
    due_by = [sum(waiting.count_up_to(end) for waiting in queue.all_waiting()) for end in (now, *ends)]
    return [now, *(later - earlier for earlier, later in pairwise(due_by))]


def pending(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Show a page of the active leases."""
    offset, limit = int(args[0]), int(args[1])
    reply: list[Any] = [queue.tick()]
    for deadline, id_ in queue.leased.first(offset + limit)[offset:]:
        message = queue.messages[id_]
        reply += (id_, deadline, wire.lease(message), wire.counts(message))
    return reply
