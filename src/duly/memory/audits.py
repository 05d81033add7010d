"""audit and correct. In memory a message has one place by construction, so an audit can only find flawed records."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from duly._core.codec import Counts
from duly.memory.calls import ErrorReply, Kept
from duly.memory.message import BODY_LOST, StoredMessage
from duly.memory.past import Past
from duly.memory.state import PRIORITIES, QueueState

_THROUGH: Final = b"0"
_NO_BYTES: Final = (0, 0, 0, 0, 0)
_UNPARKED_PER_LANE: Final = 100
_CANNOT_BREAK: Final = ("keys", "meta", "schedules", "slots")
"""Keys that only the engine writes in memory."""

_SOURCES: Final[dict[str, Callable[[QueueState], Iterable[bytes]]]] = {
    "msgs": lambda queue: _ids(queue, lambda each: each.record is not None),
    "leases": lambda queue: _ids(queue, lambda each: each.lease is not None),
    "counts": lambda queue: _ids(queue, lambda each: each.counts is not None),
    "why": lambda queue: _ids(queue, lambda each: each.why is not None),
    "leased": lambda queue: [id_ for _, id_ in queue.leased],
    "expires": lambda queue: [id_ for _, id_ in queue.expires],
    "dead": lambda queue: [id_ for _, id_ in queue.dead],
    "done": lambda queue: [id_ for _, id_ in queue.done],
    "parked": lambda queue: [row.id for row in queue.lanes],
}


def _ids(queue: QueueState, belongs: Callable[[StoredMessage], bool]) -> list[bytes]:
    return [message.id for message in queue.messages.values() if belongs(message)]


def _ids_in(queue: QueueState, source: str) -> Iterable[bytes]:
    if source in _SOURCES:
        return _SOURCES[source](queue)
    for priority in PRIORITIES:
        if source == f"waiting{priority}":
            return [id_ for _, id_ in queue.waiting[priority]]
    raise ErrorReply(f"ERR there is nothing to audit in {source!r}")


def audit(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Check one key of the queue, in one step."""
    repair, source = args[1] == b"1", args[2].decode()
    reply = _step(queue, source, repair=repair)
    if repair and (repaired := len(reply[7:]) // 2):
        queue.count("repairs", repaired)
    return reply


def _step(queue: QueueState, source: str, *, repair: bool) -> list[Any]:
    if source in ("dedup", "dedup_ends"):
        return [_THROUGH, len(queue.dedup), *_NO_BYTES]
    if source in _CANNOT_BREAK:
        return [_THROUGH, 0, *_NO_BYTES]
    if source == "lanes":
        return [_THROUGH, len(queue.lanes.owners), *_NO_BYTES, *_lanes_without_owner(queue, repair=repair)]
    checked, sizes, faults = 0, {"dead": 0, "done": 0, "live": 0}, []
    for id_ in list(_ids_in(queue, source)):
        message = queue.messages[id_]
        checked += 1
        if message.is_lost_from_lane:
            faults += _check_lost_from_lane(queue, message, source, repair=repair)
            continue
        if source == "msgs":
            sizes[message.place if message.place in sizes else "live"] += message.size
        fault = _fault_of(queue, message)
        if fault is not None:
            faults += [id_, fault]
            if repair:
                _repair(queue, message)
    rows = [size if source == place else 0 for place, size in queue.row_bytes.items()]
    return [_THROUGH, checked, sizes["live"], sizes["dead"], sizes["done"], *rows, *faults]


def _lanes_without_owner(queue: QueueState, *, repair: bool) -> list[bytes]:
    """Find lanes that wait for a message which cannot end them."""
    faults = []
    for key, id_ in list(queue.lanes.owners.items()):
        owner = queue.messages.get(id_)
        if owner is None or owner.key != key or owner.place in ("parked", "done"):
            faults += [id_, b"the lane " + key + b" belongs to nobody"]
            if repair:
                _begin_lane(queue, key)
    return faults


def _begin_lane(queue: QueueState, key: bytes) -> None:
    """Let the first parked messages of a lane wait again. A claim restores their order."""
    del queue.lanes.owners[key]
    for row in queue.lanes.first_parked(key, _UNPARKED_PER_LANE):
        message = queue.messages[row.id]
        if message.flaw is None:
            queue.wait(message, message.own_place)


def _check_lost_from_lane(queue: QueueState, message: StoredMessage, source: str, *, repair: bool) -> list[bytes]:
    """Check a message whose record no longer shows where it is parked."""
    if message.record is None and source == "parked":
        if repair:
            _repair(queue, message)
        return [message.id, b"place without a body"]
    if message.record is None:
        if repair:
            queue.set_counts(message, None)
            message.why = None
        return [message.id, f"row in {source} of no message".encode()]
    faults = [message.id, b"parked where it does not belong"] if source == "parked" else []
    if repair:
        _repair(queue, message)
    return [*faults, message.id, b"damaged body without a place"]


def _fault_of(queue: QueueState, message: StoredMessage) -> bytes | None:
    if message.record is None:
        if message.place == "done":
            return b"finished without a body"
        if message.place != "dead":
            return b"place without a body"
        return None if message.why is not None and message.why.reason == BODY_LOST else b"dead without a body"
    return b"damaged" if message.place in ("waiting", "leased") and queue.why_undeliverable(message) else None


def _repair(queue: QueueState, message: StoredMessage) -> None:
    if message.place == "done":
        queue.forget(message)
    elif message.place == "dead":
        message.why = Past.of(message).row_of_ended(BODY_LOST, Counts())
        queue.count_row(message)
    else:
        flaw = queue.why_undeliverable(message)
        assert flaw is not None
        now = queue.tick()
        queue.bury_flawed(message, flaw, message.size, now)
        queue.clock = now


def correct(queue: QueueState, args: list[bytes]) -> Kept:
    """Add the differences that an audit found to the counters, unless a repair has been made since."""
    if int(args[0]) != queue.stats.get("repairs", 0):
        return Kept(0)
    queue.count("repairs", 1)
    for counter, difference in zip(args[1::2], args[2::2], strict=True):
        queue.count(counter.decode(), int(difference))
    return Kept(1)
