"""Calls that may be repeated (I6): the last call of each stream, and the answer to a repeat."""

from collections.abc import Callable
from copy import copy
from typing import Any, Final, NamedTuple

from duly.memory.state import QueueState

CALL_KEPT_MS: Final = 3_600_000


class ErrorReply(Exception):
    """The call was refused. The text is the same as a server's."""


class Kept(NamedTuple):
    """An answer that a repeat of the call gets again. `again` computes it again when it depends on the queue."""

    reply: Any
    again: Callable[[QueueState], Any] | None = None


class _LastCall(NamedTuple):
    sequence: int
    kept: Kept
    until_ms: int


class CallLog:
    """The streams of calls that have used one queue."""

    def __init__(self) -> None:
        self._last: dict[bytes, _LastCall] = {}

    def is_answered(self, stream: bytes, sequence: int, server_ms: int, *, renews: bool = False) -> bool:
        """Return whether a call is a repeat; refuse a call that arrives after its successor.

        With `renews`, a refusal prolongs the time for which the successor's answer is kept, as the plain send does.
        """
        last = self._last.get(stream)
        if last is None or server_ms > last.until_ms or sequence > last.sequence:
            return False
        if sequence < last.sequence:
            if renews:
                self.keep(stream, last.sequence, last.kept, server_ms)
            raise ErrorReply(f"OVERTAKEN call {sequence} of a stream that is at {last.sequence}")
        return True

    def answer_again(self, stream: bytes, queue: QueueState, server_ms: int) -> Any:
        """Answer a repeat, and prolong the time for which the answer is kept."""
        sequence, kept, _ = self._last[stream]
        self.keep(stream, sequence, kept, server_ms)
        return copy(kept.reply) if kept.again is None else kept.again(queue)

    def keep(self, stream: bytes, sequence: int, kept: Kept, server_ms: int) -> None:
        """Keep an answer, in case its call is repeated."""
        self._last[stream] = _LastCall(sequence, kept, server_ms + CALL_KEPT_MS)
