"""Looks at the server that many share: whoever asks while one is under way, or a moment after, is given the same."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

_MOST_KEPT: Final = 500

T = TypeVar("T")


class Shared(Generic[T]):
    """One look, and what it found. `share`: one that takes long is made seldom, for so many times as long it is kept.

    What went wrong is told to all who waited for it, and not kept. A look that nobody waits for any more is given up.
    A dashboard may be served by one event loop after the other: each has a look of its own, for nobody can wait for the
    work of another loop. Side by side they cannot serve it, for they would share the connections to the server.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[T]],
        fresh_for: float = 1.0,
        *,
        share: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = functools.partial(_Look, look, fresh_for, share, clock)
        self._looks: dict[asyncio.AbstractEventLoop, _Look[T]] = {}

    @property
    def is_over(self) -> bool:
        """Whether the next who asks has to look."""
        return all(each.is_over for each in self._looks.values())

    async def get(self) -> T:
        """Look, unless somebody does, or just did."""
        loop = asyncio.get_running_loop()
        look = self._looks.get(loop)
        if look is None:
            look = self._make()
            others = {each: kept for each, kept in self._looks.items() if not each.is_closed()}
            self._looks = {**others, loop: look}
        return await look.get()


class _Look(Generic[T]):
    """The look of one event loop."""

    def __init__(
        self, look: Callable[[], Awaitable[T]], fresh_for: float, share: int, clock: Callable[[], float]
    ) -> None:
        self._look = look
        self._fresh_for = fresh_for
        self._share = share
        self._clock = clock
        self._task: asyncio.Task[T] | None = None
        self._waiting = 0
        self._until = float("-inf")

    @property
    def is_over(self) -> bool:
        """Whether the next who asks has to look."""
        return self._task is None or (self._task.done() and self._clock() >= self._until)

    async def get(self) -> T:
        """Look, unless somebody does, or just did."""
        if self.is_over:
            self._task = asyncio.create_task(self._looked())
        task = self._task
        assert task is not None
        self._waiting += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting -= 1
            if not self._waiting and not task.done():
                self._give_up(task)

    async def _looked(self) -> T:
        begin, self._until = self._clock(), float("-inf")
        found = await self._look()
        end = self._clock()
        self._until = end + max(self._fresh_for, self._share * (end - begin))
        return found

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        task.add_done_callback(_let_go)
        if self._task is task:  # whoever asks now must not be given an end that was not meant for him
            self._task = None


def _let_go(task: asyncio.Task[Any]) -> None:
    """Take note of an error for which nobody waits any more: asyncio would complain that nobody did."""
    if not task.cancelled():
        task.exception()


class SharedByKey(Generic[T]):
    """Such looks at many things, each by its name. Of those that nobody asks for, few are remembered."""

    def __init__(self, look: Callable[[str], Awaitable[T]], fresh_for: float = 1.0) -> None:
        self._look = look
        self._fresh_for = fresh_for
        self._kept: dict[str, Shared[T]] = {}

    async def get(self, key: str) -> T:
        """Look at one of them, unless somebody does, or just did."""
        shared = self._kept.get(key)
        if shared is None:
            self._forget()
            shared = self._kept[key] = Shared(functools.partial(self._look, key), self._fresh_for)
        return await shared.get()

    def _forget(self) -> None:
        if len(self._kept) >= _MOST_KEPT:
            self._kept = {key: each for key, each in self._kept.items() if not each.is_over}
