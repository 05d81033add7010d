"""Caches results of the server for about a second, so that many clients cause one fetch."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

_MAX_ENTRIES: Final = 500

T = TypeVar("T")


class Cached(Generic[T]):
    """Caches the result of one fetch. A slow result is kept for `cost_factor` times as long as its fetch took.

    Errors are raised to all waiting callers and are not cached. A fetch is cancelled when no caller waits for it. A
    dashboard may run in several event loops, one after the other. Each loop has its own fetch, because a caller cannot
    await a task of another loop. The loops cannot run at the same time, because they would share connections.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[T]],
        ttl: float = 1.0,
        *,
        cost_factor: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._new_entry = functools.partial(_LoopCache, fetch, ttl, cost_factor, clock)
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopCache[T]] = {}

    @property
    def is_expired(self) -> bool:
        """Whether the next call has to fetch."""
        return all(each.is_expired for each in self._by_loop.values())

    async def get(self) -> T:
        """Return the cached result, or fetch it. Concurrent callers share one fetch."""
        loop = asyncio.get_running_loop()
        fetch = self._by_loop.get(loop)
        if fetch is None:
            fetch = self._new_entry()
            live = {each: cached for each, cached in self._by_loop.items() if not each.is_closed()}
            self._by_loop = {**live, loop: fetch}
        return await fetch.get()


class _LoopCache(Generic[T]):
    """The cache of one event loop."""

    def __init__(
        self, fetch: Callable[[], Awaitable[T]], ttl: float, cost_factor: int, clock: Callable[[], float]
    ) -> None:
        self._fetch = fetch
        self._ttl = ttl
        self._cost_factor = cost_factor
        self._clock = clock
        self._task: asyncio.Task[T] | None = None
        self._waiters = 0
        self._expires_at = float("-inf")

    @property
    def is_expired(self) -> bool:
        """Whether the next call has to fetch."""
        return self._task is None or (self._task.done() and self._clock() >= self._expires_at)

    async def get(self) -> T:
        """Return the cached result, or fetch it."""
        if self.is_expired:
            self._task = asyncio.create_task(self._fetch_and_keep())
        task = self._task
        assert task is not None
        self._waiters += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiters -= 1
            if not self._waiters and not task.done():
                self._cancel(task)

    async def _fetch_and_keep(self) -> T:
        begin, self._expires_at = self._clock(), float("-inf")
        found = await self._fetch()
        end = self._clock()
        self._expires_at = end + max(self._ttl, self._cost_factor * (end - begin))
        return found

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        task.add_done_callback(_retrieve_error)
        if self._task is task:  # the next caller must not get this cancelled task
            self._task = None


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of an abandoned task, because asyncio logs errors that are never retrieved."""
    if not task.cancelled():
        task.exception()


class CachedByKey(Generic[T]):
    """Caches one result for each key. Expired entries are evicted when there are too many."""

    def __init__(self, fetch: Callable[[str], Awaitable[T]], ttl: float = 1.0) -> None:
        self._fetch = fetch
        self._ttl = ttl
        self._entries: dict[str, Cached[T]] = {}

    async def get(self, key: str) -> T:
        """Return the cached result of a key, or fetch it."""
        entry = self._entries.get(key)
        if entry is None:
            self._evict()
            entry = self._entries[key] = Cached(functools.partial(self._fetch, key), self._ttl)
        return await entry.get()

    def _evict(self) -> None:
        if len(self._entries) >= _MAX_ENTRIES:
            self._entries = {key: each for key, each in self._entries.items() if not each.is_expired}
