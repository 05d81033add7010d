"""Looks at topics, workers, schedules and leases, shared by all pages and calls: the server is asked once a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from duly import AsyncDuly
from duly.errors import DulyError, Unavailable
from duly.message import GroupInfo, Schedule, TopicStats, WorkerInfo
from duly.web.leases import Leases
from duly.web.names import Names
from duly.web.shared import Shared, SharedByKey


@dataclass(frozen=True)
class TopicSeen:
    """A topic and its groups."""

    name: str
    stats: TopicStats | None
    groups: Sequence[GroupInfo] = ()
    error: str | None = None
    """Why it cannot be counted: somebody has damaged it, or one of its groups. It hides no other."""


class Looks:
    """What was seen lately."""

    def __init__(self, app: AsyncDuly, names: Names) -> None:
        self._app = app
        self._names = names
        self._topics = SharedByKey(self._look_at_topic)
        self._workers = Shared(self._look_at_workers)
        self._schedules = Shared(app.schedules)
        self.leases = Leases(names)

    async def topic(self, name: str) -> TopicSeen:
        """Count what a topic and each of its groups has."""
        return await self._topics.get(name)

    async def workers(self) -> Sequence[WorkerInfo]:
        """Show the workers by id: in an order that stays as it is while they beat."""
        return await self._workers.get()

    async def schedules(self) -> Sequence[Schedule]:
        """Show the schedules by name."""
        return await self._schedules.get()

    async def _look_at_topic(self, name: str) -> TopicSeen:
        topic = self._names.open_topic(name)
        try:
            return TopicSeen(name, await topic.stats(), await topic.groups())
        except Unavailable:
            raise
        except DulyError as error:
            return TopicSeen(name, None, error=str(error))

    async def _look_at_workers(self) -> Sequence[WorkerInfo]:
        return sorted(await self._app.workers(), key=attrgetter("id"))
