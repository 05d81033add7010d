"""Says what claims took back: one line for each lease that ran out."""

import logging
from collections.abc import Sequence
from typing import Final

from duly._core.naming import title_of
from duly._core.replies import Reclaimed

_LOG: Final = logging.getLogger("duly")


def log_reclaimed(queue: str, reclaimed: Sequence[Reclaimed]) -> None:
    """Log leases that ran out, with their holder and how long ago."""
    for each in reclaimed:
        fate = "it is dead" if each.is_dead else "it is delivered again"
        _LOG.warning(
            "the lease of message %s of %s ran out %.3f s ago, held by %s: %s",
            each.id,
            title_of(queue),
            each.overdue,
            each.consumer or "nobody",
            fate,
        )
