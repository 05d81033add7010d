"""When to poll which queue. Pure arithmetic: time is an argument."""

import heapq
import itertools
from typing import Generic, TypeVar

T = TypeVar("T")


class Timers(Generic[T]):
    """At most one point in time per object. Setting it and finding the due ones cost O(log n)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        """An entry whose number is not in `_entries` is out of date."""
        self._entries: dict[T, int] = {}
        self._numbers = itertools.count()

    def set(self, each: T, moment: float) -> None:
        """Set the time of an object, and replace an earlier setting."""
        number = self._entries[each] = next(self._numbers)
        heapq.heappush(self._heap, (moment, number, each))

    def cancel(self, each: T) -> None:
        """Remove the time of an object."""
        self._entries.pop(each, None)

    def due(self, now: float) -> list[T]:
        """Remove and return all objects that are due."""
        found = []
        while (moment := self.next_at()) is not None and moment <= now:
            each = heapq.heappop(self._heap)[2]
            del self._entries[each]
            found.append(each)
        return found

    def next_at(self) -> float | None:
        """Return when the next object is due. None: there is none."""
        while self._heap and self._entries.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
