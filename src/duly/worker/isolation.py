"""When a suspect may run. Pure arithmetic: time is an argument.

A suspect is a message whose next crash would make it dead. When a process dies, every message that it holds counts a
crash. So a suspect runs in a process that holds nothing else, and that claims nothing else until the suspect is
finished. Then a message becomes a dead letter as poison only for crashes that it caused.
"""

from enum import Enum, auto
from typing import Final

from duly._core.ops import Suspects

_LONGEST_CLEARING: Final = 16.0
"""In leases."""


class _State(Enum):
    OPEN = auto()
    CLEARING = auto()
    """A suspect was seen: nothing is claimed until all messages that are held are finished."""
    ALONE = auto()
    """A suspect runs."""
    RESTING = auto()
    """Handlers took too long: the worker claims other messages for a while before the next try."""


class Isolation:
    """Decides which messages may be claimed now. A worker has one, regardless of the number of its queues."""

    def __init__(self) -> None:
        self._state = _State.OPEN
        self._until = 0.0
        self._patience = 0.0

    @property
    def is_alone(self) -> bool:
        """Whether a suspect runs."""
        return self._state is _State.ALONE

    @property
    def is_clearing(self) -> bool:
        """Whether no message is claimed until all messages that are held are finished."""
        return self._state is _State.CLEARING

    def give_up(self, now: float) -> None:
        """Claim other messages for a while: a node does not answer, so its messages are not finished soon."""
        self._rest(now)

    def allows(self, now: float, held: int) -> Suspects | None:
        """Return which messages a claim may take while `held` messages are held. None: no claim is allowed."""
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
        """Note that a claim skipped a suspect, because the worker holds messages."""
        if self._state is _State.OPEN or (self._state is _State.RESTING and now >= self._until):
            self._state = _State.CLEARING
            self._extend_patience(lease)
            self._until = now + self._patience

    def took(self, now: float, lease: float, *, is_suspect: bool, has_passed_over: bool) -> None:
        """Note the result of a claim that was made while the worker held nothing.

        If messages of a higher priority came before the suspect, the worker does not wait for it again at once.
        Otherwise it would run empty over and over.
        """
        if is_suspect:
            self._state, self._patience = _State.ALONE, 0.0
        elif has_passed_over:
            self._extend_patience(lease)
            self._rest(now)
        else:
            self._state, self._patience = _State.OPEN, 0.0

    def changes_at(self) -> float | None:
        """Return when the answer of `allows` changes by time alone."""
        return self._until if self._state is _State.CLEARING else None

    def _extend_patience(self, lease: float) -> None:
        self._patience = min(self._patience * 2, _LONGEST_CLEARING * lease) or lease

    def _rest(self, now: float) -> None:
        self._state = _State.RESTING
        self._until = now + self._patience
