"""Carries out the work that needs the answer of a node: one thing at a time for each node.

A node that does not answer then delays only its own work. On one server, the caller awaits the work itself, so no task
is created.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

SLOW_AFTER: Final = 0.25
"""Seconds after which a node that has not answered counts as slow."""

Work = Callable[..., Awaitable[Any]]


class _OneNode:
    """The work of one node: its task, and the work that waits, in order."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[Work, Hashable], tuple[Any, ...]] = {}
        self.began_at = time.monotonic()
        self.task: asyncio.Task[None] | None = None


class NodeWork:
    """The work of all nodes. `on_end` is called when a node has no more work."""

    def __init__(self, *, is_spread: bool, on_end: Callable[[], None]) -> None:
        """Take whether there are several nodes."""
        self._is_spread = is_spread
        self._on_end = on_end
        self._nodes: dict[Hashable, _OneNode] = {}
        """The nodes that have work."""
        self._error: Exception | None = None

    async def run(self, node: Hashable, work: Work, subject: Hashable, *args: Any) -> Any:
        """Carry out `work(subject, *args)`. On one server, return its result.

        With several nodes this returns None at once. A task of the node carries the work out after earlier work. The
        same work on the same subject replaces one that has not begun.
        """
        if not self._is_spread:
            return await work(subject, *args)
        one = self._nodes.get(node)
        if one is None:
            one = self._nodes[node] = _OneNode()
            one.task = asyncio.get_running_loop().create_task(self._work_off(node, one))
        one.waiting[work, subject] = args
        return None

    async def _work_off(self, node: Hashable, one: _OneNode) -> None:
        try:
            while one.waiting:
                work, subject = next(iter(one.waiting))
                args = one.waiting.pop((work, subject))
                one.began_at = time.monotonic()
                await work(subject, *args)
                await asyncio.sleep(0)  # handlers first
        except Exception as error:  # noqa: BLE001 - `raise_error` raises it where it ends the worker
            self._error = self._error or error
        finally:
            if self._nodes.get(node) is one:
                del self._nodes[node]
            self._on_end()

    def raise_error(self) -> None:
        """Raise the error that ended the work of a node, if any."""
        if self._error is not None:
            raise self._error

    @property
    def is_idle(self) -> bool:
        """Whether no node has work."""
        return not self._nodes

    def is_busy(self, node: Hashable) -> bool:
        """Return whether a node has work that has not ended."""
        return node in self._nodes

    def is_slow(self, node: Hashable, now: float) -> bool:
        """Return whether the present work of a node takes long."""
        one = self._nodes.get(node)
        return one is not None and now >= one.began_at + SLOW_AFTER

    def has_slow(self, now: float) -> bool:
        """Return whether any node is slow."""
        return any(now >= one.began_at + SLOW_AFTER for one in self._nodes.values())

    def slow_at(self, now: float) -> float | None:
        """Return when the next node counts as slow, if it has not answered by then."""
        times = (one.began_at + SLOW_AFTER for one in self._nodes.values())
        return min((moment for moment in times if moment > now), default=None)

    async def join(self) -> None:
        """Wait until all work is done, and raise the first error. If the caller is cancelled, the work ends."""
        try:
            while tasks := [one.task for one in self._nodes.values() if one.task is not None]:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            self.cancel()
            raise
        self.raise_error()

    def cancel(self) -> None:
        """End all work."""
        nodes, self._nodes = self._nodes, {}
        for one in nodes.values():
            one.waiting.clear()
            if one.task is not None:
                one.task.cancel()
