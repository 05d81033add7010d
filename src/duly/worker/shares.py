"""Which queue is claimed from next. Pure arithmetic: time plays no part."""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Weighted(Protocol):
    """A candidate with a weight."""

    weight: int


S = TypeVar("S", bound=Weighted)


class Shares(Generic[S]):
    """Divides claims among queues by weight, counted in messages.

    Each queue has its own clock, which advances by 1/weight with every message. The queue that is furthest behind comes
    next. Among equals it is the one that has waited longest. A queue that had no messages for a while joins at the time
    of the others, so it cannot save up turns. Adding, removing and choosing cost O(log n).
    """

    def __init__(self) -> None:
        self._served: dict[S, float] = {}
        self._now = 0.0
        self._heap: list[tuple[float, int, S]] = []
        """Candidates by their clocks. An entry whose number is not in `_entries` is out of date."""
        self._entries: dict[S, int] = {}
        self._numbers = itertools.count()
        self._weight = 0
        """The sum over all candidates."""

    def __contains__(self, each: S) -> bool:
        return each in self._entries

    def __iter__(self) -> Iterator[S]:
        return iter(self._entries)

    def add(self, each: S) -> None:
        """Add a candidate."""
        if each not in self._entries:
            number = self._entries[each] = next(self._numbers)
            heapq.heappush(self._heap, (self._turn_of(each), number, each))
            self._weight += each.weight

    def remove(self, each: S) -> None:
        """Remove a candidate."""
        if self._entries.pop(each, None) is not None:
            self._weight -= each.weight

    def first(self) -> S | None:
        """Return the candidate that comes next. None: there is none."""
        while self._heap:
            _, number, each = self._heap[0]
            if self._entries.get(each) == number:
                self._now = self._turn_of(each)  # even for a single candidate: others join at this time
                return each
            heapq.heappop(self._heap)
        return None

    def first_of(self, some: Iterable[S]) -> S | None:
        """Choose among some of the candidates."""
        return min((each for each in some if each in self._entries), key=self._turn_of, default=None)

    def part_of(self, chosen: S, room: int) -> int:
        """Return the part of `room` that the chosen one may take, so that the other candidates have the rest."""
        return max(room * chosen.weight // self._weight, 1)

    def took(self, chosen: S, count: int) -> None:
        """Note how many messages it took."""
        self._served[chosen] = self._turn_of(chosen) + count / chosen.weight
        if chosen in self._entries:
            self.remove(chosen)
            self.add(chosen)

    def _turn_of(self, each: S) -> float:
        return max(self._served.get(each, 0.0), self._now)
