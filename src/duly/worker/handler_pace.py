"""How many messages to claim ahead. Pure arithmetic: time is an argument."""

from typing import Final

MOST_AHEAD: Final = 1000
"""The maximum of messages claimed beyond the free slots."""

_TRIPS: Final = 4
"""Round trips of a claim and its settle, twice. As many messages are claimed ahead as handlers finish during these.

Twice, so that the number can double from claim to claim at first.
"""

_LONGEST_TRIP: Final = 0.05
_SHORTEST_SAMPLE: Final = 0.005
"""Seconds between two samples. During a shorter time, either no message or every message is finished."""


class HandlerPace:
    """Learns from each claim how many messages are finished while the next claim is in progress.

    Slots would be idle during the round trips of claim and settle. A few times the number of messages that they finish
    during that time keeps them busy. Slow handlers finish nothing in that time, so nothing is claimed ahead of them:
    no message waits here for a slot while another worker has a free one.
    """

    __slots__ = ("_ahead", "_finished", "_sampled_at", "_trip")

    def __init__(self, now: float) -> None:
        self._ahead = 0
        self._finished = 0
        self._sampled_at = now
        self._trip = 0.0

    def learn(self, finished: int, asked_at: float, answered_at: float) -> None:
        """Note a claim: when it was sent and answered, and how many messages had been finished by then."""
        if answered_at - self._sampled_at >= _SHORTEST_SAMPLE:
            self._trip = min(answered_at - asked_at, _LONGEST_TRIP)
            self._ahead = self._estimate(finished, answered_at)
            self._finished, self._sampled_at = finished, answered_at

    def ahead(self, finished: int, now: float) -> int:
        """Return how many to claim beyond the free slots: as learnt, or fewer if handlers have become slower."""
        if now - self._sampled_at < _SHORTEST_SAMPLE:
            return self._ahead
        return min(self._ahead, self._estimate(finished, now))

    def _estimate(self, finished: int, now: float) -> int:
        rate = (finished - self._finished) / (now - self._sampled_at)
        return min(int(_TRIPS * rate * self._trip), MOST_AHEAD)
