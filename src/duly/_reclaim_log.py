"""Says what claims took back: a line for each lease that ran out, or where there are many, one for all of them."""

import logging
from collections.abc import Sequence
from typing import Final

from duly._core.naming import title_of
from duly._core.replies import Reclaimed

_LOG: Final = logging.getLogger("duly")

_MOST_LINES: Final = 5
"""Leases of one claim that have a warning each: whoever crashed with a thousand messages is one piece of news."""


def log_reclaimed(queue: str, reclaimed: Sequence[Reclaimed]) -> None:
    """Log leases that ran out, with their holder and how long ago. Of many, each is for those who look closely."""
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
            each.consumer or "nobody",
            fate,
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
        ", ".join(sorted({each.consumer or "nobody" for each in reclaimed})),
        fate,
    )
