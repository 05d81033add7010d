"""Counts the messages that a worker holds and claims, and the room for more."""

import time
from collections.abc import Iterator, Mapping
from typing import Final

from duly.worker.claim import Claim
from duly.worker.dispatcher import Dispatcher
from duly.worker.isolation import Isolation
from duly.worker.node_work import NodeWork
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.source import Source

MAX_CLAIM: Final = 250
"""Messages per claim. Larger claims save nothing, and settles wait behind them on the server."""

_EXCESS_AFTER: Final = 1.0
"""Seconds after which messages that were claimed ahead are released, if handlers have become slow."""


class Workload:
    """The messages of all queues of a worker, and the room for more."""

    def __init__(
        self,
        dispatchers: Mapping[QueueRuntime, Dispatcher],
        pool: int | None,
        claims: Mapping[Source, Claim],
        node_work: NodeWork,
        *,
        is_spread: bool,
    ) -> None:
        """Take the claims in progress, and whether the queues are on several nodes."""
        self._dispatchers = dispatchers
        self.pool = pool
        """Handlers at once over all queues. None: only the limits of each queue hold."""
        self._only = next(iter(dispatchers)) if len(dispatchers) == 1 else None
        self._claims = claims
        self._node_work = node_work
        self._is_spread = is_spread
        self.active: dict[QueueRuntime, None] = {}
        """Queues that have messages in flight, and a few that had."""
        self.isolation: Isolation = Isolation()

    def holds_any(self) -> bool:
        """Return whether any message would count a crash if this process died now."""
        for runtime in [runtime for runtime in self.active if not runtime.busy]:
            del self.active[runtime]
            runtime.excess_since = None
        return any(runtime.source.held for runtime in self.active)

    def has_others(self, source: Source, claimed: int) -> bool:
        """Return whether this worker holds or claims more than the messages that were just claimed."""
        if self._claims or len(source.held) > claimed:
            return True
        return any(runtime.source.held for runtime in self.active if runtime.source is not source)

    def lacks_node(self, now: float) -> bool:
        """Return whether a node does not answer. Its messages are not finished soon, so no suspect can run alone."""
        if not self._is_spread:
            return False
        return self._node_work.has_slow(now) or any(
            runtime.source.held and runtime.source.is_down for runtime in self.active
        )

    # Room

    def is_full(self, now: float) -> bool:
        """Return whether no message of any queue could be claimed, even if the claims in progress bring none."""
        return not self._free_calls() or self.isolation.allows(now, self.holds_any()) is None

    def pool_room(self, now: float) -> int:
        """Count the handler calls that neither a message nor a claim in progress needs.

        A slow claim does not count: it would keep the pool from the queues of other nodes. If it brings messages after
        all, those without room are released.
        """
        if self.pool is None:
            return MAX_CLAIM
        free = self._free_calls()
        if self._claims:
            free -= sum(claim.calls for claim in self._claims.values() if not claim.is_slow(now))
        return max(free, 0)

    def _free_calls(self) -> int:
        """Count the handler calls that are free in the pool, or could be claimed ahead.

        With several queues nothing is claimed ahead. Each queue has its own slots, so messages that wait for one queue
        would run in addition to those of other queues, and exceed the pool.
        """
        if self.pool is None:
            return MAX_CLAIM
        ahead = 0 if self._only is None else self._only.ahead // self._only.per_slot
        return max(self.pool + ahead - sum(runtime.calls for runtime in self.active), 0)

    def fitting(self, claim: Claim) -> int:
        """Return how many messages of a claim there is room for. A slow claim has lost its room."""
        if self.pool is None or not self._is_spread or not claim.is_slow(time.monotonic()):
            return claim.limit
        runtime = claim.source.runtime
        return self.pool_room(time.monotonic()) * runtime.per_slot + runtime.batch_space

    def open_batches(self) -> Iterator[Source]:
        """Find the sources whose batch is not full yet. Its messages need no room in the pool."""
        return (runtime.source for runtime in self.active if runtime.batch_space > 0)

    # Messages that were claimed ahead of handlers which have become slow

    def release_excess(self, runtime: QueueRuntime, now: float) -> None:
        """Release messages that were claimed ahead, if handlers have become slow: other workers may have free slots."""
        ahead = -(-runtime.ahead // runtime.per_slot)
        if self._dispatchers[runtime].waiting <= ahead:
            runtime.excess_since = None
        elif runtime.excess_since is None:
            runtime.excess_since = now
        elif now >= runtime.excess_since + _EXCESS_AFTER:
            self._dispatchers[runtime].release_beyond(ahead)
            runtime.excess_since = None

    def excess_checks(self, now: float) -> Iterator[float]:
        """Find the times at which to call `release_excess` again."""
        for runtime in self.active:
            if runtime.excess_since is not None:
                yield runtime.excess_since + _EXCESS_AFTER
            if self._dispatchers[runtime].waiting:
                yield now + _EXCESS_AFTER
