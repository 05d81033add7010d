"""Outages: the state of one node, and the servers that do not answer this process.

All links share the list of servers, so that an outage is logged once.
"""

from typing import Final

_LEASES_SUFFER_AFTER: Final = 1.0
"""Seconds without an answer after which leases are renewed before the next claim."""
_RENEW_FIRST: Final = 1.5
"""Seconds between the end of an outage and the next claim. Renewals are retried at least each second."""

_LATE: Final = 0.1
"""Seconds after which a claim is late. It then reclaims no leases, and the client claims again at once."""


class Outage:
    """Whether a node answers, and when claims may begin again after an outage. Times are of the monotonic clock.

    During a long outage, leases run out although their consumers live. A late renewal is accepted unless a claim was
    earlier. So all consumers renew first, and claim a moment later.
    """

    __slots__ = ("_has_waited", "_since", "claims_at", "is_on")

    def __init__(self) -> None:
        self.is_on: bool = False
        self.claims_at: float = 0.0
        self._since = 0.0
        self._has_waited = False

    def begin(self, now: float) -> None:
        """Record that the node does not answer."""
        self.is_on, self._since, self._has_waited = True, now, False

    def end(self, now: float) -> None:
        """Record that the node answers."""
        if self.is_long(now) and not self._has_waited:
            self.claims_at = now + _RENEW_FIRST
        self.is_on = False

    def note_probe(self, now: float) -> None:
        """Record that the node answers a probe. The next claim is made a moment later, and may end the outage.

        A replica answers probes as well, and refuses claims.
        """
        self.claims_at, self._has_waited = now + _RENEW_FIRST, True

    def note_delay(self, since: float, now: float) -> None:
        """Record that a claim has been under way since a moment. If that is long, the next one is made later."""
        if now > since + _LEASES_SUFFER_AFTER:
            self.claims_at = max(self.claims_at, now + _RENEW_FIRST)

    def succeed(self, other: "Outage", now: float) -> None:
        """Take over the messages of a node that has failed."""
        if other.is_long(now):
            self.claims_at = now + _RENEW_FIRST

    def is_long(self, now: float) -> bool:
        """Return whether the node has not answered for so long that leases may have run out."""
        return self.is_on and now > self._since + _LEASES_SUFFER_AFTER


class ClaimDeadlines:
    """When a claim is late, by the clock of its server. Other times are of the monotonic clock of this process.

    A server that stood still carries out the claims that it has received, perhaps before the renewals. So a claim
    states when it is late, and a late claim reclaims no leases. The estimate of the clock is never behind it,
    unless the clock was set: a claim that is carried out in time is not late.
    """

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self._ahead: float | None = None

    def note(self, server_us: int, asked_at: float) -> None:
        """Record the time in the reply to a call, which was carried out after `asked_at`."""
        self._ahead = server_us / 1e6 - asked_at

    def late_after(self, now: float) -> int:
        """Return the server's time after which a call that is sent now is late. -1: unknown, it is never late."""
        return -1 if self._ahead is None else round((now + self._ahead + _LATE) * 1e6)


unanswered: Final[dict[str, object]] = {}
"""By the shown address: a mark of the link that added it first. It is a plain dict, because every reply checks it."""


def begin(shown: str) -> bool:
    """Record that a server does not answer. True: this is new, so log it."""
    mark = object()
    return unanswered.setdefault(shown, mark) is mark  # atomic: of several threads, one is the first


def end(shown: str) -> bool:
    """Record that a server answers. True: it did not before, so log it."""
    return unanswered.pop(shown, None) is not None
