"""Moves the messages of a source to a queue."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import duly
from duly import _port
from duly.errors import UsageError
from duly.importing.fence import Fence, Held, delete
from duly.importing.source import Arrival, Entry, Gone, Judged, Left, Place, Source

PAGE: Final = 100
"""Messages that are read, taken and sent together."""
DEDUP_FOR: Final = 86400.0
"""Seconds within which a move that was killed must be repeated, or a message may arrive twice."""

_NO_ID: Final = "0" * 32
"""In place of the id that a message without one gets when it is taken."""


@dataclass
class Report:
    """The outcome of a move, in numbers."""

    moved: dict[str, int] = field(default_factory=Counter)
    """Messages that were sent, or would be, by the place where they were; "delayed" in a list of ready ones."""
    left: dict[str, int] = field(default_factory=Counter)
    """Messages that stay where they are, by the reason."""
    gone: dict[str, int] = field(default_factory=Counter)
    """Messages whose body had expired, by the place where they were. The rest of them was deleted."""
    resumed: int = 0
    """Messages of `moved` that an earlier move had taken when it was stopped."""

    @property
    def total(self) -> int:
        """The number of messages that were sent, or would be."""
        return sum(self.moved.values())

    @property
    def is_empty(self) -> bool:
        """Whether the source had no message at all."""
        return not (self.moved or self.left or self.gone)


def move(
    source: Source,
    queue: duly.Queue[Any],
    *,
    dry_run: bool = False,
    on_progress: Callable[[int], object] | None = None,
) -> Report:
    """Send all messages of a source to a queue, and remove them there. Returns a report.

    With `dry_run` nothing is sent or removed. `on_progress` is called with the number of messages so far. Safe to
    repeat: a message is sent with a dedup value before it is removed. Raises UsageError if a move to another queue was
    stopped, before anything is moved.
    """
    if _port.memory_engine(source.app) is not None:
        raise UsageError("memory:// has no messages of other programs: open the source on their server")
    report = Report()
    mover = _Mover(source, queue, report, on_progress or (lambda _done: None))
    to = _port.destination_of(queue)
    fences = [(Fence(source.app, place, to), place) for place in source.places()]
    for fence, _ in fences:
        fence.held()  # raises before anything is moved
    for fence, place in fences:
        if dry_run:
            mover.count(fence, place)
        else:
            mover.resume(fence, place)
            mover.drain(fence, place)
    for reason, number in source.others().items():
        if number:
            report.left[reason] += number
    return report


class _Mover:
    def __init__(
        self, source: Source, queue: duly.Queue[Any], report: Report, on_progress: Callable[[int], object]
    ) -> None:
        self._source = source
        self._queue = queue
        self._report = report
        self._on_progress = on_progress

    def count(self, fence: Fence, place: Place) -> None:
        """Report the effects of a move, including the messages that an earlier one has taken."""
        report, seen = self._report, 0
        held = fence.held()
        report.resumed += len(held)
        self._note_moved(place, [each.arrival for each in held])
        while entries := fence.read(seen, PAGE):
            seen += len(entries)
            for judged in self._judged(place, entries):
                if isinstance(judged, Arrival):
                    self._note_moved(place, [judged])
                elif isinstance(judged, Gone):
                    report.gone[place.name] += 1
                else:
                    report.left[judged.reason] += 1
            self._on_progress(report.total)

    def resume(self, fence: Fence, place: Place) -> None:
        """Send the messages that an earlier move has taken and not sent since.

        They are read now: moves of the places before may have taken hours.
        """
        held = fence.held()
        for start in range(0, len(held), PAGE):
            self._send(fence, place, held[start : start + PAGE])
        self._report.resumed += len(held)

    def drain(self, fence: Fence, place: Place) -> None:
        """Move entries until none is left but those that must stay."""
        staying = 0
        while entries := fence.read(staying, PAGE):
            judged = self._judged(place, entries)
            self._send(fence, place, fence.take(_arrivals(entries, judged)))
            self._bury(fence, place, entries, judged)
            for each in judged:
                if isinstance(each, Left):
                    staying += 1
                    self._report.left[each.reason] += 1

    def _judged(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:
        """Decide for each entry. One that the queue would refuse stays: if it were taken, the move could not go on."""
        return [self._unless_refused(each) for each in self._source.judge(place, entries)]

    def _unless_refused(self, judged: Judged) -> Judged:
        if not isinstance(judged, Arrival):
            return judged
        try:
            _port.check_send(self._queue, self._as_send(Held(judged.id or _NO_ID, judged)))
        except UsageError as error:
            return Left(str(error))
        return judged

    def _send(self, fence: Fence, place: Place, held: Sequence[Held]) -> None:
        """Send first, and forget afterwards: a move that is killed in between sends again, and nothing is lost."""
        if not held:
            return
        self._queue.send_many([self._as_send(each) for each in held])
        fence.forget(held)
        self._note_moved(place, [each.arrival for each in held])
        self._on_progress(self._report.total)

    def _note_moved(self, place: Place, arrivals: Sequence[Arrival]) -> None:
        """Count messages by their place. Celery keeps those with an ETA in the list of ready ones."""
        for each in arrivals:
            self._report.moved["delayed" if place.name == "ready" and each.is_delayed else place.name] += 1

    def _bury(self, fence: Fence, place: Place, entries: Sequence[Entry], judged: Sequence[Judged]) -> None:
        """Delete the rest of messages whose body has expired."""
        for entry, each in zip(entries, judged, strict=True):
            if isinstance(each, Gone):
                fence.remove(entry)
                delete(self._source.app, each.then)
                self._report.gone[place.name] += 1

    def _as_send(self, held: Held) -> duly.Send[Any]:
        arrival = held.arrival
        policy = None
        if arrival.attempts is not None:  # a function for the delays stays with the queue: no message can carry it
            policy = replace(self._queue.options.retry, attempts=arrival.attempts, delay=None)
        return duly.Send(
            arrival.body,
            at=arrival.at,
            ttl=arrival.ttl_at(time.time()),
            priority=arrival.priority,
            headers=arrival.headers,
            retry=policy,
            dedup=f"{self._source.origin}-{held.id}",
            dedup_for=DEDUP_FOR,
        )


def _arrivals(entries: Sequence[Entry], judged: Sequence[Judged]) -> list[tuple[Entry, Arrival]]:
    return [(entry, each) for entry, each in zip(entries, judged, strict=True) if isinstance(each, Arrival)]
