"""Cached views of the server for pages and API calls: topics, workers, schedules, leases, and all of them at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

from duly import AsyncGroup
from duly._port import (
    AsyncSurvey,
    Away,
    Inbox,
    Published,
    Rates,
    entries_pending,
    group_names,
    of_queue,
    summary_of,
    usable,
    with_differences,
    with_options,
)
from duly.errors import DulyError, ServerError, Unavailable
from duly.message import GroupInfo, Pending, PendingMessage, Schedule, Stats, TopicStats, WorkerInfo
from duly.web.bounded_gather import bounded_gather
from duly.web.cache import Cached, CachedByKey
from duly.web.names import Names, NodeAway

T = TypeVar("T")


@dataclass(frozen=True)
class TopicSnapshot:
    """A topic and its groups."""

    name: str
    stats: TopicStats | None
    groups: Sequence[GroupInfo] = ()
    error: str | None = None
    """Why it cannot be read: its data or those of a group are damaged. Other topics are still shown."""


@dataclass(frozen=True)
class Run:
    """A message that a worker has now."""

    label: str
    """Of its queue or group."""
    id: str
    attempt: int
    seconds: float
    """The time since its delivery."""


_MAX_BUSY_QUEUES: Final = 50
"""The leases of more queues are not read for the page of workers."""


class Snapshots:
    """Cached topics, workers, schedules and leases."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._topics = CachedByKey(self._fetch_topic)
        self._workers = Cached(self._fetch_workers)
        self._schedules = Cached(self._fetch_schedules)
        self.leases: Leases = Leases(names)
        self._running = Cached(self._fetch_running)

    async def topic(self, name: str) -> TopicSnapshot:
        """Return the statistics of a topic and its groups."""
        return await self._topics.get(name)

    async def workers(self) -> Sequence[WorkerInfo]:
        """Return the workers by id, an order that heartbeats do not change."""
        return await self._workers.get()

    async def running(self) -> Mapping[str, Sequence[Run]]:
        """Return the messages that each worker has now, by the id of the worker, longest first."""
        return await self._running.get()

    async def published_options(self, inbox: Inbox) -> list[Published]:
        """Return the different options that workers publish for a queue or group: one if they agree."""
        try:
            return of_queue(await self.workers(), inbox.label)
        except DulyError:  # the registry is on a node that is away
            return []

    async def explain(self, inbox: Inbox, id_: str) -> str:
        """Explain why a message is not being delivered, by the options that its workers agree on."""
        views = await self.published_options(inbox)
        sentence = await with_options(inbox, usable(views)).explain(id_)
        return with_differences(sentence, views)

    async def schedules(self) -> Sequence[Schedule]:
        """Return the schedules by name."""
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
        survey = await self._names.survey()
        return sorted(_listed(await survey.workers(), "workers", survey), key=attrgetter("id"))

    async def _fetch_running(self) -> Mapping[str, Sequence[Run]]:
        """Find the messages by the consumer of their lease: heartbeats have only their number."""
        survey = await self._names.survey()
        busy = {each.id: each for each in await self.workers() if each.in_flight}
        labels = sorted({label for each in busy.values() for label in each.queues})[:_MAX_BUSY_QUEUES]

        async def leases_of(label: str) -> Sequence[PendingMessage]:
            inbox = self._names.open_label(label)
            try:
                found = await read_within(survey, inbox, partial(self.leases.of, inbox))
            except ServerError:  # damaged
                return ()
            return () if found is None or found.pending is None else found.pending.messages

        running: dict[str, list[Run]] = {id_: [] for id_ in busy}
        for label, rows in zip(labels, await bounded_gather(labels, leases_of), strict=True):
            for row in rows:
                if row.consumer in running:
                    running[row.consumer].append(Run(label, row.id, row.attempt, row.idle))
        return {id_: sorted(found, key=attrgetter("seconds"), reverse=True) for id_, found in running.items()}

    async def _fetch_schedules(self) -> Sequence[Schedule]:
        survey = await self._names.survey()
        return _listed(await survey.schedules(), "schedules", survey)


def _listed(found: list[T] | None, what: str, survey: AsyncSurvey) -> list[T]:
    if found is None:
        raise NodeAway(f"the list of {what} cannot be read: {'; '.join(map(str, survey.away))}")
    return found


MAX_LEASES: Final = 10_000
"""Above this number, leases are counted but not read."""
_FEW_LEASES: Final = 1_000
"""Up to this number, leases are read in one call and not cached."""
_NO_LIMIT: Final = 1_000_000


@dataclass(frozen=True)
class LeaseSnapshot:
    """The leases of a queue or group."""

    total: int
    stats: Stats
    """Statistics from just before."""
    pending: Pending | None
    """All leases. None: there are too many."""

    def of(self, consumer: str | None, limit: int, *, is_group: bool) -> Pending | None:
        """Return the leases of one consumer, or of all, with the first `limit` of them. None: there are too many."""
        if self.pending is None:
            return None
        rows = [row for row in self.pending.messages if consumer is None or row.consumer == consumer]
        return summary_of(rows, limit, is_group=is_group)


class Leases:
    """Reads leases. Long lists are cached for a second."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._cache = CachedByKey(self._fetch)

    async def of(self, inbox: Inbox) -> LeaseSnapshot:
        """Return the leases of a queue or group."""
        stats = await inbox.stats()
        total = max(stats.leased, await _pending_in_stream(inbox))
        if total > MAX_LEASES:
            return LeaseSnapshot(total, stats, None)
        pending = await (self._fetch if total <= _FEW_LEASES else self._cache.get)(inbox.label)
        return LeaseSnapshot(pending.total, stats, pending)

    async def _fetch(self, label: str) -> Pending:
        return await self._names.open_label(label).pending(limit=_NO_LIMIT)


async def _pending_in_stream(inbox: Inbox) -> int:
    """Return the number of entries that are pending in the stream of a group, including those of other programs."""
    return await entries_pending(inbox) if isinstance(inbox, AsyncGroup) else 0


_COST_FACTOR: Final = 20
"""A slow overview is cached for this many times the duration of its fetch."""
_CONCURRENCY: Final = 8
_READ_TIMEOUT: Final = 2.0
"""Seconds that a node of a cluster has for a call, after it has answered a survey."""


@dataclass(frozen=True)
class Overview:
    """All queues, groups and topics at one moment."""

    inboxes: Mapping[str, Inbox]
    """By label, queues first."""
    stats: Mapping[str, Stats]
    topics: Mapping[str, TopicStats]
    failed: Mapping[str, str]
    """Errors of queues and topics that cannot be read because their data are damaged. The others are still shown."""
    workers: int | None
    """None: the node that lists them is away."""
    away: Sequence[Away] = ()
    """Nodes of a cluster that do not answer. Their queues and topics are missing."""

    def total(self, name: str) -> int:
        """Return the sum of a counter over all queues and groups."""
        return sum(getattr(each, name) for each in self.stats.values())

    def most_first(self, labels: Sequence[str], state: str) -> list[str]:
        """Return the queues and groups that have messages in a state, those with the most first."""
        counts = {label: getattr(self.stats[label], state) for label in labels if label in self.stats}
        return sorted((label for label, count in counts.items() if count), key=lambda label: -counts[label])

    def largest(self, name: str) -> float:
        """Return the maximum of a counter over all queues and groups."""
        return max((getattr(each, name) for each in self.stats.values()), default=0.0)


class OverviewCache:
    """The cached overview of a dashboard, with the rates of all queues."""

    def __init__(self, names: Names, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = names
        self._clock = clock
        self.rates: Rates = Rates()
        self._cache = Cached(self._fetch, cost_factor=_COST_FACTOR, clock=clock)

    async def get(self) -> Overview:
        """Return the cached overview, or fetch it. Each fetch updates the rates."""
        return await self._cache.get()

    async def _fetch(self) -> Overview:
        overview = await _fetch_overview(self._names)
        self.rates.add(overview.stats, self._clock())
        return overview


async def _fetch_overview(names: Names) -> Overview:
    survey = await names.survey()
    queues: list[Inbox] = [names.open_queue(name) for name in await names.queues()]
    topics = [names.open_topic(name) for name in await names.topics()]
    failed: dict[str, str] = {}
    topic_stats = await _fetch_stats(survey, {each.name: each for each in topics}, failed)
    groups: list[Inbox] = []
    for topic in topics:
        if topic.name in topic_stats:
            found = await read_within(survey, topic, partial(group_names, topic))
            groups += [topic.group(name) for name in found or ()]
    inboxes = {each.label: each for each in (*queues, *groups)}
    stats = await _fetch_stats(survey, inboxes, failed)
    workers = await survey.workers()
    there = {label: each for label, each in inboxes.items() if survey.absence_of(each) is None}
    return Overview(there, stats, topic_stats, failed, None if workers is None else len(workers), survey.away)


async def _fetch_stats(survey: AsyncSurvey, sources: Mapping[str, Any], failed: dict[str, str]) -> dict[str, Any]:
    stats: dict[str, Any] = {}
    names = list(sources)
    for start in range(0, len(names), _CONCURRENCY):
        batch = names[start : start + _CONCURRENCY]
        reads = (read_within(survey, sources[name], sources[name].stats) for name in batch)
        _partition(batch, await asyncio.gather(*reads, return_exceptions=True), stats, failed)
    return stats


async def read_within(survey: AsyncSurvey, source: Any, read: Callable[[], Awaitable[T]]) -> T | None:
    """Read from a queue, topic or group. None: its node is away.

    A node that stops after the survey has a moment, and not the patience of the app. The only server has all of it.
    """
    if not survey.is_partial:
        return await read()
    try:
        async with asyncio.timeout(_READ_TIMEOUT):
            return await survey.read(source, read)
    except TimeoutError:
        survey.note_away(source, f"no answer within {_READ_TIMEOUT:g} s")
        return None


def _partition(names: Sequence[str], results: Sequence[Any], stats: dict[str, Any], failed: dict[str, str]) -> None:
    for name, result in zip(names, results, strict=True):
        if isinstance(result, ServerError) and not isinstance(result, Unavailable):
            failed[name] = str(result)
        elif isinstance(result, BaseException):
            raise result
        elif result is not None:
            stats[name] = result
