"""Waits for messages of queues and groups of `memory://`: the engine calls back when a claim may find something."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from duly._async.memory import AsyncMemoryLink
from duly.worker.source import Source, awake


class MemoryWaiter:
    """Watches queues or groups. When the clock of the engine is moved, all of them wake.

    `on_change` is called when `woken` has something to return.
    """

    def __init__(self, link: AsyncMemoryLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        self._engine = link.engine
        self._loop = asyncio.get_running_loop()
        self._sources = list(sources)
        self._on_change = on_change
        self.rested_at: float = math.inf
        """When the next group that rests is to be watched again."""
        self._callbacks: dict[Source, Callable[[], None]] = {}
        self._woken: dict[Source, None] = {}
        self._engine.clock.watch(self._on_move)

    def is_watching(self, source: Source) -> bool:
        """Return whether a queue or group is watched."""
        return source in self._callbacks

    async def watch(self, limit: int, some: Collection[Source] | None = None) -> list[Source]:  # noqa: ARG002 - nothing is taken
        """Watch all sources, or `some`, that want it."""
        listening, self.rested_at = awake(self._sources)
        for source in listening:
            if source not in self._callbacks and (some is None or source in some):
                self._callbacks[source] = self._callback_for(source)
                self._engine.subscribe(source.keys, self._callbacks[source], _claims_at(source))
        return []

    async def take(self, limit: int) -> list[Source]:
        """Return up to `limit` queues that have messages, of those that are not watched."""
        wanted = [source for source in self._sources if source.wants_watch and source not in self._callbacks]
        return [source for source in wanted if self._engine.has_something(source.keys)][:limit]

    def woken(self) -> list[Source]:
        """Take the sources that have woken."""
        woken_sources, self._woken = self._woken, {}
        return list(woken_sources)

    async def aclose(self) -> list[Source]:
        """Stop watching, and return the queues that another worker should poll. All members of a group wake."""
        self._engine.clock.unwatch(self._on_move)
        for source, callback in self._callbacks.items():
            self._engine.unsubscribe(source.keys, callback)
        return [source for source in (*self._callbacks, *self._woken) if source.wake_state is None]

    def _callback_for(self, source: Source) -> Callable[[], None]:
        return lambda: self._call_in_loop(self._on_wake, source)

    def _on_wake(self, source: Source) -> None:
        del self._callbacks[source]
        self._woken[source] = None
        self._on_change()

    def _on_move(self) -> None:
        self._call_in_loop(self._wake_all)

    def _wake_all(self) -> None:
        """Wake the queues that are watched, and all groups, including those that rest."""
        wake = [source for source in self._sources if source.is_watched or source.wake_state is not None]
        self._woken.update(dict.fromkeys(wake))
        self._on_change()

    def _call_in_loop(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)


def _claims_at(source: Source) -> float:
    """Return when the worker claims anyway, by the clock of the engine and in microseconds."""
    return math.inf if source.next_in is None else source.claimed_at + round(source.next_in * 1_000_000)
