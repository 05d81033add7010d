"""How long to wait: arithmetic that is asked, not run."""

from collections.abc import Callable
from typing import Final

_SHORTEST_PERIOD: Final = 0.25
_LONGEST_PERIOD: Final = 5.0
LONGEST_REST: Final = 0.05
_CALL_KEPT: Final = 120.0


def looking_period(lease: float) -> float:
    """Seconds after which an idle consumer looks again although nobody woke it.

    A sixth of the lease: a message of a dead consumer is back within 1.17 leases even when every
    wake-up was lost.
    """
    return min(max(lease / 6, _SHORTEST_PERIOD), _LONGEST_PERIOD)


def pause_before(next_in: float | None, left: float, period: float, fruitless: int = 0) -> tuple[float, bool]:
    """Seconds to wait for a token, and whether the end of the wait is a due time that must be met exactly.

    `fruitless` waits for a due time that still has not come mean that the server's clock stands or goes back:
    each further one is longer, so that nobody spins.
    """
    idle = min(left, period)
    if next_in is not None and next_in < idle:
        least = 0.001 * 2.0 ** min(fruitless - 2, 12) if fruitless > 2 else 0.0
        return min(max(next_in, least), idle), True
    return idle, False


def backoff(tries: int, chance: Callable[[], float]) -> float:
    """Seconds before the next try at a server that is away: full jitter, so that a herd spreads out."""
    return chance() * min(1.0, 0.01 * 2.0 ** min(tries, 10))


def call_kept(patience: float) -> float:
    """Seconds that the server remembers a call of a lock: longer than it may be repeated, or arrive late."""
    return max(_CALL_KEPT, 3 * patience)


def room_backoff(tries: int, chance: Callable[[], float]) -> float:
    """Seconds before a blocked producer looks for room again."""
    return (0.5 + chance() / 2) * min(0.25, 0.002 * 2.0 ** min(tries, 10))


def rest_after(in_vain: int, chance: Callable[[], float]) -> float:
    """Seconds for which a member of a group that was woken so often for nothing hears no more.

    All members hear of an entry, and one gets it: else ten idle ones would cost ten claims an entry, however fast
    they come.
    """
    return (0.5 + chance() / 2) * min(LONGEST_REST, 0.001 * 2.0 ** min(in_vain, 10))


def renew_at(renewed: float, lease: float) -> float:
    """When to renew a lease that began at `renewed`.

    At a third: two renewals may fail before the lease runs out, and the cost is three small writes a
    lease, not one a second.
    """
    return renewed + lease / 3
