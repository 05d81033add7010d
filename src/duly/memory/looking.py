"""Looking without touching: get, list, stats, pending."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from duly.memory import wire
from duly.memory.calls import ErrorReply
from duly.memory.claiming import BYTES_A_CALL
from duly.memory.message import StoredMessage
from duly.memory.state import QueueState


def _rows(message: StoredMessage) -> list[bytes]:
    return [wire.record(message), wire.counts(message), wire.why(message), wire.lease(message)]


def get(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Show all that is known of one message."""
    message = queue.messages.get(args[1])
    if message is None:
        return []
    return [queue.tick(), message.place.encode(), queue.holding(message).score(message.id), *_rows(message)]


class _Row(NamedTuple):
    """A message of a list, in the order of the list."""

    rank: int
    """Minus the priority, for what waits."""
    score: int
    id: bytes


def list_(queue: QueueState, args: list[bytes]) -> Any:
    """Show a page of the messages in one state."""
    state, limit, after_id = args[1].decode(), int(args[2]), args[3]
    now = queue.tick()
    after = None
    if after_id:
        after = _cursor(queue, state, after_id, args[4], args[5])
        if after is None:
            return -1
    reply: list[Any] = [now, 1]
    size = found = 0
    for row in _in_state(queue, state, now):
        if after is not None and row <= after:
            continue
        message = queue.messages[row.id]
        size += message.size
        if found == limit or (size > BYTES_A_CALL and found):
            reply[1] = 0
            break
        found += 1
        reply += (row.id, row.score, *_rows(message))
    return reply


def _in_state(queue: QueueState, state: str, now: int) -> Iterator[_Row]:
    if state not in ("ready", "delayed"):
        yield from (_Row(0, score, id_) for score, id_ in _set_of(queue, state))
        return
    for priority in queue.priorities_in_use:
        waiting = queue.waiting[priority]
        rows = waiting.up_to(now) if state == "ready" else waiting.above(now)
        yield from (_Row(-priority, score, id_) for score, id_ in rows)


def _set_of(queue: QueueState, state: str) -> Iterator[tuple[int, bytes]]:
    if state not in ("leased", "dead", "done"):
        raise ErrorReply(f"ERR there is no state {state!r}")
    return iter(queue.of_place(state))


def _cursor(queue: QueueState, state: str, id_: bytes, score: bytes, priority: bytes) -> _Row | None:
    """Find the place behind which a page begins: as given, else where the message is now."""
    is_waiting = state in ("ready", "delayed")
    if score:
        return _Row(-int(priority) if is_waiting else 0, int(score), id_)
    message = queue.messages.get(id_)
    if message is None or message.place != ("waiting" if is_waiting else state):
        return None
    at = queue.holding(message).score(id_)
    assert at is not None
    return _Row(-message.priority if is_waiting else 0, at, id_)


def stats(queue: QueueState, _args: list[bytes]) -> list[Any]:
    """Show sizes and counters, at one moment."""
    now = queue.tick()
    due = [(waiting, waiting.count_up_to(now)) for waiting in queue.all_waiting()]
    ready = sum(count for _, count in due)
    delayed = sum(len(waiting) - count for waiting, count in due)
    sizes = [ready, delayed, len(queue.leased), len(queue.dead), len(queue.done)]
    edges = [
        min((waiting.score_at(0) for waiting, count in due if count), default=-1),
        min((waiting.score_at(count) for waiting, count in due if count < len(waiting)), default=-1),
        queue.leased.score_at(0) if queue.leased else -1,
    ]
    counters = [text.encode() for name, value in queue.stats.items() for text in (name, str(value))]
    return [now, *sizes, *edges, queue.paused or b"", queue.lateness, *counters]


def pending(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Show a page of the leases that are out."""
    offset, limit = int(args[0]), int(args[1])
    reply: list[Any] = [queue.tick()]
    for deadline, id_ in queue.leased.first(offset + limit)[offset:]:
        message = queue.messages[id_]
        reply += (id_, deadline, wire.lease(message), wire.counts(message))
    return reply
