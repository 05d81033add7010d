"""Waits for the wake tokens of up to a few dozen queues of a worker, on one connection.

One blocking call names the `wake` keys of all its queues that have no messages at the moment. It stays pending while
the worker does other things, and a callback announces its end. The fetcher keeps due times by its timers.
"""

import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import Final

from duly._async.link import AsyncLink
from duly._async.pool import AsyncPool
from duly._core import ops
from duly.errors import DulyError
from duly.worker.blocking_call import BlockingCall
from duly.worker.claim_behind import ClaimBehind
from duly.worker.logs import event
from duly.worker.source import Source

_LOG: Final = logging.getLogger("duly.worker")


class QueueWaiter:
    """Watches queues of a server. `on_change` is called when `woken` has something to return."""

    rested_at: float = math.inf
    """A queue never rests."""

    def __init__(self, link: AsyncLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        self._link = link
        self._block = BlockingCall(link, sources[0].keys, on_change)
        self._sources = list(sources)
        self._first = 0
        """The position of the queue that is named first: it follows the one that was served last."""
        self._named: dict[bytes, Source] = {}
        """The queues of the pending or last call, by wake key."""
        self._was_woken = False
        """Whether a wake token has come since none was found: there may be more."""
        self._may_be_taken: Sequence[Source] = ()
        """Queues whose wake tokens a call in progress may have taken."""

    def is_watching(self, source: Source) -> bool:
        """Return whether the pending call names a queue."""
        return self._block.is_pending and source.wake_key in self._named

    async def watch(self, limit: int, some: Collection[Source] | None = None) -> list[Source]:
        """Watch all queues, or `some`, that want it. If wake tokens are there already, take up to `limit` instead.

        A pending call that lacks a queue is ended. The callback announces this, and another call may begin.
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

    @property
    def pool_to_send_behind(self) -> AsyncPool | None:
        """The pool of the pending call. None: no call is pending."""
        return self._block.blocked_pool

    def send_behind(self, claim: ClaimBehind) -> None:
        """Send a claim behind the pending call. `on_change` announces its answer."""
        self._block.send_behind(claim)

    async def cut(self) -> None:
        """Make the server close the connection, so that it carries out nothing more that was sent on it."""
        await self._block.cut()

    async def take(self, limit: int) -> list[Source]:
        """Take up to `limit` wake tokens without blocking, unless a call is pending."""
        wanted = [source for source in self._in_turn() if source.wants_watch]
        return await self._take(wanted, limit) if wanted and not self._block.is_pending else []

    def woken(self) -> list[Source]:
        """Take the reply, and return the queues to claim from."""
        reply = self._block.reply()
        if reply is not None:
            source = self._named[reply[0]]
            self._note_served(source)
            return [source]
        # A wake token may have been in transit when the connection broke. Any of the queues may be affected.
        return list(self._named.values()) if self._block.take_failure() else []

    async def aclose(self) -> list[Source]:
        """Stop watching, and return the queues whose wake token may have been taken."""
        watched = list(self._named.values()) if self._block.is_pending else []
        if watched:
            await self._block.cut()
        await self._block.aclose()
        return [*watched, *self._may_be_taken]

    async def _take(self, wanted: Sequence[Source], limit: int) -> list[Source]:
        """Take up to `limit` wake tokens without blocking."""
        call = ops.take_tokens(self._sources[0].keys, [source.wake_key for source in wanted], limit)
        self._may_be_taken = wanted
        try:
            found = [wanted[position] for position in await self._link.run_on(call)]
        except DulyError as error:  # the blocking call returns them one by one
            event(_LOG, logging.DEBUG, "watch.failed", queue=wanted[0].runtime.name, error=str(error))
            found = []
        self._may_be_taken = ()
        if found:
            self._note_served(found[-1])
        return found

    def _in_turn(self) -> list[Source]:
        """List the queues, with the one that was served last at the end: servers prefer keys that are named first."""
        return self._sources[self._first :] + self._sources[: self._first]

    def _note_served(self, source: Source) -> None:
        self._was_woken = True
        self._first = (self._sources.index(source) + 1) % len(self._sources)
