"""Request types of the API. They parse JSON and query strings, and are described in openapi.json.

Names are the same as in the library. Times are ISO 8601 with a time zone, or seconds since the epoch. Durations are
seconds.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

import duly
from duly._port import State
from duly.errors import UsageError

MAX_PAGE: Final = 100
MAX_LIST: Final = 1000
"""Messages or receipts in one call."""
MAX_WAIT: Final = 20

Time = datetime | float
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Receipts = Annotated[list[str], Meta(min_length=1, max_length=MAX_LIST)]


class Given(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request. Unknown fields are rejected, so that typos do not go unnoticed."""


# Query strings


class NamePage(Given):
    """A page of queues, topics, schedules or workers: how many, and after which name."""

    limit: Limit = 50
    after: str | None = None


class MessagePage(Given):
    """A page of messages: how many, and after which cursor (`next`) or message."""

    state: State = "ready"
    limit: Limit = 50
    after: str | None = None


class SearchFor(Given):
    """Where to continue: `next` of the search before."""

    after: str | None = None


class CancelHow(Given):
    """Whether to cancel a message even if a consumer holds it."""

    running: bool = False


class Delete(Given):
    """The name of the queue or group to delete, like "events/archive"."""

    confirm: str


class ResultOf(Given):
    """How long to wait for a result, in seconds."""

    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = 0.0


class Stream(Given):
    """Seconds between two events."""

    interval: Annotated[float, Meta(ge=1, le=60)] = 2.0


class HistoryOf(Given):
    """How much history: a minute at least, a week at most. `10m`, `24h` or seconds."""

    since: str = "1h"


class ForecastOf(Given):
    """How far ahead: a second at least, ten years at most. `1h`, `7d` or seconds."""

    ahead: str = "1d"


class PendingOf(Given):
    """Which consumer, and how many leases to list."""

    consumer: str | None = None
    limit: Annotated[int, Meta(ge=0, le=MAX_PAGE)] = MAX_PAGE


# Messages to send


class Retry(Given):
    """When a failed message is retried, and how often."""

    attempts: int | None = None
    first: float = 1.0
    factor: float = 2.0
    max: float = 3600.0
    jitter: float = 0.1
    delays: list[float] | None = None

    def to_duly(self) -> duly.Retry:
        """Convert to the type of the library."""
        return duly.Retry(**msgspec.structs.asdict(self))


class Repeat(Given):
    """When a finished message is delivered again, and how often."""

    first: float = 60.0
    factor: float = 1.0
    times: int | None = None
    max: float = 30 * 86400.0

    def to_duly(self) -> duly.Repeat:
        """Convert to the type of the library."""
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

    def to_duly(self) -> duly.Send:
        """Convert to the type of the library."""
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
    spread: float | None = None

    def to_duly(self) -> duly.Send:
        """Convert to the type of the library."""
        return dataclasses.replace(
            super().to_duly(),
            priority=self.priority,
            replace=self.replace,
            ttl=self.ttl,
            id=self.id,
            retry=None if self.retry is None else self.retry.to_duly(),
            repeat=None if self.repeat is None else self.repeat.to_duly(),
            spread=self.spread,
        )


Sends = Send | Annotated[list[Send], Meta(max_length=MAX_LIST)]
Publishes = Publish | Annotated[list[Publish], Meta(max_length=MAX_LIST)]


class Move(Given):
    """The new due time of a waiting message: one of the fields."""

    delay: float | None = None
    at: Time | None = None
    promote: bool = False


# Control


class Where(Given):
    """Which dead letters: those that match all given fields."""

    error: str | None = None
    reason: str | None = None
    since: Time | None = None
    until: Time | None = None
    headers: dict[str, str] | None = None
    key: str | None = None
    ids: list[str] | None = None

    def to_duly(self) -> duly.Where:
        """Convert to the type of the library."""
        return duly.Where(**msgspec.structs.asdict(self))


class Purge(Given):
    """Which messages to remove. `confirm` is the name of the queue or group, like "events/archive".

    `where` and `dry_run` are for dead letters only: `state` must be "dead".
    """

    confirm: str
    state: State | None = None
    where: Where | None = None
    dry_run: bool = False


class Redrive(Given):
    """Which dead letters to redrive, and how."""

    limit: int | None = None
    where: Where | None = None
    to: str | None = None
    rate: str | None = None
    at_end: bool = False
    dry_run: bool = False


class ScheduleOf(Given):
    """A schedule: a queue, a plan, and the message that is sent at each run. Its body is JSON, or bytes as base64."""

    queue: str
    body: Raw | UnsetType = UNSET
    base64: str | None = None
    cron: str | None = None
    every: float | None = None
    tz: str = "UTC"
    catch_up: Literal["one", "skip", "all"] = "one"
    key: str | None = None
    priority: int = 0
    ttl: float | None = None
    headers: dict[str, str] | None = None
    retry: Retry | None = None

    def to_duly(self) -> duly.Send:
        """Return the message of each run."""
        return duly.Send(
            checked_body(self.body, self.base64),
            key=self.key,
            priority=self.priority,
            ttl=self.ttl,
            headers=self.headers,
            retry=None if self.retry is None else self.retry.to_duly(),
        )


# Receiving and settling


class Receive(Given):
    """The maximum number of messages, how long to wait for the first, and the lease."""

    limit: Limit = 10
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = MAX_WAIT
    lease: float | None = None


MAX_DEPTH: Final = 200
"""Maximum nesting of a body: decoders of other languages accept no more, and those of Python use the stack."""


def checked_body(body: Raw | UnsetType, encoded: str | None) -> Raw | bytes:
    """Return the body to store: JSON that every client can decode, or bytes."""
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
    """Reject JSON that clients could not decode: half surrogate pairs, numbers out of range, or nested too deep."""
    try:
        value = msgspec.json.decode(given)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} cannot be decoded: {error}") from None
    if _is_deep(value):
        raise UsageError(f"{what} is nested more than {MAX_DEPTH} levels deep")
    return Raw(bytes(given))


def _is_deep(value: Any) -> bool:
    """Check level by level. Recursion would overflow the stack."""
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        level = [part for each in level for part in _containers(each)]
    return bool(level)


def _containers(value: Any) -> list[Any]:
    """Return the lists and objects in a list or object."""
    parts = value.values() if isinstance(value, dict) else value
    return [part for part in parts if isinstance(part, list | dict)]
