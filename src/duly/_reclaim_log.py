"""Logs expired leases that a claim has reclaimed, and messages that became dead letters because of it.

A claim has one line per lease, or one for all if there are many.
"""

import logging
from collections.abc import Sequence
from typing import Final

from duly._core.naming import title_of
from duly._core.replies import Reclaimed

_LOG: Final = logging.getLogger("duly")

_MOST_LINES: Final = 5
"""Leases of one claim that have a warning each. A consumer that crashed with a thousand messages has one for all."""


def log_reclaimed(queue: str, reclaimed: Sequence[Reclaimed]) -> None:
    """Log leases that ran out, with their holder and how long ago. If there are many, each one is logged as DEBUG."""
    level = logging.WARNING
    if len(reclaimed) > _MOST_LINES:
        level = logging.DEBUG
        _log_sum(queue, reclaimed)
    for each in reclaimed:
        fate = "it is dead" if each.is_dead else "it is delivered again"
        _LOG.log(
            level,
            "the lease of message %s of %s ran out %.3f s ago, held by %s: %s",
            each.id,
            title_of(queue),
            each.overdue,
            each.consumer or "unknown",
            fate,
        )


def log_poison(queue: str, ids: Sequence[str]) -> None:
    """Log messages that reached the crash limit, and that `receive()` made dead."""
    names = ", ".join(ids[:_MOST_LINES]) + (" ..." if len(ids) > _MOST_LINES else "")
    if len(ids) == 1:
        _LOG.warning("1 message of %s has reached the crash limit and is dead: %s", title_of(queue), names)
    elif ids:
        _LOG.warning(
            "%d messages of %s have reached the crash limit and are dead: %s", len(ids), title_of(queue), names
        )


def _log_sum(queue: str, reclaimed: Sequence[Reclaimed]) -> None:
    dead = sum(each.is_dead for each in reclaimed)
    fate = "they are delivered again"
    if dead:
        fate = "they are dead" if dead == len(reclaimed) else f"{dead} of them are dead, the others are delivered again"
    _LOG.warning(
        "the leases of message %s and %d others of %s ran out up to %.3f s ago, held by %s: %s",
        reclaimed[0].id,
        len(reclaimed) - 1,
        title_of(queue),
        max(each.overdue for each in reclaimed),
        ", ".join(sorted({each.consumer or "unknown" for each in reclaimed})),
        fate,
    )
