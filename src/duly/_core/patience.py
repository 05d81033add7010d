"""Durations of waits, as pure functions."""

from collections.abc import Callable
from typing import Final

_SHORTEST_PERIOD: Final = 0.25
_LONGEST_PERIOD: Final = 5.0
LONGEST_REST: Final = 0.05
_CALL_KEPT: Final = 120.0


def looking_period(lease: float) -> float:
    """Seconds after which an idle consumer polls without a wake-up.

    This is a sixth of the lease: a message of a dead consumer is redelivered within 1.17 leases, even if every
    wake-up is lost.
    """
    return min(max(lease / 6, _SHORTEST_PERIOD), _LONGEST_PERIOD)


def pause_before(next_in: float | None, left: float, period: float, fruitless: int = 0) -> tuple[float, bool]:
    """Seconds to wait for a wake token, and whether the wait ends at a due time that must be met exactly.

    `fruitless` is the number of waits for a due time that still lies ahead: the server's clock stands still or goes
    back. Each further wait is longer, so that the consumer does not spin.
    """
    idle = min(left, period)
    if next_in is not None and next_in < idle:
        least = 0.001 * 2.0 ** min(fruitless - 2, 12) if fruitless > 2 else 0.0
        return min(max(next_in, least), idle), True
    return idle, False


def backoff(tries: int, chance: Callable[[], float]) -> float:
    """Seconds before the next attempt to reach a server: full jitter, so that many clients spread out."""
    return chance() * min(1.0, 0.01 * 2.0 ** min(tries, 10))


def call_kept(patience: float) -> float:
    """Seconds for which the server remembers a call of a lock: longer than it may be repeated, or arrive late."""
    return max(_CALL_KEPT, 3 * patience)


def room_backoff(tries: int, chance: Callable[[], float]) -> float:
    """Seconds before a blocked producer tries to send again."""
    return (0.5 + chance() / 2) * min(0.25, 0.002 * 2.0 ** min(tries, 10))


def rest_after(empty_claims: int, chance: Callable[[], float]) -> float:
    """Seconds for which a member of a group ignores wake-ups, after `empty_claims` of them brought it nothing.

    An entry wakes all members, and one of them gets it. Without this rest, ten idle members would cost ten claims
    per entry.
    """
    return (0.5 + chance() / 2) * min(LONGEST_REST, 0.001 * 2.0 ** min(empty_claims, 10))


def renew_at(renewed: float, lease: float) -> float:
    """Return when to renew a lease that began at `renewed`: after a third of it.

    Two renewals may fail before the lease runs out, and the cost is three small writes per lease, not one per second.
    """
    return renewed + lease / 3
