"""One page of the messages in a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from duly import AsyncGroup, AsyncQueue
from duly.message import Message

STATES: Final = ("ready", "delayed", "leased", "parked", "dead", "done")
OVER: Final = ("dead", "done")
"""States in which no attempt is to come."""
_A_PAGE: Final = 50


@dataclass(frozen=True)
class Listing:
    """What is shown of a state."""

    state: str
    messages: Sequence[Message]
    next: str | None
    """The id that the next page begins behind; None: this is the last."""
    is_behind: bool
    """Whether this is not the first page."""
    lost: str | None
    """The id that the page should have begun behind, and that has left the state meanwhile: it begins anew."""


async def listed(inbox: AsyncQueue | AsyncGroup, state: Any, after: str | None) -> Listing:
    """Look at a page. It may be short where messages are large, so that a second look tells whether more follow."""
    before = None if after is None else await inbox.get(after)
    lost = after if after is not None and (before is None or before.state != state) else None
    begin = after if lost is None else None
    page = await inbox.list(state, limit=_A_PAGE, after=begin)
    has_more = bool(page) and bool(await inbox.list(state, limit=1, after=page[-1]))
    return Listing(state, page, page[-1].id if has_more else None, begin is not None, lost)
