"""Schedules: the times of their runs, which runs send a message, and how schedules are stored.

Law: the runs of a schedule follow from its plan alone, so every process computes the same ones. The caller passes the
time. Times are microseconds since the epoch. The public names `last_slot` and `duly-slot` mean the time of a run.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from duly._core import codec
from duly._core.cron import Calendar, Expression
from duly._core.outgoing import Outgoing
from duly.errors import CodecError, UsageError
from duly.message import Schedule
from duly.options import Send, checked_seconds

CatchUp = Literal["one", "skip", "all"]

VERSION: Final = 1
SENT_AT_ONCE: Final = 100
"""The most runs whose messages one call sends."""

STALE: Final = 60_000_000
"""Microseconds. catch_up="skip" skips a run that is older."""

NEVER: Final = -1
SHORTEST: Final = 0.001
LONGEST_CRON: Final = 256
SCHEDULE_HEADER: Final = "duly-schedule"
SLOT_HEADER: Final = "duly-slot"
ABANDONED: Final = 60_000_000
"""Microseconds. A younger entry of the registry may belong to a schedule that is still being stored."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_HEAD: Final = struct.Struct("<dddB")
_ENTRY: Final = struct.Struct("<d")
_KEPT_OPTIONS: Final = frozenset({"body", "key", "priority", "ttl", "headers", "retry"})
_NO_OPTIONS: Final = Send(None)


# Times


class Timetable(Protocol):
    """The times of the runs of a plan."""

    def after(self, us: int) -> Iterator[int]:
        """Yield the runs after a point in time, usually without end."""

    def newest(self, after: int, until: int) -> int | None:
        """Find the last run in (after, until]."""


class Interval:
    """The multiples of an interval since the epoch: the same for every process, regardless of its start."""

    def __init__(self, every: int) -> None:
        self._every = every

    def after(self, us: int) -> Iterator[int]:
        """Yield the runs after a point in time."""
        run = us // self._every * self._every
        while True:
            run += self._every
            yield run

    def newest(self, after: int, until: int) -> int | None:
        """Find the last run in (after, until]."""
        run = until // self._every * self._every
        return run if run > after else None


def moment_of(us: int) -> datetime:
    """Convert microseconds, exactly."""
    return _EPOCH + timedelta(microseconds=us)


def us_of(moment: datetime) -> int:
    """Convert a point in time, exactly."""
    return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


class Choice(NamedTuple):
    """The next step of a schedule."""

    runs: list[int]
    """The runs whose messages are to be sent."""
    after: int
    """The last run that is handled by this step."""
    next_at: int
    """The time of the next check; NEVER: there are no more runs."""


def choose(timetable: Timetable, catch_up: str, after: int, now: int) -> Choice:
    """Decide which of the runs in (after, now] send a message, and when to check again."""
    if catch_up == "all":
        due = list(islice(takewhile(lambda run: run <= now, timetable.after(after)), SENT_AT_ONCE))
        if len(due) == SENT_AT_ONCE:
            return Choice(due, due[-1], now)
    else:
        newest = timetable.newest(after, now)
        due = [] if newest is None else [newest]
    next_at = next(timetable.after(max(after, now)), NEVER)
    new_after = due[-1] if due else after
    if catch_up == "skip" and due and now - due[-1] > STALE:
        due = []
    return Choice(due, new_after, next_at)


# Plans


class Plan(msgspec.Struct, array_like=True, frozen=True):
    """The user's options of a schedule, and its message as a send would store it."""

    cron: str | None
    every: int
    """Microseconds; 0: by `cron`."""
    tz: str
    catch_up: str
    part: bytes

    def with_part(self, part: codec.Part) -> "Plan":
        """Add the message."""
        return msgspec.structs.replace(self, part=bytes(part))

    @property
    def timetable(self) -> Timetable:
        """The times of its runs.

        Raises CodecError if this process does not know the time zone, or cannot parse the expression.
        """
        if self.cron is None:
            if self.every <= 0:
                raise CodecError(f"every={self.every} µs is not an interval")
            return Interval(self.every)
        try:
            return _calendar(self.cron, _zone(self.tz))
        except UsageError as error:
            raise CodecError(str(error)) from error


def checked_plan(cron: object, every: object, tz: object, catch_up: object, now: float) -> Plan:
    """Check the user's options for the time. The message is added later."""
    if (cron is None) == (every is None):
        raise UsageError('a schedule needs cron="0 3 * * *" or every=30, and not both')
    if catch_up not in get_args(CatchUp):
        raise UsageError(f'catch_up must be "one", "skip" or "all", not {catch_up!r}')
    zone = _name_of_zone(tz)
    if cron is None:
        if zone != "UTC":
            raise UsageError(f"tz={tz!r} is for cron=: the times of every= are the same everywhere")
        return Plan(None, _checked_interval(every), zone, str(catch_up), b"")
    if not isinstance(cron, str):
        raise UsageError(f"cron must be a text of five fields, not {cron!r}")
    text = " ".join(cron.split())
    if next(_calendar(text, _zone(zone)).after(round(now * 1_000_000)), None) is None:
        raise UsageError(f"cron={cron!r} matches no date of the calendar: check day of month and month")
    return Plan(text, 0, zone, str(catch_up), b"")


def _checked_interval(every: Any) -> int:
    return round(checked_seconds(every, "every", least=SHORTEST) * 1_000_000)


def _calendar(cron: str, zone: tzinfo) -> Calendar:
    advice = "give minute, hour, day of month, month and day of week, like '0 3 * * *'"
    if len(cron) > LONGEST_CRON:
        raise UsageError(f"a cron expression of {len(cron)} characters is too long: {advice}")
    if len(cron.split()) != 5:
        raise UsageError(f"cron={cron!r} does not have five fields: {advice}")
    try:
        return Calendar(Expression(cron), zone)
    except ValueError as error:
        raise UsageError(f"cron={cron!r} cannot be read ({error}): {advice}") from error


def _name_of_zone(tz: object) -> str:
    name = tz.key if isinstance(tz, ZoneInfo) else tz
    if not isinstance(name, str) or not name:
        raise UsageError(f'tz must be the name of a time zone, like "Europe/Berlin", or a ZoneInfo, not {tz!r}')
    return name


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # it needs no data and is faster
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"tz={name!r} is not a time zone on this machine: use a name like 'Europe/Berlin', or install tzdata"
        ) from error


def as_send(body: Any) -> Send:
    """Return the body as a Send. Raise if it has options that a schedule cannot store."""
    if not isinstance(body, Send):
        return Send(body)
    for option in Send.__dataclass_fields__:
        if option not in _KEPT_OPTIONS and getattr(body, option) != getattr(_NO_OPTIONS, option):
            raise UsageError(f"a schedule cannot keep {option}={getattr(body, option)!r}: each run is a new message")
    return body


# Rows


class Row(NamedTuple):
    """A decoded schedule."""

    created: int
    after: int
    last: int
    is_paused: bool
    plan: Plan


_encode_plan = msgspec.msgpack.Encoder().encode
_decode_plan = msgspec.msgpack.Decoder(Plan).decode


def written_plan(plan: Plan) -> bytes:
    """Encode the client's part of a schedule."""
    return bytes((VERSION,)) + _encode_plan(plan)


def head_of(row: bytes) -> bytes:
    """Return the part that scripts write. Every change alters it."""
    return row[: _HEAD.size]


def read_row(row: bytes) -> Row:
    """Decode a stored schedule."""
    try:
        created, after, last, paused = _HEAD.unpack_from(row)
        version = row[_HEAD.size]
        if version != VERSION:
            raise CodecError(f"version {version} is unknown: it was stored by another version of Duly")
        plan = _decode_plan(memoryview(row)[_HEAD.size + 1 :])
        if plan.catch_up not in get_args(CatchUp):
            raise CodecError(f"catch_up={plan.catch_up!r} is unknown: it was stored by another version of Duly")
        return Row(int(created), int(after), int(last), bool(paused), plan)
    except (struct.error, ValueError, OverflowError, IndexError) as error:
        raise CodecError(f"the stored row is damaged: {error}") from error


def messages(
    name: str,
    plan: Plan,
    runs: Sequence[int],
    new_id: Callable[[], str],
    added_headers: Callable[[Send[None]], Mapping[str, str]] | None = None,
) -> list[Outgoing]:
    """Make the messages of runs, each with the time of its run in a header.

    `added_headers` returns more headers for a message, which it gets without its body.
    """
    stored = codec.read_record(codec.stamped(0, 0, plan.part))
    found = []
    for run in runs:
        given = stored.envelope.headers or {}
        headers = {**given, SCHEDULE_HEADER: name, SLOT_HEADER: moment_of(run).isoformat()}
        if added_headers is not None:
            headers = {**added_headers(Send(None, headers=headers)), **headers}
        part = codec.written_part(
            msgspec.structs.replace(stored.envelope, headers=headers),
            flags=stored.flags,
            priority=stored.priority,
            ttl=stored.ttl,
            key=(stored.key or "").encode(),
        )
        found.append(Outgoing(new_id(), part, f"={run}", stored.flags, stored.priority))
    return found


class Page(NamedTuple):
    """A page of stored schedules: the server's time, the next cursor (0: the last page), and rows by name."""

    now: int
    cursor: str
    rows: dict[str, bytes]


def page(reply: list[Any]) -> Page:
    """Decode the reply to schedules."""
    now, cursor, *rest = reply
    names = [name.decode(errors="backslashreplace") for name in rest[0::2]]
    return Page(now, cursor.decode(), dict(zip(names, rest[1::2], strict=True)))


class Entry(NamedTuple):
    """An entry of the registry of schedules."""

    noted_at: int
    queue: str


def read_entry(entry: bytes) -> Entry | None:
    """Decode an entry of the registry; None: another program has written it."""
    try:
        (noted_at,) = _ENTRY.unpack_from(entry)
        return Entry(int(noted_at), entry[_ENTRY.size :].decode())
    except (struct.error, ValueError, OverflowError):
        return None


def view(queue: str, name: str, row: bytes, now: int) -> Schedule | None:
    """Return the view of a stored schedule; None: it is unreadable, perhaps from another version."""
    try:
        stored = read_row(row)
        envelope = codec.read_record(codec.stamped(0, 0, stored.plan.part)).envelope
    except CodecError:
        return None
    plan = stored.plan
    return Schedule(
        name=name,
        queue=queue,
        cron=plan.cron,
        every=plan.every / 1_000_000 if plan.cron is None else None,
        tz=plan.tz,
        catch_up=plan.catch_up,  # type: ignore[arg-type]
        paused=stored.is_paused,
        next_at=None if stored.is_paused else _next_moment(plan, max(now, stored.after)),
        last_slot=moment_of(stored.last) if stored.last else None,
        body=_shown(envelope),
    )


def _next_moment(plan: Plan, after: int) -> datetime | None:
    try:
        run = next(plan.timetable.after(after), None)
        return None if run is None else moment_of(run)
    except (CodecError, ValueError, OverflowError):  # an unknown time zone, or a time that is out of range
        return None


_decode_body = codec.decoder_of(None)


def _shown(envelope: codec.Envelope) -> Any:
    try:
        return _decode_body(envelope.content, envelope.body)
    except CodecError:
        return envelope.body
