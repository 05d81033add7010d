"""Carries out the work that needs the answer of a node: one thing at a time for each node.

A node that does not answer then delays only its own work. On one server, the caller awaits the work itself, so no task
is created. These lanes have nothing to do with the lanes of messages with a key (decision 15).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

SLOW_AFTER: Final = 0.25
"""Seconds after which a node that has not answered counts as slow."""

Work = Callable[..., Awaitable[Any]]


class _Lane:
    """The work of one node: a task for the first, and the rest in order."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[Work, Hashable], tuple[Any, ...]] = {}
        self.began_at = time.monotonic()
        self.task: asyncio.Task[None] | None = None


class Lanes:
    """The lanes of all nodes. `on_end` is called when a lane has become empty."""

    def __init__(self, *, is_spread: bool, on_end: Callable[[], None]) -> None:
        """Take whether there are several nodes."""
        self._is_spread = is_spread
        self._on_end = on_end
        self._lanes: dict[Hashable, _Lane] = {}
        self._error: Exception | None = None

    async def run(self, node: Hashable, work: Work, subject: Hashable, *args: Any) -> Any:
        """Carry out `work(subject, *args)`. On one server, return its result.

        With several nodes this returns None at once. The lane of the node carries the work out after earlier work. The
        same work on the same subject replaces one that has not begun.
        """
        if not self._is_spread:
            return await work(subject, *args)
        lane = self._lanes.get(node)
        if lane is None:
            lane = self._lanes[node] = _Lane()
            lane.task = asyncio.get_running_loop().create_task(self._work_off(node, lane))
        lane.waiting[work, subject] = args
        return None

    async def _work_off(self, node: Hashable, lane: _Lane) -> None:
        try:
            while lane.waiting:
                work, subject = next(iter(lane.waiting))
                args = lane.waiting.pop((work, subject))
                lane.began_at = time.monotonic()
                await work(subject, *args)
                await asyncio.sleep(0)  # handlers first
        except Exception as error:  # noqa: BLE001 - `raise_error` raises it where it ends the worker
            self._error = self._error or error
        finally:
            if self._lanes.get(node) is lane:
                del self._lanes[node]
            self._on_end()

    def raise_error(self) -> None:
        """Raise the error that ended a lane, if any."""
        if self._error is not None:
            raise self._error

    @property
    def is_idle(self) -> bool:
        """Whether no lane has work."""
        return not self._lanes

    def is_busy(self, node: Hashable) -> bool:
        """Return whether a node has work that has not ended."""
        return node in self._lanes

    def is_slow(self, node: Hashable, now: float) -> bool:
        """Return whether the present work of a node takes long."""
        lane = self._lanes.get(node)
        return lane is not None and now >= lane.began_at + SLOW_AFTER

    def has_slow(self, now: float) -> bool:
        """Return whether any node is slow."""
        return any(now >= lane.began_at + SLOW_AFTER for lane in self._lanes.values())

    def slow_at(self, now: float) -> float | None:
        """Return when the next node counts as slow, if it has not answered by then."""
        times = (lane.began_at + SLOW_AFTER for lane in self._lanes.values())
        return min((moment for moment in times if moment > now), default=None)

    async def join(self) -> None:
        """Wait until all lanes are empty, and raise the first error. If the caller is cancelled, the lanes end."""
        try:
            while tasks := [lane.task for lane in self._lanes.values() if lane.task is not None]:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            self.cancel()
            raise
        self.raise_error()

    def cancel(self) -> None:
        """End all lanes."""
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.waiting.clear()
            if lane.task is not None:
                lane.task.cancel()
