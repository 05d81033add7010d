"""The stored past of a message: the last few errors and the last few events of its timeline."""

from dataclasses import dataclass
from typing import Final, Self

from duly._core.bounds import DETAIL_SIZE, ERRORS_KEPT, TIMELINE_KEPT
from duly._core.codec import Counts, Event, Fault, Lease, Why
from duly.memory.message import StoredMessage

_CONTINUED: Final = 0b10
"""The first bits of every byte of a character after its first byte."""


@dataclass(slots=True)
class Past:
    """The errors and the timeline of one message, for additions."""

    errors: list[Fault]
    timeline: list[Event]

    @classmethod
    def of(cls, message: StoredMessage) -> Self:
        """Copy the stored past of a message."""
        why = message.why
        return cls([], []) if why is None else cls(list(why.errors), list(why.timeline))

    def add_error(self, fault: Fault) -> None:
        """Add an error that a consumer reported."""
        self.errors = [*self.errors, fault][-ERRORS_KEPT:]

    def add_event(self, at: int, what: str, lease: Lease | None = None, detail: bytes = b"") -> None:
        """Add an event, either of the delivery of a lease or of an administrator."""
        consumer, since = (lease.consumer.rstrip(" "), lease.fence) if lease else ("", 0)
        event = Event(at, what, consumer, since, _beginning_of(detail).decode())
        self.timeline = [*self.timeline, event][-TIMELINE_KEPT:]

    def row_of_live(self) -> Why:
        """Make the row of a live message."""
        return Why("", 0, 0, 0, 0, self.errors, 0, self.timeline, 0, "")

    def row_of_ended(
        self, reason: str, counts: Counts, rejects: int = 0, result: str = "", result_until: int = 0
    ) -> Why:
        """Make the row of a message that has ended."""
        numbers = (counts.failures, counts.crashes, counts.defers, counts.releases)
        rest = (counts.cycles, result, counts.redrives, result_until)
        return Why(reason, *numbers, self.errors, rejects, self.timeline, *rest)


def counts_of_redriven(message: StoredMessage) -> Counts:
    """Reset the counts. Only the numbers of recycles and redrives of a dead letter remain."""
    cycles, redrives = (message.why.cycles, message.why.redrives) if message.why else (0, 0)
    return Counts(cycles=cycles, redrives=redrives + 1)


def _beginning_of(text: bytes) -> bytes:
    """Cut a text without splitting a character."""
    last = min(DETAIL_SIZE, len(text))
    while 0 < last < len(text) and text[last] >> 6 == _CONTINUED:
        last -= 1
    return text[:last]
