"""Keeps the queues watched that have no messages, and passes wake tokens on that this worker has no room for."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from duly._core import ops
from duly.errors import DulyError
from duly.worker.claim_plan import ClaimPlan
from duly.worker.logs import event
from duly.worker.node_work import NodeWork
from duly.worker.source import Source
from duly.worker.watcher import Bundle, Watcher
from duly.worker.workload import Workload

_LOG: Final = logging.getLogger("duly.worker")

_MAX_WAKE_TOKENS: Final = 16
"""Wake tokens held at once. Their queues are claimed from one by one, so other workers are faster with the rest."""

_TAKE_EVERY: Final = 0.005
"""Seconds between two calls by which a worker that is mostly full takes the wake tokens of a bundle of queues."""

_FULL_FOR_LONG: Final = 0.1
"""Seconds after which a worker that stays full passes its due times to other workers."""


class WatchKeeper:
    """Watches while there is room. A full worker does not begin to watch queues."""

    def __init__(
        self,
        sources: Sequence[Source],
        watcher: Watcher,
        plan: ClaimPlan,
        workload: Workload,
        node_work: NodeWork,
        notify_change: Callable[[], None],
    ) -> None:
        """Take `notify_change`, which is called when there may be something to claim."""
        self._sources = sources
        self._watcher = watcher
        self._plan = plan
        self._workload = workload
        self._node_work = node_work
        self._notify_change = notify_change
        self._full_since: float | None = None
        self._take_at = 0.0

    async def keep_watching(self) -> None:
        """Watch all sources that have no messages, even while others have some, as long as there is room."""
        now = time.monotonic()
        is_full = self._workload.is_full(now)
        if self._plan.pending_wakeups:
            await self._pass_wakeups_on(is_full=is_full)
        if is_full:
            await self._pass_timers_on(now)
        else:
            self._full_since = None
            self._watcher.note_rested(now)
        if not self._watcher.is_complete:
            await self._watch_more(now, is_full=is_full)
        if not is_full and self._watcher.check_at <= now:
            await self._poll_idle_queues(now)

    async def check_other_queues(self, now: float) -> None:
        """Find other queues that have messages, before a backlog takes the room of a worker that is mostly full.

        Such a worker has no blocking call pending. It takes the wake tokens that no idle worker has taken.
        """
        if self._full_since is None or self._workload.is_full(now):
            return
        if now >= self._take_at and not self._watcher.is_complete:
            self._take_at = now + _TAKE_EVERY
            if (bundle := self._watcher.bundle_to_take()) is not None:
                await self._node_work.run(bundle.node, self._take_tokens, bundle)
        if now >= self._watcher.check_at:
            await self._poll_idle_queues(now)

    def checks(self) -> Sequence[float]:
        """Return the times at which there is something to do without a wake-up."""
        if self._full_since is None:
            return self._watcher.rested_at(), self._watcher.check_at
        return (self._full_since + _FULL_FOR_LONG,)

    async def stop_watching_full_queues(self) -> None:
        """Let other workers watch the queues whose handlers have no room."""
        for runtime in list(self._workload.active):
            if runtime.source.is_watched and runtime.room <= 0:
                await self._stop_watching(runtime.source)

    async def leave_all(self) -> None:
        """End. Pass on wake tokens and timers, so that another worker claims from these queues."""
        for bundle in self._watcher.bundles:
            await self._node_work.run(bundle.node, self._leave, bundle)

    async def _leave(self, bundle: Bundle) -> None:
        """Stop watching first: the own blocking call would take the wake tokens that are passed on."""
        kept = [source for source in bundle.sources if source in self._plan.pending_wakeups]
        kept += [source for source in bundle.sources if source.is_watched and source.has_timer]
        for source in dict.fromkeys([*kept, *await self._watcher.leave(bundle)]):
            await _pass_wake_token_on(source)

    async def _watch_more(self, now: float, *, is_full: bool) -> None:
        """Watch all sources that have room. In a full pool these are groups, and sources whose batch is not full."""
        workload, watcher = self._workload, self._watcher
        if is_full:
            is_closed = workload.isolation.allows(now, workload.holds_any()) is None
            open_batches = [] if is_closed else list(workload.open_batches())
            for bundle in watcher.groups_to_watch():
                await self._node_work.run(bundle.node, self._watch, bundle, 0)
            for bundle, some in watcher.parts_to_watch(open_batches).items():
                await self._node_work.run(bundle.node, self._watch_some, bundle, some)
            return
        unclaimed = sum(source in self._plan.ready for source in self._plan.pending_wakeups)
        left = min(workload.pool_room(now), _MAX_WAKE_TOKENS - unclaimed)
        for bundle in watcher.incomplete():
            if left <= 0:
                break
            if watcher.may_watch(bundle):
                left -= await self._node_work.run(bundle.node, self._watch, bundle, left) or 0

    async def _poll_idle_queues(self, now: float) -> None:
        for bundle in self._watcher.due(now):
            await self._node_work.run(bundle.node, self._poll, bundle)

    async def _watch(self, bundle: Bundle, limit: int) -> int:
        """Watch a bundle. Return the number of wake tokens that were there already."""
        return self._note_wake_tokens(await self._watcher.watch(bundle, limit))

    async def _watch_some(self, bundle: Bundle, some: Sequence[Source]) -> None:
        self._note_wake_tokens(await self._watcher.watch_some(bundle, some))

    async def _take_tokens(self, bundle: Bundle) -> None:
        self._note_wake_tokens(await self._watcher.take(bundle, self._workload.pool_room(time.monotonic())))

    async def _poll(self, bundle: Bundle) -> None:
        for source in await self._watcher.missed(bundle):
            self._plan.make_ready(source)
            self._notify_change()

    def _note_wake_tokens(self, sources: Sequence[Source]) -> int:
        for source in sources:
            self._plan.note_wake_token(source)
            self._notify_change()
        return len(sources)

    # Passing wake tokens on

    async def _pass_wakeups_on(self, *, is_full: bool) -> None:
        """Pass wake tokens to other workers, for queues that this one has no room for."""
        for source in list(self._plan.pending_wakeups):
            if is_full or source in self._plan.full:
                await self._stop_watching(source)

    async def _pass_timers_on(self, now: float) -> None:
        """Pass due times to other workers, if this one stays full."""
        if self._full_since is None:
            self._full_since = now
        elif now >= self._full_since + _FULL_FOR_LONG:
            self._full_since = math.inf
            for source in self._sources:
                if source.is_watched and source.has_timer and not source.runtime.batch_space:
                    await self._stop_watching(source)

    async def _stop_watching(self, source: Source) -> None:
        """Claim from a source as soon as there is room. Until then other workers watch it."""
        source.is_watched = False
        if source.runtime.room > 0:
            self._plan.make_ready(source)
        else:
            self._plan.note_full(source)
        has_timer, source.has_timer = source.has_timer, False
        self._plan.pending_wakeups.pop(source, None)
        if has_timer:
            await self._node_work.run(source.node, _pass_wake_token_on, source)


async def _pass_wake_token_on(source: Source) -> None:
    """Leave a wake token if the queue has messages: another worker claims, and keeps the due times."""
    try:
        await source.link.run_now(ops.wake(source.keys))
    except DulyError as error:  # other workers poll after a while
        event(_LOG, logging.DEBUG, "wake.failed", queue=source.runtime.name, error=str(error))
