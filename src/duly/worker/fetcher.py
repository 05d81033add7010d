"""Claims messages while slots are free, and waits while there is nothing to claim.

On a cluster, each node has its own claim in progress, so that a node which does not answer delays no other one.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from duly._core.replies import Claimed
from duly.errors import DulyError
from duly.worker.claim import Claim
from duly.worker.claim_behind import LIMIT
from duly.worker.claim_choice import ClaimChoice
from duly.worker.claim_plan import ClaimPlan
from duly.worker.claimer import Claimer
from duly.worker.dispatcher import Dispatcher
from duly.worker.due_timer import DueTimer
from duly.worker.first_poll import FirstPoll
from duly.worker.idle_claims import IdleClaims
from duly.worker.intake import Intake
from duly.worker.logs import event
from duly.worker.node_work import NodeWork
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.source import Source
from duly.worker.watch_keeper import WatchKeeper
from duly.worker.watcher import Watcher
from duly.worker.workload import Workload

_LOG: Final = logging.getLogger("duly.worker")


class Fetcher:
    """Makes one claim at a time for each node: one server has one."""

    def __init__(
        self,
        dispatchers: Mapping[QueueRuntime, Dispatcher],
        pool: int | None,
        on_dead: Callable[[QueueRuntime, Sequence[str]], None],
        prepare: Callable[[Source], Awaitable[None]] | None = None,
    ) -> None:
        """Take `prepare`, which is awaited before the first claim of each group."""
        self._sources = [runtime.source for runtime in dispatchers]
        self._is_spread = is_spread = bool(self._sources[0].link.is_spread)
        self._node_work = NodeWork(is_spread=is_spread, on_end=self.notify_change)
        self._watcher = Watcher(self._sources, self.notify_change)
        self._plan = ClaimPlan(self._watcher, is_spread=is_spread)
        self._workload = Workload(dispatchers, pool, self._plan.in_progress, self._node_work, is_spread=is_spread)
        self._choice = ClaimChoice(self._plan, self._workload, self._node_work, is_spread=is_spread)
        self._claimer = Claimer(self._sources, self._plan, prepare)
        self._intake = Intake(dispatchers, self._plan, self._workload, on_dead, is_spread=is_spread)
        self._watch_keeper = WatchKeeper(
            self._sources, self._watcher, self._plan, self._workload, self._node_work, self.notify_change
        )
        self._first_poll = FirstPoll(self._watcher, self._plan)
        self._idle_claims = IdleClaims(self._sources, self._watcher)
        self._is_stopping = False
        self._has_changed = False
        self._sleeper: asyncio.Future[None] | None = None
        self._alarm: DueTimer | None = None
        for source in self._sources:
            self._plan.make_ready(source)

    def notify_change(self) -> None:
        """Wake the fetcher: there may be a free slot, a wake token, or a request to stop."""
        self._has_changed = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def note_progress(self, runtime: QueueRuntime) -> None:
        """Note that handlers of a queue have ended: it may have room."""
        self._plan.note_progress(runtime.source)
        self.notify_change()

    def stop(self) -> None:
        """Stop claiming."""
        self._is_stopping = self._intake.is_stopping = True
        self.notify_change()

    async def run(self) -> None:
        """Work until stopped. Raises Refused when the server denies every queue from the beginning."""
        self._alarm = DueTimer(self.notify_change)
        try:
            while not self._is_stopping:
                self._node_work.raise_error()
                now = time.monotonic()
                self._note_woken()
                self._plan.note_due(now)
                await self._watch_keeper.check_other_queues(now)
                claim = self._answered_claim() or self._choice.next(now)
                if claim is None:
                    await self._wait(now)
                else:
                    await self._poll_or_claim(claim)
                    await self._watch_keeper.keep_watching()
            await self._withdraw_claim()
            while self._plan.in_progress:  # their messages are released
                await self._sleep(None)
                self._node_work.raise_error()
        except asyncio.CancelledError:
            self._node_work.cancel()
            raise
        finally:
            self._alarm.close()

    async def aclose(self) -> None:
        """End. Pass on wake tokens and timers, so that another worker claims from these queues."""
        await self._watch_keeper.leave_all()
        await self._node_work.join()

    def cut_off(self) -> None:
        """Wait for no more answers."""
        self._node_work.cancel()

    def _note_woken(self) -> None:
        for source in self._watcher.woken():
            if not self._idle_claims.is_pending(source):
                self._plan.note_wake_token(source)

    def _should_claim_ahead(self, claim: Claim) -> bool:
        """Return whether to send the next claim before handlers start: the server carries it out while they run.

        The messages of an idle worker come first. On a cluster, tasks make the claims, and handlers run in between.
        """
        source = claim.source
        is_in_backlog = source in self._plan.ready and claim.behind is None and not self._is_spread
        return is_in_backlog and source.runtime.room > 0

    async def _poll_or_claim(self, claim: Claim) -> None:
        """Begin a claim. Before the first one from a bundle of queues, find out instead which of them are empty."""
        if self._claimer.has_claimed and (bundle := self._first_poll.take(claim.source)) is not None:
            await self._node_work.run(bundle.node, self._first_poll.poll, bundle)
            return
        self._plan.begin(claim)
        await self._node_work.run(claim.node, self._claim, claim)
        if not self._should_claim_ahead(claim):
            await asyncio.sleep(0)  # handlers first, then the next block or claim

    async def _claim(self, claim: Claim) -> None:
        """Carry out a claim, take its messages, and send those of due schedules."""
        try:
            claimed = await self._claimer.answer_to(claim)
            if claimed is not None:
                await self._intake.take(claim, claimed)
        finally:
            self._plan.end(claim)
        if claimed is not None and claimed.schedules:
            await self._fire(claim.source, claimed)

    async def _fire(self, source: Source, claimed: Claimed) -> None:
        """Send the messages of due schedules, and claim from the source again if there were any."""
        if not self._is_stopping and await source.fire(claimed.now, claimed.schedules):
            self._plan.make_ready(source)

    # Claiming behind a blocking call

    def _answered_claim(self) -> Claim | None:
        """Return the claim that was sent behind a blocking call, if it is answered."""
        behind = self._idle_claims.take_answered()
        return None if behind is None else Claim.sent_behind(self._sources[0], behind)

    def _send_claim_behind(self) -> None:
        """Send a claim behind the blocking call, if the worker is idle."""
        source = self._sources[0]
        if not self._plan.in_progress and source not in self._plan.ready and self._idle_claims.send():
            self._plan.poll_by_claim(source)

    async def _withdraw_claim(self) -> None:
        """Withdraw the claim behind the blocking call, and release what it has taken."""
        source = self._sources[0]
        try:
            claimed = await self._idle_claims.withdraw()
        except DulyError as error:
            event(_LOG, logging.ERROR, "claim.failed", queue=source.runtime.name, error=str(error))
            return
        if claimed is not None:
            await self._intake.take(Claim(source, LIMIT, "none", LIMIT), claimed)

    # Waiting

    async def _wait(self, now: float) -> None:
        """Wait for a wake token, a free slot, a due time, or a request to stop."""
        for runtime in list(self._workload.active):
            self._workload.release_excess(runtime, now)
        await self._watch_keeper.stop_watching_full_queues()
        await self._watch_keeper.keep_watching()
        self._send_claim_behind()
        await self._sleep(self._next_check(now))

    def _next_check(self, now: float) -> float | None:
        """Return when to check again without a wake-up."""
        times = [
            self._workload.isolation.changes_at(), self._plan.timers.next_at(), self._node_work.slow_at(now),
            *self._workload.excess_checks(now), *self._watch_keeper.checks(),
        ]  # fmt: skip
        moment = min((moment for moment in times if moment is not None), default=math.inf)
        return None if moment == math.inf else moment

    async def _sleep(self, until: float | None) -> None:
        """Sleep until `notify_change` is called, or until a point in time."""
        if self._has_changed:
            self._has_changed = False
            return
        assert self._alarm is not None
        self._alarm.set(until)
        self._sleeper = asyncio.get_running_loop().create_future()
        await self._sleeper
        self._has_changed, self._sleeper = False, None
