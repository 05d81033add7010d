"""When a suspect may run: arithmetic that is asked, not run.

A suspect is a message whose next crash would make it dead. A process that dies takes all that it holds with
it, and each message is counted: so a suspect is handed to a process that holds nothing else, and that
claims nothing else until it is finished. Then a message dies as poison only for what it did itself.
"""

from enum import Enum, auto
from typing import Final

from duly._core.ops import Suspects

_LONGEST_CLEARING: Final = 16.0
"""In leases."""


class _State(Enum):
    OPEN = auto()
    CLEARING = auto()
    """A suspect was seen: nothing is claimed until all that is held is finished."""
    ALONE = auto()
    """A suspect runs."""
    RESTING = auto()
    """Handlers took too long to wait for: work goes on for a while before the next try."""


class Isolation:
    """Says what may be claimed now. One for a worker, whatever the number of its queues."""

    def __init__(self) -> None:
        self._state = _State.OPEN
        self._until = 0.0
        self._patience = 0.0

    @property
    def is_alone(self) -> bool:
        """Whether a suspect runs."""
        return self._state is _State.ALONE

    def allows(self, now: float, held: int) -> Suspects | None:
        """Say which messages a claim may take, with so many held; None: nothing may be claimed."""
        if not held:
            return "alone"
        if self._state is _State.ALONE:
            return None
        if self._state is _State.CLEARING:
            if now < self._until:
                return None
            self._rest(now)
        return "none"

    def passed_over(self, now: float, lease: float) -> None:
        """Note that a claim left a suspect where it is, because something is held."""
        if self._state is _State.OPEN or (self._state is _State.RESTING and now >= self._until):
            self._state = _State.CLEARING
            self._extend_patience(lease)
            self._until = now + self._patience

    def took(self, now: float, lease: float, *, is_suspect: bool, has_passed_over: bool) -> None:
        """Note what a claim found while nothing was held.

        A suspect that others come before, by their priority, is not waited for again at once: the worker would
        run empty for it over and over.
        """
        if is_suspect:
            self._state, self._patience = _State.ALONE, 0.0
        elif has_passed_over:
            self._extend_patience(lease)
            self._rest(now)
        else:
            self._state, self._patience = _State.OPEN, 0.0

    def changes_at(self) -> float | None:
        """Say when the answer of `allows` changes by itself."""
        return self._until if self._state is _State.CLEARING else None

    def _extend_patience(self, lease: float) -> None:
        self._patience = min(self._patience * 2, _LONGEST_CLEARING * lease) or lease

    def _rest(self, now: float) -> None:
        self._state = _State.RESTING
        self._until = now + self._patience
