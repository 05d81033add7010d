"""What a worker says of itself with each beat, to bytes and back. JSON, so that people can read it on the server."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from duly.message import WorkerInfo


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself. Readers ignore what they do not know: another version may say more."""

    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    in_flight: int
    handled: int
    started_at: Annotated[datetime, msgspec.Meta(tz=True)]
    last_poll: float | None
    """Seconds since it last asked for messages, at the time of the beat; None: it never did."""
    version: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Info).decode


def written_info(info: Info) -> bytes:
    """Write what a beat carries."""
    return _encode(info)


def read_workers(reply: list[Any]) -> list[WorkerInfo]:
    """Read the answer to workers. An entry that cannot be read is left out: it may be another version's."""
    now, *rest = reply
    rows = zip(rest[0::3], rest[1::3], rest[2::3], strict=True)
    found = [_worker(consumer, max(now - beat, 0) / 1_000_000, stored) for consumer, beat, stored in rows]
    return [worker for worker in found if worker is not None]


def _worker(consumer: bytes, silence: float, stored: bytes) -> WorkerInfo | None:
    try:
        name, info = consumer.decode(), _decode(stored)
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
    )
