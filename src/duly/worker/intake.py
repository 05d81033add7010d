"""Holds the messages that a claim has brought, and dispatches them, or releases those that it has no room for."""

import time
from collections.abc import Callable, Mapping, Sequence

from duly._core import ops
from duly._core.replies import Claimed
from duly._reclaim_log import log_reclaimed
from duly.errors import DulyError
from duly.worker.claim import Claim
from duly.worker.claim_plan import ClaimPlan
from duly.worker.dispatcher import Dispatcher
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.source import AnyDelivery, Source
from duly.worker.workload import Workload


class Intake:
    """Takes the messages of all claims. A worker that stops releases them."""

    def __init__(
        self,
        dispatchers: Mapping[QueueRuntime, Dispatcher],
        plan: ClaimPlan,
        workload: Workload,
        on_dead: Callable[[QueueRuntime, Sequence[str]], None],
        *,
        is_spread: bool,
    ) -> None:
        """Take `on_dead`, which is called with the ids of messages that have crashed too often."""
        self._dispatchers = dispatchers
        self._plan = plan
        self._workload = workload
        self._on_dead = on_dead
        self._is_spread = is_spread
        self.is_stopping: bool = False

    async def take(self, claim: Claim, claimed: Claimed) -> None:
        """Hold the claimed messages, and dispatch them."""
        source, runtime = claim.source, claim.source.runtime
        if claimed.reclaimed:
            self._note_reclaimed(runtime, claimed)
        fitting = self._workload.fitting(claim)
        deliveries = runtime.take(claimed)
        if deliveries:
            self._workload.active[runtime] = None
            is_earlier = claim.behind is not None or self.is_stopping
            leased_at = source.clock_translator.not_before(claimed.fence) if is_earlier else claim.asked_at
            await _confirm(source, deliveries, leased_at)
        self._plan.end(claim)
        is_alone = claim.suspects == "alone" and len(deliveries) == 1 and runtime.is_suspect(deliveries[0])
        has_others = self._is_spread and self._workload.has_others(source, len(deliveries))
        has_passed_over = claimed.passed_over or (is_alone and has_others)
        self._note_suspects(claim, is_alone=is_alone, has_others=has_others, has_passed_over=has_passed_over)
        if is_alone and has_others:
            fitting = 0  # others were claimed while this claim was slow
        if fitting < len(deliveries) or self.is_stopping:
            excess = deliveries if self.is_stopping else deliveries[fitting:]
            self._dispatchers[runtime].release(excess)
            deliveries = deliveries[: -len(excess)]
        if deliveries:
            self._plan.ready.took(source, len(deliveries))
            self._dispatchers[runtime].dispatch(deliveries, alone=is_alone)

    def _note_suspects(self, claim: Claim, *, is_alone: bool, has_others: bool, has_passed_over: bool) -> None:
        """Note what a claim has shown about suspects."""
        now, lease, isolation = time.monotonic(), claim.source.runtime.lease, self._workload.isolation
        if claim.suspects == "alone" and not has_others:
            isolation.took(now, lease, is_suspect=is_alone, has_passed_over=has_passed_over)
        elif has_passed_over and not self._workload.lacks_node(now):
            isolation.passed_over(now, lease)

    def _note_reclaimed(self, runtime: QueueRuntime, claimed: Claimed) -> None:
        log_reclaimed(runtime.name, claimed.reclaimed)
        if dead := [each.id for each in claimed.reclaimed if each.is_dead]:
            self._on_dead(runtime, dead)


async def _confirm(source: Source, deliveries: list[AnyDelivery], leased_at: float) -> None:
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
