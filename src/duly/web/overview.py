"""What pages and calls share: topics, workers, schedules, leases, and everything at a glance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from duly import AsyncDuly, AsyncGroup
from duly._port import Inbox, Rates, entries_pending, group_names, summary_of
from duly.errors import DulyError, ServerError, Unavailable
from duly.message import GroupInfo, Pending, Schedule, Stats, TopicStats, WorkerInfo
from duly.web.cache import Cached, CachedByKey
from duly.web.names import Names


@dataclass(frozen=True)
class TopicSnapshot:
    """A topic and its groups."""

    name: str
    stats: TopicStats | None
    groups: Sequence[GroupInfo] = ()
    error: str | None = None
    """Why it cannot be counted: somebody has damaged it, or one of its groups. It hides no other."""


class Snapshots:
    """What was seen lately."""

    def __init__(self, app: AsyncDuly, names: Names) -> None:
        self._app = app
        self._names = names
        self._topics = CachedByKey(self._fetch_topic)
        self._workers = Cached(self._fetch_workers)
        self._schedules = Cached(app.schedules)
        self.leases = Leases(names)

    async def topic(self, name: str) -> TopicSnapshot:
        """Count what a topic and each of its groups has."""
        return await self._topics.get(name)

    async def workers(self) -> Sequence[WorkerInfo]:
        """Show the workers by id: in an order that stays as it is while they beat."""
        return await self._workers.get()

    async def schedules(self) -> Sequence[Schedule]:
        """Show the schedules by name."""
        return await self._schedules.get()

    async def _fetch_topic(self, name: str) -> TopicSnapshot:
        topic = self._names.open_topic(name)
        try:
            return TopicSnapshot(name, await topic.stats(), await topic.groups())
        except Unavailable:
            raise
        except DulyError as error:
            return TopicSnapshot(name, None, error=str(error))

    async def _fetch_workers(self) -> Sequence[WorkerInfo]:
        return sorted(await self._app.workers(), key=attrgetter("id"))


MAX_LEASES: Final = 10_000
"""Leases that are looked at."""
_FEW_LEASES: Final = 1_000
"""Leases that are one call to the server: each who asks is told of them as they are at that moment."""
_NO_LIMIT: Final = 1_000_000


@dataclass(frozen=True)
class LeaseSnapshot:
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
        return summary_of(rows, limit, is_group=is_group)


class Leases:
    """Looks at leases. One at many of them is shared by all who ask within a second."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._cache = CachedByKey(self._fetch)

    async def of(self, inbox: Inbox) -> LeaseSnapshot:
        """Look who holds what."""
        stats = await inbox.stats()
        total = max(stats.leased, await _pending_in_stream(inbox))
        if total > MAX_LEASES:
            return LeaseSnapshot(total, stats, None)
        pending = await (self._fetch if total <= _FEW_LEASES else self._cache.get)(inbox.label)
        return LeaseSnapshot(pending.total, stats, pending)

    async def _fetch(self, label: str) -> Pending:
        return await self._names.open_label(label).pending(limit=_NO_LIMIT)


async def _pending_in_stream(inbox: Inbox) -> int:
    """Count what members of a group hold by its stream, those of other programs included."""
    return await entries_pending(inbox) if isinstance(inbox, AsyncGroup) else 0


_COST_FACTOR: Final = 20
"""A look that takes long is made seldom: at most this part of the time is spent on looking."""
_CONCURRENCY: Final = 8


@dataclass(frozen=True)
class Overview:
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

    def largest(self, name: str) -> float:
        """Find the largest number of all queues and groups."""
        return max((getattr(each, name) for each in self.stats.values()), default=0.0)


class OverviewCache:
    """The last look of a dashboard. Whoever asks within a second, or while somebody looks, is given the same."""

    def __init__(self, app: AsyncDuly, names: Names, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._names = app, names
        self._clock = clock
        self.rates = Rates()
        self._cache = Cached(self._fetch, cost_factor=_COST_FACTOR, clock=clock)

    async def get(self) -> Overview:
        """Look, unless somebody just did. Each look also feeds the rates."""
        return await self._cache.get()

    async def _fetch(self) -> Overview:
        overview = await _fetch_overview(self._app, self._names)
        self.rates.add(overview.stats, self._clock())
        return overview


async def _fetch_overview(app: AsyncDuly, names: Names) -> Overview:
    queues: list[Inbox] = [names.open_queue(name) for name in await names.queues()]
    topics = [names.open_topic(name) for name in await names.topics()]
    failed: dict[str, str] = {}
    topic_stats = await _fetch_stats({each.name: each for each in topics}, failed)
    groups: list[Inbox] = []
    for topic in topics:
        if topic.name in topic_stats:
            groups += [topic.group(name) for name in await group_names(topic)]
    inboxes = {each.label: each for each in (*queues, *groups)}
    stats = await _fetch_stats(inboxes, failed)
    return Overview(inboxes, stats, topic_stats, failed, len(await app.workers()))


async def _fetch_stats(sources: Mapping[str, Any], failed: dict[str, str]) -> dict[str, Any]:
    stats: dict[str, Any] = {}
    names = list(sources)
    for start in range(0, len(names), _CONCURRENCY):
        batch = names[start : start + _CONCURRENCY]
        results = await asyncio.gather(*(sources[name].stats() for name in batch), return_exceptions=True)
        _partition(batch, results, stats, failed)
    return stats


def _partition(names: Sequence[str], results: Sequence[Any], stats: dict[str, Any], failed: dict[str, str]) -> None:
    for name, result in zip(names, results, strict=True):
        if isinstance(result, ServerError) and not isinstance(result, Unavailable):
            failed[name] = str(result)
        elif isinstance(result, BaseException):
            raise result
        else:
            stats[name] = result
