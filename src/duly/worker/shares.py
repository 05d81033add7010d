"""Whose turn it is: arithmetic that is asked, not run."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class Weighted(Protocol):
    """Something that takes a share."""

    weight: int


S = TypeVar("S", bound=Weighted)


class Shares(Generic[S]):
    """Divides claims among queues by weight, counted in messages.

    Each queue has a clock of its own that goes on by 1/weight with every message; the one that is furthest
    behind is asked next. A queue that had nothing for a while joins at the time of the others, so it
    cannot save turns up.
    """

    def __init__(self) -> None:
        self._served: dict[S, float] = {}
        self._now = 0.0

    def next_of(self, candidates: Sequence[S]) -> S:
        """Choose who is asked."""
        chosen = min(candidates, key=self._turn_of)
        self._now = self._turn_of(chosen)  # also of one that is alone: whoever joins it later joins here
        return chosen

    def part_of(self, chosen: S, candidates: Sequence[S], room: int) -> int:
        """Tell how many of `room` the chosen one may take, if the others may want the rest."""
        total = sum(each.weight for each in candidates)
        return max(room * chosen.weight // total, 1)

    def took(self, chosen: S, count: int) -> None:
        """Note what it took."""
        self._served[chosen] = self._turn_of(chosen) + count / chosen.weight

    def _turn_of(self, each: S) -> float:
        return max(self._served.get(each, 0.0), self._now)
