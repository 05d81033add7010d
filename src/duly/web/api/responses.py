"""Response types of the API. They write JSON, and are described in openapi.json.

Names are the same as in the library. Times are ISO 8601 with a time zone. Durations are seconds.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

import duly
from duly import message as views
from duly._port import Away, State, record_of
from duly.errors import CodecError

Moment = Annotated[datetime, Meta(tz=True)]

# Results of changes


class Sent(Struct, kw_only=True):
    """The id of the stored message, or for a list, the ids in the same order."""

    id: str | UnsetType = UNSET
    ids: list[str] | UnsetType = UNSET
    durable: Literal["fsync"] | int | UnsetType = UNSET
    """The confirmed level, if the request has `durable`: "fsync", or the number of replicas."""


class Paused(Struct):
    """The name of the caller that paused it. null: it is not paused."""

    paused: str | None


class Purged(Struct):
    """The number of removed messages; with dry_run, of those that would be removed."""

    purged: int


class Redriven(Struct):
    """The number of redriven dead letters; with dry_run, of those that would be redriven."""

    redriven: int


class Delivery(Struct, kw_only=True):
    """A delivered message. Its receipt settles it."""

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
    """The delivered messages, possibly none."""

    messages: list[Delivery]


class Settled(Struct):
    """The ids of settled messages, and of lost ones: another consumer has the message, or it is gone."""

    settled: list[str]
    lost: list[str]


# Inspection results


class Event(Struct, kw_only=True):
    """One entry of a message's timeline."""

    at: Moment
    what: str
    consumer: str | None
    took: float | None
    detail: str | UnsetType = UNSET


class Progress(Struct, kw_only=True):
    """The progress of the work on a message, from 0 to 1, as its consumer reported it."""

    fraction: float
    text: str | UnsetType = UNSET
    at: Moment | None


class Message(Struct, kw_only=True):
    """One message at the moment of the request. A binary body is in `base64`. Viewers see no payloads."""

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
    errors: tuple[views.Failure, ...] | UnsetType = UNSET
    timeline: list[Event]
    progress: Progress | None
    result: Raw | UnsetType = UNSET


_PUBLIC_FIELDS: Final = [
    name
    for name in Message.__struct_fields__
    if name not in ("body", "base64", "headers", "reason", "errors", "timeline", "progress", "result")
]


def message_response(message: views.Message, *, with_payload: bool) -> Message:
    """Create the response for a message."""
    events = [
        Event(at=each.at, what=each.what, consumer=each.consumer, took=each.took, detail=each.detail)
        if with_payload
        else Event(at=each.at, what=each.what, consumer=each.consumer, took=each.took)
        for each in message.timeline
    ]
    progress = _progress(message.progress, with_payload=with_payload)
    response = Message(timeline=events, progress=progress, **{name: getattr(message, name) for name in _PUBLIC_FIELDS})
    if with_payload:
        response.body, response.base64 = encoded_body(message.body, message.raw)
        response.headers, response.reason, response.errors = message.headers, message.reason, message.errors
        response.result = to_json(message.result)
    return response


def _progress(progress: views.Progress | None, *, with_payload: bool) -> Progress | None:
    if progress is None:
        return None
    return Progress(fraction=progress.fraction, at=progress.at, text=progress.text if with_payload else UNSET)


def delivery_response(source: duly.AsyncDelivery, receipt: str) -> Delivery:
    """Create the response for a delivery. If its record is damaged, the body is the whole record: it can be settled."""
    try:
        body, raw, headers, key = source.body, source.raw, dict(source.headers), source.key
    except CodecError:
        body, raw, headers, key = _raw_content(source)
    shown_body, encoded = encoded_body(body, raw)
    return Delivery(
        id=source.id,
        queue=source.queue,
        body=shown_body,
        base64=encoded,
        headers=headers,
        key=key,
        priority=source.priority,
        attempt=source.attempt,
        deliveries=source.deliveries,
        sent_at=source.sent_at,
        due_at=source.due_at,
        fence=source.fence,
        receipt=receipt,
    )


def _raw_content(source: duly.AsyncDelivery) -> tuple[bytes, bytes, dict[str, str], str | None]:
    try:
        return source.raw, source.raw, dict(source.headers), source.key
    except CodecError:
        record = record_of(source)
        return record, record, {}, None


class MessagesShown(Struct):
    """A page of messages. `next` is `after` of the next page; null: this is the last."""

    messages: list[Message]
    next: str | None
    missing: list[MissingNode] | UnsetType = UNSET
    """Of a search: the nodes of a cluster that were not asked."""


class Explanation(Struct):
    """Why a message is not being delivered, and when it will be, in one sentence."""

    explanation: str


class QueueShown(Struct):
    """A queue with its statistics. They are null, and `error` is set, if its data are damaged."""

    name: str
    stats: views.Stats | None
    error: str | UnsetType = UNSET


class MissingNode(Struct):
    """A node of a cluster that does not answer. Its queues, topics and schedules are missing from the list."""

    node: str
    reason: str


class QueuesShown(Struct):
    """A page of queues. `next` is `after` of the next page; null: this is the last."""

    queues: list[QueueShown]
    next: str | None
    missing: list[MissingNode] | UnsetType = UNSET


class Holders(Struct):
    """The number of leases, and the number per consumer; null: there are too many to read."""

    total: int
    consumers: Mapping[str, int] | None


class PendingShown(Struct):
    """The leases of a queue or group. If there are very many, only `total` is set."""

    total: int
    min_id: str | None = None
    max_id: str | None = None
    consumers: Mapping[str, int] | None = None
    messages: Sequence[views.PendingMessage] | None = None


class InboxShown(Struct):
    """A queue or group, with its statistics and leases."""

    name: str
    stats: views.Stats
    pending: Holders


class HistoryShown(Struct):
    """The history of a queue or group, the oldest interval first. `bounds` are those of the buckets, in seconds."""

    name: str
    bounds: Sequence[float]
    history: Sequence[views.HistoryPoint]


class ForecastShown(Struct):
    """When the messages of a queue or group become due, the next interval first."""

    name: str
    forecast: Sequence[views.Bucket]


class TopicShown(Struct):
    """A topic with its statistics and groups. They are null, and `error` is set, if its data are damaged."""

    name: str
    stats: views.TopicStats | None
    groups: Sequence[views.GroupInfo]
    error: str | UnsetType = UNSET


class TopicsShown(Struct):
    """A page of topics. `next` is `after` of the next page; null: this is the last."""

    topics: list[TopicShown]
    next: str | None
    missing: list[MissingNode] | UnsetType = UNSET


class WorkersShown(Struct):
    """A page of live workers, and those whose last heartbeat is recent, by id. `next` is `after` of the next page."""

    workers: Sequence[views.WorkerInfo]
    next: str | None


class Schedule(Struct, kw_only=True):
    """A schedule. Viewers do not see its body."""

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


class Scheduled(Struct):
    """Whether the schedule is new. false: it existed, and is replaced if its definition differs."""

    new: bool


class Audited(Struct):
    """The result of an audit. `difference` is the number of messages that are not accounted for."""

    ok: bool
    checked: int
    difference: int
    faults: Sequence[views.AuditFault]
    repaired: bool
    stats: views.Stats


class Finding(Struct):
    """One check of the server: the observation, why it matters, and the commands that fix it, one per line."""

    name: str
    verdict: Literal["ok", "warn", "bad", "unknown"]
    found: str
    why: str
    fix: str


class Examined(Struct):
    """The examination of a server. `ok`: no check is bad."""

    ok: bool
    server: str
    findings: list[Finding]


class Result(Struct):
    """The value that the handler of a message returned."""

    id: str
    result: Raw


class SchedulesShown(Struct):
    """A page of schedules. `next` is `after` of the next page; null: this is the last."""

    schedules: list[Schedule]
    next: str | None
    missing: list[MissingNode] | UnsetType = UNSET


def missing_nodes(away: Sequence[Away]) -> list[MissingNode] | UnsetType:
    """Create the list of nodes that do not answer. It is left out if all do."""
    return [MissingNode(str(each.node), each.reason) for each in away] or UNSET


def schedule_response(source: views.Schedule, *, with_payload: bool) -> Schedule:
    """Create the response for a schedule."""
    names = [each.name for each in dataclasses.fields(source) if each.name != "body"]
    response = Schedule(**{name: getattr(source, name) for name in names})
    if with_payload:
        is_bytes = isinstance(source.body, bytes)
        response.body = NULL if is_bytes else to_json(source.body)
        response.base64 = base64.b64encode(source.body).decode() if is_bytes else UNSET
    return response


NULL: Final = Raw(b"null")


def to_json(value: Any) -> Raw:
    """Encode a decoded value as JSON again. Bytes become {"base64": ...}."""
    if isinstance(value, bytes):
        value = {"base64": base64.b64encode(value).decode()}
    try:
        return Raw(msgspec.json.encode(value))
    except OverflowError:  # msgspec reads integers of more than 64 bits but does not write them
        return Raw(json.dumps(value, ensure_ascii=False).encode())
    except RecursionError:
        return Raw(b'"nested too deep to be shown"')


def encoded_body(body: Any, raw: bytes | None) -> tuple[Raw, str | UnsetType]:
    """Return the body as it was sent. A body that is not JSON is binary."""
    if raw is None:
        return NULL, UNSET
    if isinstance(body, bytes):
        return NULL, base64.b64encode(raw).decode()
    return Raw(raw), UNSET
