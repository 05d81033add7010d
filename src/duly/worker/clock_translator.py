"""When the server's clock shows a given time, by the monotonic clock of this process. Pure arithmetic.

The answer to a claim has the time of the server's clock: after the call was made, and before its answer was read. So a
fast answer is the most exact one, and counts for a while.
"""

from typing import Final

_KEPT: Final = 1.0
"""Seconds for which a fast answer counts more than later, slower ones. Clocks drift apart."""

_FORGETTING: Final = 1.1
"""Factor by which the fastest answer is forgotten with each answer: the network may have become slower."""


class ClockTranslator:
    """Learns from each claim. Times of the server are in microseconds, all others in seconds."""

    __slots__ = ("_ahead", "_fastest", "_learnt_at", "_most_ahead", "_trip")

    def __init__(self) -> None:
        self._ahead = 0.0
        """Seconds by which the server's clock is ahead when a call is made, rather than when it arrives."""
        self._most_ahead = float("inf")
        """An upper bound of that."""
        self._trip = float("inf")
        """The seconds that the answer took from which this was learnt."""
        self._learnt_at = float("-inf")
        self._fastest = float("inf")

    def learn(self, asked_at: float, answered_at: float, server_now: int) -> None:
        """Note what the server's clock showed between a call and its answer."""
        trip = answered_at - asked_at
        self._fastest = min(self._fastest * _FORGETTING, trip)
        most = server_now / 1e6 - asked_at
        has_stepped = not most - trip <= self._most_ahead <= most + self._trip
        if trip <= self._trip or answered_at > self._learnt_at + _KEPT or has_stepped:
            self._trip, self._learnt_at, self._most_ahead = trip, answered_at, most
            self._ahead = most - (trip - self._fastest) / 2  # the way there and the way back may have been slow

    def learn_from_answer(self, answered_at: float, server_now: int) -> None:
        """Note what the server's clock showed before an answer was read. When the call was made is unknown."""
        least = server_now / 1e6 - answered_at
        if least > self._most_ahead:  # the server's clock is faster, or was set forward
            self._ahead = self._most_ahead = least

    def not_before(self, server_time: float) -> float:
        """Return a point in time before which the server's clock has not shown a time."""
        return server_time / 1e6 - self._most_ahead

    def call_at(self, server_time: float) -> float:
        """Return when to make a call that arrives as soon as the server's clock shows a time, not before."""
        return server_time / 1e6 - self._ahead
