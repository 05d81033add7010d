"""tidy: the cleanup that sends and claims do, for a queue that is not in use."""

from duly._core.bounds import EXPIRED_PER_CALL, EXTRA_TRIMMED, WINDOWS_PER_CALL
from duly.memory.state import Keep, QueueState


def tidy(queue: QueueState, args: list[bytes]) -> int:
    """Do the overdue cleanup, up to a limit; 1: there may be more."""
    dead, keeps_done, done = Keep(*map(int, args[1:4])), args[4] == b"1", Keep(*map(int, args[5:8]))
    now = queue.tick()
    is_more = [
        queue.expire_some(now) == EXPIRED_PER_CALL,
        queue.trim(queue.dead, "dead", dead, now, 0) == EXTRA_TRIMMED,
        keeps_done and queue.trim(queue.done, "done", done, now, 0) == EXTRA_TRIMMED,
        queue.dedup.sweep(now, WINDOWS_PER_CALL) == WINDOWS_PER_CALL,
    ]
    return int(any(is_more))
