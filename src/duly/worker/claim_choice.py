"""Chooses the next claim: its source, the number of messages, and whether suspects may be among them."""

from typing import Final

from duly.worker.claim import Claim
from duly.worker.claim_plan import ClaimPlan
from duly.worker.node_work import NodeWork
from duly.worker.source import Source
from duly.worker.workload import MAX_CLAIM, Workload

_SLOW_PAUSE: Final = 1.0
"""Seconds for which the queues of a node that does not answer are not candidates."""


class ClaimChoice:
    """Chooses among the sources that are ready, as far as there is room."""

    def __init__(self, plan: ClaimPlan, workload: Workload, node_work: NodeWork, *, is_spread: bool) -> None:
        """Take whether the sources are on several nodes."""
        self._plan = plan
        self._workload = workload
        self._node_work = node_work
        self._is_spread = is_spread

    def next(self, now: float) -> Claim | None:
        """Return the next claim. None: there is nothing to claim, or no room."""
        plan, workload = self._plan, self._workload
        if self._is_spread and self._may_bring_a_suspect(now):
            return None
        suspects = workload.isolation.allows(now, workload.holds_any() or bool(plan.in_progress))
        if suspects is None:
            return None
        calls = workload.pool_room(now)
        while (source := self._candidate(calls, now)) is not None:
            runtime = source.runtime
            room = runtime.room
            if room > 0:
                part = plan.ready.part_of(source, calls) if calls else 0
                most = room if workload.pool is None else part * runtime.per_slot + runtime.batch_space
                return Claim(source, min(room, most, MAX_CLAIM), suspects, part)
            plan.note_full(source)
        return None

    def _may_bring_a_suspect(self, now: float) -> bool:
        """Return whether a claim in progress may bring a suspect, which would have to run alone."""
        if any(claim.suspects == "alone" and not claim.is_slow(now) for claim in self._plan.in_progress.values()):
            return True
        isolation = self._workload.isolation
        if isolation.is_clearing and self._workload.lacks_node(now):
            isolation.give_up(now)
        return False

    def _candidate(self, calls: int, now: float) -> Source | None:
        """Choose a source whose node has no claim in progress. `calls` is the room of the pool."""
        ready = self._plan.ready
        if not calls:
            open_batches = self._workload.open_batches()
            return ready.first_of(filter(self._is_free, open_batches) if self._is_spread else open_batches)
        source = ready.first()
        if not self._is_spread:
            return source
        while source is not None and self._node_work.is_slow(source.node, now):
            self._plan.wait_until(source, now + _SLOW_PAUSE)
            source = ready.first()
        if source is None or self._is_free(source):
            return source
        return ready.first_of(filter(self._is_free, ready))

    def _is_free(self, source: Source) -> bool:
        """Return whether a claim from a source would not have to wait for its node."""
        return source not in self._plan.in_progress and not self._node_work.is_busy(source.node)
