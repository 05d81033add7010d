"""Claims messages while slots are free, and waits while there is nothing to claim.

On a cluster, each node has its own claim in progress, so that a node which does not answer delays no other one.
"""

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from duly._core import ops, patience
from duly._core.replies import Claimed
from duly._core.topology import Node
from duly._reclaim_log import log_reclaimed
from duly.errors import DulyError, Unavailable
from duly.worker.claim import Claim
from duly.worker.claim_behind import LIMIT
from duly.worker.dispatcher import Dispatcher
from duly.worker.due_timer import DueTimer
from duly.worker.idle_claims import IdleClaims
from duly.worker.isolation import Isolation
from duly.worker.logs import event
from duly.worker.node_work import NodeWork
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.refusals import is_refusal
from duly.worker.shares import Shares
from duly.worker.source import AnyDelivery, Source
from duly.worker.timers import Timers
from duly.worker.watcher import Bundle, Watcher

_LOG: Final = logging.getLogger("duly.worker")

_MAX_CLAIM: Final = 250
"""Messages per claim. Larger claims save nothing, and settles wait behind them on the server."""

_SUSPECT_POLL: Final = 0.1
"""Seconds between claims while a suspect waits for an idle worker."""

_EXCESS_AFTER: Final = 1.0
"""Seconds after which messages that were claimed ahead are released, if handlers have become slow."""

_MAX_WAKE_TOKENS: Final = 16
"""Wake tokens held at once. Their queues are claimed from one by one, so other workers are faster with the rest."""

_TAKE_EVERY: Final = 0.005
"""Seconds between two calls by which a worker that is mostly full takes the wake tokens of a bundle of queues."""

_FULL_FOR_LONG: Final = 0.1
"""Seconds after which a worker that stays full passes its due times to other workers."""

_SLOW_PAUSE: Final = 1.0
"""Seconds for which the queues of a node that does not answer are not candidates."""

_REFUSED_PAUSE: Final = 5.0
"""Seconds before the next claim of a queue whose claim the server refused."""


class Refused(Exception):
    """The server has refused the claims of every queue since the worker started."""

    def __init__(self, error: DulyError) -> None:
        self.error = error


class Fetcher:
    """Makes one claim at a time for each node: one server has one. A full worker does not begin to watch queues."""

    def __init__(
        self,
        dispatchers: Mapping[QueueRuntime, Dispatcher],
        pool: int | None,
        on_dead: Callable[[QueueRuntime, Sequence[str]], None],
        prepare: Callable[[Source], Awaitable[None]] | None = None,
    ) -> None:
        """Take `prepare`, which is awaited before the first claim of each group."""
        self._dispatchers = dispatchers
        self._sources = [runtime.source for runtime in dispatchers]
        self._is_spread = bool(self._sources[0].link.is_spread)
        self._pool = pool
        """Handlers at once over all queues. None: only the limits of each queue hold."""
        self._on_dead = on_dead
        self._prepare = prepare
        self._unprepared = {source for source in self._sources if source.wake_state is not None and prepare is not None}
        self._node_work = NodeWork(is_spread=self._is_spread, on_end=self.notify_change)
        self._claims: dict[Source, Claim] = {}
        """Claims in progress. On one server, none while the next one is chosen."""
        self._ready: Shares[Source] = Shares()
        """Sources to claim from as soon as the pool has room."""
        self._full: set[Source] = set()
        """Sources to claim from as soon as their own handlers have room."""
        self._timers: Timers[Source] = Timers()
        """When to claim from the other sources. Idle queues have no timer."""
        self._pending_wakeups: dict[Source, None] = {}
        """Queues whose wake token was taken, or whose due time has come. They are claimed from, or passed on."""
        self._active: dict[QueueRuntime, None] = {}
        """Queues that have messages in flight, and a few that had."""
        self._isolation = Isolation()
        self._watcher = Watcher(self._sources, self.notify_change)
        self._idle_claims = IdleClaims(self._sources, self._watcher)
        self._full_since: float | None = None
        self._take_at = 0.0
        self._fails: Counter[Node | None] = Counter()
        """Consecutive claims that did not reach each node."""
        self._refused: set[Source] | None = set()
        """Sources whose claims the server has refused so far. None: a claim has succeeded."""
        self._is_stopping = False
        self._has_changed = False
        self._sleeper: asyncio.Future[None] | None = None
        self._alarm: DueTimer | None = None
        for source in self._sources:
            self._make_ready(source)

    def notify_change(self) -> None:
        """Wake the fetcher: there may be a free slot, a wake token, or a request to stop."""
        self._has_changed = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def note_progress(self, runtime: QueueRuntime) -> None:
        """Note that handlers of a queue have ended: it may have room."""
        source = runtime.source
        if source in self._full:
            self._full.discard(source)
            self._make_ready(source)
        elif source.is_watched:
            self._watcher.note_room(source)
        self.notify_change()

    def stop(self) -> None:
        """Stop claiming."""
        self._is_stopping = True
        self.notify_change()

    async def run(self) -> None:
        """Work until stopped. Raises Refused when the server denies every queue from the beginning."""
        self._alarm = DueTimer(self.notify_change)
        try:
            while not self._is_stopping:
                self._node_work.raise_error()
                now = time.monotonic()
                self._note_woken()
                self._note_due(now)
                if self._full_since is not None and not self._is_full(now):
                    await self._check_other_queues(now)
                claim = self._answered_claim() or self._next_claim(now)
                if claim is None:
                    await self._wait(now)
                else:
                    self._claims[claim.source] = claim
                    await self._node_work.run(claim.node, self._claim, claim)
                    await asyncio.sleep(0)  # handlers first, then the next block or claim
                    await self._keep_watching()
            await self._withdraw_claim()
            while self._claims:  # their messages are released
                await self._sleep(None)
                self._node_work.raise_error()
        except asyncio.CancelledError:
            self._node_work.cancel()
            raise
        finally:
            self._alarm.close()

    async def aclose(self) -> None:
        """End. Pass on wake tokens and timers, so that another worker claims from these queues."""
        for bundle in self._watcher.bundles:
            await self._node_work.run(bundle.node, self._leave, bundle)
        await self._node_work.join()

    async def _leave(self, bundle: Bundle) -> None:
        """Stop watching first: the own blocking call would take the wake tokens that are passed on."""
        kept = [source for source in bundle.sources if source in self._pending_wakeups]
        kept += [source for source in bundle.sources if source.is_watched and source.has_timer]
        for source in dict.fromkeys([*kept, *await self._watcher.leave(bundle)]):
            await self._pass_wake_token_on(source)

    def cut_off(self) -> None:
        """Wait for no more answers."""
        self._node_work.cancel()

    # Choosing the next claim

    def _next_claim(self, now: float) -> Claim | None:
        """Choose a source, the number of messages to claim, and whether suspects may be among them."""
        if self._is_spread:
            if any(claim.suspects == "alone" and not claim.is_slow(now) for claim in self._claims.values()):
                return None  # it may bring a suspect
            if self._isolation.is_clearing and self._lacks_node(now):
                self._isolation.give_up(now)
        suspects = self._isolation.allows(now, self._holds_any() or bool(self._claims))
        if suspects is None:
            return None
        calls = self._pool_room(now)
        while (source := self._candidate(calls, now)) is not None:
            runtime = source.runtime
            room = runtime.room
            if room > 0:
                part = self._ready.part_of(source, calls) if calls else 0
                most = room if self._pool is None else part * runtime.per_slot + runtime.batch_space
                return Claim(source, min(room, most, _MAX_CLAIM), suspects, part)
            self._note_full(source)
        return None

    def _candidate(self, calls: int, now: float) -> Source | None:
        """Choose a source whose node has no claim in progress. `calls` is the room of the pool."""
        if not calls:
            return self._open_batch_source()
        source = self._ready.first()
        if not self._is_spread:
            return source
        while source is not None and self._node_work.is_slow(source.node, now):
            self._ready.remove(source)  # the others share the room
            self._timers.set(source, now + _SLOW_PAUSE)
            source = self._ready.first()
        if source is None or self._is_free(source):
            return source
        return self._ready.first_of(filter(self._is_free, self._ready))

    def _is_free(self, source: Source) -> bool:
        """Return whether a claim from a source would not have to wait for its node."""
        return source not in self._claims and not self._node_work.is_busy(source.node)

    def _lacks_node(self, now: float) -> bool:
        """Return whether a node does not answer. Its messages are not finished soon, so no suspect can run alone."""
        if not self._is_spread:
            return False
        return self._node_work.has_slow(now) or any(
            runtime.source.held and runtime.source.is_down for runtime in self._active
        )

    def _holds_any(self) -> int:
        """Return whether any message would count a crash if this process died now."""
        for runtime in [runtime for runtime in self._active if not runtime.busy]:
            del self._active[runtime]
            runtime.excess_since = None
        return any(runtime.source.held for runtime in self._active)

    def _pool_room(self, now: float) -> int:
        """Count the handler calls that neither a message nor a claim in progress needs.

        A slow claim does not count: it would keep the pool from the queues of other nodes. If it brings messages after
        all, those without room are released.
        """
        if self._pool is None:
            return _MAX_CLAIM
        free = self._free_calls()
        if self._claims:
            free -= sum(claim.calls for claim in self._claims.values() if not claim.is_slow(now))
        return max(free, 0)

    def _free_calls(self) -> int:
        """Count the handler calls that are free in the pool, or could be claimed ahead.

        With several queues nothing is claimed ahead. Each queue has its own slots, so messages that wait for one queue
        would run in addition to those of other queues, and exceed the pool.
        """
        if self._pool is None:
            return _MAX_CLAIM
        only = self._sources[0].runtime
        ahead = only.ahead // only.per_slot if len(self._sources) == 1 else 0
        return max(self._pool + ahead - sum(runtime.calls for runtime in self._active), 0)

    def _open_batch_source(self) -> Source | None:
        """Choose a source whose batch is not full yet. Its messages need no room in the pool."""
        sources = (runtime.source for runtime in self._active if runtime.batch_space > 0)
        return self._ready.first_of(filter(self._is_free, sources) if self._is_spread else sources)

    def _note_full(self, source: Source) -> None:
        """Claim from a source as soon as its handlers have room."""
        self._timers.cancel(source)
        self._ready.remove(source)
        self._full.add(source)
        source.is_idle = False
        self._watcher.note_claim(source)

    def _make_ready(self, source: Source) -> None:
        """Claim from a source when its turn comes."""
        self._timers.cancel(source)
        source.is_idle = False
        if source not in self._full:
            self._ready.add(source)
            self._watcher.expect_claim(source)

    def _note_woken(self) -> None:
        for source in self._watcher.woken():
            if not self._idle_claims.is_pending(source):
                self._note_wake_token(source)

    def _note_wake_token(self, source: Source) -> None:
        if source in self._claims:
            self._claims[source].is_woken = True
            return
        if source.wake_state is not None:
            source.wake_state.is_woken = True
        else:
            source.has_timer = True  # if no slot is free, the wake token is passed on
            self._pending_wakeups[source] = None
        self._make_ready(source)

    def _note_due(self, now: float) -> None:
        for source in self._timers.due(now):
            if source.has_timer:
                self._pending_wakeups[source] = None
            self._make_ready(source)

    # Claiming behind a blocking call

    def _answered_claim(self) -> Claim | None:
        """Return the claim that was sent behind a blocking call, if it is answered."""
        behind = self._idle_claims.take_answered()
        return None if behind is None else Claim.sent_behind(self._sources[0], behind)

    def _send_claim_behind(self) -> None:
        """Send a claim behind the blocking call, if the worker is idle. It comes in place of the next poll."""
        source = self._sources[0]
        if not self._claims and source not in self._ready and self._idle_claims.send():
            self._timers.cancel(source)
            source.is_idle = False

    async def _withdraw_claim(self) -> None:
        """Withdraw the claim behind the blocking call, and release what it has taken."""
        source = self._sources[0]
        try:
            claimed = await self._idle_claims.withdraw()
        except DulyError as error:
            event(_LOG, logging.ERROR, "claim.failed", queue=source.runtime.name, error=str(error))
            return
        if claimed is not None:
            await self._take(Claim(source, LIMIT, "none", LIMIT), claimed)

    # Claiming

    async def _claim(self, claim: Claim) -> None:
        try:
            claimed = await self._answer_to(claim)
            if claimed is not None:
                await self._take(claim, claimed)
        finally:
            self._note_answered(claim)
        if claimed is not None and claimed.schedules:
            await self._fire(claim.source, claimed.now, claimed.schedules)

    async def _answer_to(self, claim: Claim) -> Claimed | None:
        """Carry out a claim, and plan the next one. None: it failed."""
        source, runtime = claim.source, claim.source.runtime
        try:
            if source in self._unprepared and self._prepare is not None:
                await self._prepare(source)
                self._unprepared.discard(source)
            claimed, is_asked_now = await self._asked(claim)
        except Unavailable as error:
            self._note_unavailable(claim, error)
            return None
        except DulyError as error:
            event(_LOG, logging.ERROR, "claim.failed", queue=runtime.name, error=str(error))
            self._postpone(source, _REFUSED_PAUSE)
            self._note_refusal(source, error)
            return None
        self._refused = None
        now = source.polled_at = time.monotonic()
        self._fails[claim.node] = 0
        self._pending_wakeups.pop(source, None)
        if is_asked_now:
            runtime.pace.learn(runtime.handled, claim.asked_at, now)
            source.clock_translator.learn(claim.asked_at, now, claimed.now)
        else:
            source.clock_translator.learn_from_answer(now, claimed.now)
        self._plan(claim, claimed, now)
        return claimed

    async def _asked(self, claim: Claim) -> tuple[Claimed, bool]:
        """Return the answer to a claim, and whether the server carried it out only now."""
        if claim.behind is not None:
            return await claim.behind.answer(), False
        call = claim.source.claim_call(claim.limit, then="stay", suspects=claim.suspects)
        claimed: Claimed = await claim.source.link.run_claim(call)
        return claimed, True

    def _note_answered(self, claim: Claim) -> None:
        """Let other claims begin. Claim again if the source has woken since."""
        if self._claims.pop(claim.source, None) is not None and claim.is_woken:
            self._note_wake_token(claim.source)

    async def _fire(self, source: Source, now: int, due: Sequence[tuple[str, bytes]]) -> None:
        """Send the messages of due schedules, and claim from the source again if there were any."""
        if not self._is_stopping and await source.fire(now, due):
            self._make_ready(source)

    def _note_unavailable(self, claim: Claim, error: Unavailable) -> None:
        """Retry soon. The link has logged the outage, unless an embedded server could not be started."""
        source, fails = claim.source, self._fails[claim.node]
        if not fails and not source.is_down:
            event(_LOG, logging.ERROR, "claim.failed", queue=source.runtime.name, error=str(error))
        self._postpone(source, patience.backoff(fails, random.random))
        self._fails[claim.node] = fails + 1

    def _note_refusal(self, source: Source, error: DulyError) -> None:
        """Raise Refused if no claim has ever succeeded: the password is wrong, or the server evicts keys.

        After a first success, refusals are retried.
        """
        if self._refused is not None and is_refusal(error):
            self._refused.add(source)
            if len(self._refused) == len(self._sources):
                raise Refused(error)

    def _postpone(self, source: Source, seconds: float) -> None:
        """Retry a failed claim later. A group is not watched until then: unclaimed entries would wake it at once."""
        self._ready.remove(source)
        self._timers.set(source, time.monotonic() + seconds)
        source.is_watched = source.is_watched and source.wake_state is None
        self._watcher.note_claim(source)

    def _plan(self, claim: Claim, claimed: Claimed, now: float) -> None:
        """Decide when to claim from this source again."""
        source = claim.source
        if source.wake_state is not None:
            source.wake_state.learn(claimed, now)
        is_at_limit = len(claimed.ids) == claim.limit and claim.behind is None
        is_cut_short = is_at_limit or claimed.next_in == 0
        source.is_watched = not is_cut_short and not claimed.passed_over
        self._watcher.note_claim(source)
        self._ready.remove(source)
        if self._is_spread:  # the state may have changed during the claim
            self._timers.cancel(source)
            self._full.discard(source)
        if is_cut_short:
            source.fruitless = 0
            self._ready.add(source)
            return
        pause, is_exact = patience.pause_before(claimed.next_in, source.period, source.period, source.fruitless)
        claim_at = now + pause
        if is_exact and claimed.next_in == pause:
            claim_at = min(claim_at, source.clock_translator.call_at(claimed.now + pause * 1e6))
        source.fruitless = source.fruitless + 1 if is_exact and not claimed.ids else 0
        source.claimed_at, source.next_in = claimed.now, claimed.next_in
        source.next_at = math.inf if claimed.next_in is None else now + claimed.next_in
        source.has_timer = claimed.next_in is not None and source.wake_state is None  # in a group, all members keep it
        source.is_idle = source.is_watched and claimed.next_in is None and source.wake_state is None
        if not source.is_idle:
            # A suspect leaves a wake token behind that would wake this worker at once, so it polls by the clock.
            self._timers.set(source, min(claim_at, now + _SUSPECT_POLL) if claimed.passed_over else claim_at)

    async def _take(self, claim: Claim, claimed: Claimed) -> None:
        """Hold the claimed messages, and dispatch them."""
        source, runtime = claim.source, claim.source.runtime
        if claimed.reclaimed:
            self._note_reclaimed(runtime, claimed)
        fitting = self._fitting(claim)
        deliveries = runtime.take(claimed)
        if deliveries:
            self._active[runtime] = None
            is_earlier = claim.behind is not None or self._is_stopping
            leased_at = source.clock_translator.not_before(claimed.fence) if is_earlier else claim.asked_at
            await self._confirm(source, deliveries, leased_at)
        self._note_answered(claim)
        is_alone = claim.suspects == "alone" and len(deliveries) == 1 and runtime.is_suspect(deliveries[0])
        has_others = self._is_spread and self._has_others(source, len(deliveries))
        has_passed_over = claimed.passed_over or (is_alone and has_others)
        self._note_suspects(claim, is_alone=is_alone, has_others=has_others, has_passed_over=has_passed_over)
        if is_alone and has_others:
            fitting = 0  # others were claimed while this claim was slow
        if fitting < len(deliveries) or self._is_stopping:
            excess = deliveries if self._is_stopping else deliveries[fitting:]
            self._dispatchers[runtime].release(excess)
            deliveries = deliveries[: -len(excess)]
        if deliveries:
            self._ready.took(source, len(deliveries))
            self._dispatchers[runtime].dispatch(deliveries, alone=is_alone)

    def _fitting(self, claim: Claim) -> int:
        """Return how many messages of a claim there is room for. A slow claim has lost its room."""
        if self._pool is None or not self._is_spread or not claim.is_slow(time.monotonic()):
            return claim.limit
        runtime = claim.source.runtime
        return self._pool_room(time.monotonic()) * runtime.per_slot + runtime.batch_space

    def _has_others(self, source: Source, claimed: int) -> bool:
        """Return whether this worker holds or claims more than the messages that were just claimed."""
        if self._claims or len(source.held) > claimed:
            return True
        return any(runtime.source.held for runtime in self._active if runtime.source is not source)

    def _note_suspects(self, claim: Claim, *, is_alone: bool, has_others: bool, has_passed_over: bool) -> None:
        """Note what a claim has shown about suspects."""
        now, lease = time.monotonic(), claim.source.runtime.lease
        if claim.suspects == "alone" and not has_others:
            self._isolation.took(now, lease, is_suspect=is_alone, has_passed_over=has_passed_over)
        elif has_passed_over and not self._lacks_node(now):
            self._isolation.passed_over(now, lease)

    async def _confirm(self, source: Source, deliveries: list[AnyDelivery], leased_at: float) -> None:
        """Renew new leases, and mark those that were lost, if the queue was renewed after the claim was sent.

        The reply to a claim may be read late: the process was stopped, or a handler blocked the event loop. The renewer
        did not know these messages when it renewed the others, so its result does not include them.
        """
        runtime = source.runtime
        while runtime.lease_validity.until > leased_at + runtime.lease:
            leased_at = time.monotonic()
            leases = [(delivery, runtime.lease) for delivery in deliveries]
            try:
                lost = await source.link.run_now(ops.extend(source.keys, leases, renews=True))
            except DulyError:  # the state of the leases is unknown, so no handler starts
                lost = range(len(deliveries))
            for position in lost:
                deliveries[position].lost = True
                source.held.discard(deliveries[position])

    def _note_reclaimed(self, runtime: QueueRuntime, claimed: Claimed) -> None:
        log_reclaimed(runtime.name, claimed.reclaimed)
        if dead := [each.id for each in claimed.reclaimed if each.is_dead]:
            self._on_dead(runtime, dead)

    # Waiting

    async def _wait(self, now: float) -> None:
        """Wait for a wake token, a free slot, a due time, or a request to stop."""
        for runtime in list(self._active):
            self._release_excess(runtime, now)
            if runtime.source.is_watched and runtime.room <= 0:
                await self._stop_watching(runtime.source)
        await self._keep_watching()
        self._send_claim_behind()
        await self._sleep(self._next_check(now))

    async def _keep_watching(self) -> None:
        """Watch all sources that have no messages, even while others have some, as long as there is room."""
        now = time.monotonic()
        is_full = self._is_full(now)
        if self._pending_wakeups:
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

    async def _check_other_queues(self, now: float) -> None:
        """Find other queues that have messages, before a backlog takes the room of a worker that is mostly full.

        Such a worker has no blocking call pending. It takes the wake tokens that no idle worker has taken.
        """
        if now >= self._take_at and not self._watcher.is_complete:
            self._take_at = now + _TAKE_EVERY
            if (bundle := self._watcher.bundle_to_take()) is not None:
                await self._node_work.run(bundle.node, self._take_tokens, bundle)
        if now >= self._watcher.check_at:
            await self._poll_idle_queues(now)

    async def _watch_more(self, now: float, *, is_full: bool) -> None:
        """Watch all sources that have room. In a full pool these are groups, and sources whose batch is not full."""
        if is_full:
            is_closed = self._isolation.allows(now, self._holds_any()) is None
            open_batches = [runtime.source for runtime in self._active if runtime.batch_space > 0 and not is_closed]
            for bundle in self._watcher.groups_to_watch():
                await self._node_work.run(bundle.node, self._watch, bundle, 0)
            for bundle, some in self._watcher.parts_to_watch(open_batches).items():
                await self._node_work.run(bundle.node, self._watch_some, bundle, some)
            return
        unclaimed = sum(source in self._ready for source in self._pending_wakeups)
        left = min(self._pool_room(now), _MAX_WAKE_TOKENS - unclaimed)
        for bundle in self._watcher.incomplete():
            if left <= 0:
                break
            if self._watcher.may_watch(bundle):
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
        self._note_wake_tokens(await self._watcher.take(bundle, self._pool_room(time.monotonic())))

    async def _poll(self, bundle: Bundle) -> None:
        for source in await self._watcher.missed(bundle):
            self._make_ready(source)
            self.notify_change()

    def _note_wake_tokens(self, sources: Sequence[Source]) -> int:
        for source in sources:
            self._note_wake_token(source)
            self.notify_change()
        return len(sources)

    def _is_full(self, now: float) -> bool:
        """Return whether no message of any queue could be claimed, even if the claims in progress bring none."""
        return not self._free_calls() or self._isolation.allows(now, self._holds_any()) is None

    async def _pass_wakeups_on(self, *, is_full: bool) -> None:
        """Pass wake tokens to other workers, for queues that this one has no room for."""
        for source in list(self._pending_wakeups):
            if is_full or source in self._full:
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

    def _next_check(self, now: float) -> float | None:
        """Return when to check again without a wake-up."""
        times = [self._isolation.changes_at(), self._timers.next_at(), self._node_work.slow_at(now)]
        for runtime in self._active:
            if runtime.excess_since is not None:
                times.append(runtime.excess_since + _EXCESS_AFTER)
            if self._dispatchers[runtime].waiting:
                times.append(now + _EXCESS_AFTER)
        if self._full_since is None:
            times += [self._watcher.rested_at(), self._watcher.check_at]
        else:
            times.append(self._full_since + _FULL_FOR_LONG)
        moment = min((moment for moment in times if moment is not None), default=math.inf)
        return None if moment == math.inf else moment

    def _release_excess(self, runtime: QueueRuntime, now: float) -> None:
        """Release messages that were claimed ahead, if handlers have become slow: other workers may have free slots."""
        ahead = -(-runtime.ahead // runtime.per_slot)
        if self._dispatchers[runtime].waiting <= ahead:
            runtime.excess_since = None
        elif runtime.excess_since is None:
            runtime.excess_since = now
        elif now >= runtime.excess_since + _EXCESS_AFTER:
            self._dispatchers[runtime].release_beyond(ahead)
            runtime.excess_since = None

    async def _stop_watching(self, source: Source) -> None:
        """Claim from a source as soon as there is room. Until then other workers watch it."""
        source.is_watched = False
        if source.runtime.room > 0:
            self._make_ready(source)
        else:
            self._note_full(source)
        has_timer, source.has_timer = source.has_timer, False
        self._pending_wakeups.pop(source, None)
        if has_timer:
            await self._node_work.run(source.node, self._pass_wake_token_on, source)

    async def _pass_wake_token_on(self, source: Source) -> None:
        """Leave a wake token if the queue has messages: another worker claims, and keeps the due times."""
        try:
            await source.link.run_now(ops.wake(source.keys))
        except DulyError as error:  # other workers poll after a while
            event(_LOG, logging.DEBUG, "wake.failed", queue=source.runtime.name, error=str(error))

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
