"""Encode and decode the heartbeats of workers. They are JSON, so that people can read them on the server."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from duly.message import WorkerInfo


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's heartbeat. Readers ignore unknown fields: another version may send more."""

    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    in_flight: int
    handled: int
    started_at: Annotated[datetime, msgspec.Meta(tz=True)]
    last_poll: float | None
    """Seconds since its last poll for messages, at the time of the heartbeat; None: it has not polled."""
    version: str
    rolled_back: int = 0
    options: dict[str, dict[str, str | int | float | None]] = {}
    """Of its queues, as `published` writes them. This field and the one before are absent in older heartbeats."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Info).decode


def written_info(info: Info) -> bytes:
    """Encode a heartbeat."""
    return _encode(info)


def read_workers(reply: list[Any]) -> list[WorkerInfo]:
    """Decode the reply to workers. An unreadable entry is left out: it may be from another version."""
    now, *rest = reply
    rows = zip(rest[0::3], rest[1::3], rest[2::3], strict=True)
    found = [_worker(consumer, max(now - beat, 0) / 1_000_000, stored) for consumer, beat, stored in rows]
    return [worker for worker in found if worker is not None]


def read_info(stored: bytes) -> Info | None:
    """Decode a heartbeat. None: it is unreadable, perhaps from another version."""
    try:
        return _decode(stored)
    except ValueError:
        return None


def _worker(consumer: bytes, silence: float, stored: bytes) -> WorkerInfo | None:
    info = read_info(stored)
    if info is None:
        return None
    try:
        name = consumer.decode()
    except ValueError:
        return None
    return WorkerInfo(
        id=name,
        host=info.host,
        pid=info.pid,
        queues=info.queues,
        concurrency=info.concurrency,
        in_flight=info.in_flight,
        handled=info.handled,
        started_at=info.started_at,
        last_poll=None if info.last_poll is None else info.last_poll + silence,
        last_beat=silence,
        version=info.version,
        rolled_back=info.rolled_back,
        options=info.options,
    )
