"""One scrape: a look at everything, in a bounded time."""

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
from duly._port import GroupRow, group_rows
from duly.errors import DulyError, Unavailable
from duly.message import Schedule, Stats, TopicStats, WorkerInfo
from duly.options import is_name
from duly.web.site import Site

_LOG: Final = logging.getLogger("duly")

MAX_ITEMS: Final = 1000
"""Queues and groups in one scrape; also topics, and schedules."""
MAX_CONCURRENT: Final = 20
"""Calls under way for one scrape."""
_CALL_TIMEOUT: Final = 1.5
"""Seconds for one call. One that is given up takes up to a second more: together, less than three."""
_SCRAPE_TIMEOUT: Final = 8.0
"""Seconds for all of a scrape. Prometheus waits for 10 unless it is told otherwise."""
_ALIVE_SECONDS: Final = 15.0
"""Seconds of silence up to which a worker counts: three beats."""

T = TypeVar("T")


@dataclass(frozen=True)
class Scrape:
    """All that one scrape saw. As it is by default: the server is away."""

    is_up: bool = False
    is_timed_out: bool = False
    """Whether there was more to ask for than there was time. Then nothing else is told: a part would mislead."""
    seconds: float = 0.0
    """How long the looking took."""
    queues: Mapping[str, Stats] = field(default_factory=dict)
    """By name: queues, and groups as "topic/group"."""
    topics: Mapping[str, TopicStats] = field(default_factory=dict)
    groups: Mapping[tuple[str, str], GroupRow] = field(default_factory=dict)
    """By topic and name; those of other programs included."""
    workers: Sequence[WorkerInfo] | None = None
    schedules: Sequence[Schedule] | None = None
    unreadable: Sequence[tuple[str, str]] = ()
    """Kind and name of what is there and could not be counted."""
    left_out: int | None = None
    """How many queues, topics and groups were too many."""

    @property
    def live_workers(self) -> list[WorkerInfo] | None:
        """The workers that were heard of lately. When all are gone, nobody takes them off the list."""
        return None if self.workers is None else [each for each in self.workers if each.last_beat <= _ALIVE_SECONDS]


async def run_scrape(site: Site) -> Scrape:
    """Look at everything, in a bounded time."""
    started = time.perf_counter()
    result, deadline = Scrape(), asyncio.timeout(_SCRAPE_TIMEOUT)
    try:
        async with deadline:
            result = await _Scraper(site).run()
    except Unavailable:
        pass  # the link has said so in the log
    except TimeoutError:
        # Either one answer did not come, or there were too many to ask for: then the server is not away.
        result = Scrape(is_up=deadline.expired(), is_timed_out=deadline.expired())
    except DulyError as error:
        _LOG.warning("metrics: %s", error)
    return dataclasses.replace(result, seconds=time.perf_counter() - started)


class _Scraper:
    """One look at everything, for one scrape."""

    def __init__(self, site: Site) -> None:
        self._app = site.app
        self._names = site.names
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT)
        self._unreadable: list[tuple[str, str]] = []

    async def run(self) -> Scrape:
        """Look. Raises Unavailable or TimeoutError when the server is away: a part of the numbers would mislead."""
        # First, and never remembered: so a server that is away is noticed by one call.
        workers = await self._try("workers", "", self._app.workers)
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
            schedules=await self._try("schedules", "", self._app.schedules, _SCRAPE_TIMEOUT),
            unreadable=self._unreadable,
            left_out=sum(counts) - len(queues[:MAX_ITEMS]) - len(topics[:MAX_ITEMS]) - len(groups),
        )

    def _stats_calls(
        self, queues: Iterable[str], groups: Iterable[tuple[str, str]]
    ) -> Mapping[str, Callable[[], Awaitable[Stats]]]:
        calls = {name: self._app.queue(name).stats for name in queues}
        # A group of another name can be of other programs only: the stream alone knows it.
        own_groups = [(topic, group) for topic, group in groups if is_name(group)]
        return calls | {f"{topic}/{group}": self._app.topic(topic).group(group).stats for topic, group in own_groups}

    async def _try_all(self, kind: str, calls: Mapping[str, Callable[[], Awaitable[T]]]) -> dict[str, T]:
        """Make all calls, some at once, and give those that could be answered."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks_by_name = {name: tasks.create_task(self._try(kind, name, call)) for name, call in calls.items()}
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return {name: result for name, task in tasks_by_name.items() if (result := task.result()) is not None}

    async def _try(
        self, kind: str, name: str, call: Callable[[], Awaitable[T]], timeout: float = _CALL_TIMEOUT
    ) -> T | None:
        """Make a call. What somebody has damaged so that it cannot be counted is noted, and hides nothing else."""
        async with self._semaphore:
            try:
                async with asyncio.timeout(timeout):
                    return await call()
            except Unavailable:
                raise
            except DulyError:
                self._unreadable.append((kind, name))
                return None


def _topic_call(topic: AsyncTopic) -> Callable[[], Awaitable[tuple[TopicStats, list[GroupRow]]]]:
    """Make the call that counts a topic and names its groups, without a look into them: one may be damaged."""

    async def look() -> tuple[TopicStats, list[GroupRow]]:
        rows = await group_rows(topic)
        return await topic.stats(), rows

    return look
