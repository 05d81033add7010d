"""Operations of a holder on its messages: the verbs of duly._core.verbs.

Each checks the fence first: a stale one changes nothing (I5).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from duly._core import codec
from duly._core.bounds import FLAG_HAS_COUNTS
from duly._core.codec import Counts, Fault, Lease, part_of, stamped
from duly._core.results import unpacked_results
from duly._core.verbs import VERBS
from duly.errors import CodecError
from duly.memory.calls import ErrorReply, Kept
from duly.memory.message import StoredMessage
from duly.memory.past import Past
from duly.memory.state import Keep, QueueState


class _Held(NamedTuple):
    """A message that the caller still owns, its lease, and the arguments of the call for it."""

    message: StoredMessage
    lease: Lease
    rest: list[bytes]


def _sorted_by_holding(queue: QueueState, args: list[bytes], stride: int) -> tuple[list[_Held], list[int]]:
    """Split the settles of a call: those that hold their lease, and the positions (1, 2 ...) that lost it.

    A lease whose deadline has passed is valid until another consumer takes the message. An id given twice is
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
    """Finish messages without a key: they are removed."""
    held, lost = _sorted_by_holding(queue, args, 2)
    for each in held:
        if each.lease.key is not None:
            id_ = each.message.id.decode()
            raise ErrorReply(f"ERR message {id_} has a key: it is finished by the script finish")
    if not held:
        return lost
    for each in held:
        queue.forget(each.message)
    queue.count(VERBS["ack"].counter, len(held))
    queue.count("bytes", -sum(each.lease.size for each in held))
    return Kept(lost)


def finish(queue: QueueState, args: list[bytes], result_in: int = 0) -> Any:
    """Finish messages, pass their lanes on, and store them with their results if the queue keeps them.

    With `result_in`, the result is not known yet. `keep_result` may bring it within that number of microseconds.
    """
    keeps, keep = args[1] == b"1", Keep(*map(int, args[2:5]))
    rows = args[6:]
    if keeps:
        results = unpacked_results(args[5])
        rows = [part for at, result in enumerate(results) for part in (*args[6 + 2 * at : 8 + 2 * at], result.encode())]
    held, lost = _sorted_by_holding(queue, rows, 3 if keeps else 2)
    if not held:
        return lost
    now = queue.clock = queue.tick()
    if keeps:
        _keep_finished(queue, held, keep, now, now + result_in if result_in else 0)
    else:
        for each in held:
            queue.forget(each.message)
    queue.count(VERBS["ack"].counter, len(held))
    queue.count("bytes", -sum(each.lease.size for each in held))
    for each in held:
        if each.lease.key is not None:
            queue.hand_on(each.lease.key.encode(), each.message.id, now)
    return Kept(lost)


def _keep_finished(queue: QueueState, held: list[_Held], keep: Keep, now: int, result_until: int) -> None:
    size = 0
    for message, lease, (result,) in held:
        if not message.record:  # a lost record cannot be kept
            queue.forget(message)
            continue
        past = Past.of(message)
        past.add_event(now, "ack", lease)
        message.why = past.row_of_ended("", message.counted(), result=result.decode(), result_until=result_until)
        queue.set_counts(message, None)
        queue.move(message, "done", now)
        size += message.size
    queue.count("done_bytes", size)
    queue.trim(queue.done, "done", keep, now, len(held))
    if not result_until:  # else keep_result announces the end
        queue.announce_ends([each.message.id for each in held])


def keep_result(queue: QueueState, args: list[bytes]) -> Kept:
    """Store the results of handlers after a commit had finished their messages."""
    kept, lost = list[bytes](), list[int]()
    for position, (id_, fence, result) in enumerate(zip(args[0::3], args[1::3], args[2::3], strict=True), 1):
        message = queue.messages.get(id_)
        why = message.why if message is not None and message.place == "done" else None
        if message is None or why is None or not why.result_until or why.timeline[-1].since != int(fence):
            lost.append(position)
            continue
        message.why = msgspec.structs.replace(why, result=result.decode(), result_until=0)
        queue.count_row(message)
        kept.append(id_)
    queue.announce_ends(kept)
    return Kept(lost)


_Back = Callable[[QueueState, _Held, Counts, int], int]
"""Changes the counts of a held message at a tick of the clock, and returns when it is due."""


_Settle = Callable[[QueueState, list[bytes]], Any]


def _giving_back(stride: int, verb: str, back: _Back, refusal_of: Callable[[_Held], str] = lambda _: "") -> _Settle:
    """Make a settle that returns messages to the queue."""
    counter = VERBS[verb].counter

    def settle(queue: QueueState, args: list[bytes]) -> Any:
        held, lost = _sorted_by_holding(queue, args[1:], stride)
        if not held:
            return lost
        for each in held:
            if refusal := refusal_of(each):
                raise ErrorReply(f"ERR message {each.message.id.decode(errors='replace')} {refusal}")
        now = queue.tick()
        for tick, each in enumerate(held, now):
            flaw = each.message.flaw
            if flaw:  # it cannot be delivered again: a dead letter
                queue.bury_flawed(each.message, flaw, each.lease.size, now, each.lease.key)
                continue
            counts = each.message.counted()
            due = back(queue, each, counts, tick)
            queue.set_counts(each.message, counts)
            queue.wait(each.message, due)
        queue.clock = now + len(held) - 1
        queue.count(counter, len(held))
        return Kept(lost)

    return settle


def _retry(_: QueueState, held: _Held, counts: Counts, tick: int) -> int:
    delay, error, traceback = held.rest
    past = Past.of(held.message)
    if error:
        past.add_error(_fault(held, counts, tick, error, traceback))
    past.add_event(tick, "retry", held.lease, error)
    held.message.why = past.row_of_live()
    counts.failures += 1
    counts.due = tick + int(delay)
    return counts.due


def _fault(held: _Held, counts: Counts, tick: int, error: bytes, traceback: bytes) -> Fault:
    attempt = counts.failures + counts.crashes + 1
    return Fault(tick, attempt, held.lease.consumer.rstrip(" "), error.decode(), traceback.decode())


def _note(held: _Held, tick: int, what: str, detail: bytes = b"") -> None:
    past = Past.of(held.message)
    past.add_event(tick, what, held.lease, detail)
    held.message.why = past.row_of_live()


def _defer(_: QueueState, held: _Held, counts: Counts, tick: int) -> int:
    delay, reason = held.rest
    _note(held, tick, "defer", reason)
    counts.defers += 1
    counts.due = tick + int(delay)
    return counts.due


def _release(_: QueueState, held: _Held, counts: Counts, tick: int) -> int:
    _note(held, tick, "release")
    counts.releases += 1
    return held.message.own_place


def _recycle(queue: QueueState, held: _Held, counts: Counts, tick: int) -> int:
    message, (delay, part) = held.message, held.rest
    old = message.intact
    message.record = stamped(tick, tick + int(delay), part or part_of(old))
    message.why = None
    if message.size != len(old):
        queue.count("bytes", message.size - len(old))
    counts.failures = counts.crashes = counts.defers = counts.releases = counts.due = 0
    counts.cycles += 1
    if held.lease.key is not None:
        queue.hand_on(held.lease.key.encode(), message.id, tick)
    return message.due


_KEPT_FLAGS: Final = codec.FLAG_TTL | codec.FLAG_DEDUP | codec.FLAG_KEY


def _refusal_of(held: _Held) -> str:
    """Return why a new part does not fit its message: no claim would find it."""
    part, lease = held.rest[1], held.lease
    if not part:
        return ""
    try:
        new = codec.read_record(stamped(0, 0, part))
    except CodecError:
        return "cannot be recycled: its new part cannot be read"
    if new.priority != lease.priority:
        return f"has priority {lease.priority}, and its new part has {new.priority}"
    if new.key != lease.key:
        return "cannot be recycled: its new part has another key"
    if new.flags & _KEPT_FLAGS != lease.flags & _KEPT_FLAGS:
        return "cannot be recycled: its new part has another ttl or dedup value"
    return ""


retry: _Settle = _giving_back(5, "retry", _retry)
defer: _Settle = _giving_back(4, "defer", _defer)
release: _Settle = _giving_back(2, "release", _release)
recycle: _Settle = _giving_back(4, "recycle", _recycle, _refusal_of)


def reject(queue: QueueState, args: list[bytes]) -> Any:
    """Make messages dead immediately."""
    has_failed, blocks = args[4] == b"1", args[5] == b"block"
    held, lost = _sorted_by_holding(queue, args[6:], 5)
    if not held:
        return lost
    now = queue.tick()
    for each in held:
        reason, error, traceback = each.rest
        counts, past = each.message.counted(), Past.of(each.message)
        if error:
            past.add_error(_fault(each, counts, now, error, traceback))
        past.add_event(now, "fail" if has_failed else "reject", each.lease, error or reason)
        counts.failures += has_failed
        queue.bury(
            each.message, each.lease.size, reason.decode(), counts, past, now,
            rejects=int(not has_failed), key=each.lease.key, blocks=blocks,
        )  # fmt: skip
    queue.trim(queue.dead, "dead", Keep(*map(int, args[1:4])), now, len(held))
    queue.announce_ends([each.message.id for each in held])
    queue.clock = now
    return Kept(lost)


def extend(queue: QueueState, args: list[bytes]) -> Any:
    """Restart leases from now."""
    renews = args[0] == b"1"
    held, lost = _sorted_by_holding(queue, args[1:], 3)
    if not held:
        return lost
    now = queue.tick()
    for message, lease, (lease_us,) in held:
        before = queue.leased.score(message.id) or 0
        queue.leased.put(message.id, max(now + int(lease_us), before if renews else 0))
        queue.renew_lease(message.id, lease.consumer)
    queue.clock = now
    return Kept(lost)


def progress(queue: QueueState, args: list[bytes]) -> Any:
    """Store the progress of the work in place of the result. Every end of a lease overwrites or removes it."""
    held, lost = _sorted_by_holding(queue, args, 4)
    if not held:
        return lost
    now = queue.tick()
    for message, lease, (fraction, text) in held:
        lease.flags |= FLAG_HAS_COUNTS
        queue.set_counts(message, message.counted())
        said = f"p{lease.fence} {now} {fraction.decode()} {text.decode()}"
        message.why = Past.of(message).row_of_ended("", Counts(), result=said)
    return Kept(lost)


TRANSITIONS: Final[dict[str, Callable[[QueueState, list[bytes]], Any]]] = {
    each.__name__: each for each in (ack, finish, keep_result, reject, extend, progress)
} | {"retry": retry, "defer": defer, "release": release, "recycle": recycle}
"""The function of each script of a verb, by script name; `commit` reaches beyond one queue."""
