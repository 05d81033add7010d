"""Detects roll-backs: confirmed calls that a server does not know.

A fail-over sets the data back to an earlier moment, and a restart may do so as well. The record of a stream of calls
lies with the queue that the calls changed, and is set back with it. So a record with a smaller number than the last
confirmed one shows how many calls of this process were lost.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from duly._core.call import CallStream, read_sequence
from duly._core.keys import QueueKeys

REMEMBERED: Final = 60.0
"""Seconds that a confirmed call is remembered. The server keeps the record of its stream for longer."""
MAX_COMPARED: Final = 32
"""Queues that are compared at once: those that were used last."""
_FULL_SECONDS: Final = 1.0
"""Seconds for which a full ledger refuses further queues, before it checks which ones are idle."""
_MAX_QUEUES: Final = 1024
"""Queues whose calls are remembered. Calls on further ones are not counted if they are lost."""
_MAX_RUNS: Final = 256
"""Runs that are remembered of one stream on one queue."""
_RUN_SECONDS: Final = 1.0
"""The length of a run: the error of the stated times."""


class Incarnation:
    """One life of a server process. Another process, or the same one after a restart, may have an earlier state."""

    __slots__ = ("run_id", "shown")

    def __init__(self, shown: str, run_id: str = "") -> None:
        self.shown: str = shown
        self.run_id: str = run_id


class Run:
    """Confirmed calls of one stream on one queue, with consecutive numbers, within about a second."""

    __slots__ = ("began", "ended", "first", "last")

    def __init__(self, number: int, now: float) -> None:
        self.first = self.last = number
        self.began = self.ended = now


class Confirmed:
    """The calls on one queue that a server has confirmed to this process."""

    __slots__ = ("_runs", "by", "keys", "last_at")

    def __init__(self, keys: QueueKeys, by: Incarnation) -> None:
        self.keys: QueueKeys = keys
        self.by: Incarnation = by
        """The server that has confirmed them."""
        self.last_at: float = 0.0
        self._runs: dict[bytes, deque[Run]] = {}
        """By stream. Only the owner of a stream changes its runs."""

    def add(self, stream: CallStream, by: Incarnation, now: float) -> None:
        """Remember a call that the server has confirmed.

        Another server that confirms a call has not been compared yet. It may confirm one while a slot moves to it, and
        after its records were read. Such a call would seem to be lost, so it is not remembered.
        """
        if by is not self.by:
            return
        number = stream.sequence
        self.last_at = now
        runs = self._runs.get(stream.name)
        if runs is None:
            runs = self._runs[stream.name] = deque(maxlen=_MAX_RUNS)
        elif runs and runs[-1].last == number - 1 and now - runs[-1].began < _RUN_SECONDS:
            runs[-1].last, runs[-1].ended = number, now
            return
        runs.append(Run(number, now))

    def streams(self, now: float) -> list[bytes]:
        """Return the streams that have used the queue within the last minute."""
        return [name for name, runs in list(self._runs.items()) if runs and runs[-1].ended > now - REMEMBERED]

    def lost(self, records: Mapping[bytes, bytes | None], now: float) -> "Lost | None":
        """Count the calls that the records of their streams do not cover. None: there are none."""
        found = [run for name, record in records.items() for run in self._runs_after(name, read_sequence(record), now)]
        if not found:
            return None
        count = sum(run.last - run.first + 1 for run in found)
        return Lost(self.keys.title, count, now - min(r.began for r in found), now - max(r.ended for r in found))

    def _runs_after(self, stream: bytes, number: int, now: float) -> Iterable[Run]:
        for run in self._runs.get(stream, ()):
            if run.last > number and run.ended > now - REMEMBERED:
                rest = Run(max(run.first, number + 1), run.began)
                rest.last, rest.ended = run.last, run.ended
                yield rest

    def begin_again(self, by: Incarnation) -> None:
        """Forget all calls: another server has answered for the queue."""
        self._runs.clear()
        self.by = by


class Lost(NamedTuple):
    """Calls of this process that a server has confirmed, and that its successor does not know."""

    title: str
    """The queue, topic or lock."""
    calls: int
    oldest: float
    """Seconds since the first of them, to about a second."""
    newest: float
    """Seconds since the last of them."""

    def __str__(self) -> str:
        return f"{self.calls} on {self.title}, {self.newest:.1f} s to {self.oldest:.1f} s ago"


class Ledger:
    """The confirmed calls of the last minute, by queue. Threads may share it."""

    def __init__(self) -> None:
        self.by_queue: dict[bytes, Confirmed] = {}
        """By the prefix of the keys of the queue."""
        self.rolled_back: int = 0
        """Confirmed calls that were lost, since the process started."""
        self._full_until = 0.0
        """When to check again which queues are idle. A check of all of them for each call would be slow."""

    def of_server(self, by: Incarnation, now: float) -> list[Confirmed]:
        """Return the queues with calls that a server has confirmed within the last minute, the last used first."""
        found = [each for each in list(self.by_queue.values()) if each.by is by and each.last_at > now - REMEMBERED]
        return sorted(found, key=lambda each: -each.last_at)

    def opened(self, keys: QueueKeys, by: Incarnation, now: float) -> Confirmed | None:
        """Begin to remember the calls on a queue. None: there are too many queues."""
        if len(self.by_queue) >= _MAX_QUEUES:
            if now < self._full_until:
                return None
            for prefix, each in list(self.by_queue.items()):
                if each.last_at < now - REMEMBERED:
                    self.by_queue.pop(prefix, None)
            if len(self.by_queue) >= _MAX_QUEUES:
                self._full_until = now + _FULL_SECONDS
                return None
        return self.by_queue.setdefault(keys.prefix, Confirmed(keys, by))


def warning(now: Incarnation, before: Incarnation, lost: Sequence[Lost]) -> str:
    """Return the log line about calls that were rolled back."""
    who = f"{now.shown} does not know" if now.shown != before.shown else f"{now.shown} was restarted and does not know"
    total = sum(each.calls for each in lost)
    by = (
        f" that {before.shown} had confirmed to this process" if now.shown != before.shown else " that it had confirmed"
    )
    return f"{who} {total} call{'s' if total != 1 else ''}{by}: {'; '.join(map(str, lost))}"
