"""The options of a worker: a frozen value that is checked when it is made, and can be passed to another process."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from duly.errors import InvalidName, UsageError
from duly.options import Seconds, checked_count, checked_name, checked_seconds

MAX_WEIGHT: Final = 1000
MAX_CONCURRENCY: Final = 100_000
DEFAULT_GRACE: Final = 30.0

GivenQueues = Mapping[str, int] | Collection[str] | str | None
"""The type of `queues=`: a mapping of weights, names, or text like "high:3,low:1". None: all that have handlers."""

_EXPECTED: Final = 'queues are written like "high:3,low:1" or "high,low"'


@dataclass(frozen=True, init=False)
class WorkerOptions:
    """How one worker process works."""

    queues: Mapping[str, int] | None
    """Weights by name. A queue of weight 3 gets three times as many claims as one of weight 1. None: all queues.

    A group of a topic is named like events/archive. The name of a topic means all its groups that have handlers.
    """

    concurrency: int | None
    """Handlers that run at once, over all queues. None: the concurrency of each handler holds."""

    grace: float
    """Seconds that running handlers have to finish after the first stop signal."""

    def __init__(
        self, queues: GivenQueues = None, concurrency: int | None = None, grace: Seconds = DEFAULT_GRACE
    ) -> None:
        if concurrency is not None:
            checked_count(concurrency, "concurrency", most=MAX_CONCURRENCY)
        object.__setattr__(self, "queues", None if queues is None else _weigh(queues))
        object.__setattr__(self, "concurrency", concurrency)
        object.__setattr__(self, "grace", checked_seconds(grace, "grace"))

    def to_json(self) -> str:
        """Encode it for a child process."""
        queues = None if self.queues is None else dict(self.queues)
        return json.dumps({"queues": queues, "concurrency": self.concurrency, "grace": self.grace})

    @classmethod
    def from_json(cls, text: str) -> WorkerOptions:
        """Decode the text of `to_json`."""
        try:
            fields: Any = json.loads(text)
            return cls(fields["queues"], fields["concurrency"], fields["grace"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise UsageError(f"these are not the options of a worker: {text[:200]!r}") from error


def _weigh(given: object) -> dict[str, int]:
    if isinstance(given, str):
        pairs = [_read_pair(part.strip()) for part in given.split(",")]
    elif isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, Collection) and not isinstance(given, bytes | bytearray):
        pairs = [(name, 1) for name in given]
    else:
        raise UsageError(f"{_EXPECTED}, or given as a list of names or a mapping of weights, not {given!r}")
    if not pairs:
        raise UsageError("queues must name at least one queue; leave it out to serve all that have handlers")
    return _checked(pairs)


def _read_pair(part: str) -> tuple[str, int]:
    name, colon, weight = part.partition(":")
    if not name:
        raise UsageError(f"{_EXPECTED}: a name is missing")
    if not colon:
        return name, 1
    if not re.fullmatch(r"[0-9]{1,9}", weight.strip()):
        raise UsageError(f"{_EXPECTED}: {weight!r} is not a weight from 1 to {MAX_WEIGHT}")
    return name.strip(), int(weight)


def _check_label(label: Any) -> None:
    topic, slash, group = label.partition("/") if isinstance(label, str) else (label, "", "")
    if not slash:
        checked_name(topic)
        return
    try:
        checked_name(topic, "topic")
        checked_name(group, "group")
    except InvalidName as error:
        raise InvalidName(f"{label!r} names no group of a topic, like events/archive: {error}") from None


def _checked(pairs: list[tuple[Any, Any]]) -> dict[str, int]:
    weights: dict[str, int] = {}
    for name, weight in pairs:
        _check_label(name)
        if name in weights:
            raise UsageError(f"queue {name!r} is named twice: give its weight once, like {name}:2")
        weights[name] = checked_count(weight, f"the weight of queue {name!r}", most=MAX_WEIGHT)
    return weights
