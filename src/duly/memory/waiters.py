"""The waiters of a queue or topic, and the choice of those that have to claim after a change.

A waiter is not given anything: the queue itself shows whether a claim may find something.
"""

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from duly.memory.state import QueueState
from duly.memory.stream import Id
from duly.memory.topic_state import TopicState

Callback = Callable[[], None]

_IN_TIME_US: Final = 1_000
"""A waiter that polls at most this much later is in time: the clocks of a topic and its groups differ by some ticks."""


class _Waiter(NamedTuple):
    callback: Callback
    polls_at: float
    """When it polls anyway, by the queue's clock."""
    entry: Id | None
    """Of a reader of a topic: it waits for entries behind this one."""


def _is_late(polls_at: float, moment: float, now: float) -> bool:
    """Return whether a waiter that polls at a time is too late for a moment, or has polled before it was known."""
    return moment == 0 or (moment != inf and not now <= polls_at <= moment + _IN_TIME_US)


class Waiters:
    """The waiters of one queue, in the order of their arrival."""

    def __init__(self, state: QueueState) -> None:
        self._state = state
        self._rows: list[_Waiter] = []

    def __len__(self) -> int:
        return len(self._rows)

    def moment(self, entry: Id | None = None) -> float:
        """Return when a poll may find something: 0 for now."""
        state = self._state
        if entry is None:
            moment = state.next_poll()
        else:
            assert isinstance(state, TopicState)
            moment = state.next_poll_behind(entry)
        return inf if moment is None else 0 if moment <= state.tick() else moment

    def add(self, callback: Callback, polls_at: float | None = None, entry: Id | None = None) -> bool:
        """Call `callback` once, when something comes before `polls_at`; False: it has come already.

        Without `polls_at`, the caller polls when, as things are, a poll may find something.
        """
        moment = self.moment(entry)
        polls_at = moment if polls_at is None else polls_at
        if _is_late(polls_at, moment, self._state.tick()):
            return False
        self._rows.append(_Waiter(callback, polls_at, entry))
        return True

    def remove(self, callback: Callback) -> bool:
        """Stop waiting; False: it was called, or is about to be."""
        count = len(self._rows)
        self._rows = [row for row in self._rows if row.callback != callback]
        return len(self._rows) < count

    def clear(self) -> None:
        """Forget all waiters."""
        self._rows.clear()

    def take_late(self) -> list[Callback]:
        """Remove and return late waiters: every reader of a topic that is late; one consumer, if none is in time."""
        if not self._rows:
            return []
        now = self._state.tick()
        if isinstance(self._state, TopicState):
            late = [row for row in self._rows if _is_late(row.polls_at, self.moment(row.entry), now)]
        else:
            moment = self.moment()
            late = self._rows[:1] if all(_is_late(row.polls_at, moment, now) for row in self._rows) else []
        self._rows = [row for row in self._rows if row not in late]
        return [row.callback for row in late]
