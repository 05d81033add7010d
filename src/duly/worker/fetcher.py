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
from duly.worker.refusals import is_refusal
from duly.worker.shares import Shares
from duly.worker.station import AnyDelivery, Station
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
        dispatchers: Mapping[Station, Dispatcher],
        pool: int | None,
        on_dead: Callable[[Station, Sequence[str]], None],
    ) -> None:
        self._dispatchers = dispatchers
        self._stations = list(dispatchers)
        self._pool = pool
        """Handlers at once over all queues; None: what each queue may have."""
        self._on_dead = on_dead
        self._shares: Shares[Station] = Shares()
        self._isolation = Isolation()
        self._watch = Watch(self._stations, self.look)
        self._fails = 0
        """Claims in a row that did not reach the server."""
        self._refused: set[Station] | None = set()
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
        for station in self._stations:
            if station in blocked or (station.is_watched and station.has_timer):
                await self._hand_on(station)

    # What to ask for

    def _choice(self, now: float) -> tuple[Station, int, Suspects] | None:
        """Choose a queue, how many to ask it for, and which."""
        suspects = self._isolation.allows(now, self._held())
        if suspects is None:
            return None
        candidates = [station for station in self._stations if station.ask_at <= now and self._has_room(station)]
        if not candidates:
            return None
        station = self._shares.next_of(candidates)
        return station, min(station.room, self._part_of_pool(station, candidates), _MOST_AT_ONCE), suspects

    def _held(self) -> int:
        """Count what would be counted as crashed if this process died now."""
        return sum(len(station.held) for station in self._stations)

    def _has_room(self, station: Station) -> bool:
        """Whether more of a queue may be claimed: within its own bounds, and those of the pool."""
        return station.room > 0 and (self._pool is None or self._pool_room() > 0 or station.space > 0)

    def _pool_room(self) -> int:
        """Count the calls of handlers that are free, or could be claimed ahead.

        Several queues claim nothing ahead: each has slots of its own, so what one of them has waiting would be
        run beside what the others run, and the pool would not hold.
        """
        assert self._pool is not None
        only, *others = self._stations
        ahead = 0 if others else only.ahead // only.per_slot
        return max(self._pool + ahead - sum(station.calls for station in self._stations), 0)

    def _part_of_pool(self, station: Station, candidates: Sequence[Station]) -> int:
        """Divide what is free in the pool by weight."""
        if self._pool is None:
            return _MOST_AT_ONCE
        calls = self._pool_room()
        part = self._shares.part_of(station, candidates, calls) if calls else 0
        return part * station.per_slot + station.space

    def _note_woken(self) -> None:
        for station in self._watch.woken():
            station.ask_at = 0.0
            if station.hearing is not None:
                station.hearing.is_woken = True
            else:
                station.is_watched = station.has_timer = True  # if there is no slot now, the token is handed on

    # Claiming

    async def _claim(self, station: Station, limit: int, suspects: Suspects) -> None:
        asked_at = time.monotonic()
        call = station.queue._claim(limit=limit, lease=station.lease, then="stay", suspects=suspects)
        try:
            claimed = await station.link.run_on(call)
        except Unavailable as error:
            self._note_unavailable(station, error)
            return
        except DulyError as error:
            event(_LOG, logging.ERROR, "claim.failed", queue=station.name, error=str(error))
            self._put_off(station, _REFUSED_PAUSE)
            self._note_refused(station, error)
            return
        self._refused = None
        now = station.polled_at = time.monotonic()
        self._fails = 0
        station.pace.learn(station.handled, asked_at, now)
        self._plan(station, claimed, limit, now)
        await self._take(station, claimed, suspects, asked_at)
        if due := claimed.schedules:
            await self._fire(station, claimed.now, due)

    async def _fire(self, station: Station, now: int, due: Sequence[tuple[str, bytes]]) -> None:
        """Send what schedules have to send by now, and look at once at what they sent."""
        if not self._is_stopping and await fire_due(station.link, station.keys, now, due, station.queue._app._new_id):
            station.ask_at = 0.0

    def _note_unavailable(self, station: Station, error: Unavailable) -> None:
        """Ask again soon. The link has said that the server is away, unless it could not even be started."""
        if not self._fails and not station.link.is_down:
            event(_LOG, logging.ERROR, "claim.failed", queue=station.name, error=str(error))
        self._put_off(station, patience.backoff(self._fails, random.random))
        self._fails += 1

    def _note_refused(self, station: Station, error: DulyError) -> None:
        """Give up when nothing ever worked: a wrong password, a server that evicts. What has worked may work again."""
        if self._refused is not None and is_refusal(error):
            self._refused.add(station)
            if len(self._refused) == len(self._stations):
                raise Refused(error)

    def _put_off(self, station: Station, seconds: float) -> None:
        """Ask again after a claim that failed. A group would hear at once of what it could not claim."""
        station.ask_at = time.monotonic() + seconds
        station.is_watched = station.is_watched and station.hearing is None

    def _plan(self, station: Station, claimed: Claimed, limit: int, now: float) -> None:
        """Decide when to ask this queue again."""
        if station.hearing is not None:
            station.hearing.learn(claimed, now)
        if len(claimed.ids) == limit or claimed.next_in == 0:
            station.ask_at, station.is_watched, station.fruitless = now, False, 0
            return
        pause, is_exact = patience.pause_before(claimed.next_in, station.period, station.period, station.fruitless)
        station.fruitless = station.fruitless + 1 if is_exact and not claimed.ids else 0
        # The token that is left for a suspect would wake us at once: while one is passed over, we look by the clock.
        station.ask_at = now + (min(pause, _LOOK_PAST_SUSPECTS) if claimed.passed_over else pause)
        station.is_watched = not claimed.passed_over
        station.has_timer = claimed.next_in is not None and station.hearing is None  # else all members keep it

    async def _take(self, station: Station, claimed: Claimed, suspects: Suspects, asked_at: float) -> None:
        if claimed.reclaimed:
            self._note_reclaimed(station, claimed)
        deliveries = station.take(claimed)
        if deliveries:
            await self._confirm(station, deliveries, asked_at)
        is_alone = suspects == "alone" and len(deliveries) == 1 and station.is_suspect(deliveries[0])
        now, has_passed_over = time.monotonic(), claimed.passed_over
        if suspects == "alone":
            self._isolation.took(now, station.lease, is_suspect=is_alone, has_passed_over=has_passed_over)
        elif has_passed_over:
            self._isolation.passed_over(now, station.lease)
        if deliveries and self._is_stopping:
            self._dispatchers[station].release(deliveries)
        elif deliveries:
            self._shares.took(station, len(deliveries))
            self._dispatchers[station].dispatch(deliveries, alone=is_alone)

    async def _confirm(self, station: Station, deliveries: list[AnyDelivery], leased_at: float) -> None:
        """Ask whether these are still ours, if others were renewed since they were leased.

        The answer to a claim may be read late: this process was stopped, or a handler blocked the event loop. The
        renewer did not know of these messages then, so what it says of all that is held does not hold for them.
        """
        while station.freshness.until > leased_at + station.lease:
            leased_at = time.monotonic()
            leases = [(delivery, station.lease) for delivery in deliveries]
            try:
                lost = await station.link.run_now(ops.extend(station.keys, leases, renews=True))
            except DulyError:  # nobody knows: to be on the safe side they are not begun
                lost = range(len(deliveries))
            for position in lost:
                deliveries[position].lost = True
                station.held.discard(deliveries[position])

    def _note_reclaimed(self, station: Station, claimed: Claimed) -> None:
        log_reclaimed(station.name, claimed.reclaimed)
        if dead := [each.id for each in claimed.reclaimed if each.is_dead]:
            self._on_dead(station, dead)

    # Waiting

    async def _wait(self) -> None:
        """Wait for a token, a slot, a due time, or the order to stop."""
        now = time.monotonic()
        is_closed = self._isolation.allows(now, self._held()) is None
        for station in self._stations:
            self._give_hoarded_back(station, now)
        for station in self._stations:
            if station.is_watched and (is_closed or not self._has_room(station)):
                await self._stop_watching(station)
        await self._watch.go_on()
        await self._sleep(self._next_look(is_closed=is_closed))

    def _next_look(self, *, is_closed: bool) -> float | None:
        """When to look again although nothing was heard."""
        now = time.monotonic()
        times = [self._isolation.changes_at()]
        times += [station.hoards_since + _HOARDING for station in self._stations if station.hoards_since is not None]
        times += [now + _HOARDING for each in self._dispatchers.values() if each.waiting]
        rests = [s.hearing.rests_until for s in self._stations if s.is_watched and s.hearing is not None]
        times += [moment for moment in rests if moment > now]
        if not is_closed:
            times += [station.ask_at for station in self._stations if self._has_room(station)]
        return min((moment for moment in times if moment is not None), default=None)

    def _give_hoarded_back(self, station: Station, now: float) -> None:
        """Give back what was claimed ahead when handlers were fast, and they are slow now: others may have slots."""
        ahead = -(-station.ahead // station.per_slot)
        if self._dispatchers[station].waiting <= ahead:
            station.hoards_since = None
        elif station.hoards_since is None:
            station.hoards_since = now
        elif now >= station.hoards_since + _HOARDING:
            self._dispatchers[station].release_beyond(ahead)
            station.hoards_since = None

    async def _stop_watching(self, station: Station) -> None:
        station.is_watched, station.ask_at = False, 0.0
        if station.has_timer:
            await self._hand_on(station)

    async def _hand_on(self, station: Station) -> None:
        """Have somebody else watch what falls due here."""
        try:
            await station.link.run_now(ops.wake(station.keys))
        except DulyError as error:  # others look again by themselves after a while
            event(_LOG, logging.DEBUG, "wake.failed", queue=station.name, error=str(error))

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
