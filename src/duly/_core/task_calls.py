"""Reads the messages of Celery for people: the name, id and arguments of a task."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TaskCall:
    """The call of a task. Arguments are texts that Celery has cut if they are long."""

    name: str
    id: str
    args: str
    kwargs: str
    envelope: Any
    """The whole message, as kombu has written it."""

    def __str__(self) -> str:
        return f"{self.name} args={self.args} kwargs={self.kwargs} id={self.id}"


def task_call(raw: bytes | None, headers: Mapping[str, str]) -> TaskCall | None:
    """Return the call of a message, or None if `duly.kombu` has not stored it for Celery."""
    if raw is None or "task" not in headers or "task_id" not in headers:
        return None
    try:
        envelope = json.loads(raw)
        told = envelope["headers"]
        args, kwargs = str(told.get("argsrepr", "")), str(told.get("kwargsrepr", ""))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return TaskCall(headers["task"], headers["task_id"], args, kwargs, envelope)
