"""Decode replies of the server. Only this module turns codes of scripts into values and errors."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NamedTuple, get_origin, get_type_hints

import msgspec

from duly._core import codec, faults, results
from duly._core.naming import title_of
from duly.errors import CodecError, LeaseLost, LockBusy, LockLost, ServerError, UsageError
from duly.message import AuditFault, Event, Failure, Kept, Message, Pending, PendingMessage, Progress, Stats

DUPLICATE: Final = 1
FULL: Final = 2
REPLACED: Final = 3

OPEN: Final = 0
PAUSED: Final = 1
PASSED_OVER: Final = 2
LIMITED: Final = 3

_NEVER: Final = b"18446744073709551615-18446744073709551615"
"""The largest id: no entry ever follows it."""

Trouble = Literal["noscript", "full", "retry", "reconnect", "stale", "refused"]
"""The reaction to an error reply: send the script's text, raise QueueFull, wait, reconnect, ignore, raise."""

# redis-py turns some codes into classes and cuts them off the text.
_TROUBLES_BY_CLASS: Final[Mapping[str, Trouble]] = {
    "NoScriptError": "noscript",
    "OutOfMemoryError": "full",
    "ReadOnlyError": "reconnect",
    "MaxConnectionsError": "reconnect",
    "MasterDownError": "retry",
    "BusyLoadingError": "retry",
    "TryAgainError": "retry",
    "ClusterDownError": "retry",
}
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
    ("TRYAGAIN", "retry"),
    ("CLUSTERDOWN", "retry"),
    ("NOREPLICAS", "retry"),
    ("max number of clients", "reconnect"),
)

_DENIALS: Final = ("AuthenticationError", "AuthorizationError", "NoPermissionError")
_NO_RIGHT: Final = ("The user executing the script can't", "ACL failure in script")


def trouble_of(error: Exception) -> Trouble:
    """Classify an error reply of the server."""
    known = _TROUBLES_BY_CLASS.get(type(error).__name__)
    if known is not None:
        return known
    text = str(error)
    for code, trouble in _TROUBLES_BY_TEXT:
        if code in text:
            return trouble
    return "refused"


def is_denied(error: BaseException | None) -> bool:
    """Whether the server denied access to the connection's user, by password or by permissions."""
    return type(error).__name__ in _DENIALS or lacks_right_in_script(error)


def lacks_right_in_script(error: BaseException | None) -> bool:
    """Whether the server denied a command inside a script. redis-py has no class for that."""
    return any(text in str(error) for text in _NO_RIGHT)


def moment(us: float) -> datetime:
    """Convert the server's microseconds. Clamp a number that another program may have written."""
    try:
        return datetime.fromtimestamp(us / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC) if us > 0 else datetime.min.replace(tzinfo=UTC)


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
    """Of a group: the last read id of each stream it waits on; None: there may be more to claim now."""


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


class Sight(NamedTuple):
    """A message and its surroundings at one moment. Times are microseconds."""

    message: Message
    now: int
    owner: str | None
    """The id that owns its lane."""
    ahead: int
    """The number of due messages before it."""
    paused: str | None
    tat: int
    leased: int
    owner_place: str = ""
    """The place of the lane's owner, if that is another message: waiting, leased or dead; empty: it is gone."""
    owner_score: int = 0
    """The owner's due time, deadline or time of death."""


class End(NamedTuple):
    """How a message ended, if it has."""

    message: Message | None
    """Dead or done; None: it is live or unknown."""
    result: str = ""
    """The result of its handler, packed."""
    after: str | None = None
    """Of a live message: the entry of `ends` after which its end will be reported."""


class Letter(NamedTuple):
    """A dead letter, as it was when it was read."""

    message: Message
    record: bytes
    died: int
    """In microseconds. Id and time together identify this letter: the same id may die again."""

    @property
    def is_readable(self) -> bool:
        """Whether it can be redriven: its record is neither lost nor damaged."""
        return self.message.sent_at is not None


class LetterPage(NamedTuple):
    """A page of dead letters, oldest first."""

    now: int
    letters: list[Letter]
    is_last: bool


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


class Viewer:
    """Decodes stored messages of one queue as users see them."""

    def __init__(self, queue: str, decode_body: Callable[[int, bytes], Any], title: str | None = None) -> None:
        self._queue = queue
        self._title = title_of(queue) if title is None else title
        self._decode_body = decode_body

    def message(self, id_: str) -> Callable[[list[Any]], Message | None]:
        """Decode the reply to get."""

        def decode(reply: list[Any]) -> Message | None:
            sight = see(reply)
            return sight.message if sight is not None else None

        see = self.sight(id_)
        return decode

    def sight(self, id_: str) -> Callable[[list[Any]], Sight | None]:
        """Decode the reply to get, with the surroundings of the message."""

        def decode(reply: list[Any]) -> Sight | None:
            if not reply:
                return None
            now, place, score, record, counts, why, lease, owner, ahead, paused, tat, leased, *front = reply
            state = place.decode()
            if state == "waiting":
                state = "ready" if score <= now else "delayed"
            message = self._view(id_.encode(), state, score, record, counts, why, lease)
            owner_place, owner_score = front[0].decode(), front[1]
            paused_by, owner_id = codec.visible(paused) or None, codec.visible(owner) or None
            return Sight(message, now, owner_id, ahead, paused_by, tat, leased, owner_place, owner_score)

        return decode

    def end(self, id_: str) -> Callable[[list[Any]], End]:
        """Decode the reply to await_end."""

        def decode(reply: list[Any]) -> End:
            if len(reply) == 1:
                return End(None, after=reply[0].decode())
            if not reply:
                return End(None)
            place, score, record, why = reply
            reasons = codec.read_why(why)
            message = self._view(id_.encode(), place.decode(), score, record, b"", why, b"")
            return End(message, reasons.result if reasons else "")

        return decode

    def page(self, state: str) -> Callable[[Any], tuple[list[Message], bool]]:
        """Decode the reply to list: messages, and whether they are the last."""

        def decode(reply: Any) -> tuple[list[Message], bool]:
            if reply == -1:
                raise UsageError(
                    f"after=<id> is no longer {state} in {self._title}: pass the Message itself to "
                    "continue after it, or start again with after=None"
                )
            rows = [reply[at : at + 6] for at in range(2, len(reply), 6)]
            return [self._view(row[0], state, *row[1:]) for row in rows], reply[1] == 1

        return decode

    def letters(self, reply: list[Any]) -> LetterPage:
        """Decode the reply to a list of dead letters."""
        rows = [reply[at : at + 6] for at in range(2, len(reply), 6)]
        letters = [Letter(self._view(row[0], "dead", *row[1:]), row[2], row[1]) for row in rows]
        return LetterPage(reply[0], letters, reply[1] == 1)

    def _view(
        self, id_: bytes, state: str, score: int, record: bytes, counts: bytes, why: bytes, lease: bytes
    ) -> Message:
        counted, reasons, holder = codec.read_counts(counts), codec.read_why(why), codec.read_lease(lease)
        is_over = state in ("dead", "done")
        numbers: Any = reasons if is_over and reasons is not None else counted
        body, raw, stored = self._opened(record)
        due = None if stored is None else counted.due or stored.due
        events, progress = _events(reasons), _progress(reasons, holder)
        return Message(
            id=codec.visible(id_),
            queue=self._queue,
            state=state,  # type: ignore[arg-type]
            body=body,
            raw=raw,
            headers=(stored and stored.envelope.headers) or {},
            key=stored.key if stored else None,
            priority=stored.priority if stored else 0,
            sent_at=moment(stored.sent) if stored else None,
            due_at=moment(due) if due else None,
            failures=numbers.failures,
            crashes=numbers.crashes,
            defers=numbers.defers,
            releases=numbers.releases,
            rejects=reasons.rejects if reasons else 0,
            consumer=holder.consumer if holder else None,
            deadline=moment(score) if state == "leased" else None,
            fence=holder.fence if holder else None,
            reason=(reasons.reason or None) if reasons else None,
            finished_at=moment(score) if is_over else None,
            errors=tuple(
                Failure(moment(fault.at), fault.attempt, fault.consumer, fault.error, fault.traceback)
                for fault in (reasons.errors if reasons else ())
            ),
            cycles=numbers.cycles,
            redrives=numbers.redrives,
            timeline=_timeline(stored, events, holder, progress),
            progress=progress,
            result=_result(reasons) if state == "done" else None,
            cursor=(score, stored.priority if stored else 0),
        )

    def _opened(self, record: bytes) -> tuple[Any, bytes | None, codec.Record | None]:
        """Return body, raw body and record. A damaged record is returned as its bytes: a view never fails."""
        if not record:
            return None, None, None
        try:
            stored = codec.read_record(record)
        except CodecError:
            return record, record, None
        body, raw = codec.shown_body(self._decode_body, stored.envelope.content, stored.envelope.body)
        return body, raw, stored


def _result(reasons: codec.Why | None) -> Any:
    """Return the result, if there is a readable one: a view never fails."""
    try:
        return results.unpacked_result(reasons.result) if reasons else None
    except CodecError:
        return None


def _progress(reasons: codec.Why | None, holder: codec.Lease | None) -> Progress | None:
    """Return the progress that the current holder has reported: a view never fails."""
    if reasons is None or holder is None or not reasons.result.startswith("p"):
        return None
    try:
        fence, at, fraction, text = reasons.result[1:].split(" ", 3)
        return Progress(float(fraction), text, moment(int(at))) if int(fence) == holder.fence else None
    except (ValueError, OverflowError, UsageError):
        return None


def _events(reasons: codec.Why | None) -> list[codec.Event]:
    """Return the events that scripts stored. Older versions stored the failure of the last attempt as a reject."""
    if reasons is None:
        return []
    events = reasons.timeline
    if events and events[-1].what == "reject" and reasons.reason and not reasons.rejects:
        return [*events[:-1], msgspec.structs.replace(events[-1], what="fail")]
    return events


def _timeline(
    stored: codec.Record | None,
    events: Sequence[codec.Event],
    holder: codec.Lease | None,
    progress: Progress | None,
) -> tuple[Event, ...]:
    """Build the timeline: the send from the record, the stored events, and the current delivery from the lease."""
    found = [] if stored is None else [Event(moment(stored.sent), "sent")]
    for event in events:
        took = None
        if event.since:
            found.append(Event(moment(event.since), "claimed", event.consumer))
            took = (event.at - event.since) / 1_000_000
        found.append(Event(moment(event.at), event.what, event.consumer or None, event.detail, took))
    if holder is not None:
        found.append(Event(moment(holder.fence), "claimed", holder.consumer))
    if holder is not None and progress is not None and progress.at is not None:
        found.append(Event(progress.at, "progress", holder.consumer, str(progress)))
    return tuple(found)


def counter(name: str, stored: bytes) -> int:
    """Decode a counter of `meta`, which another program may have overwritten."""
    try:
        return int(stored)
    except ValueError:
        raise ServerError(
            f"counter {name!r} is not a number: another program has written {codec.visible(stored)!r} there. "
            "`duly audit --repair` fixes it"
        ) from None


def stats(reply: list[Any]) -> Stats:
    """Decode the reply to stats."""
    now, ready, delayed, leased, parked, dead, done, oldest, next_due, _deadline, paused, lateness, *rest = reply
    fields = dict(zip(rest[0::2], rest[1::2], strict=True))
    counted = {name: counter(name, fields.get(name.encode(), b"0")) for name in NUMBERS}
    return Stats(
        ready=ready,
        delayed=delayed,
        leased=leased,
        parked=parked,
        dead=dead,
        done=done,
        oldest_age=0.0 if oldest < 0 else max(now - oldest, 0) / 1_000_000,
        lateness=max(lateness, 0) / 1_000_000,
        next_due_in=None if next_due < 0 else (next_due - now) / 1_000_000,
        paused=codec.visible(paused) or None,
        **counted,
    )


class Accounts(NamedTuple):
    """The numbers that an audit compares."""

    stats: Stats
    entered: int = 0
    """Of a topic: the number of delayed publishes that have entered the stream."""
    repairs: int = 0
    """The number of repairs and corrections so far."""


def accounts(reply: list[Any]) -> Accounts:
    """Decode the reply to stats, of a queue or group."""
    return Accounts(stats(reply), 0, _repairs(reply))


def accounts_of_topic(reply: list[Any]) -> Accounts:
    """Decode the reply to stats, of a topic's delayed publishes. Its `trimmed` counts entries of the stream."""
    fields = _fields(reply)
    entered = counter("entered", fields.get(b"entered", b"0"))
    return Accounts(replace(stats(reply), trimmed=0), entered, _repairs(reply))


def _fields(reply: list[Any]) -> dict[bytes, bytes]:
    """Return the fields of `meta` from the reply to stats."""
    return dict(zip(reply[12::2], reply[13::2], strict=True))


def _repairs(reply: list[Any]) -> int:
    return counter("repairs", _fields(reply).get(b"repairs", b"0"))


def fed(reply: list[Any]) -> str | None:
    """Decode the largest id that a group has read, from the reply to stats."""
    found = _fields(reply).get(b"fed")
    return None if found is None else found.decode()


NUMBERS: Final[Mapping[str, Kept]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Stats, include_extras=True).items()
    if get_origin(hint) is Annotated
}  # fmt: skip
"""The numbers of Stats that scripts store, by their fields in `meta`."""


def pending_rows(reply: list[Any]) -> list[PendingMessage]:
    """Decode a page of leases."""
    now = reply[0]
    rows = []
    for at in range(1, len(reply), 4):
        id_, deadline, stored, counts = reply[at : at + 4]
        lease, counted = codec.read_lease(stored), codec.read_counts(counts)
        rows.append(
            PendingMessage(
                id=codec.visible(id_),
                consumer=lease.consumer if lease else "",
                fence=lease.fence if lease else 0,
                deadline=moment(deadline),
                deadline_in=(deadline - now) / 1_000_000,
                attempt=counted.failures + counted.crashes + 1,
                deliveries=counted.failures + counted.crashes + counted.defers + counted.releases + 1,
                idle=(now - lease.fence) / 1_000_000 if lease else 0.0,
            )
        )
    return rows


def pending(rows: Sequence[PendingMessage], shown: int, order: Callable[[str], Any] | None = None) -> Pending:
    """Summarise leases. `order` is the sort key of ids, where they do not sort as text."""
    ids = sorted((row.id for row in rows), key=order)
    return Pending(
        total=len(rows),
        min_id=ids[0] if ids else None,
        max_id=ids[-1] if ids else None,
        consumers=dict(Counter(row.consumer for row in rows)),
        messages=tuple(rows[:shown]),
    )


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


class AuditStep(NamedTuple):
    """One step of an audit."""

    cursor: str
    checked: int
    sizes: tuple[int, int, int]
    """Bytes of live, dead and finished messages in this step, if it checked `msgs`."""
    faults: list[AuditFault]


def audit_step(reply: list[Any]) -> AuditStep:
    """Decode a step of an audit."""
    cursor, checked, live, dead, done, *rest = reply
    rows = zip(rest[0::2], rest[1::2], strict=True)
    found = [faults.explained(codec.visible(id_), codec.visible(what)) for id_, what in rows]
    return AuditStep(cursor.decode(), checked, (live, dead, done), found)


NOTHING_COUNTED: Final = Stats(
    ready=0, delayed=0, leased=0, parked=0, dead=0, done=0, oldest_age=0.0, lateness=0.0, next_due_in=None, paused=None,
    **dict.fromkeys(NUMBERS, 0),
)  # fmt: skip
"""The stats of a queue whose numbers cannot be read."""
