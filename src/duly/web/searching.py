"""Searches all queues and groups for a message, in bounded steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from duly._port import Away, Inbox, group_names
from duly.errors import ServerError, Unavailable
from duly.message import Message
from duly.web.bounded_gather import bounded_gather
from duly.web.names import Names
from duly.web.overview import read_within

_STEP: Final = 50
_MAX_SEARCHED: Final = 1_000
_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Search:
    """The result of a search."""

    hits: list[Message]
    searched: int
    """The number of queues and topics that were asked."""
    next: str | None
    """Where to continue. None: all were asked."""
    away: Sequence[Away]
    """Nodes of a cluster that do not answer. Their queues and topics were not asked."""


async def search(names: Names, id_: str, after: str | None = None, *, most: int = _MAX_SEARCHED) -> Search:
    """Find the messages with an id. Several queues may have the same id."""
    sources = [
        *(f"queues/{each}" for each in await names.queues()),
        *(f"topics/{each}" for each in await names.topics()),
    ]
    begin = sources.index(after) + 1 if after in sources else 0
    until, at = time.monotonic() + _SECONDS, begin
    hits: list[Message] = []

    async def ask(source: str) -> list[Message]:
        return await _messages_of(names, source, id_)

    while at < len(sources) and at - begin < most and (at == begin or time.monotonic() < until):
        step = sources[at : at + min(_STEP, most - (at - begin))]
        hits += [each for found in await bounded_gather(step, ask) for each in found]
        at += len(step)
    away = (await names.survey()).away
    return Search(hits, at - begin, sources[at - 1] if at < len(sources) else None, away)


async def _messages_of(names: Names, source: str, id_: str) -> list[Message]:
    """Return the messages with this id of a queue, or of the groups of a topic. Damaged ones are skipped."""
    survey = await names.survey()
    kind, _, name = source.partition("/")

    async def get(inbox: Inbox) -> Message | None:
        return await read_within(survey, inbox, lambda: inbox.get(id_))

    try:
        found = [await get(each) for each in await _inboxes_of(names, kind, name)]
    except Unavailable:
        raise
    except ServerError:
        return []
    return [each for each in found if each is not None]


async def _inboxes_of(names: Names, kind: str, name: str) -> Sequence[Inbox]:
    if kind == "queues":
        return [names.open_queue(name)]
    topic = names.open_topic(name)
    groups = await read_within(await names.survey(), topic, lambda: group_names(topic))
    return [names.open_group(name, each) for each in groups or ()]
