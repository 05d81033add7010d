"""Management of a queue: cancel, reschedule, redrive, purge, pause, resume, wake, delete."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from duly._core.codec import part_of, read_stamps, stamped
from duly.memory.calls import ErrorReply, Kept
from duly.memory.message import StoredMessage, priority_of
from duly.memory.past import Past, counts_of_redriven
from duly.memory.sends import due_at
from duly.memory.state import QueueState


def cancel(queue: QueueState, args: list[bytes]) -> Kept:
    """End a message that waits or is dead. A leased one is ended only if the caller takes it from its holder."""
    message, takes_leased = queue.find(args[1]), args[2] == b"1"
    if message is None or message.place == "done" or (message.place == "leased" and not takes_leased):
        return Kept(0)  # otherwise a late copy could end a message that uses the id again
    size = message.held_size
    queue.free_dedup(message)
    queue.forget(message)
    queue.count("dead_bytes" if message.place == "dead" else "bytes", -size)
    queue.count("cancelled", 1)
    queue.announce_ends([message.id])
    queue.leave_lane(message, queue.tick())
    return Kept(1)


def reschedule(queue: QueueState, args: list[bytes]) -> Any:
    """Change the due time of a waiting or parked message. Its ttl counts from the new time."""
    message, when = queue.messages.get(args[1]), args[2]
    if message is None or message.place not in ("waiting", "parked") or message.flaw:
        return Kept(0)  # otherwise a late copy would move a message that uses the id again
    now = queue.tick()
    if when == b"0" and (message.place == "parked" or queue.score_of(message) <= now):
        return Kept(1)
    message.redate(due_at(now, queue.ahead(), when))
    if message.counts:
        message.counts.due = 0
    queue.wait(message, message.due)
    if not message.has_begun:
        queue.leave_lane(message, now)  # it was never delivered: another message may come first
    queue.clock = now
    return Kept(1)


class _Letter(NamedTuple):
    """A dead letter, and its new content. An empty part leaves it as it is."""

    message: StoredMessage
    part: bytes


def redrive(queue: QueueState, args: list[bytes]) -> Any:
    """Return dead letters to the queue as new, the oldest or the named ones. A flawed one stays."""
    limit, at_end, now = int(args[1]), args[2] == b"1", queue.tick()
    redriven = size = dead_size = 0
    for message, part in _letters(queue, limit, args[3:]):
        if redriven < limit and message.place == "dead" and not message.flaw:
            dead_size += message.size
            _redrive(queue, message, part, now, now + redriven, at_end=at_end)
            size += message.size
            redriven += 1
    left = len(queue.dead)
    if not redriven:
        return Kept([0, left])
    queue.count("redriven", redriven)
    queue.count("bytes", size)
    queue.count("dead_bytes", -dead_size)
    queue.clock = now + redriven - 1
    return Kept([redriven, left])


def _letters(queue: QueueState, limit: int, named: list[bytes]) -> list[_Letter]:
    if not named:
        oldest = (queue.messages[id_] for _, id_ in queue.dead)
        return [_Letter(message, b"") for message in islice((each for each in oldest if not each.flaw), limit)]
    rows = zip(named[0::3], named[1::3], named[2::3], strict=True)
    # Only if it is still the dead letter that the caller saw.
    return [_Letter(queue.messages[id_], part) for id_, died, part in rows if queue.dead.score(id_) == int(died)]


def _redrive(queue: QueueState, message: StoredMessage, part: bytes, now: int, tick: int, *, at_end: bool) -> None:
    sent, due = read_stamps(message.intact)
    is_own_place = not at_end and message.expiry is None
    if not is_own_place:
        due = tick  # a ttl may be over: it counts from now
    message.record = stamped(sent, due, part or part_of(message.intact))
    message.priority = priority_of(message.record)
    past = Past([], Past.of(message).timeline)
    past.add_event(now, "redrive")
    queue.set_counts(message, counts_of_redriven(message))
    message.why = past.row_of_live()
    queue.wait(message, due)
    key = message.key
    owner = queue.lanes.owner(key)
    if key is not None and owner == message.id and at_end:
        queue.hand_on(key, message.id, now)  # its lane waited for it, and others come first
    elif key is not None and owner not in (None, message.id) and is_own_place:
        _take_place_in_lane(queue, key, message, now)


def _take_place_in_lane(queue: QueueState, key: bytes, message: StoredMessage, now: int) -> None:
    """Let a message that returns to its own place precede a later message that would be next.

    If it does not own its lane, it is parked immediately. Otherwise the lane would be passed on without it.
    """
    owner = queue.messages.get(queue.lanes.owners[key])
    if owner is not None and _is_before(message, owner):
        queue.park(owner, key)
        queue.lanes.owners[key] = message.id
    elif message.due <= now:
        queue.park(message, key)


def _is_before(message: StoredMessage, owner: StoredMessage) -> bool:
    if owner.flaw or owner.has_begun or owner.place != "waiting":
        return False
    return (-message.priority, message.due) < (-owner.priority, owner.due)


def purge(queue: QueueState, args: list[bytes]) -> Any:
    """End the messages of one state, up to a limit."""
    state, limit, now = args[1].decode(), int(args[2]), queue.tick()
    purged = left = freed = 0
    meant = dict(zip(args[3::2], map(int, args[4::2]), strict=True))
    for rows in _places_of(queue, state, now):
        ids = [id_ for id_ in rows() if queue.score_of(queue.messages[id_]) == meant.get(id_)] if meant else rows()
        for id_ in ids[: limit - purged]:
            message = queue.messages[id_]
            freed += message.held_size
            queue.free_dedup(message)
            queue.forget(message)
            queue.leave_lane(message, now)
            purged += 1
        left += len(rows())
    if not purged:
        return Kept([0, left])
    queue.count(f"{state}_bytes" if state in ("dead", "done") else "bytes", -freed)
    queue.count("done_trimmed" if state == "done" else "purged", purged)
    return Kept([purged, left])


def _places_of(queue: QueueState, state: str, now: int) -> list[Callable[[], list[bytes]]]:
    """List the places of a state's messages: each function returns the ids that are there at the moment."""
    if state in ("leased", "dead", "done"):
        return [lambda: [id_ for _, id_ in queue.of_place(state)]]
    if state == "parked":
        return [lambda: [row.id for row in queue.lanes]]
    if state == "ready":
        return [partial(_ids, each.up_to, now) for each in queue.all_waiting()]
    if state == "delayed":
        return [partial(_ids, each.above, now) for each in queue.all_waiting()]
    raise ErrorReply(f"ERR there is no state {state!r}")


def _ids(rows: Callable[[int], list[tuple[int, bytes]]], now: int) -> list[bytes]:
    return [id_ for _, id_ in rows(now)]


def pause(queue: QueueState, args: list[bytes]) -> Kept:
    """Stop deliveries until resume."""
    queue.paused = args[0]
    return Kept(1)


def resume(queue: QueueState, _args: list[bytes]) -> Kept:
    """Continue deliveries."""
    queue.paused = None
    return Kept(1)


def wake(_queue: QueueState, _args: list[bytes]) -> int:
    """Do nothing: after every call the engine checks whether a waiting consumer has to be woken."""
    return 1


def delete(queue: QueueState, _args: list[bytes]) -> Kept:
    """Remove the queue with its messages and counters; 1: there was something."""
    was_there = bool(queue.messages or queue.dedup or queue.schedules or queue.is_known)
    queue.clear()
    return Kept(int(was_there))
