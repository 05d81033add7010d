"""Claims messages when there are slots for them, and waits when there is nothing to claim."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from duly._async.schedules import fire_due
from duly._core import ops, patience
from duly._core.ops import Suspects
from duly._core.reclaims import log_reclaimed
from duly._core.replies import Claimed
from duly.errors import DulyError, Unavailable
from duly.worker.dispatcher import Dispatcher
from duly.worker.isolation import Isolation
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.refusals import is_refusal
from duly.worker.shares import Shares
from duly.worker.source import AnyDelivery
from duly.worker.watch import Watch

_LOG: Final = logging.getLogger("duly.worker")

_MOST_AT_ONCE: Final = 250
"""Messages of one claim: larger ones save nothing, and settles wait behind them in the server."""

_LOOK_PAST_SUSPECTS: Final = 0.1
_HOARDING: Final = 1.0
"""Seconds after which what was claimed ahead of handlers that have become slow is given back."""

_REFUSED_PAUSE: Final = 5.0
"""Seconds before the next claim of a queue whose claim the server refused."""


class Refused(Exception):
    """Nothing that was asked of the server could be done, from the beginning."""

    def __init__(self, error: DulyError) -> None:
        self.error = error


class Fetcher:
    """One claim at a time, over all queues. A full worker asks for nothing, and watches nothing."""

    def __init__(
        self,
        dispatchers: Mapping[QueueRuntime, Dispatcher],
        pool: int | None,
        on_dead: Callable[[QueueRuntime, Sequence[str]], None],
    ) -> None:
        self._dispatchers = dispatchers
        self._runtimes = list(dispatchers)
        self._pool = pool
        """Handlers at once over all queues; None: what each queue may have."""
        self._on_dead = on_dead
        self._shares: Shares[QueueRuntime] = Shares()
        self._isolation = Isolation()
        self._watch = Watch(self._runtimes, self.look)
        self._fails = 0
        """Claims in a row that did not reach the server."""
        self._refused: set[QueueRuntime] | None = set()
        """Queues whose claims the server has refused so far; None: one was allowed."""
        self._is_stopping = False
        self._has_changed = False
        self._rest: asyncio.Future[None] | None = None

    def look(self) -> None:
        """Something has changed: there may be a slot, a token, or the order to stop."""
        self._has_changed = True
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    def stop(self) -> None:
        """Claim nothing more."""
        self._is_stopping = True
        self.look()

    async def run(self) -> None:
        """Work until stopped. Raises Refused when the server denies every queue from the beginning."""
        while not self._is_stopping:
            self._note_woken()
            choice = self._choice(time.monotonic())
            if choice is None:
                await self._wait()
            else:
                await self._claim(*choice)
                await asyncio.sleep(0)  # first the handlers, then the next block or claim

    async def aclose(self) -> None:
        """Leave. What was watched here is handed on, so that a due time finds another watcher."""
        blocked = set(await self._watch.aclose())  # of these a token may be lost
        for runtime in self._runtimes:
            if runtime in blocked or (runtime.source.is_watched and runtime.source.has_timer):
                await self._hand_on(runtime)

    # What to ask for

    def _choice(self, now: float) -> tuple[QueueRuntime, int, Suspects] | None:
        """Choose a queue, how many to ask it for, and which."""
        suspects = self._isolation.allows(now, self._held())
        if suspects is None:
            return None
        candidates = [runtime for runtime in self._runtimes if runtime.source.ask_at <= now and self._has_room(runtime)]
        if not candidates:
            return None
        runtime = self._shares.next_of(candidates)
        return runtime, min(runtime.room, self._part_of_pool(runtime, candidates), _MOST_AT_ONCE), suspects

    def _held(self) -> int:
        """Count what would be counted as crashed if this process died now."""
        return sum(len(runtime.source.held) for runtime in self._runtimes)

    def _has_room(self, runtime: QueueRuntime) -> bool:
        """Whether more of a queue may be claimed: within its own bounds, and those of the pool."""
        return runtime.room > 0 and (self._pool is None or self._pool_room() > 0 or runtime.space > 0)

    def _pool_room(self) -> int:
        """Count the calls of handlers that are free, or could be claimed ahead.

        Several queues claim nothing ahead: each has slots of its own, so what one of them has waiting would be
        run beside what the others run, and the pool would not hold.
        """
        assert self._pool is not None
        only, *others = self._runtimes
        ahead = 0 if others else only.ahead // only.per_slot
        return max(self._pool + ahead - sum(runtime.calls for runtime in self._runtimes), 0)

    def _part_of_pool(self, runtime: QueueRuntime, candidates: Sequence[QueueRuntime]) -> int:
        """Divide what is free in the pool by weight."""
        if self._pool is None:
            return _MOST_AT_ONCE
        calls = self._pool_room()
        part = self._shares.part_of(runtime, candidates, calls) if calls else 0
        return part * runtime.per_slot + runtime.space

    def _note_woken(self) -> None:
        for runtime in self._watch.woken():
            runtime.source.ask_at = 0.0
            if runtime.source.wake_state is not None:
                runtime.source.wake_state.is_woken = True
            else:
                runtime.source.is_watched = runtime.source.has_timer = (
                    True  # if there is no slot now, the token is handed on
                )

    # Claiming

    async def _claim(self, runtime: QueueRuntime, limit: int, suspects: Suspects) -> None:
        asked_at = time.monotonic()
        call = runtime.queue._claim(limit=limit, lease=runtime.lease, then="stay", suspects=suspects)
        try:
            claimed = await runtime.source.link.run_on(call)
        except Unavailable as error:
            self._note_unavailable(runtime, error)
            return
        except DulyError as error:
            event(_LOG, logging.ERROR, "claim.failed", queue=runtime.name, error=str(error))
            self._put_off(runtime, _REFUSED_PAUSE)
            self._note_refused(runtime, error)
            return
        self._refused = None
        now = runtime.source.polled_at = time.monotonic()
        self._fails = 0
        runtime.pace.learn(runtime.handled, asked_at, now)
        self._plan(runtime, claimed, limit, now)
        await self._take(runtime, claimed, suspects, asked_at)
        if due := claimed.schedules:
            await self._fire(runtime, claimed.now, due)

    async def _fire(self, runtime: QueueRuntime, now: int, due: Sequence[tuple[str, bytes]]) -> None:
        """Send what schedules have to send by now, and look at once at what they sent."""
        if not self._is_stopping and await fire_due(
            runtime.source.link, runtime.source.keys, now, due, runtime.queue._app._new_id
        ):
            runtime.source.ask_at = 0.0

    def _note_unavailable(self, runtime: QueueRuntime, error: Unavailable) -> None:
        """Ask again soon. The link has said that the server is away, unless it could not even be started."""
        if not self._fails and not runtime.source.link.is_down:
            event(_LOG, logging.ERROR, "claim.failed", queue=runtime.name, error=str(error))
        self._put_off(runtime, patience.backoff(self._fails, random.random))
        self._fails += 1

    def _note_refused(self, runtime: QueueRuntime, error: DulyError) -> None:
        """Give up when nothing ever worked: a wrong password, a server that evicts. What has worked may work again."""
        if self._refused is not None and is_refusal(error):
            self._refused.add(runtime)
            if len(self._refused) == len(self._runtimes):
                raise Refused(error)

    def _put_off(self, runtime: QueueRuntime, seconds: float) -> None:
        """Ask again after a claim that failed. A group would hear at once of what it could not claim."""
        runtime.source.ask_at = time.monotonic() + seconds
        runtime.source.is_watched = runtime.source.is_watched and runtime.source.wake_state is None

    def _plan(self, runtime: QueueRuntime, claimed: Claimed, limit: int, now: float) -> None:
        """Decide when to ask this queue again."""
        if runtime.source.wake_state is not None:
            runtime.source.wake_state.learn(claimed, now)
        if len(claimed.ids) == limit or claimed.next_in == 0:
            runtime.source.ask_at, runtime.source.is_watched, runtime.source.fruitless = now, False, 0
            return
        pause, is_exact = patience.pause_before(
            claimed.next_in, runtime.source.period, runtime.source.period, runtime.source.fruitless
        )
        runtime.source.fruitless = runtime.source.fruitless + 1 if is_exact and not claimed.ids else 0
        # The token that is left for a suspect would wake us at once: while one is passed over, we look by the clock.
        runtime.source.ask_at = now + (min(pause, _LOOK_PAST_SUSPECTS) if claimed.passed_over else pause)
        runtime.source.is_watched = not claimed.passed_over
        runtime.source.has_timer = (
            claimed.next_in is not None and runtime.source.wake_state is None
        )  # else all members keep it

    async def _take(self, runtime: QueueRuntime, claimed: Claimed, suspects: Suspects, asked_at: float) -> None:
        if claimed.reclaimed:
            self._note_reclaimed(runtime, claimed)
        deliveries = runtime.take(claimed)
        if deliveries:
            await self._confirm(runtime, deliveries, asked_at)
        is_alone = suspects == "alone" and len(deliveries) == 1 and runtime.is_suspect(deliveries[0])
        now, has_passed_over = time.monotonic(), claimed.passed_over
        if suspects == "alone":
            self._isolation.took(now, runtime.lease, is_suspect=is_alone, has_passed_over=has_passed_over)
        elif has_passed_over:
            self._isolation.passed_over(now, runtime.lease)
        if deliveries and self._is_stopping:
            self._dispatchers[runtime].release(deliveries)
        elif deliveries:
            self._shares.took(runtime, len(deliveries))
            self._dispatchers[runtime].dispatch(deliveries, alone=is_alone)

    async def _confirm(self, runtime: QueueRuntime, deliveries: list[AnyDelivery], leased_at: float) -> None:
        """Ask whether these are still ours, if others were renewed since they were leased.

        The answer to a claim may be read late: this process was stopped, or a handler blocked the event loop. The
        renewer did not know of these messages then, so what it says of all that is held does not hold for them.
        """
        while runtime.freshness.until > leased_at + runtime.lease:
            leased_at = time.monotonic()
            leases = [(delivery, runtime.lease) for delivery in deliveries]
            try:
                lost = await runtime.source.link.run_now(ops.extend(runtime.source.keys, leases, renews=True))
            except DulyError:  # nobody knows: to be on the safe side they are not begun
                lost = range(len(deliveries))
            for position in lost:
                deliveries[position].lost = True
                runtime.source.held.discard(deliveries[position])

    def _note_reclaimed(self, runtime: QueueRuntime, claimed: Claimed) -> None:
        log_reclaimed(runtime.name, claimed.reclaimed)
        if dead := [each.id for each in claimed.reclaimed if each.is_dead]:
            self._on_dead(runtime, dead)

    # Waiting

    async def _wait(self) -> None:
        """Wait for a token, a slot, a due time, or the order to stop."""
        now = time.monotonic()
        is_closed = self._isolation.allows(now, self._held()) is None
        for runtime in self._runtimes:
            self._give_hoarded_back(runtime, now)
        for runtime in self._runtimes:
            if runtime.source.is_watched and (is_closed or not self._has_room(runtime)):
                await self._stop_watching(runtime)
        await self._watch.go_on()
        await self._sleep(self._next_look(is_closed=is_closed))

    def _next_look(self, *, is_closed: bool) -> float | None:
        """When to look again although nothing was heard."""
        now = time.monotonic()
        times = [self._isolation.changes_at()]
        times += [runtime.hoards_since + _HOARDING for runtime in self._runtimes if runtime.hoards_since is not None]
        times += [now + _HOARDING for each in self._dispatchers.values() if each.waiting]
        rests = [
            s.source.wake_state.rests_until
            for s in self._runtimes
            if s.source.is_watched and s.source.wake_state is not None
        ]
        times += [moment for moment in rests if moment > now]
        if not is_closed:
            times += [runtime.source.ask_at for runtime in self._runtimes if self._has_room(runtime)]
        return min((moment for moment in times if moment is not None), default=None)

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

    async def _stop_watching(self, runtime: QueueRuntime) -> None:
        runtime.source.is_watched, runtime.source.ask_at = False, 0.0
        if runtime.source.has_timer:
            await self._hand_on(runtime)

    async def _hand_on(self, runtime: QueueRuntime) -> None:
        """Have somebody else watch what falls due here."""
        try:
            await runtime.source.link.run_now(ops.wake(runtime.source.keys))
        except DulyError as error:  # others look again by themselves after a while
            event(_LOG, logging.DEBUG, "wake.failed", queue=runtime.name, error=str(error))

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
