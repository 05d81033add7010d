"""The pause before a process that has ended is started again."""

from __future__ import annotations


class RestartBackoff:
    """Short after the first end of a process. The pause doubles each time, while the process ends early."""

    def __init__(self, first: float = 0.1, longest: float = 30.0, healthy_after: float = 60.0) -> None:
        self._first = first
        self._longest = longest
        self._healthy_after = healthy_after
        self._next = first

    def pause_after(self, lived: float) -> float:
        """Return the seconds to wait after a process that lived for `lived` seconds."""
        pause = self._first if lived >= self._healthy_after else self._next
        self._next = min(2 * pause, self._longest)
        return pause
