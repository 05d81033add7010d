"""What people do to a queue: cancel, reschedule, redrive, purge, pause, resume, wake, delete."""

from typing import Any, Final

from duly.memory.calls import ErrorReply, Kept
from duly.memory.message import StoredMessage
from duly.memory.sending import due_at
from duly.memory.state import QueueState

_LOOKED_PAST: Final = 999


def cancel(queue: QueueState, args: list[bytes]) -> Kept:
    """End a message, wherever it is; a finished one is over already."""
    message = queue.messages.get(args[1])
    if message is None or message.place == "done":
        return Kept(0)  # or a late copy could end a message that uses the id again
    size = message.held_size
    queue.free_dedup(message)
    queue.forget(message)
    queue.count("dead_bytes" if message.place == "dead" else "bytes", -size)
    queue.count("cancelled", 1)
    queue.take_token_if_empty()
    return Kept(1)


def reschedule(queue: QueueState, args: list[bytes]) -> Any:
    """Give a waiting message another due time; its ttl counts from there."""
    message, when = queue.messages.get(args[1]), args[2]
    if message is None or message.place != "waiting" or message.flaw:
        return Kept(0)  # or a late copy would move a message that uses the id again
    now, due = queue.tick(), queue.waiting[message.priority].score(message.id)
    assert due is not None
    if when == b"0" and due <= now:
        return Kept(1)
    message.redate(due_at(now, queue.ahead(), when))
    if message.counts:
        message.counts.due = 0
    queue.wait(message, message.due)
    queue.clock = now
    queue.leave_token()
    return Kept(1)


def redrive(queue: QueueState, args: list[bytes]) -> Any:
    """Put dead letters back to work, oldest first, as new. One whose record is flawed stays."""
    limit, now = int(args[1]), queue.tick()
    looked_at = [queue.messages[id_] for _, id_ in queue.dead.first(limit + 1 + _LOOKED_PAST)]
    redriven = [message for message in looked_at if not message.flaw][:limit]
    for message in redriven:
        if message.expiry is not None:
            message.redate(now)  # its ttl may long be over: it counts from now
        message.why = None
        queue.wait(message, message.due)
    left = len(queue.dead)
    if not redriven:
        return Kept([0, left])
    size = sum(message.size for message in redriven)
    queue.count("redriven", len(redriven))
    queue.count("bytes", size)
    queue.count("dead_bytes", -size)
    queue.clock = now
    queue.leave_token()
    return Kept([len(redriven), left])


def purge(queue: QueueState, args: list[bytes]) -> Any:
    """End the messages of one state, a bounded number."""
    state, limit = args[1].decode(), int(args[2])
    messages = _in_state(queue, state)
    purged, left = messages[:limit], max(len(messages) - limit, 0)
    freed = sum(message.held_size for message in purged)
    for message in purged:
        queue.free_dedup(message)
        queue.forget(message)
    if not purged:
        return Kept([0, left])
    queue.count(f"{state}_bytes" if state in ("dead", "done") else "bytes", -freed)
    queue.count("done_trimmed" if state == "done" else "purged", len(purged))
    queue.take_token_if_empty()
    return Kept([len(purged), left])


def _in_state(queue: QueueState, state: str) -> list[StoredMessage]:
    if state in ("leased", "dead", "done"):
        rows = list(queue.of_place(state))
    elif state in ("ready", "delayed"):
        now = queue.tick()
        rows = [
            row for each in queue.all_waiting() for row in (each.up_to(now) if state == "ready" else each.above(now))
        ]
    else:
        raise ErrorReply(f"ERR there is no state {state!r}")
    return [queue.messages[id_] for _, id_ in rows]


def pause(queue: QueueState, args: list[bytes]) -> Kept:
    """Hand nothing out until resume."""
    queue.paused = args[0]
    return Kept(1)


def resume(queue: QueueState, _args: list[bytes]) -> Kept:
    """Hand out again."""
    if queue.paused is not None:
        queue.paused = None
        queue.leave_token_if_any()
    return Kept(1)


def wake(queue: QueueState, _args: list[bytes]) -> int:
    """Have somebody else watch: a consumer that waited leaves in the middle."""
    queue.leave_token_if_any()
    return 1


def delete(queue: QueueState, _args: list[bytes]) -> Kept:
    """Remove the queue with all that is in it and all that it counted; tell how many keys it had."""
    messages = queue.messages.values()
    things = [
        queue.bodies, queue.leased, queue.leased, queue.troubled,
        any(each.why for each in messages), queue.expires, queue.dead, queue.done, queue.dedup, queue.dedup,
        queue.has_token, queue.is_known, *queue.waiting.values(),
    ]  # fmt: skip
    count = sum(map(bool, things))
    queue.clear()
    return Kept(count)
