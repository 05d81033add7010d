"""The clients of the machine: their knowledge survives a fail-over of the server."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from duly._core.call import Call
from tests.lua.harness import State


class Outcome(NamedTuple):
    """The answer to a call that was carried out, and the state before it."""

    answer: Any
    """An error is its text."""
    before: State
    now: int
    """The queue's time before the call."""
    ahead: int
    """How far that was ahead of the server's time."""
    blocking: frozenset[str]
    """The dead letters that lanes waited for."""


Follow = Callable[[Outcome], None]


@dataclass(frozen=True, eq=False)
class Made:
    """A call that a client has made, perhaps more than once."""

    call: Call[Any]
    sequence: int
    follow: Follow
    """Checks the outcome, and notes it. It is called each time that the call is carried out."""


class Caller:
    """A client with one call at a time. Its stream and its numbers outlive every connection."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.sequence = 0
        self.made: list[Made] = []
        """The calls that it may repeat, or whose copies may arrive late."""

    def make(self, call: Call[Any], follow: Follow) -> Made:
        """Number a new call."""
        self.sequence += 1
        return Made(call, self.sequence, follow)

    def numbered(self, made: Made) -> tuple[bytes, int]:
        """Return the stream and the number under which a call is sent, the first time and every other time."""
        return self.name, made.sequence

    def reconnect(self) -> None:
        """Connect to another server."""
