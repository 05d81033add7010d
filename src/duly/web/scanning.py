"""Bounded scans: the messages of a queue or group that match, and whether all were read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from duly._port import Inbox, State
from duly.message import Message

MAX_SCANNED: Final = 2_000
"""The largest number of messages that one page reads."""
_STEP: Final = 200


class Budget(NamedTuple):
    """The limits of a scan."""

    most: int | None = None
    """Messages. None: as many as for one page."""
    seconds: float = 2.0


@dataclass(frozen=True)
class Scan:
    """The result of a scan."""

    matches: list[Message]
    scanned: int
    last: Message | None
    """The last message that was read. The scan can continue after it."""
    is_complete: bool
    """Whether there are no messages after the last."""


async def scan(
    inbox: Inbox,
    state: State,
    matches: Callable[[Message], bool],
    *,
    after: Message | str | None = None,
    newest: bool = False,
    wanted: int | None = None,
    budget: Budget = Budget(),  # noqa: B008 - immutable
    is_over: Callable[[Message], bool] = lambda _: False,
) -> Scan:
    """Read messages in a state until `wanted` match, or the budget is used up.

    `is_over` recognizes the messages at the end of the list that need not be read.
    """
    most = MAX_SCANNED if budget.most is None else budget.most
    found: list[Message] = []
    scanned, last = 0, after
    until = time.monotonic() + budget.seconds
    while scanned < most and (scanned == 0 or time.monotonic() < until) and len(found) != wanted:
        page = await inbox.list(state, min(_STEP, most - scanned), last, newest=newest)
        if not page:
            return Scan(found, scanned, _position(last), is_complete=True)
        for each in page:
            if is_over(each):
                return Scan(found, scanned, _position(last), is_complete=True)
            last, scanned = each, scanned + 1
            if matches(each):
                found.append(each)
            if len(found) == wanted:
                break
    following = await inbox.list(state, 1, last, newest=newest)
    has_more = any(not is_over(each) for each in following)
    return Scan(found, scanned, _position(last), is_complete=not has_more)


def _position(last: Message | str | None) -> Message | None:
    return last if isinstance(last, Message) else None
