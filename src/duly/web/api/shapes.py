"""What the API takes and gives, as types: they read the JSON, write it, and describe it in openapi.json.

Names are the library's. Times are ISO 8601 with a zone, or seconds since the epoch where they are taken; durations
are seconds.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

import duly
from duly import message as seen
from duly._core.states import State
from duly.errors import CodecError, UsageError

MAX_PAGE: Final = 100
MAX_LIST: Final = 1000
"""Messages or receipts in one call."""
MAX_WAIT: Final = 20
DEEPEST: Final = 200
"""Lists in lists in a body: other languages read no more, and whoever reads in Python has a stack of his own."""

_NULL: Final = Raw(b"null")

Time = datetime | float
Moment = Annotated[datetime, Meta(tz=True)]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Receipts = Annotated[list[str], Meta(min_length=1, max_length=MAX_LIST)]


class Given(Struct, forbid_unknown_fields=True, kw_only=True):
    """What somebody asks for. What is not known is refused: it is a slip of the pen, and would be without effect."""


# Query strings


class QueuePage(Given):
    """Which queues."""

    limit: Limit = 50
    after: str | None = None


class MessagePage(Given):
    """Which messages."""

    state: State = "ready"
    limit: Limit = 50
    after: str | None = None


class PendingOf(Given):
    """Whose leases, and how many of them."""

    consumer: str | None = None
    limit: Annotated[int, Meta(ge=0, le=MAX_PAGE)] = MAX_PAGE


# Messages that are sent


class Retry(Given):
    """When a failed message comes back, and how often."""

    attempts: int | None = None
    first: float = 1.0
    factor: float = 2.0
    max: float = 3600.0
    jitter: float = 0.1
    delays: list[float] | None = None

    def checked(self) -> duly.Retry:
        """Make what the library takes."""
        return duly.Retry(**msgspec.structs.asdict(self))


class Repeat(Given):
    """When a message comes back although all went well, and how often."""

    first: float = 60.0
    factor: float = 1.0
    times: int | None = None
    max: float = 30 * 86400.0

    def checked(self) -> duly.Repeat:
        """Make what the library takes."""
        return duly.Repeat(**msgspec.structs.asdict(self))


class Publish(Given):
    """A message for every group of a topic. Its body is JSON, or bytes as base64."""

    body: Raw | UnsetType = UNSET
    base64: str | None = None
    delay: float | None = None
    at: Time | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    dedup: str | None = None
    dedup_for: float | None = None
    durable: Literal["fsync", "replica"] | int | None = None

    def checked(self) -> duly.Send:
        """Make what the library takes."""
        return duly.Send(
            checked_body(self.body, self.base64),
            delay=self.delay,
            at=self.at,
            key=self.key,
            headers=self.headers,
            dedup=self.dedup,
            dedup_for=self.dedup_for,
        )


class Send(Publish):
    """A message for a queue."""

    priority: int = 0
    replace: bool = False
    ttl: float | None = None
    id: str | None = None
    retry: Retry | None = None
    repeat: Repeat | None = None

    def checked(self) -> duly.Send:
        """Make what the library takes."""
        return dataclasses.replace(
            super().checked(),
            priority=self.priority,
            replace=self.replace,
            ttl=self.ttl,
            id=self.id,
            retry=None if self.retry is None else self.retry.checked(),
            repeat=None if self.repeat is None else self.repeat.checked(),
        )


Sends = Send | Annotated[list[Send], Meta(max_length=MAX_LIST)]
Publishes = Publish | Annotated[list[Publish], Meta(max_length=MAX_LIST)]


class Sent(Struct, kw_only=True):
    """What was stored: the id of the message, or, of a list, the ids in the same order."""

    id: str | UnsetType = UNSET
    ids: list[str] | UnsetType = UNSET


class Move(Given):
    """Another due time for a message that waits: one of them."""

    delay: float | None = None
    at: Time | None = None
    promote: bool = False


# Steering


class Purge(Given):
    """What is to end. `confirm` is the name of the queue, of a group "events/archive"."""

    confirm: str
    state: State | None = None


class Where(Given):
    """Which dead letters: those of which all that is given is true."""

    error: str | None = None
    reason: str | None = None
    since: Time | None = None
    until: Time | None = None
    headers: dict[str, str] | None = None
    key: str | None = None
    ids: list[str] | None = None

    def checked(self) -> duly.Where:
        """Make what the library takes."""
        return duly.Where(**msgspec.structs.asdict(self))


class Redrive(Given):
    """Which dead letters go back to work, and how."""

    limit: int | None = None
    where: Where | None = None
    to: str | None = None
    rate: str | None = None
    at_end: bool = False
    dry_run: bool = False


class Paused(Struct):
    """Who paused it; null: nobody."""

    paused: str | None


class Purged(Struct):
    """How many messages ended."""

    purged: int


class Redriven(Struct):
    """How many dead letters went back to work, or would."""

    redriven: int


# Receiving and settling


class Receive(Given):
    """How many messages at the most, how long the first is waited for, and how long they are held."""

    limit: Limit = 10
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = MAX_WAIT
    lease: float | None = None


class Delivery(Struct, kw_only=True):
    """A message in a consumer's hands. With its receipt it is settled."""

    id: str
    queue: str
    body: Raw
    base64: str | UnsetType = UNSET
    headers: dict[str, str]
    key: str | None
    priority: int
    attempt: int
    deliveries: int
    sent_at: Moment
    due_at: Moment
    fence: int
    receipt: str


class Received(Struct):
    """Messages, perhaps none."""

    messages: list[Delivery]


class Settle(Given):
    """Which deliveries: one, or several."""

    receipt: str | None = None
    receipts: Receipts | None = None

    def given(self) -> list[str]:
        """Give the receipts, each once."""
        if (self.receipt is None) == (self.receipts is None):
            raise UsageError("give either receipt or receipts, a list of them")
        return list(dict.fromkeys(self.receipts or [self.receipt or ""]))


class Ack(Settle):
    """Finished. `result` is kept where the queue keeps finished messages."""

    result: Raw | UnsetType = UNSET


class RetryOf(Settle):
    """Failed. Without a delay, it is the retry policy's."""

    delay: float | None = None
    error: str | None = None


class Defer(Settle, kw_only=True):
    """Not now."""

    delay: float
    reason: str = ""


class Reject(Settle, kw_only=True):
    """Never."""

    reason: str


class Recycle(Settle):
    """Finished, and back as new; without a body, with the one it has."""

    delay: float = 0.0
    body: Raw | UnsetType = UNSET
    base64: str | None = None


class Extend(Settle, kw_only=True):
    """Held for so many seconds from now on."""

    seconds: float


class Settled(Struct):
    """The ids of what was settled, and of what was not: somebody else has it, or it is over."""

    settled: list[str]
    lost: list[str]


# What is shown


class Event(Struct, kw_only=True):
    """One entry of a message's timeline."""

    at: Moment
    what: str
    consumer: str | None
    took: float | None
    detail: str | UnsetType = UNSET


class Message(Struct, kw_only=True):
    """One message, at the moment of looking; a body of bytes is in `base64`. Viewers are shown no payloads."""

    id: str
    queue: str
    state: State
    body: Raw | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    headers: Mapping[str, str] | UnsetType = UNSET
    key: str | None
    priority: int
    sent_at: Moment | None
    due_at: Moment | None
    attempt: int
    deliveries: int
    failures: int
    crashes: int
    defers: int
    releases: int
    rejects: int
    cycles: int
    redrives: int
    consumer: str | None
    deadline: Moment | None
    fence: int | None
    reason: str | UnsetType | None = UNSET
    finished_at: Moment | None
    errors: tuple[seen.Failure, ...] | UnsetType = UNSET
    timeline: list[Event]
    result: Raw | UnsetType = UNSET


_SHOWN_TO_ALL: Final = [
    name
    for name in Message.__struct_fields__
    if name not in ("body", "base64", "headers", "reason", "errors", "timeline", "result")
]


def shown(message: seen.Message, *, with_payload: bool) -> Message:
    """Show a message."""
    events = [
        Event(at=each.at, what=each.what, consumer=each.consumer, took=each.took, detail=each.detail)
        if with_payload
        else Event(at=each.at, what=each.what, consumer=each.consumer, took=each.took)
        for each in message.timeline
    ]
    found = Message(timeline=events, **{name: getattr(message, name) for name in _SHOWN_TO_ALL})
    if with_payload:
        found.body, found.base64 = _body(message.body, message.raw)
        found.headers, found.reason, found.errors = message.headers, message.reason, message.errors
        found.result = json_of(message.result)
    return found


def delivery(given: duly.AsyncDelivery, receipt: str) -> Delivery:
    """Show a delivery. One whose record is damaged has all of that as its bytes: it can be settled like any other."""
    try:
        body, raw, headers, key = given.body, given.raw, dict(given.headers), given.key
    except CodecError:
        body, raw, headers, key = _undecodable(given)
    shown_body, encoded = _body(body, raw)
    return Delivery(
        id=given.id,
        queue=given.queue,
        body=shown_body,
        base64=encoded,
        headers=headers,
        key=key,
        priority=given.priority,
        attempt=given.attempt,
        deliveries=given.deliveries,
        sent_at=given.sent_at,
        due_at=given.due_at,
        fence=given.fence,
        receipt=receipt,
    )


def _undecodable(given: duly.AsyncDelivery) -> tuple[bytes, bytes, dict[str, str], str | None]:
    try:
        return given.raw, given.raw, dict(given.headers), given.key
    except CodecError:
        return given._record, given._record, {}, None


def _body(body: Any, raw: bytes | None) -> tuple[Raw, str | UnsetType]:
    """Show a body as it was sent. What is no JSON is bytes."""
    if raw is None:
        return _NULL, UNSET
    if isinstance(body, bytes):
        return _NULL, base64.b64encode(raw).decode()
    return Raw(raw), UNSET


class MessagesShown(Struct):
    """A page of messages. `next` is the `after` of the next page; null: there is none."""

    messages: list[Message]
    next: str | None


class Explanation(Struct):
    """Why a message is not being delivered, and when it will be, in one sentence."""

    explanation: str


class QueueShown(Struct):
    """A queue and its numbers."""

    name: str
    stats: seen.Stats


class QueuesShown(Struct):
    """A page of queues. `next` is the `after` of the next page; null: there is none."""

    queues: list[QueueShown]
    next: str | None


class Holders(Struct):
    """How many messages are held, and by whom."""

    total: int
    consumers: Mapping[str, int]


class InboxShown(Struct):
    """A queue, or a group of a topic, and who holds its messages."""

    name: str
    stats: seen.Stats
    pending: Holders


class TopicShown(Struct):
    """A topic and its groups."""

    name: str
    stats: seen.TopicStats
    groups: list[seen.GroupInfo]


class TopicsShown(Struct):
    """All topics."""

    topics: list[TopicShown]


class WorkersShown(Struct):
    """All workers that live, or were silent for a short time."""

    workers: list[seen.WorkerInfo]


class Schedule(Struct, kw_only=True):
    """A schedule. Viewers are not shown what it sends."""

    name: str
    queue: str
    cron: str | None
    every: float | None
    tz: str
    catch_up: Literal["one", "skip", "all"]
    paused: bool
    next_at: Moment | None
    last_slot: Moment | None
    body: Raw | UnsetType = UNSET
    base64: str | UnsetType = UNSET


class SchedulesShown(Struct):
    """All schedules."""

    schedules: list[Schedule]


def schedule(given: seen.Schedule, *, with_payload: bool) -> Schedule:
    """Show a schedule."""
    names = [each.name for each in dataclasses.fields(given) if each.name != "body"]
    found = Schedule(**{name: getattr(given, name) for name in names})
    if with_payload:
        is_bytes = isinstance(given.body, bytes)
        found.body = _NULL if is_bytes else json_of(given.body)
        found.base64 = base64.b64encode(given.body).decode() if is_bytes else UNSET
    return found


# JSON that passes through


def checked_body(body: Raw | UnsetType, encoded: str | None) -> Raw | bytes:
    """Give what is to be stored: JSON that anybody can decode, or bytes."""
    if encoded is None:
        if isinstance(body, UnsetType):
            raise UsageError("a message needs a body, which may be null, or base64")
        return checked_json(body, "body")
    if body is not UNSET:
        raise UsageError("body and base64 exclude each other: give one")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"base64 is not Base64: {error}") from None


def checked_json(given: Raw, what: str) -> Raw:
    """Refuse JSON that nobody could decode who is given it: half characters, numbers without end, or too deep."""
    try:
        value = msgspec.json.decode(given)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} cannot be decoded: {error}") from None
    if _is_deep(value):
        raise UsageError(f"{what} is nested more than {DEEPEST} levels deep")
    return Raw(bytes(given))


def _is_deep(value: Any) -> bool:
    """Go down by levels, not by calls, which it has too many of."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return False
    return True


def _parts(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return list(parts)


def json_of(value: Any) -> Raw:
    """Write what was decoded as JSON again; bytes, which JSON has not, as {"base64": ...}."""
    if isinstance(value, bytes):
        value = {"base64": base64.b64encode(value).decode()}
    try:
        return Raw(msgspec.json.encode(value))
    except OverflowError:  # whole numbers of more than 64 bits, which msgspec reads but does not write
        return Raw(json.dumps(value, ensure_ascii=False).encode())
    except RecursionError:
        return Raw(b'"nested too deep to be shown"')
