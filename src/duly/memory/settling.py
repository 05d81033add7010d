"""What a holder does with its messages: ack, retry, defer, release, recycle, reject, extend.

Each checks the fence first: a stale one changes nothing (I5).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from duly._core.codec import Counts, Fault, Lease, Why, part_of, stamped
from duly.memory.calls import ErrorReply, Kept
from duly.memory.message import StoredMessage
from duly.memory.state import LARGE, Keep, QueueState

ERRORS_KEPT: Final = 5


class _Held(NamedTuple):
    """A message that the caller still owns, its lease, and what the call says about it."""

    message: StoredMessage
    lease: Lease
    rest: list[bytes]


def _sorted_by_holding(queue: QueueState, args: list[bytes], stride: int) -> tuple[list[_Held], list[int]]:
    """Split the settles of a call: those that hold their lease, and the positions (1, 2 ...) that lost it.

    A lease whose deadline has passed holds until somebody takes the message over. An id given twice is
    settled once.
    """
    held: dict[bytes, _Held] = {}
    lost = []
    for position, at in enumerate(range(0, len(args), stride), 1):
        id_, fence, *rest = args[at : at + stride]
        message = queue.messages.get(id_)
        lease = message.lease if message else None
        if message and lease and id_ not in held and lease.fence == int(fence):
            held[id_] = _Held(message, lease, rest)
        else:
            lost.append(position)
    return list(held.values()), lost


def ack(queue: QueueState, args: list[bytes]) -> Any:
    """Finish messages."""
    keeps, keep = args[0] == b"1", Keep(*map(int, args[1:4]))
    held, lost = _sorted_by_holding(queue, args[4:], 2)
    if not held:
        return lost
    size = sum(each.lease.size for each in held)
    if keeps:
        _keep_finished(queue, [each.message for each in held], keep)
    else:
        for each in held:
            queue.forget(each.message)
    queue.count("acked", len(held))
    queue.count("bytes", -size)
    queue.take_token_if_empty()
    return Kept(lost)


def _keep_finished(queue: QueueState, messages: list[StoredMessage], keep: Keep) -> None:
    now, size = queue.tick(), 0
    for message in messages:
        if not message.record:  # a body that is lost is not kept
            queue.forget(message)
            continue
        message.why = None
        queue.set_counts(message, None)
        queue.move(message, "done", now)
        size += message.size
    queue.clock = now
    queue.count("done_bytes", size)
    queue.trim(queue.done, "done", keep, now, len(messages))


_Back = Callable[[QueueState, _Held, Counts, int], int]
"""Changes the counts of a held message at a tick of the clock, and returns when it is due."""


def _giving_back(stride: int, counter: str, back: _Back) -> Callable[[QueueState, list[bytes]], Any]:
    """Make one of the settles that put messages back among those that wait."""

    def settle(queue: QueueState, args: list[bytes]) -> Any:
        held, lost = _sorted_by_holding(queue, args[1:], stride)
        if not held:
            return lost
        _check_digits(held, args[0].decode())
        now = queue.tick()
        for tick, each in enumerate(held, now):
            flaw = each.message.flaw
            if flaw:  # it cannot be delivered again: a dead letter
                queue.bury_flawed(each.message, flaw, each.lease.size, now)
                continue
            counts = each.message.counted()
            due = back(queue, each, counts, tick)
            is_troubled = counts.failures + counts.crashes + counts.defers + counts.releases > 0
            queue.set_counts(each.message, counts if is_troubled else None)
            queue.wait(each.message, due)
        queue.clock = now + len(held) - 1
        queue.count(counter, len(held))
        queue.leave_token()
        return Kept(lost)

    return settle


def _check_digits(held: list[_Held], digits: str) -> None:
    for message, lease, _ in held:
        if str(lease.priority) not in digits:
            raise ErrorReply(f"ERR message {message.id.decode()} has a priority that is not in {digits}")


def _retry(_: QueueState, held: _Held, counts: Counts, tick: int) -> int:
    delay, error, traceback = held.rest
    if error:
        errors = _with_error(held, counts, tick, error, traceback)
        held.message.why = Why("", 0, 0, 0, 0, errors)
    counts.failures += 1
    counts.due = tick + int(delay)
    return counts.due


def _with_error(held: _Held, counts: Counts, tick: int, error: bytes, traceback: bytes) -> list[Fault]:
    attempt = counts.failures + counts.crashes + 1
    fault = Fault(tick, attempt, held.lease.consumer.rstrip(" "), error.decode(), traceback.decode())
    return [*held.message.errors, fault][-ERRORS_KEPT:]


def _defer(_: QueueState, held: _Held, counts: Counts, tick: int) -> int:
    counts.defers += 1
    counts.due = tick + int(held.rest[0])
    return counts.due


def _release(_: QueueState, held: _Held, counts: Counts, _tick: int) -> int:
    counts.releases += 1
    return held.message.own_place


def _recycle(queue: QueueState, held: _Held, counts: Counts, tick: int) -> int:
    message, (delay, part) = held.message, held.rest
    old = message.intact
    message.record = stamped(tick, tick + int(delay), part or part_of(old))
    message.why = None
    queue.has_large = queue.has_large or message.size > LARGE
    if message.size != len(old):
        queue.count("bytes", message.size - len(old))
    counts.failures = counts.crashes = counts.defers = counts.releases = counts.due = 0
    return message.due


retry = _giving_back(5, "retried", _retry)
defer = _giving_back(3, "deferred", _defer)
release = _giving_back(2, "released", _release)
recycle = _giving_back(4, "recycled", _recycle)


def reject(queue: QueueState, args: list[bytes]) -> Any:
    """Make messages dead, now."""
    has_failed = args[3] == b"1"
    held, lost = _sorted_by_holding(queue, args[4:], 5)
    if not held:
        return lost
    now = queue.tick()
    for each in held:
        reason, error, traceback = each.rest
        counts, errors = each.message.counted(), each.message.errors
        if error:
            errors = _with_error(each, counts, now, error, traceback)
        counts.failures += has_failed
        queue.bury(each.message, each.lease.size, reason.decode(), counts, errors, now, rejects=int(not has_failed))
    queue.trim(queue.dead, "dead", Keep(*map(int, args[:3])), now, len(held))
    queue.clock = now
    queue.take_token_if_empty()
    return Kept(lost)


def extend(queue: QueueState, args: list[bytes]) -> Any:
    """Let leases run anew from now."""
    renews = args[0] == b"1"
    held, lost = _sorted_by_holding(queue, args[1:], 3)
    if not held:
        return lost
    now = queue.tick()
    is_earlier = False
    for message, _, (lease_us,) in held:
        before = queue.leased.score(message.id) or 0
        deadline = max(now + int(lease_us), before if renews else 0)
        is_earlier = is_earlier or deadline < before
        queue.leased.put(message.id, deadline)
    queue.clock = now
    if is_earlier:
        queue.leave_token()  # a lease made shorter is a deadline that nobody watches yet
    return Kept(lost)
