"""What the API gives, as types: they write the JSON, and describe it in openapi.json.

Names are the library's. Times are ISO 8601 with a zone; durations are seconds.
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
from duly._port import State, record_of
from duly.errors import CodecError

Moment = Annotated[datetime, Meta(tz=True)]

# What was done


class Sent(Struct, kw_only=True):
    """What was stored: the id of the message, or, of a list, the ids in the same order."""

    id: str | UnsetType = UNSET
    ids: list[str] | UnsetType = UNSET


class Paused(Struct):
    """Who paused it; null: nobody."""

    paused: str | None


class Purged(Struct):
    """How many messages ended."""

    purged: int


class Redriven(Struct):
    """How many dead letters went back to work, or would."""

    redriven: int


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


class Progress(Struct, kw_only=True):
    """How far the work on a message is, from 0 to 1, as its holder has reported it."""

    fraction: float
    text: str | UnsetType = UNSET
    at: Moment | None


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
    """Show a message."""
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
    """Show a delivery. One whose record is damaged has all of that as its bytes: it can be settled like any other."""
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
    """A page of messages. `next` is the `after` of the next page; null: there is none."""

    messages: list[Message]
    next: str | None


class Explanation(Struct):
    """Why a message is not being delivered, and when it will be, in one sentence."""

    explanation: str


class QueueShown(Struct):
    """A queue and its numbers; null, with the `error`: somebody has damaged it so that it cannot be counted."""

    name: str
    stats: views.Stats | None
    error: str | UnsetType = UNSET


class QueuesShown(Struct):
    """A page of queues. `next` is the `after` of the next page; null: there is none."""

    queues: list[QueueShown]
    next: str | None


class Holders(Struct):
    """How many messages are held, and by whom; null: they are too many to look at each."""

    total: int
    consumers: Mapping[str, int] | None


class PendingShown(Struct):
    """Who holds what. Where very many are held, the total is all that is told, and the others are null."""

    total: int
    min_id: str | None = None
    max_id: str | None = None
    consumers: Mapping[str, int] | None = None
    messages: Sequence[views.PendingMessage] | None = None


class InboxShown(Struct):
    """A queue, or a group of a topic, and who holds its messages."""

    name: str
    stats: views.Stats
    pending: Holders


class TopicShown(Struct):
    """A topic and its groups; null, with the `error`: somebody has damaged it so that it cannot be counted."""

    name: str
    stats: views.TopicStats | None
    groups: Sequence[views.GroupInfo]
    error: str | UnsetType = UNSET


class TopicsShown(Struct):
    """A page of topics. `next` is the `after` of the next page; null: there is none."""

    topics: list[TopicShown]
    next: str | None


class WorkersShown(Struct):
    """A page of the workers that live, or were silent for a short time, by id; `next` is that of the last."""

    workers: Sequence[views.WorkerInfo]
    next: str | None


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
    """A page of schedules. `next` is the `after` of the next page; null: there is none."""

    schedules: list[Schedule]
    next: str | None


def schedule_response(source: views.Schedule, *, with_payload: bool) -> Schedule:
    """Show a schedule."""
    names = [each.name for each in dataclasses.fields(source) if each.name != "body"]
    response = Schedule(**{name: getattr(source, name) for name in names})
    if with_payload:
        is_bytes = isinstance(source.body, bytes)
        response.body = NULL if is_bytes else to_json(source.body)
        response.base64 = base64.b64encode(source.body).decode() if is_bytes else UNSET
    return response


NULL: Final = Raw(b"null")


def to_json(value: Any) -> Raw:
    """Write what was decoded as JSON again; bytes, which JSON has not, as {"base64": ...}."""
    if isinstance(value, bytes):
        value = {"base64": base64.b64encode(value).decode()}
    try:
        return Raw(msgspec.json.encode(value))
    except OverflowError:  # whole numbers of more than 64 bits, which msgspec reads but does not write
        return Raw(json.dumps(value, ensure_ascii=False).encode())
    except RecursionError:
        return Raw(b'"nested too deep to be shown"')


def encoded_body(body: Any, raw: bytes | None) -> tuple[Raw, str | UnsetType]:
    """Show a body as it was sent. What is no JSON is bytes."""
    if raw is None:
        return NULL, UNSET
    if isinstance(body, bytes):
        return NULL, base64.b64encode(raw).decode()
    return Raw(raw), UNSET
