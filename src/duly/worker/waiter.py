"""Waits for the wake tokens of up to a few dozen queues of a worker, on one connection.

One block names the `wake` keys of all its queues that have nothing to give at the moment. It stays out while the
worker does other things; a callback announces its end. Due times are the fetcher's: it has timers.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from duly._async.link import AsyncLink
from duly._async.memory import AsyncMemoryLink
from duly._core import ops
from duly.errors import DulyError
from duly.worker.block import Block
from duly.worker.logs import event
from duly.worker.source import Source

_LOG: Final = logging.getLogger("duly.worker")


class ServerWaiter:
    """Watches queues of a server. `on_change` is called when `woken` has something to say."""

    rested_at = math.inf
    """A queue never rests."""

    def __init__(self, link: AsyncLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        self._link = link
        self._block = Block(link, on_change)
        self._sources = list(sources)
        self._first = 0
        """The place of the queue that is named first: behind the one that was served last."""
        self._named: dict[bytes, Source] = {}
        """What the block names that is out, or was out last."""
        self._was_woken = False
        """Whether a token came since there was none: there may be more."""
        self._taking: Sequence[Source] = ()
        """Queues whose tokens a call under way may have taken."""

    def is_watching(self, source: Source) -> bool:
        """Tell whether a block is out that names a queue."""
        return self._block.is_out and source.wake_key in self._named

    async def watch(self, limit: int, some: Collection[Source] | None = None) -> list[Source]:
        """Watch all, or `some`, that want it, or return those whose tokens are there already, up to `limit`.

        A block that has to name more queues is ended; it is announced, and another one may be begun.
        """
        wanted = [source for source in self._in_turn() if source.wants_watch and (some is None or source in some)]
        suffices = all(source.wake_key in self._named for source in wanted)
        if not await self._block.may_begin(suffices=suffices) or not wanted:
            return []
        if self._was_woken and len(wanted) > 1 and (taken := await self._take(wanted, limit)):
            return taken
        self._was_woken = False
        self._named = {source.wake_key: source for source in wanted}
        seconds = max(source.period for source in wanted)
        await self._block.begin([b"BLPOP", *self._named, f"{seconds:.3f}"], seconds)
        return []

    async def take(self, limit: int) -> list[Source]:
        """Take tokens that lie there, up to `limit`, unless a block is out."""
        wanted = [source for source in self._in_turn() if source.wants_watch]
        return await self._take(wanted, limit) if wanted and not self._block.is_out else []

    def woken(self) -> list[Source]:
        """Take what has come: the queues that have something to look at."""
        reply = self._block.reply()
        if reply is not None:
            source = self._named[reply[0]]
            self._note_served(source)
            return [source]
        # A token may have been on its way when the connection broke. Which one, if any, cannot be known.
        return list(self._named.values()) if self._block.take_failure() else []

    async def aclose(self) -> list[Source]:
        """Watch nothing more, and return the queues of which a token may have been taken."""
        watched = list(self._named.values()) if self._block.is_out else []
        if watched:
            await self._block.cut()
        await self._block.aclose()
        return [*watched, *self._taking]

    async def _take(self, wanted: Sequence[Source], limit: int) -> list[Source]:
        """Take the tokens that wait, without blocking, and no more than there is room for."""
        call = ops.take_tokens(self._sources[0].keys, [source.wake_key for source in wanted], limit)
        self._taking = wanted
        try:
            found = [wanted[position] for position in await self._link.run_on(call)]
        except DulyError as error:  # the block brings them, one by one
            event(_LOG, logging.DEBUG, "watch.failed", queue=wanted[0].runtime.name, error=str(error))
            found = []
        self._taking = ()
        if found:
            self._note_served(found[-1])
        return found

    def _in_turn(self) -> list[Source]:
        """List the queues so that the one that was served last comes last: servers prefer what is named first."""
        return self._sources[self._first :] + self._sources[: self._first]

    def _note_served(self, source: Source) -> None:
        self._was_woken = True
        self._first = (self._sources.index(source) + 1) % len(self._sources)


class MemoryWaiter:
    """Watches queues of `memory://`. When its clock is moved, all of them are worth a look."""

    rested_at = math.inf

    def __init__(self, link: AsyncMemoryLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        self._engine = link.engine
        self._loop = asyncio.get_running_loop()
        self._sources = list(sources)
        self._on_change = on_change
        self._callbacks: dict[Source, Callable[[], None]] = {}
        self._come: dict[Source, None] = {}
        self._engine.clock.watch(self._on_move)

    def is_watching(self, source: Source) -> bool:
        """Tell whether a queue is watched."""
        return source in self._callbacks

    async def watch(self, limit: int, some: Collection[Source] | None = None) -> list[Source]:  # noqa: ARG002
        """Watch all, or `some`, that want it."""
        for source in self._sources if some is None else some:
            if source not in self._callbacks and source.wants_watch:
                self._callbacks[source] = self._noter(source)
                self._engine.subscribe(source.keys, self._callbacks[source], source.claims_at)
        return []

    async def take(self, limit: int) -> list[Source]:
        """Name queues that have something, up to `limit`, of those that are not watched."""
        wanted = [source for source in self._sources if source.wants_watch and source not in self._callbacks]
        return [source for source in wanted if self._engine.has_something(source.keys)][:limit]

    def woken(self) -> list[Source]:
        """Take what has come."""
        come, self._come = self._come, {}
        return list(come)

    async def aclose(self) -> list[Source]:
        """Watch nothing more, and return the queues that another worker should look at."""
        self._engine.clock.unwatch(self._on_move)
        for source, callback in self._callbacks.items():
            self._engine.unsubscribe(source.keys, callback)
        return [*self._callbacks, *self._come]

    def _noter(self, source: Source) -> Callable[[], None]:
        return lambda: self._tell(self._note, source)

    def _note(self, source: Source) -> None:
        del self._callbacks[source]
        self._come[source] = None
        self._on_change()

    def _on_move(self) -> None:
        self._tell(self._look_everywhere)

    def _look_everywhere(self) -> None:
        self._come.update((source, None) for source in self._sources if source.is_watched)
        self._on_change()

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)


Waiter = ServerWaiter | MemoryWaiter


def waiter_for(link: AsyncLink | AsyncMemoryLink, sources: Sequence[Source], on_change: Callable[[], None]) -> Waiter:
    """Make the waiter that fits a link."""
    kind: Any = MemoryWaiter if isinstance(link, AsyncMemoryLink) else ServerWaiter
    waiter: Waiter = kind(link, sources, on_change)
    return waiter
