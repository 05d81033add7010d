"""Which sources to claim from, and when. A source is ready, full, idle, or waits for a point in time."""

import math
import time
from typing import Final

from duly._core import patience
from duly._core.replies import Claimed
from duly.worker.claim import Claim
from duly.worker.shares import Shares
from duly.worker.source import Source
from duly.worker.timers import Timers
from duly.worker.watcher import Watcher

_SUSPECT_POLL: Final = 0.1
"""Seconds between claims while a suspect waits for an idle worker."""


class ClaimPlan:
    """The state of all sources between claims, and the claims in progress."""

    def __init__(self, watcher: Watcher, *, is_spread: bool) -> None:
        """Take whether the sources are on several nodes."""
        self._watcher = watcher
        self._is_spread = is_spread
        self.in_progress: dict[Source, Claim] = {}
        """Claims in progress. On one server, none while the next one is chosen."""
        self.ready: Shares[Source] = Shares()
        """Sources to claim from as soon as the pool has room."""
        self.full: set[Source] = set()
        """Sources to claim from as soon as their own handlers have room."""
        self.timers: Timers[Source] = Timers()
        """When to claim from the other sources. Idle queues have no timer."""
        self.pending_wakeups: dict[Source, None] = {}
        """Queues whose wake token was taken, or whose due time has come. They are claimed from, or passed on."""

    def make_ready(self, source: Source) -> None:
        """Claim from a source when its turn comes."""
        self.timers.cancel(source)
        source.is_idle = False
        if source not in self.full:
            self.ready.add(source)
            self._watcher.expect_claim(source)

    def note_full(self, source: Source) -> None:
        """Claim from a source as soon as its handlers have room."""
        self.timers.cancel(source)
        self.ready.remove(source)
        self.full.add(source)
        source.is_idle = False
        self._watcher.note_claim(source)

    def may_be_empty(self, source: Source) -> bool:
        """Return whether nothing is known about a source that is ready: it was neither claimed from nor woken."""
        return source in self.ready and source not in self.in_progress and source not in self.pending_wakeups

    def note_empty(self, source: Source) -> None:
        """Do not claim from a queue that was polled and has no messages: its wake token announces the next one."""
        self.ready.remove(source)
        source.is_watched = source.is_idle = True
        self._watcher.note_claim(source)

    def note_progress(self, source: Source) -> None:
        """Note that handlers of a source have ended: it may have room."""
        if source in self.full:
            self.full.discard(source)
            self.make_ready(source)
        elif source.is_watched:
            self._watcher.note_room(source)

    def note_wake_token(self, source: Source) -> None:
        """Note that a source has woken."""
        if source in self.in_progress:
            self.in_progress[source].is_woken = True
            return
        if source.wake_state is not None:
            source.wake_state.is_woken = True
        else:
            source.has_timer = True  # if no slot is free, the wake token is passed on
            self.pending_wakeups[source] = None
        self.make_ready(source)

    def note_due(self, now: float) -> None:
        """Make the sources ready whose time has come."""
        for source in self.timers.due(now):
            if source.has_timer:
                self.pending_wakeups[source] = None
            self.make_ready(source)

    def begin(self, claim: Claim) -> None:
        """Note that a claim is in progress."""
        self.in_progress[claim.source] = claim

    def end(self, claim: Claim) -> None:
        """Let other claims begin. Claim again if the source has woken since."""
        if self.in_progress.pop(claim.source, None) is not None and claim.is_woken:
            self.note_wake_token(claim.source)

    def postpone(self, source: Source, seconds: float) -> None:
        """Retry a failed claim later. A group is not watched until then: unclaimed entries would wake it at once."""
        self.wait_until(source, time.monotonic() + seconds)
        source.is_watched = source.is_watched and source.wake_state is None
        self._watcher.note_claim(source)

    def wait_until(self, source: Source, moment: float) -> None:
        """Do not claim from a source before a point in time: the others share the room."""
        self.ready.remove(source)
        self.timers.set(source, moment)

    def poll_by_claim(self, source: Source) -> None:
        """Note that a claim is pending behind the blocking call. It comes in place of the next poll."""
        self.timers.cancel(source)
        source.is_idle = False

    def note_answer(self, claim: Claim, claimed: Claimed, now: float) -> None:
        """Decide when to claim from this source again."""
        source = claim.source
        self.pending_wakeups.pop(source, None)
        if source.wake_state is not None:
            source.wake_state.learn(claimed, now)
        is_at_limit = len(claimed.ids) == claim.limit and claim.behind is None
        is_cut_short = is_at_limit or claimed.next_in == 0
        source.is_watched = not is_cut_short and not claimed.passed_over
        self._watcher.note_claim(source)
        self.ready.remove(source)
        if self._is_spread:  # the state may have changed during the claim
            self.timers.cancel(source)
            self.full.discard(source)
        if is_cut_short:
            source.fruitless = 0
            self.ready.add(source)
        else:
            self._plan_next_time(source, claimed, now)

    def _plan_next_time(self, source: Source, claimed: Claimed, now: float) -> None:
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
            self.timers.set(source, min(claim_at, now + _SUSPECT_POLL) if claimed.passed_over else claim_at)
