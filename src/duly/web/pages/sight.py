"""Everything at a glance: what all queues, groups and topics hold, looked at seldom however many ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duly._core.rates import Rates
from duly.errors import ServerError, Unavailable
from duly.message import Stats, TopicStats
from duly.web.names import Inbox
from duly.web.shared import Shared
from duly.web.site import Site

_SHARE: Final = 20
"""A look that takes long is made seldom: at most this part of the time is spent on looking."""
_AT_ONCE: Final = 8


@dataclass(frozen=True)
class Sight:
    """What was seen at one moment."""

    inboxes: Mapping[str, Inbox]
    """By label, queues first."""
    stats: Mapping[str, Stats]
    topics: Mapping[str, TopicStats]
    failed: Mapping[str, str]
    """What cannot be counted, because somebody has damaged it, and why. It hides no other."""
    workers: int

    def total(self, name: str) -> int:
        """Add up one number of all queues and groups."""
        return sum(getattr(each, name) for each in self.stats.values())

    def most(self, name: str) -> float:
        """Find the largest number of all queues and groups."""
        return max((getattr(each, name) for each in self.stats.values()), default=0.0)


class Sights:
    """The last look of a dashboard. Whoever asks within a second, or while somebody looks, is given the same."""

    def __init__(self, site: Site, clock: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._clock = clock
        self.rates = Rates()
        self._shared = Shared(self._look, share=_SHARE, clock=clock)

    async def get(self) -> Sight:
        """Look, unless somebody just did. Each look also feeds the rates."""
        return await self._shared.get()

    async def _look(self) -> Sight:
        found = await _look(self._site)
        self.rates.add(found.stats, self._clock())
        return found


async def _look(site: Site) -> Sight:
    queues: list[Inbox] = [site.names.open_queue(name) for name in await site.names.queues()]
    topics = [site.names.open_topic(name) for name in await site.names.topics()]
    failed: dict[str, str] = {}
    topic_stats = await _counted({each.name: each for each in topics}, failed)
    groups: list[Inbox] = []
    for topic in topics:
        if topic.name in topic_stats:
            groups += [topic.group(name) for name in await topic._group_names()]
    inboxes = {each.label: each for each in (*queues, *groups)}
    stats = await _counted(inboxes, failed)
    return Sight(inboxes, stats, topic_stats, failed, len(await site.app.workers()))


async def _counted(sources: Mapping[str, Any], failed: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    names = list(sources)
    for at in range(0, len(names), _AT_ONCE):
        some = names[at : at + _AT_ONCE]
        answers = await asyncio.gather(*(sources[name].stats() for name in some), return_exceptions=True)
        _sort_out(some, answers, found, failed)
    return found


def _sort_out(names: Sequence[str], answers: Sequence[Any], found: dict[str, Any], failed: dict[str, str]) -> None:
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, ServerError) and not isinstance(answer, Unavailable):
            failed[name] = str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[name] = answer
