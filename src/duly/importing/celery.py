"""Queues of Celery on the redis transport of kombu.

By default the messages stay those of Celery, chains and chords included: a Celery worker on `duly+redis://` runs them.
With `tasks` they become calls of tasks of Duly.
"""

import base64
import json
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import duly
from duly.errors import UsageError
from duly.importing.source import Arrival, Command, Entry, Gone, Judged, Key, Left, Place, command, task_body, task_name

_STEPS: Final = (0, 3, 6, 9)
"""Priorities that have separate lists. The redis transport takes 0 first."""
_BROKEN: Final = (AttributeError, KeyError, TypeError, ValueError, RecursionError)


class CeleryQueue:
    """A queue of Celery. `prefix` is the `global_keyprefix` of the transport.

    `tasks` makes calls of tasks of Duly, by a mapping of names; others stay. If it is empty, all are moved, and the
    task is the last part of the name. With `unfinished`, messages are moved that workers have taken and not acked. Stop
    the workers first.
    """

    origin = "celery"

    def __init__(
        self,
        app: duly.Duly,
        name: str,
        *,
        tasks: dict[str, str] | None = None,
        prefix: str = "",
        unfinished: bool = False,
    ) -> None:
        self.app = app
        self._name = name
        self._tasks = tasks
        self._prefix = prefix
        self._is_unfinished_moved = unfinished

    def places(self) -> Iterable[Place]:
        """Return what workers had taken, then the lists by priority."""
        if self._is_unfinished_moved:
            yield Place(f"{self._prefix}unacked", "unfinished", kind="hash")
        for step in _STEPS:
            suffix = f"\x06\x16{step}" if step else ""
            yield Place(f"{self._prefix}{self._name}{suffix}", "ready")

    def judge(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:
        """Move each message that can be read."""
        return [self._unfinished(each) if place.kind == "hash" else self._judged(each.member) for each in entries]

    def _unfinished(self, entry: Entry) -> Judged:
        try:
            message, _exchange, routing_key = json.loads(entry.value)
        except _BROKEN:
            return Left(f"not a message of Celery: {entry.value[:40]!r}")
        if routing_key != self._name:
            return Left("unfinished, of another queue")
        rest: list[Command] = [command("ZREM", f"{self._prefix}unacked_index", entry.member)]
        return self._judged(json.dumps(message).encode(), rest)

    def _judged(self, raw: bytes, rest: list[Command] | None = None) -> Judged:
        try:
            message = json.loads(raw)
            tag = str(message["properties"]["delivery_tag"])
            return (
                self._as_message(tag, raw, message, rest) if self._tasks is None else self._as_task(tag, message, rest)
            )
        except _BROKEN:
            return Left(f"not a message of Celery: {raw[:40]!r}")

    def _as_message(self, tag: str, raw: bytes, message: Any, rest: list[Command] | None) -> Judged:
        """Keep the message as the transport of Duly stores it."""
        envelope = _envelope()
        timing = envelope.timing_of(message, envelope.TransportOptions(), None)
        if timing.is_over:
            return Gone("expired", rest or [])
        priority = min(max(int(message["properties"].get("priority") or 0), 0), 9)
        return Arrival(
            tag,
            raw,
            "bytes",
            at=timing.at,
            ttl=timing.ttl,
            priority=priority,
            headers=envelope.headers_of(message),
            then=rest,
        )

    def _as_task(self, tag: str, message: Any, rest: list[Command] | None) -> Judged:
        """Translate the message to a call of a task of Duly, if it is a plain call."""
        headers, properties = message["headers"], message["properties"]
        if message["content-type"] != "application/json" or headers.get("compression"):
            return Left("not plain JSON")
        body = message["body"]
        text = base64.b64decode(body).decode() if properties.get("body_encoding") == "base64" else body
        if '"__type__"' in text:  # a datetime, UUID or Decimal in kombu's own notation
            return Left("an argument is not plain JSON")
        task = task_name(headers["task"], self._tasks or {})
        if isinstance(task, Left):
            return task
        args, kwargs, embedded = json.loads(text)
        if any(embedded.get(part) for part in ("callbacks", "errbacks", "chain", "chord")) or headers.get("group"):
            return Left("part of a chain, group or chord")
        at, ttl = _moment(headers, "eta"), _moment(headers, "expires")
        if ttl is not None:
            ttl -= max(time.time(), at or 0)
            if ttl <= 0:
                return Gone("expired", rest or [])
        priority = min(max(int(properties.get("priority") or 0), 0), 9)
        return Arrival(
            tag,
            task_body(task, args, kwargs),
            "json",
            at=at,
            ttl=ttl,
            priority=9 - priority,
            headers={"celery-id": str(headers.get("id"))},
            then=rest,
        )

    def others(self) -> dict[str, int]:
        """Count the messages that workers have, of all queues of the database."""
        if self._is_unfinished_moved:
            return {}
        return {"a worker has it": int(Key(self.app, f"{self._prefix}unacked").ask("HLEN"))}


def _moment(headers: Any, name: str) -> float | None:
    """Read `eta` or `expires`. A time without a zone is UTC, as Celery writes it with enable_utc."""
    text = headers.get(name)
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _envelope() -> Any:
    """Import the module that knows how the transport of Duly stores a message."""
    try:
        from duly.kombu import envelope
    except ImportError as error:
        raise UsageError(
            "messages that stay those of Celery need kombu: install duly[celery], or name tasks of Duly for them"
        ) from error
    return envelope
