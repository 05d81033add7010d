"""A source of foreign messages: the places of its messages, and how each becomes a message of Duly."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

import duly
from duly import _port
from duly._port import Arg
from duly.errors import UsageError

BodyFormat = Literal["json", "text", "bytes"]
Kind = Literal["list", "sorted", "hash"]
Command = list[bytes]
"""A command that deletes. Its second word is the key."""

_EXCERPT: Final = 40


def command(*words: str | bytes) -> Command:
    """Make a command that deletes something of a message."""
    return [each if isinstance(each, bytes) else each.encode(errors="surrogateescape") for each in words]


class Key:
    """A key of another program, on the server of an app."""

    def __init__(self, app: duly.Duly, name: str) -> None:
        self.app = app
        self.name: str = name

    def ask(self, command: str, *arguments: Arg) -> Any:
        """Run a command on the key. It may be repeated after a lost reply."""
        return _port.foreign_command(self.app, self.name, command, self.name, *arguments)

    def run(self, script: bytes, keys: Sequence[str], arguments: Sequence[Arg]) -> Any:
        """Run a script on the key and on other keys of its slot. It may be repeated after a lost reply."""
        return _port.foreign_command(self.app, self.name, "EVAL", script, 1 + len(keys), self.name, *keys, *arguments)


@dataclass(frozen=True)
class Place:
    """A list, a sorted set or a hash that has messages of a source."""

    key: str
    name: str
    """Its name in the report, like "ready"."""
    kind: Kind = "list"
    oldest: Literal["left", "right"] = "right"
    """The end of a list from which its consumers take."""


class Entry(NamedTuple):
    """One message in its place: the element of a list, the member of a sorted set, or a field of a hash."""

    member: bytes
    score: float = 0.0
    value: bytes = b""
    """The value of a field."""


@dataclass(frozen=True)
class Arrival:
    """A message of Duly that is to be sent, and the commands that delete the original. It is stored while it moves."""

    id: str | None
    """The identity that no other message of its source ever has. None: it has none, and gets one when it is taken."""
    raw: bytes
    format: BodyFormat
    at: float | None = None
    priority: int = 0
    ttl: float | None = None
    """Seconds from `judged_at`, or from `at` if that is later."""
    attempts: int | None = None
    headers: dict[str, str] | None = None
    then: list[Command] | None = None
    """Commands that delete the rest of the message. Each has the key as its second word, and is safe to repeat."""
    judged_at: float = field(default_factory=time.time)
    to: str | None = None
    """The queue that it moves to. None: it was taken by a version that did not store it."""

    def ttl_at(self, now: float) -> float | None:
        """Return the ttl of a message that is sent now. One that has expired gets a millisecond."""
        if self.ttl is None:
            return None
        due_at = self.at or 0.0
        return max(self.ttl + max(self.judged_at, due_at) - max(now, due_at), 0.001)

    @property
    def is_delayed(self) -> bool:
        """Whether it was not due yet when it was judged."""
        return self.at is not None and self.at > self.judged_at

    @property
    def body(self) -> Any:
        """The body to send."""
        return decoded(self.raw, self.format)


class Left(NamedTuple):
    """A message that stays where it is."""

    reason: str


class Gone(NamedTuple):
    """A message that has nothing left to move, and the commands that delete the rest of it."""

    reason: str
    then: list[Command]


Judged = Arrival | Left | Gone


class Source(Protocol):
    """A queue of another program."""

    origin: str
    """The kind of the source, like "celery". It begins the dedup values."""
    app: duly.Duly
    """An app on the server of the source."""

    def places(self) -> Iterable[Place]:
        """Return where messages are, in the order in which they are to arrive."""

    def judge(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:
        """Decide for each entry whether it is moved, stays or is gone. Changes nothing."""

    def others(self) -> dict[str, int]:
        """Count messages that are never moved, by the reason."""


def checked_format(body: str) -> BodyFormat:
    """Check the name of a body format."""
    if body not in ("json", "text", "bytes"):
        raise UsageError(f"the body format must be json, text or bytes, not {body!r}")
    return body  # type: ignore[return-value]


def decoded(raw: bytes, format_: BodyFormat) -> Any:
    """Return the body that these bytes are. Raises ValueError if they are not of the format."""
    if format_ == "bytes":
        return raw
    return raw.decode() if format_ == "text" else json.loads(raw)


def unreadable(raw: bytes, format_: BodyFormat) -> Left | None:
    """Return why a body cannot be moved. None: it can."""
    try:
        decoded(raw, format_)
    except (ValueError, RecursionError):
        return Left(f"not {format_}: {raw[:_EXCERPT]!r}")
    return None


def task_body(name: str, args: Any, kwargs: Any) -> bytes:
    """Return the body of a call of a task of Duly, as JSON."""
    return json.dumps({"task": name, "args": args, "kwargs": kwargs}).encode()


def task_name(foreign: str, names: Mapping[str, str]) -> str | Left:
    """Return the name of the task of Duly for a function or task of another program.

    Without any names, it is the last part: `shop.close` is `close`. Otherwise, a name that is not among them stays.
    """
    if not names:
        return foreign.rpartition(".")[2]
    return names.get(foreign) or Left(f"no task is named for {foreign}")
