"""A survey of all nodes, for tools that show everything: they show the rest while one node is away."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from duly._async.app import AsyncDuly
from duly._core.keys import RegistryKeys, ScheduleKeys
from duly._core.topology import Away, Node, Placed
from duly.errors import Unavailable
from duly.message import Schedule, WorkerInfo

T = TypeVar("T")


class AsyncSurvey:
    """Which nodes answer now, and what they have. Made by `survey_nodes`.

    Calls to a node that is away are not made, so that a tool does not wait for it. On one server, and if no node
    answers, calls raise Unavailable as usual.
    """

    def __init__(self, app: AsyncDuly, away: dict[Node | None, Away] | None) -> None:
        self._app = app
        self._link: Any = app._link
        self._away = away or {}
        self.is_partial: bool = away is not None
        """Whether a node of a cluster answers, so that there is something to show while another does not."""

    @property
    def away(self) -> Sequence[Away]:
        """The nodes that do not answer."""
        return list(self._away.values())

    def absence_of(self, source: Any) -> Away | None:
        """Return the node of a queue, topic or group if it is away."""
        return self._absence(source._keys)

    def _absence(self, keys: Placed) -> Away | None:
        return self._away.get(self._link.node_of(keys)) if self._away else None

    async def queues(self) -> list[str]:
        """Return the names of the queues on the nodes that answer."""
        found: list[str] = await self._link.queues(self._app.namespace, self._away)
        return found

    async def topics(self) -> list[str]:
        """Return the names of the topics on the nodes that answer."""
        found: list[str] = await self._link.topics(self._app.namespace, self._away)
        return found

    async def workers(self) -> list[WorkerInfo] | None:
        """Return the workers. None: the node that lists them is away."""
        return await self._read(RegistryKeys(self._app.namespace), self._app.workers)

    async def schedules(self) -> list[Schedule] | None:
        """Return the schedules of queues on the nodes that answer. None: the node that lists them is away."""
        schedules = self._app._schedules()
        return await self._read(
            ScheduleKeys(self._app.namespace), lambda: schedules.all(lambda keys: self._absence(keys) is None)
        )

    async def read(self, source: Any, read: Callable[[], Awaitable[T]]) -> T | None:
        """Make a call that reads from a queue, topic or group. None: its node is away."""
        return await self._read(source._keys, read)

    async def _read(self, keys: Placed, read: Callable[[], Awaitable[T]]) -> T | None:
        if self._absence(keys) is not None:
            return None
        try:
            return await read()
        except Unavailable as error:
            if not self.is_partial:
                raise
            self._note_away(keys, str(error.__cause__ or error))
            return None

    def note_away(self, source: Any, reason: str) -> None:
        """Record that the node of a queue, topic or group does not answer any more."""
        self._note_away(source._keys, reason)

    def _note_away(self, keys: Placed, reason: str) -> None:
        node = self._link.node_of(keys)
        self._away[node] = Away(node, reason)


async def survey_nodes(app: AsyncDuly) -> AsyncSurvey:
    """Find out which nodes answer. One that does not costs a second."""
    return AsyncSurvey(app, await app._link.nodes_away())
