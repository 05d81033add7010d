"""Claims messages when there are slots for them, and waits when there is nothing to claim."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from duly._async.schedules import fire_due
from duly._core import ops, patience
from duly._core.ops import Suspects
from duly._core.replies import Claimed
from duly._reclaim_log import log_reclaimed
from duly.errors import DulyError, Unavailable
from duly.worker.dispatcher import Dispatcher
from duly.worker.isolation import Isolation
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.refusals import is_refusal
from duly.worker.shares import Shares
from duly.worker.source import AnyDelivery, Source
from duly.worker.timers import Timers
from duly.worker.watch import Watch

_LOG: Final = logging.getLogger("duly.worker")

_MOST_AT_ONCE: Final = 250
"""Messages of one claim: larger ones save nothing, and settles wait behind them in the server."""

_LOOK_PAST_SUSPECTS: Final = 0.1
_HOARDING: Final = 1.0
"""Seconds after which what was claimed ahead of handlers that have become slow is given back."""

_MOST_TOKENS: Final = 16
"""Tokens that are held at once: their queues are claimed from one after the other, others may be faster with more."""

_TAKE_EVERY: Final = 0.005
"""Seconds between two looks of a worker that is full most of the time at the tokens of one bundle of queues."""

_FULL_FOR_LONG: Final = 0.1
"""Seconds after which a worker that stays full lets others keep due times."""

_REFUSED_PAUSE: Final = 5.0
"""Seconds before the next claim of a queue whose claim the server refused."""


class Refused(Exception):
    """Nothing that was asked of the server could be done, from the beginning."""

    def __init__(self, error: DulyError) -> None:
        self.error = error


class Fetcher:
    """One claim at a time, over all queues. A full worker asks for nothing, and begins to watch nothing."""

    def __init__(
        self,
        dispatchers: Mapping[QueueRuntime, Dispatcher],
        pool: int | None,
        on_dead: Callable[[QueueRuntime, Sequence[str]], None],
    ) -> None:
        self._dispatchers = dispatchers
        self._sources = [runtime.source for runtime in dispatchers]
        self._pool = pool
        """Handlers at once over all queues; None: what each queue may have."""
        self._on_dead = on_dead
        self._ready: Shares[Source] = Shares()
        """Those to claim from as soon as there is room in the pool."""
        self._full: set[Source] = set()
        """Those to claim from as soon as their own handlers have room."""
        self._timers: Timers[Source] = Timers()
        """When to claim from the others, but for idle queues."""
        self._owed: dict[Source, None] = {}
        """Queues whose token was taken, or whose due time has come: if they are not claimed from, it is passed on."""
        self._active: dict[QueueRuntime, None] = {}
        """Those that have messages in hand, and a few that had."""
        self._isolation = Isolation()
        self._watch = Watch(self._sources, self.look)
        self._full_since: float | None = None
        self._take_at = 0.0
        self._fails = 0
        """Claims in a row that did not reach the server."""
        self._refused: set[Source] | None = set()
        """Sources whose claims the server has refused so far; None: one was allowed."""
        self._is_stopping = False
        self._has_changed = False
        self._rest: asyncio.Future[None] | None = None
        for source in self._sources:
            self._make_ready(source)

    def look(self) -> None:
        """Something has changed: there may be a slot, a token, or the order to stop."""
        self._has_changed = True
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    def note_progress(self, runtime: QueueRuntime) -> None:
        """Handlers of a queue have ended: it may have room."""
        source = runtime.source
        if source in self._full:
            self._full.discard(source)
            self._make_ready(source)
        elif source.is_watched:
            self._watch.note_room(source)
        self.look()

    def stop(self) -> None:
        """Claim nothing more."""
        self._is_stopping = True
        self.look()

    async def run(self) -> None:
        """Work until stopped. Raises Refused when the server denies every queue from the beginning."""
        while not self._is_stopping:
            now = time.monotonic()
            self._note_woken()
            self._note_due(now)
            if self._full_since is not None and not self._is_full(now):
                await self._look_around(now)
            choice = self._choice(now)
            if choice is None:
                await self._wait(now)
            else:
                await self._claim(*choice)
                await asyncio.sleep(0)  # first the handlers, then the next block or claim
                await self._keep_watching()

    async def aclose(self) -> None:
        """Leave. Tokens that were taken and timers that were kept are passed on, so that another worker looks."""
        timers = [source for source in self._sources if source.is_watched and source.has_timer]
        for source in dict.fromkeys([*self._owed, *timers, *await self._watch.aclose()]):
            await self._pass_on(source)

    # What to ask for

    def _choice(self, now: float) -> tuple[Source, int, Suspects] | None:
        """Choose a source, how many to ask it for, and which."""
        suspects = self._isolation.allows(now, self._held())
        if suspects is None:
            return None
        calls = self._pool_room()
        while (source := self._ready.first() if calls else self._joining()) is not None:
            runtime = source.runtime
            room = runtime.room
            if room > 0:
                part = self._ready.part_of(source, calls) if calls else 0
                most = room if self._pool is None else part * runtime.per_slot + runtime.space
                return source, min(room, most, _MOST_AT_ONCE), suspects
            self._note_full(source)
        return None

    def _held(self) -> int:
        """Tell whether anything would be counted as crashed if this process died now."""
        for runtime in [runtime for runtime in self._active if not runtime.busy]:
            del self._active[runtime]
            runtime.hoards_since = None
        return any(runtime.source.held for runtime in self._active)

    def _pool_room(self) -> int:
        """Count the calls of handlers that are free in the pool, or could be claimed ahead.

        Several queues claim nothing ahead: each has slots of its own, so what one of them has waiting would be
        run beside what the others run, and the pool would not hold.
        """
        if self._pool is None:
            return _MOST_AT_ONCE
        only = self._sources[0].runtime
        ahead = only.ahead // only.per_slot if len(self._sources) == 1 else 0
        return max(self._pool + ahead - sum(runtime.calls for runtime in self._active), 0)

    def _joining(self) -> Source | None:
        """Choose a source whose messages would join a call that is being made up: it needs no room in the pool."""
        return self._ready.first_of(runtime.source for runtime in self._active if runtime.space > 0)

    def _note_full(self, source: Source) -> None:
        """Claim from a source when its handlers have room."""
        self._timers.cancel(source)
        self._ready.remove(source)
        self._full.add(source)
        source.is_idle = False
        self._watch.note_claim(source)

    def _make_ready(self, source: Source) -> None:
        """Claim from a source as soon as it is its turn."""
        self._timers.cancel(source)
        source.is_idle = False
        if source not in self._full:
            self._ready.add(source)
            self._watch.expect_claim(source)

    def _note_woken(self) -> None:
        for source in self._watch.woken():
            self._note_token(source)

    def _note_token(self, source: Source) -> None:
        if source.wake_state is not None:
            source.wake_state.is_woken = True
        else:
            source.has_timer = True  # if there is no slot now, the token is passed on
            self._owed[source] = None
        self._make_ready(source)

    def _note_due(self, now: float) -> None:
        for source in self._timers.due(now):
            if source.has_timer:
                self._owed[source] = None
            self._make_ready(source)

    # Claiming

    async def _claim(self, source: Source, limit: int, suspects: Suspects) -> None:
        runtime = source.runtime
        asked_at = time.monotonic()
        call = source.queue._claim(limit=limit, lease=runtime.lease, then="stay", suspects=suspects)
        try:
            claimed = await source.link.run_on(call)
        except Unavailable as error:
            self._note_unavailable(source, error)
            return
        except DulyError as error:
            event(_LOG, logging.ERROR, "claim.failed", queue=runtime.name, error=str(error))
            self._put_off(source, _REFUSED_PAUSE)
            self._note_refused(source, error)
            return
        self._refused = None
        now = source.polled_at = time.monotonic()
        self._fails = 0
        self._owed.pop(source, None)
        runtime.pace.learn(runtime.handled, asked_at, now)
        self._plan(source, claimed, limit, now)
        await self._take(source, claimed, suspects, asked_at)
        if due := claimed.schedules:
            await self._fire(source, claimed.now, due)

    async def _fire(self, source: Source, now: int, due: Sequence[tuple[str, bytes]]) -> None:
        """Send what schedules have to send by now, and look at once at what they sent."""
        if not self._is_stopping and await fire_due(source.link, source.keys, now, due, source.queue._app._new_id):
            self._make_ready(source)

    def _note_unavailable(self, source: Source, error: Unavailable) -> None:
        """Ask again soon. The link has said that the server is away, unless it could not even be started."""
        if not self._fails and not source.link.is_down:
            event(_LOG, logging.ERROR, "claim.failed", queue=source.runtime.name, error=str(error))
        self._put_off(source, patience.backoff(self._fails, random.random))
        self._fails += 1

    def _note_refused(self, source: Source, error: DulyError) -> None:
        """Give up when nothing ever worked: a wrong password, a server that evicts. What has worked may work again."""
        if self._refused is not None and is_refusal(error):
            self._refused.add(source)
            if len(self._refused) == len(self._sources):
                raise Refused(error)

    def _put_off(self, source: Source, seconds: float) -> None:
        """Ask again after a claim that failed. A group would hear at once of what it could not claim."""
        self._ready.remove(source)
        self._timers.set(source, time.monotonic() + seconds)
        source.is_watched = source.is_watched and source.wake_state is None
        self._watch.note_claim(source)

    def _plan(self, source: Source, claimed: Claimed, limit: int, now: float) -> None:
        """Decide when to ask this source again."""
        if source.wake_state is not None:
            source.wake_state.learn(claimed, now)
        is_cut_short = len(claimed.ids) == limit or claimed.next_in == 0
        source.is_watched = not is_cut_short and not claimed.passed_over
        self._watch.note_claim(source)
        self._ready.remove(source)
        if is_cut_short:
            source.fruitless = 0
            self._ready.add(source)
            return
        pause, is_exact = patience.pause_before(claimed.next_in, source.period, source.period, source.fruitless)
        source.fruitless = source.fruitless + 1 if is_exact and not claimed.ids else 0
        source.claims_at = math.inf if claimed.next_in is None else claimed.now + round(claimed.next_in * 1_000_000)
        source.has_timer = claimed.next_in is not None and source.wake_state is None  # else all members keep it
        source.is_idle = source.is_watched and claimed.next_in is None and source.wake_state is None
        if not source.is_idle:
            # The token that is left for a suspect would wake us at once: while one is passed over, we use the clock.
            self._timers.set(source, now + (min(pause, _LOOK_PAST_SUSPECTS) if claimed.passed_over else pause))

    async def _take(self, source: Source, claimed: Claimed, suspects: Suspects, asked_at: float) -> None:
        runtime = source.runtime
        if claimed.reclaimed:
            self._note_reclaimed(runtime, claimed)
        deliveries = runtime.take(claimed)
        if deliveries:
            self._active[runtime] = None
            await self._confirm(source, deliveries, asked_at)
        is_alone = suspects == "alone" and len(deliveries) == 1 and runtime.is_suspect(deliveries[0])
        now, has_passed_over = time.monotonic(), claimed.passed_over
        if suspects == "alone":
            self._isolation.took(now, runtime.lease, is_suspect=is_alone, has_passed_over=has_passed_over)
        elif has_passed_over:
            self._isolation.passed_over(now, runtime.lease)
        if deliveries and self._is_stopping:
            self._dispatchers[runtime].release(deliveries)
        elif deliveries:
            self._ready.took(source, len(deliveries))
            self._dispatchers[runtime].dispatch(deliveries, alone=is_alone)

    async def _confirm(self, source: Source, deliveries: list[AnyDelivery], leased_at: float) -> None:
        """Ask whether these are still ours, if others were renewed since they were leased.

        The answer to a claim may be read late: this process was stopped, or a handler blocked the event loop. The
        renewer did not know of these messages then, so what it says of all that is held does not hold for them.
        """
        runtime = source.runtime
        while runtime.freshness.until > leased_at + runtime.lease:
            leased_at = time.monotonic()
            leases = [(delivery, runtime.lease) for delivery in deliveries]
            try:
                lost = await source.link.run_now(ops.extend(source.keys, leases, renews=True))
            except DulyError:  # nobody knows: to be on the safe side they are not begun
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
        """Wait for a token, a slot, a due time, or the order to stop."""
        for runtime in list(self._active):
            self._give_hoarded_back(runtime, now)
            if runtime.source.is_watched and runtime.room <= 0:
                await self._stop_watching(runtime.source)
        await self._keep_watching()
        await self._sleep(self._next_look(now))

    async def _keep_watching(self) -> None:
        """Watch all that has nothing to give at the moment, also while others have, as long as there is room."""
        now = time.monotonic()
        is_full = self._is_full(now)
        if self._owed:
            await self._pass_owed_on(is_full=is_full)
        if is_full:
            await self._pass_timers_on(now)
        else:
            self._full_since = None
            self._watch.note_rested(now)
        if not self._watch.is_complete:
            for source in await self._watch_more(is_full=is_full):
                self._note_token(source)
                self.look()
        if not is_full and self._watch.look_at <= now:
            for source in await self._watch.forgotten(now):
                self._make_ready(source)
                self.look()

    async def _look_around(self, now: float) -> None:
        """Find what others have, before a backlog takes the room that a full worker has for a moment.

        Such a worker has no block out. It takes tokens that lie there: no idle worker waits for these.
        """
        if now >= self._take_at and not self._watch.is_complete:
            self._take_at = now + _TAKE_EVERY
            for source in await self._watch.take(self._pool_room()):
                self._note_token(source)
        if now >= self._watch.look_at:
            for source in await self._watch.forgotten(now):
                self._make_ready(source)

    async def _watch_more(self, *, is_full: bool) -> list[Source]:
        """Watch all that there is room for: in a full pool, only those whose messages would join a call."""
        if is_full:
            is_closed = self._isolation.allows(time.monotonic(), self._held()) is None
            joining = [runtime.source for runtime in self._active if runtime.space > 0 and not is_closed]
            await self._watch.listen()
            return await self._watch.go_on_with(joining)
        unclaimed = sum(source in self._ready for source in self._owed)
        return await self._watch.go_on(min(self._pool_room(), _MOST_TOKENS - unclaimed))

    def _is_full(self, now: float) -> bool:
        """Whether nothing could be claimed, of whatever queue."""
        return not self._pool_room() or self._isolation.allows(now, self._held()) is None

    async def _pass_owed_on(self, *, is_full: bool) -> None:
        """Let other workers look at what this one has no room for."""
        for source in list(self._owed):
            if is_full or source in self._full:
                await self._stop_watching(source)

    async def _pass_timers_on(self, now: float) -> None:
        """Let other workers keep the due times, if this one stays full for a while."""
        if self._full_since is None:
            self._full_since = now
        elif now >= self._full_since + _FULL_FOR_LONG:
            self._full_since = math.inf
            for source in self._sources:
                if source.is_watched and source.has_timer and not source.runtime.space:
                    await self._stop_watching(source)

    def _next_look(self, now: float) -> float | None:
        """When to look again although nothing was heard."""
        times = [self._isolation.changes_at(), self._timers.next_at()]
        for runtime in self._active:
            if runtime.hoards_since is not None:
                times.append(runtime.hoards_since + _HOARDING)
            if self._dispatchers[runtime].waiting:
                times.append(now + _HOARDING)
        if self._full_since is None:
            times += [self._watch.rested_at(), self._watch.look_at]
        else:
            times.append(self._full_since + _FULL_FOR_LONG)
        moment = min((moment for moment in times if moment is not None), default=math.inf)
        return None if moment == math.inf else moment

    def _give_hoarded_back(self, runtime: QueueRuntime, now: float) -> None:
        """Give back what was claimed ahead when handlers were fast, and they are slow now: others may have slots."""
        ahead = -(-runtime.ahead // runtime.per_slot)
        if self._dispatchers[runtime].waiting <= ahead:
            runtime.hoards_since = None
        elif runtime.hoards_since is None:
            runtime.hoards_since = now
        elif now >= runtime.hoards_since + _HOARDING:
            self._dispatchers[runtime].release_beyond(ahead)
            runtime.hoards_since = None

    async def _stop_watching(self, source: Source) -> None:
        """Claim from a source as soon as there is room. Until then others look after it."""
        source.is_watched = False
        if source.runtime.room > 0:
            self._make_ready(source)
        else:
            self._note_full(source)
        if source.has_timer:
            await self._pass_on(source)
            source.has_timer = False
        self._owed.pop(source, None)

    async def _pass_on(self, source: Source) -> None:
        """Leave a token, if anything is to come: another worker claims, and keeps what falls due."""
        try:
            await source.link.run_now(ops.wake(source.keys))
        except DulyError as error:  # others look again by themselves after a while
            event(_LOG, logging.DEBUG, "wake.failed", queue=source.runtime.name, error=str(error))

    async def _sleep(self, until: float | None) -> None:
        """Sleep until something changes, or a point in time."""
        if self._has_changed:
            self._has_changed = False
            return
        loop = asyncio.get_running_loop()
        self._rest = loop.create_future()
        timer = None if until is None else loop.call_at(until + loop.time() - time.monotonic(), self.look)
        await self._rest
        self._has_changed, self._rest = False, None
        if timer is not None:
            timer.cancel()
