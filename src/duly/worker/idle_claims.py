"""When an idle worker sends a claim behind its blocking call. See `claim_behind.py`."""

import time
from collections.abc import Sequence
from typing import Any, Final

from duly._async.link import AsyncLink
from duly._core.replies import Claimed
from duly.worker.claim_behind import LIMIT, ClaimBehind
from duly.worker.queue_waiter import QueueWaiter
from duly.worker.source import Source
from duly.worker.watcher import Watcher

_MARGIN: Final = 0.3
"""Seconds by which a server may end a blocking call too late. A due time must be later than that."""


class IdleClaims:
    """At most one pending claim, of a worker that has one queue and holds no message.

    A worker that holds messages does not send one: a handler may block the event loop, and nothing would renew a lease
    whose claim was not read yet. A limit of the queue counts what an ordinary claim takes, so such queues have none.
    """

    def __init__(self, sources: Sequence[Source], watcher: Watcher) -> None:
        self._source = sources[0]
        waiter: Any = watcher.bundles[0].waiter
        options = self._source.runtime.options
        has_limit = options.rate is not None or options.max_in_flight is not None
        is_fit = len(sources) == 1 and not self._source.link.is_spread and not has_limit
        self._waiter: QueueWaiter | None = waiter if is_fit and isinstance(waiter, QueueWaiter) else None
        self._claim: ClaimBehind | None = None

    def is_pending(self, source: Source) -> bool:
        """Return whether a claim of this source is pending, so that its wake tokens need no other."""
        return self._claim is not None and source is self._source

    def send(self) -> bool:
        """Send a claim behind the blocking call, if nothing is due before the call ends. True: it is pending."""
        waiter, source = self._waiter, self._source
        if waiter is None or self._claim is not None or source.runtime.busy or not source.is_watched:
            return False
        if source.next_at < time.monotonic() + source.period + _MARGIN:
            return False
        link: AsyncLink = source.link
        call = source.claim_call(LIMIT, then="behind", suspects="none")
        if (pool := waiter.pool_to_send_behind) is None or not link.is_compared(call, pool):
            return False
        self._claim = ClaimBehind(link, call)
        waiter.send_behind(self._claim)
        return True

    def take_answered(self) -> ClaimBehind | None:
        """Return the claim if its answer is there, or if its connection is broken."""
        if self._claim is None or not self._claim.is_answered:
            return None
        claim, self._claim = self._claim, None
        return claim

    async def withdraw(self) -> Claimed | None:
        """Take the pending claim back, and return what it has taken. None: there is none."""
        claim, self._claim = self._claim, None
        if claim is None or self._waiter is None:
            return None
        await self._waiter.cut()
        return await claim.withdraw(self._source.claim_call(0, then="pass", suspects="none"))
