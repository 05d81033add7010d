"""One page of the messages in a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from duly._core.states import LIVE, STATES
from duly.message import Message
from duly.web.cursor import cursor_of, position_of
from duly.web.names import Inbox

OVER: Final = tuple(state for state in STATES if state not in LIVE)
"""States in which no attempt is to come."""
_A_PAGE: Final = 50


@dataclass(frozen=True)
class Listing:
    """What is shown of a state."""

    state: str
    messages: Sequence[Message]
    next: str | None
    """The cursor that the next page begins behind; None: this is the last."""
    is_behind: bool
    """Whether this is not the first page."""
    lost: str | None
    """The id that the page should have begun behind, and that has left the state meanwhile: it begins anew."""


async def listed(inbox: Inbox, state: Any, after: str | None) -> Listing:
    """Look at a page. It may be short where messages are large, so that a second look tells whether more follow."""
    begin = None if after is None else position_of(after, state)
    lost = begin if isinstance(begin, str) and await _has_left(inbox, state, begin) else None
    begin = begin if lost is None else None
    newest = state in OVER  # what has just failed is what people look for
    page = await inbox.list(state, limit=_A_PAGE, after=begin, newest=newest)
    has_more = bool(page) and bool(await inbox.list(state, limit=1, after=page[-1], newest=newest))
    return Listing(state, page, cursor_of(page[-1]) if has_more else None, begin is not None, lost)


async def _has_left(inbox: Inbox, state: str, id_: str) -> bool:
    """Tell whether a message is in another state by now, or gone: then its id alone does not tell where to go on."""
    found = await inbox.get(id_)
    return found is None or found.state != state
