"""One scrape: reads everything in a bounded time."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from duly import AsyncTopic
from duly._port import AsyncSurvey, GroupRow, group_rows
from duly.errors import DulyError, Unavailable
from duly.message import Schedule, Stats, TopicStats, WorkerInfo
from duly.options import is_name
from duly.web.site import Site

_LOG: Final = logging.getLogger("duly")

MAX_ITEMS: Final = 1000
"""Limit of queues and groups in one scrape, of topics, and of schedules."""
MAX_CONCURRENT: Final = 20
"""Concurrent calls of one scrape."""
_CALL_TIMEOUT: Final = 1.5
"""Timeout in seconds of one call. Cancelling it takes up to a second more."""
_SCRAPE_TIMEOUT: Final = 8.0
"""Timeout in seconds of a scrape. The default of Prometheus is 10."""
_ALIVE_SECONDS: Final = 15.0
"""A worker counts as live for this many seconds after a heartbeat: three intervals."""

T = TypeVar("T")


@dataclass(frozen=True)
class Scrape:
    """The result of one scrape. The default means that the server is unavailable."""

    is_up: bool = False
    is_timed_out: bool = False
    """Whether the scrape timed out. Then nothing else is exported, because a part would mislead."""
    seconds: float = 0.0
    """How long the scrape took."""
    queues: Mapping[str, Stats] = field(default_factory=dict)
    """By name: queues, and groups as "topic/group"."""
    topics: Mapping[str, TopicStats] = field(default_factory=dict)
    groups: Mapping[tuple[str, str], GroupRow] = field(default_factory=dict)
    """By topic and name, including those of other programs."""
    workers: Sequence[WorkerInfo] | None = None
    schedules: Sequence[Schedule] | None = None
    unreadable: Sequence[tuple[str, str]] = ()
    """Kind and name of objects that cannot be read."""
    away: Sequence[str] = ()
    """Nodes of a cluster that do not answer. Their queues and topics are missing."""
    left_out: int | None = None
    """Number of queues, topics and groups above the limit."""

    @property
    def live_workers(self) -> list[WorkerInfo] | None:
        """The workers with a recent heartbeat. The list keeps dead workers when no worker is left to remove them."""
        return None if self.workers is None else [each for each in self.workers if each.last_beat <= _ALIVE_SECONDS]


async def run_scrape(site: Site) -> Scrape:
    """Read everything, in a bounded time."""
    started = time.perf_counter()
    result, deadline = Scrape(), asyncio.timeout(_SCRAPE_TIMEOUT)
    try:
        async with deadline:
            result = await _Scraper(site).run()
    except Unavailable:
        pass  # the link has logged it
    except TimeoutError:
        # Either one call timed out, or all together. In the second case the server does answer.
        result = Scrape(is_up=deadline.expired(), is_timed_out=deadline.expired())
    except DulyError as error:
        _LOG.warning("metrics: %s", error)
    return dataclasses.replace(result, seconds=time.perf_counter() - started)


class _Scraper:
    """Reads everything for one scrape."""

    def __init__(self, site: Site) -> None:
        self._app = site.app
        self._names = site.names
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT)
        self._survey: AsyncSurvey | None = None
        self._unreadable: list[tuple[str, str]] = []

    async def run(self) -> Scrape:
        """Run the scrape. Raises Unavailable or TimeoutError: partial numbers would mislead."""
        survey = self._survey = await self._names.survey()
        # First, and not cached: so a single call detects an unavailable server.
        workers = await self._try("workers", "", survey.workers)
        queues, topics = await self._names.queues(), await self._names.topics()
        topic_results = await self._try_all(
            "topic", {name: _topic_call(self._app.topic(name)) for name in topics[:MAX_ITEMS]}
        )
        rows = {(topic, row.name): row for topic, (_, rows) in topic_results.items() for row in rows}
        groups = dict(itertools.islice(rows.items(), max(0, MAX_ITEMS - len(queues))))
        counts = [len(queues), len(topics), len(rows)]
        return Scrape(
            is_up=True,
            queues=await self._try_all("queue", self._stats_calls(queues[:MAX_ITEMS], groups)),
            topics={name: stats for name, (stats, _) in topic_results.items()},
            groups=groups,
            workers=workers,
            schedules=await self._try("schedules", "", survey.schedules, _SCRAPE_TIMEOUT),
            unreadable=self._unreadable,
            away=[str(each.node) for each in survey.away],
            left_out=sum(counts) - len(queues[:MAX_ITEMS]) - len(topics[:MAX_ITEMS]) - len(groups),
        )

    def _stats_calls(
        self, queues: Iterable[str], groups: Iterable[tuple[str, str]]
    ) -> Mapping[str, Callable[[], Awaitable[Stats]]]:
        calls = {name: self._app.queue(name).stats for name in queues}
        # A group with another name belongs to another program. Only the stream knows it.
        own_groups = [(topic, group) for topic, group in groups if is_name(group)]
        return calls | {f"{topic}/{group}": self._app.topic(topic).group(group).stats for topic, group in own_groups}

    async def _try_all(self, kind: str, calls: Mapping[str, Callable[[], Awaitable[T]]]) -> dict[str, T]:
        """Run all calls with bounded concurrency, and return the results of those that succeeded."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks_by_name = {name: tasks.create_task(self._try(kind, name, call)) for name, call in calls.items()}
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return {name: result for name, task in tasks_by_name.items() if (result := task.result()) is not None}

    async def _try(
        self, kind: str, name: str, call: Callable[[], Awaitable[T]], timeout: float = _CALL_TIMEOUT
    ) -> T | None:
        """Run a call. An object with damaged data is recorded as unreadable and does not affect the others.

        So is one on a node that has stopped since the survey.
        """
        async with self._semaphore:
            try:
                async with asyncio.timeout(timeout):
                    return await call()
            except (Unavailable, TimeoutError):
                if self._survey is None or not self._survey.is_partial:
                    raise
                self._unreadable.append((kind, name))
                return None
            except DulyError:
                self._unreadable.append((kind, name))
                return None


def _topic_call(topic: AsyncTopic) -> Callable[[], Awaitable[tuple[TopicStats, list[GroupRow]]]]:
    """Create the call that reads a topic and the names of its groups, but not the groups, which may be damaged."""

    async def read() -> tuple[TopicStats, list[GroupRow]]:
        rows = await group_rows(topic)
        return await topic.stats(), rows

    return read
