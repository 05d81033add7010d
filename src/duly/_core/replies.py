"""Decode replies of calls that change something: codes of scripts become values and errors."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Self

from duly._core import codec, faults
from duly._core.naming import title_of
from duly._core.resp import ErrorReply
from duly.errors import LeaseLost, LockBusy, LockLost
from duly.message import AuditFault

DUPLICATE: Final = 1
FULL: Final = 2
REPLACED: Final = 3

OPEN: Final = 0
PAUSED: Final = 1
PASSED_OVER: Final = 2
LIMITED: Final = 3

_NEVER: Final = b"18446744073709551615-18446744073709551615"
"""The largest id: no entry ever follows it."""

Trouble = Literal["noscript", "full", "retry", "moving", "reconnect", "doubt", "redirect", "stale", "refused"]
"""The reaction to an error reply: send the script's text, raise QueueFull, wait for the server, wait until a slot has
moved, reconnect, ask which node serves the slot, send it to another node, ignore, raise."""

# Redis 6.2 wraps the error of a command inside a script, so a code can be anywhere in the text.
_TROUBLES_BY_TEXT: Final[tuple[tuple[str, Trouble], ...]] = (
    ("NOSCRIPT", "noscript"),
    ("OOM command not allowed", "full"),
    ("OVERTAKEN", "stale"),
    ("READONLY", "reconnect"),
    ("UNBLOCKED", "reconnect"),
    ("MASTERDOWN", "retry"),
    ("LOADING", "retry"),
    ("BUSY", "retry"),
    ("TRYAGAIN", "moving"),
    ("CLUSTERDOWN", "doubt"),
    ("NOREPLICAS", "retry"),
    ("max number of clients", "reconnect"),
)

_DENIED_IN_SCRIPT: Final = ("The user executing the script can't", "ACL failure in script")


def trouble_of(error: Exception) -> Trouble:
    """Classify an error reply of the server."""
    text = str(error)
    if text.startswith(("MOVED ", "ASK ")):
        return "redirect"
    for code, trouble in _TROUBLES_BY_TEXT:
        if code in text:
            return trouble
    return "refused"


def is_denied(error: BaseException | None) -> bool:
    """Whether the server denied access to the connection's user, by password or by permissions."""
    return isinstance(error, ErrorReply) and (error.is_denial or any(text in str(error) for text in _DENIED_IN_SCRIPT))


class SendOutcome(NamedTuple):
    """The outcome of one send call: the ids, and the positions of messages that did not fit."""

    ids: list[str]
    full: list[int]


def sent(ids: Sequence[str]) -> Callable[[int | list[Any]], SendOutcome]:
    """Decode the reply to a send."""

    def decode(reply: int | list[Any]) -> SendOutcome:
        if isinstance(reply, int):
            return SendOutcome(list(ids), [])
        stored, full = list(ids), []
        for position, outcome, known in zip(reply[1::3], reply[2::3], reply[3::3], strict=True):
            if outcome == FULL:
                full.append(position - 1)
            else:
                stored[position - 1] = codec.visible(known)
        return SendOutcome(stored, full)

    return decode


COMMIT_LOST: Final = 0
COMMIT_DONE: Final = 1
COMMIT_NO_ROOM: Final = 2
COMMIT_IMPOSSIBLE: Final = 3
COMMIT_UNPUBLISHABLE: Final = 4


class CommitOutcome(NamedTuple):
    """The outcome of a commit: one of the codes above, and its details."""

    code: int
    sent: Sequence[str] = ()
    """The ids of the messages of all targets, if it is done."""
    published: Sequence[str] = ()
    """The ids of the entries of all topics."""
    replies: Sequence[Any] = ()
    """The server's reply to each effect."""
    position: int = -1
    """The position of the full target, or of the effect or topic that failed."""
    problem: str = ""


def committed(ids: Sequence[str]) -> Callable[[list[Any]], CommitOutcome]:
    """Decode the reply to a commit that sends messages with these ids."""

    def decode(reply: list[Any]) -> CommitOutcome:
        code, *rest = reply
        if code == COMMIT_DONE:
            outcomes, entries, answers = rest
            stored = sent(ids)([0, *outcomes]).ids
            return CommitOutcome(
                code, stored, [entry.decode() for entry in entries], [_effect_reply(each) for each in answers]
            )
        if code == COMMIT_NO_ROOM:
            return CommitOutcome(code, position=rest[0] - 1)
        if code in (COMMIT_IMPOSSIBLE, COMMIT_UNPUBLISHABLE):
            return CommitOutcome(code, position=rest[0] - 1, problem=rest[1].decode())
        return CommitOutcome(code)

    return decode


def _effect_reply(reply: Any) -> Any:
    """Decode the reply of a command. A list has the digits of a number that is too large for Lua."""
    return int(reply[0]) if isinstance(reply, list) else reply


class Reclaimed(NamedTuple):
    """A lease that ran out, and that a claim reclaimed."""

    id: str
    consumer: str
    overdue: float
    is_dead: bool


class Claimed(NamedTuple):
    """The messages that a claim leased. `records` and `counts` are still packed."""

    is_paused: bool
    passed_over: bool
    """A suspect is due, and waits for a consumer that holds nothing."""
    now: int
    next_in: float | None
    """Seconds until a claim may find a message; None: unknown."""
    fence: int
    ids: list[bytes]
    records: list[bytes]
    counts: list[bytes]
    reclaimed: list[Reclaimed]
    is_limited: bool = False
    """`rate` or `max_in_flight` holds due messages back."""
    schedules: Sequence[tuple[str, bytes]] = ()
    """Schedules with a due slot, packed: this consumer must fire them."""
    position: tuple[bytes, ...] | None = None
    """Of a group: the last read id of each key that it waits on; None: it took its limit, so there may be more."""

    def without(self, places: Collection[int]) -> Self:
        """Leave some of the messages out. There may be others, so the next claim is due at once."""
        kept = [at for at in range(len(self.ids)) if at not in places]
        ids, records, counts = ([column[at] for at in kept] for column in (self.ids, self.records, self.counts))
        return self._replace(ids=ids, records=records, counts=counts, next_in=0.0)


def claimed(reply: list[Any]) -> Claimed:
    """Decode the reply to a claim."""
    state, now, next_us, fence, ids, records, counts, taken_back, slots, *rest = reply
    reclaimed = []
    if taken_back:
        rows = zip(taken_back[0::4], taken_back[1::4], taken_back[2::4], taken_back[3::4], strict=True)
        reclaimed = [_reclaimed(*row) for row in rows]
    next_in = None if next_us < 0 else next_us / 1_000_000
    counts = counts or [b""] * len(ids)
    schedules = [(codec.visible(n), row) for n, row in zip(slots[0::2], slots[1::2], strict=True)] if slots else ()
    return Claimed(
        state == PAUSED, state == PASSED_OVER, now, next_in, fence, ids, records, counts, reclaimed, state == LIMITED,
        schedules, _position(state, rest[0]) if rest else None,
    )  # fmt: skip


def _reclaimed(id_: bytes, consumer: bytes, overdue: int, is_dead: int) -> Reclaimed:
    return Reclaimed(codec.visible(id_), codec.visible(consumer), overdue / 1_000_000, bool(is_dead))


def _position(state: int, found: list[bytes]) -> tuple[bytes, ...] | None:
    """Return the ids behind which a group waits. While delivery is held back, it must not wake up for entries."""
    if state in (PAUSED, LIMITED) and found:
        return _NEVER, *found[1:]
    return tuple(found) or None


def is_suspect(counts: codec.Counts, crash_limit: int) -> bool:
    """Whether one more crash makes a message dead. With a limit of 1 that holds for every message, so none counts."""
    return crash_limit > 1 and counts.crashes >= crash_limit - 1


def is_poison(counts: bytes, crash_limit: int) -> bool:
    """Whether a message has reached the crash limit. A monitor, which may have reclaimed its lease, knows no limit."""
    return bool(counts) and codec.read_counts(counts).crashes >= crash_limit


def positions(reply: list[int]) -> list[int]:
    """Decode positions, counted from 0."""
    return [position - 1 for position in reply]


def lost_positions(reply: list[int]) -> list[int]:
    """Decode the reply to a settle call: the positions (from 0) whose lease was lost."""
    return [position - 1 for position in reply]


def lease_lost(queue: str, id_: str, verb: str, remedy: str = "make the lease longer or use renew=True") -> LeaseLost:
    """Make the error of a settle that came too late, with advice for work that takes longer than the lease."""
    return LeaseLost(
        f"{verb} of message {id_} of {title_of(queue)} changed nothing: its lease was lost. It was taken over after "
        f"the lease ran out, settled before, or cancelled. Do not repeat the call; {remedy} if work takes longer "
        "than the lease"
    )


def is_one(reply: int) -> bool:
    """Decode a yes or no."""
    return reply == 1


def pair(reply: list[int]) -> tuple[int, int]:
    """Decode a count, and the number of those left."""
    return reply[0], reply[1]


def number(reply: int) -> int:
    """Decode a count."""
    return int(reply)


class Moved(NamedTuple):
    """The outcome of moving dead letters to another queue."""

    moved: int
    is_full: bool
    """Whether the other queue became full."""
    known: list[str]
    """The ids that are already in use there."""


def moved(reply: list[Any]) -> Moved:
    """Decode the reply to move."""
    count, is_full, *known = reply
    return Moved(count, bool(is_full), [codec.visible(id_) for id_ in known])


class LockState(NamedTuple):
    """The outcome of an attempt to take a lock."""

    fence: int
    """0: another holder has it."""
    left: float
    """Seconds until it expires."""
    by: str
    """The holder."""


def lock_state(reply: list[Any]) -> LockState:
    """Decode the reply to lock."""
    fence, left, by = reply
    return LockState(fence, left / 1_000_000, codec.visible(by))


def lock_busy(name: str, state: LockState) -> LockBusy:
    """Make the error of a lock that another holder has."""
    return LockBusy(
        f"lock {name!r} is held by {state.by}, for at most another {state.left:.3g} s. Wait for it with "
        "on_busy=duly.Wait(seconds), or have the message redelivered later with on_busy=duly.Defer(delay)",
        name=name,
        by=state.by,
        left=state.left,
    )


def lock_lost(name: str) -> LockLost:
    """Make the error of a lock that is no longer held."""
    return LockLost(
        f"lock {name!r} was lost: its ttl ran out, and another holder may have it by now. Stop, and make the ttl "
        "longer or extend it in time"
    )


AUDITED_BYTES: Final = ("bytes", "dead_bytes", "done_bytes", "dead_why_bytes", "done_why_bytes")


class AuditStep(NamedTuple):
    """One step of an audit."""

    cursor: str
    checked: int
    sizes: Mapping[str, int]
    """The bytes that the step found, by the number of `Stats` that counts them: of records in a step of `msgs`, of rows
    in a step of `dead` or `done`."""
    faults: list[AuditFault]


def audit_step(reply: list[Any]) -> AuditStep:
    """Decode a step of an audit."""
    (cursor, checked, *sizes), rest = reply[:7], reply[7:]
    rows = zip(rest[0::2], rest[1::2], strict=True)
    found = [faults.explained(codec.visible(id_), codec.visible(what)) for id_, what in rows]
    return AuditStep(cursor.decode(), checked, dict(zip(AUDITED_BYTES, sizes, strict=True)), found)
