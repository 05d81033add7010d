"""A message of kombu as the body of a message of Duly: JSON with body, headers and properties, as kombu writes it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kombu.utils.json import dumps, loads

import duly
from duly.kombu.settings import TransportOptions

Raw = dict[str, Any]
"""A message as kombu passes it to a virtual transport."""

_LONGEST: Final = 9 * 366 * 86400.0
"""Seconds that a message may wait on the server. Duly refuses ten years."""
_ID: Final = "duly-id"
_SHOWN: Final = (("task", "task"), ("id", "task_id"))
"""Headers of Celery that become headers of the message, with their names there."""


@dataclass(frozen=True)
class Timing:
    """When a message is due, and for how long after that it may be delivered."""

    at: float | None = None
    ttl: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the message expires before it is due."""
        return self.ttl is not None and self.ttl <= 0


def identified(properties: dict[str, Any] | None, new_id: Callable[[], str]) -> dict[str, Any]:
    """Add an id to the properties of a message that is published. kombu repeats a publish with the same properties."""
    found = {} if properties is None else properties
    found.setdefault(_ID, new_id())
    return found


def id_of(message: Raw) -> str | None:
    """Return the id by which a repeated publish is recognised."""
    found: str | None = message["properties"].get(_ID)
    return found


def forget_id(message: Raw) -> None:
    """Remove the id after a publish that succeeded. Programs may publish a message, or its properties, again."""
    message["properties"].pop(_ID, None)


def packed(message: Raw) -> bytes:
    """Encode a message. Its id is not part of it: a program that publishes a message again sends another one."""
    properties = {name: value for name, value in message["properties"].items() if name != _ID}
    return str(dumps({**message, "properties": properties})).encode()


def unpacked(raw: bytes) -> Raw:
    """Decode a message."""
    message: Raw = loads(raw.decode())
    return message


def headers_of(message: Raw) -> dict[str, str] | None:
    """Return the name and id of a task of Celery, which lists and searches show."""
    headers = message.get("headers") or {}
    return {shown: str(headers[name]) for name, shown in _SHOWN if headers.get(name)} or None


def timing_of(message: Raw, options: TransportOptions, queue_ttl: float | None) -> Timing:
    """Read `eta` and `expiration`. `queue_ttl` is the TTL of messages of the queue, in seconds."""
    now = time.time()
    at = _eta(message.get("headers") or {}) if options.eta == "server" else None
    at = None if at is None or at <= now else min(at, now + _LONGEST)
    ends = [
        each for each in (_expiration(message) if options.expires == "server" else None, queue_ttl) if each is not None
    ]
    return Timing(at, min(ends) - (0 if at is None else at - now) if ends else None)


def _eta(headers: Mapping[str, Any]) -> float | None:
    """Return the time of `eta`. A time without a zone is left to the worker, which knows the zone of the app."""
    try:
        moment = datetime.fromisoformat(headers["eta"])
    except (KeyError, TypeError, ValueError):
        return None
    return None if moment.tzinfo is None else moment.timestamp()


def _expiration(message: Raw) -> float | None:
    try:
        return float(message["properties"]["expiration"]) / 1000
    except (KeyError, TypeError, ValueError):
        return None


def delivered(message: Raw, tag: str, deliveries: int) -> Raw:
    """Mark a message as delivered: its tag, and how often it was delivered before."""
    properties = message["properties"]
    properties["delivery_tag"] = tag
    if deliveries > 1:
        properties.setdefault("delivery_info", {})["redelivered"] = True
        message.setdefault("headers", {})["x-delivery-count"] = deliveries - 1
    return message


class Leased:
    """A delivered message of a queue, until it is acked, rejected or released."""

    def __init__(self, delivery: duly.Delivery[Any]) -> None:
        self.delivery = delivery
        self.tag: str = f"{delivery.id}.{delivery.fence}"

    def opened(self) -> Raw:
        """Decode the message."""
        return delivered(unpacked(self.delivery.raw), self.tag, self.delivery.deliveries)


class Broadcast:
    """A delivered message of a fanout exchange. The server keeps no copy for each consumer."""

    delivery: None = None

    def __init__(self, entry: duly.Entry) -> None:
        self.entry = entry
        self.tag: str = f"{entry.topic}.{entry.id}"

    def opened(self) -> Raw:
        """Decode the message."""
        return delivered(unpacked(self.entry.raw), self.tag, 1)
