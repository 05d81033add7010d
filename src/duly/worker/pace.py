"""How far ahead to claim: arithmetic that is asked, not run."""

from typing import Final

MOST_AHEAD: Final = 1000
"""Messages claimed beyond the free slots, at the most."""

_TRIPS: Final = 4
"""Those of a claim and its settle, twice: what is finished in them could be claimed ahead, and doubles at first."""

_LONGEST_TRIP: Final = 0.05
_SHORTEST_LOOK: Final = 0.005
"""Seconds: between two claims that follow each other at once, nothing or everything is finished."""


class Pace:
    """Learns from each claim how many messages are finished while the next one is under way.

    Slots would stand idle during the round trips of claim and settle; with a few times what they finish in
    that time waiting beside them, they do not. Slow handlers finish nothing meanwhile: nothing is claimed
    ahead of them, so that no message waits here for a slot while another worker has one free.
    """

    __slots__ = ("_finished", "_looked_at", "ahead")

    def __init__(self, now: float) -> None:
        self.ahead = 0
        """Messages to claim beyond the free slots."""
        self._finished = 0
        self._looked_at = now

    def learn(self, finished: int, asked_at: float, answered_at: float) -> None:
        """Note a claim: how many messages were finished so far, when it was sent and answered."""
        elapsed = answered_at - self._looked_at
        if elapsed < _SHORTEST_LOOK:
            return
        rate = (finished - self._finished) / elapsed
        trip = min(answered_at - asked_at, _LONGEST_TRIP)
        self.ahead = min(int(_TRIPS * rate * trip), MOST_AHEAD)
        self._finished, self._looked_at = finished, answered_at
