"""Views: decode replies into the values that `get`, `list`, `explain`, `stats` and `pending` return.

A damaged message does not make a view fail: the readable parts are returned.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple, get_origin, get_type_hints

import msgspec

from duly._core import codec, history, results
from duly._core.naming import title_of
from duly.errors import CodecError, ServerError, UsageError
from duly.message import Event, Failure, Kept, Message, Pending, PendingMessage, Progress, Stats


def moment(us: float) -> datetime:
    """Convert the server's microseconds. Clamp a number that another program may have written."""
    try:
        return datetime.fromtimestamp(us / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC) if us > 0 else datetime.min.replace(tzinfo=UTC)


class MessageDetails(NamedTuple):
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


class Viewer:
    """Decodes stored messages of one queue as users see them."""

    def __init__(self, queue: str, decode_body: Callable[[int, bytes], Any], title: str | None = None) -> None:
        self._queue = queue
        self._title = title_of(queue) if title is None else title
        self._decode_body = decode_body

    def message(self, id_: str) -> Callable[[list[Any]], Message | None]:
        """Decode the reply to get."""

        def decode(reply: list[Any]) -> Message | None:
            details = see(reply)
            return details.message if details is not None else None

        see = self.details(id_)
        return decode

    def details(self, id_: str) -> Callable[[list[Any]], MessageDetails | None]:
        """Decode the reply to get, with the surroundings of the message."""

        def decode(reply: list[Any]) -> MessageDetails | None:
            if not reply:
                return None
            now, place, score, record, counts, why, lease, owner, ahead, paused, tat, leased, *front = reply
            state = place.decode()
            if state == "waiting":
                state = "ready" if score <= now else "delayed"
            message = self._view(id_.encode(), state, score, record, counts, why, lease)
            owner_place, owner_score = front[0].decode(), front[1]
            paused_by, owner_id = codec.visible(paused) or None, codec.visible(owner) or None
            return MessageDetails(message, now, owner_id, ahead, paused_by, tat, leased, owner_place, owner_score)

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
    counted: dict[str, Any] = {name: counter(name, fields.get(name.encode(), b"0")) for name in NUMBERS}
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
        lateness_times=history.sums_of(fields, "lateness").histogram(),
        handling_times=history.sums_of(fields, "handling").histogram(),
        dead_why_bytes=_known_bytes(fields, "dead"),
        done_why_bytes=_known_bytes(fields, "done"),
        **counted,
    )


def _known_bytes(fields: Mapping[bytes, bytes], place: str) -> int | None:
    stored = fields.get(f"{place}_why_bytes".encode())
    return None if stored is None else int(stored)


def stats_since(seconds: float) -> Callable[[list[Any]], Stats]:
    """Return what decodes the reply to stats, with the history of the last seconds."""

    def decode(reply: list[Any]) -> Stats:
        found, fields, now = stats(reply), _fields(reply), reply[0]
        sample = history.Sample(
            now,
            tuple(getattr(found, name) for name in history.COUNTED),
            found.ready + found.parked,
            -1 if reply[7] < 0 else max(now - reply[7], 0),
            history.sums_of(fields, "lateness"),
            history.sums_of(fields, "handling"),
        )
        return replace(found, history=history.points(history.samples(fields, sample), seconds))

    return decode


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


_ZEROS: Final[dict[str, Any]] = dict.fromkeys(NUMBERS, 0)
NOTHING_COUNTED: Final = Stats(
    ready=0, delayed=0, leased=0, parked=0, dead=0, done=0, oldest_age=0.0, lateness=0.0, next_due_in=None, paused=None,
    **_ZEROS,
)  # fmt: skip
"""The stats of a queue whose numbers cannot be read."""
