"""How far ahead to claim: arithmetic that is asked, not run."""

from typing import Final

MOST_AHEAD: Final = 1000
"""Messages claimed beyond the free slots, at the most."""

_TRIPS: Final = 4
"""Those of a claim and its settle, twice: what is finished in them could be claimed ahead, and doubles at first."""

_LONGEST_TRIP: Final = 0.05
_SHORTEST_SAMPLE: Final = 0.005
"""Seconds: between two claims that follow each other at once, nothing or everything is finished."""


class HandlerPace:
    """Learns from each claim how many messages are finished while the next one is under way.

    Slots would stand idle during the round trips of claim and settle; with a few times what they finish in
    that time waiting beside them, they do not. Slow handlers finish nothing meanwhile: nothing is claimed
    ahead of them, so that no message waits here for a slot while another worker has one free.
    """

    __slots__ = ("_ahead", "_finished", "_sampled_at", "_trip")

    def __init__(self, now: float) -> None:
        self._ahead = 0
        self._finished = 0
        self._sampled_at = now
        self._trip = 0.0

    def learn(self, finished: int, asked_at: float, answered_at: float) -> None:
        """Note a claim: how many messages were finished so far, when it was sent and answered."""
        if answered_at - self._sampled_at >= _SHORTEST_SAMPLE:
            self._trip = min(answered_at - asked_at, _LONGEST_TRIP)
            self._ahead = self._estimate(finished, answered_at)
            self._finished, self._sampled_at = finished, answered_at

    def ahead(self, finished: int, now: float) -> int:
        """Tell how many to claim beyond the free slots: as learnt, or less if handlers have become slow since."""
        if now - self._sampled_at < _SHORTEST_SAMPLE:
            return self._ahead
        return min(self._ahead, self._estimate(finished, now))

    def _estimate(self, finished: int, now: float) -> int:
        rate = (finished - self._finished) / (now - self._sampled_at)
        return min(int(_TRIPS * rate * self._trip), MOST_AHEAD)
