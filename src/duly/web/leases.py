"""Who holds what. To say so each lease is looked at, so where there are very many it is not said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from duly import AsyncGroup
from duly._core import publishing, replies
from duly.message import Pending, Stats
from duly.web.names import Inbox, Names
from duly.web.shared import SharedByKey

MOST: Final = 10_000
"""Leases that are looked at."""
_FEW: Final = 1_000
"""Leases that are one call to the server: each who asks is told of them as they are at that moment."""
_ALL: Final = 1_000_000


@dataclass(frozen=True)
class Held:
    """The leases of a queue or group."""

    total: int
    stats: Stats
    """Of the moment before."""
    pending: Pending | None
    """All of them; None: they are too many."""

    def of(self, consumer: str | None, limit: int, *, is_group: bool) -> Pending | None:
        """Tell of one consumer, or of all, with the first leases; None: they are too many."""
        if self.pending is None:
            return None
        rows = [row for row in self.pending.messages if consumer is None or row.consumer == consumer]
        return replies.pending(rows, limit, publishing.parsed_id if is_group else None)


class Leases:
    """Looks at leases. One at many of them is shared by all who ask within a second."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._shared = SharedByKey(self._look)

    async def held(self, inbox: Inbox) -> Held:
        """Look who holds what."""
        stats = await inbox.stats()
        total = max(stats.leased, await _in_stream(inbox))
        if total > MOST:
            return Held(total, stats, None)
        pending = await (self._look if total <= _FEW else self._shared.get)(inbox.label)
        return Held(pending.total, stats, pending)

    async def _look(self, label: str) -> Pending:
        return await self._names.open_label(label).pending(limit=_ALL)


async def _in_stream(inbox: Inbox) -> int:
    """Count what members of a group hold by its stream, those of other programs included."""
    row = await inbox._row() if isinstance(inbox, AsyncGroup) else None
    return 0 if row is None else row.pending
