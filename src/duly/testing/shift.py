"""A worker for tests that never waits. Each step claims due messages and calls one handler.

Decoding, outcomes, retries, dead letters, hooks and renewal are those of `duly.worker`.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Self

from duly._async.app import AsyncDuly
from duly._async.delivery import AsyncDelivery
from duly._core.hooks import Hooks
from duly._core.outcome_rules import Decision
from duly._core.replies import Claimed
from duly._core.schedules import moment_of
from duly._port import settled_by
from duly._reclaim_log import log_reclaimed
from duly._sync.app import Duly
from duly.errors import CodecError, HandlerFailed
from duly.outcomes import Outcome, Reject
from duly.worker.dead_hooks import DeadHooks
from duly.worker.dispatcher import Dispatcher
from duly.worker.invoker import Conclusion, DeliveryBatch, Item
from duly.worker.janitor import Janitor
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.renewer import Renewer
from duly.worker.settler import Settler
from duly.worker.setup import Setup
from duly.worker.source import AnyDelivery
from duly.worker.worker_options import GivenQueues, WorkerOptions

_MAX_CLAIMS_IN_A_ROW: Final = 1000
"""The largest number of claims in a row that find no message, for example because they remove expired ones."""

_HOOKS_TIMEOUT: Final = 60.0
"""Seconds that `on_dead` and `on_stop` hooks have."""

_FAILURES: Final = (Exception, SystemExit, asyncio.CancelledError)
"""Exceptions that count as a failure of the handler. Others end the test."""

_FAILED: Final = ("retry", "dead")
"""The outcomes that always have an error."""


@dataclass(frozen=True)
class Handled:
    """The outcome of one message."""

    queue: str
    """The name of its queue; for a group, like `events/archive`."""
    id: str
    body: Any
    attempt: int
    outcome: str
    """"ack", "commit", "retry", "defer", "recycle", "release", "dead"; "lost" if its lease was lost."""
    error: BaseException | None
    """The exception that the handler raised, or another reason for the failure. Never None for "retry" and "dead".

    `CodecError`: the body could not be decoded, or the task is unknown. `HandlerFailed`: the handler returned False,
    deferred the message too often or settled it itself. `Reject` and `RetryIn` appear as they were raised. A `Defer` is
    not an error. The exception of a batch handler belongs to the messages that it had not settled before, if any.
    """
    at: datetime
    """When it was delivered, by the server's clock."""


class Noted(NamedTuple):
    """How a handler ended for one message."""

    decision: Decision
    is_by_hand: bool
    """Whether the handler settled it itself, so that the decision has no effect."""

    @property
    def was_refused(self) -> bool:
        """Whether the handler was not called with it."""
        return self.decision.verb == "reject" and isinstance(self.decision.error, str)

    @property
    def was_left(self) -> bool:
        """Whether the handler was called with it and did not settle it."""
        return not (self.is_by_hand or self.was_refused or self.decision.verb == "lost")


class NotingSettler(Settler):
    """A settler that also records the decisions."""

    def __init__(self, noted: dict[AnyDelivery, Noted], **callbacks: Any) -> None:
        super().__init__(**callbacks)
        self._noted = noted

    def add(self, runtime: QueueRuntime, delivery: AnyDelivery, decision: Decision) -> None:
        """Record a decision, and settle the message soon."""
        self._noted[delivery] = Noted(decision, is_by_hand=delivery.is_settled)
        super().add(runtime, delivery, decision)


class Job:
    """The messages of one handler call."""

    def __init__(self, runtime: QueueRuntime, item: Item, deliveries: Sequence[AnyDelivery], at: datetime) -> None:
        self.runtime = runtime
        self.item = item
        self.deliveries = deliveries
        self.at = at

    @property
    def is_async(self) -> bool:
        """Whether its handler is an `async def`."""
        return isinstance(self.deliveries[0], AsyncDelivery)


class Shift:
    """Works in steps. All but `call` is for the event loop; `call` is for a thread without one."""

    def __init__(self, app: Duly | AsyncDuly, queues: GivenQueues = None) -> None:
        self._setup = Setup(app, WorkerOptions(queues))
        self._errors: dict[AnyDelivery, BaseException] = {}
        self._dead: set[tuple[QueueRuntime, str]] = set()
        self._noted: dict[AnyDelivery, Noted] = {}
        self._progress = asyncio.Event()
        self.next_at: int | None = None
        """When, in microseconds, the next message is due, as of the last poll of all queues. None: there is none."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._setup.open()
        try:
            await self._setup.start_embedded()
            await self._setup.run_start_hooks()
            self._start_parts()
        except BaseException:
            await self._setup.close()
            raise
        await self._janitor.create_groups()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._renewer.stop()
        try:
            await self._janitor.depart()
            self._settling.cancel()
            for dispatcher in self._dispatchers.values():
                await dispatcher.aclose()
            await self._setup.run_stop_hooks(self._loop.time() + _HOOKS_TIMEOUT)
        finally:
            await self._setup.close()

    def _start_parts(self) -> None:
        setup, runtimes = self._setup, self._setup.runtimes
        self._dead_hooks = DeadHooks(setup.definitions)
        self._settler = NotingSettler(self._noted, on_progress=self._on_progress, on_dead=self._note_dead)
        hooks = self._hooks()
        self._dispatchers = {runtime: Dispatcher(runtime, hooks, self._settler) for runtime in runtimes}
        self._janitor = Janitor(runtimes, setup.groups, setup.async_app.namespace, setup.concurrency)
        self._renewer = Renewer(runtimes, setup.run_in_thread, self._on_lost_in_thread, self._settler.settling)
        self._renewer.start()
        self._settling = self._loop.create_task(self._settler.run())
        self._settling.add_done_callback(lambda _: self._progress.set())

    def _hooks(self) -> Hooks:
        own, hooks = self._setup.definitions.hooks, Hooks()
        hooks.before, hooks.after, hooks.on_error = own.before, own.after, [*own.on_error, self._note_error]
        return hooks

    # Steps

    async def claim(self, limit: int) -> Job | None:
        """Claim the messages of one handler call, from the next queue in turn. None: no message is due."""
        moments: list[int] = []
        runtimes = self._setup.runtimes
        for runtime in list(runtimes):
            runtimes.append(runtimes.pop(0))  # the others come first the next time
            claimed = await self._claimed(runtime, limit)
            if claimed.ids:
                return self._job(runtime, claimed)
            if claimed.next_in is not None:
                moments.append(claimed.now + round(claimed.next_in * 1_000_000))
        self.next_at = min(moments, default=None)
        return None

    def call(self, job: Job) -> Conclusion:
        """Run a handler that is a `def`, here and now."""
        return self._dispatchers[job.runtime].run_here(job.item)

    async def settle(self, job: Job, conclusion: Conclusion) -> list[Handled]:
        """Report the outcome to the server."""
        self._dispatchers[job.runtime].settle(job.item, conclusion)
        return await self._report(job)

    async def run_async(self, job: Job) -> list[Handled]:
        """Run a handler that is an `async def`, and report its outcome to the server."""
        self._dispatchers[job.runtime].run_async(job.item)
        return await self._report(job)

    # Parts of the steps

    async def _claimed(self, runtime: QueueRuntime, limit: int) -> Claimed:
        """Claim. Repeat if more may be due at once, for example after schedules have sent messages."""
        claims = 0
        while True:
            claims += 1
            claimed = await self._claimed_once(runtime, min(limit, runtime.per_slot))
            has_fired = await runtime.source.fire(claimed.now, claimed.schedules)
            is_done = claimed.next_in != 0 and not has_fired
            if claimed.ids or is_done or claims == _MAX_CLAIMS_IN_A_ROW:
                return claimed

    async def _claimed_once(self, runtime: QueueRuntime, limit: int) -> Claimed:
        call = runtime.source.claim_call(limit, then="leave", suspects="alone")
        claimed: Claimed = await runtime.source.link.run_on(call)
        if claimed.reclaimed:
            log_reclaimed(runtime.name, claimed.reclaimed)
            self._note_dead(runtime, [each.id for each in claimed.reclaimed if each.is_dead])
        return claimed

    def _job(self, runtime: QueueRuntime, claimed: Claimed) -> Job:
        deliveries = runtime.take(claimed)
        if runtime.handler.batch is None:
            (item,) = deliveries
            return Job(runtime, item, deliveries, moment_of(claimed.now))
        runtime.batches += 1
        return Job(runtime, DeliveryBatch(deliveries), deliveries, moment_of(claimed.now))

    async def _report(self, job: Job) -> list[Handled]:
        """Wait for the settles and the `on_dead` hooks, and return the outcomes."""
        while job.runtime.busy:
            if self._settling.done():
                self._settling.result()  # what broke it
            self._progress.clear()
            await self._progress.wait()
        await self._dead_hooks.finish(_HOOKS_TIMEOUT)
        self._drop_errors_of_settled(job)
        return [await self._handled(job, delivery) for delivery in job.deliveries]

    def _drop_errors_of_settled(self, job: Job) -> None:
        """Assign the error of a batch handler only to the messages that it had not settled, if there are any."""
        if any(self._noted[delivery].was_left for delivery in job.deliveries):
            for delivery in job.deliveries:
                if self._noted[delivery].is_by_hand:
                    self._errors.pop(delivery, None)

    async def _handled(self, job: Job, delivery: AnyDelivery) -> Handled:
        error, noted = self._errors.pop(delivery, None), self._noted.pop(delivery)
        if isinstance(error, BaseException) and not isinstance(error, _FAILURES):
            raise error  # Ctrl-C, or a test that ends itself from within a handler
        outcome = self._outcome_of(job.runtime, delivery)
        has_raised = error is not None and not isinstance(error, Outcome)
        is_by_hand = noted.is_by_hand and outcome in _FAILED and not has_raised
        return Handled(
            queue=job.runtime.name,
            id=delivery.id,
            body=_body_of(delivery),
            attempt=delivery.attempt,
            outcome=outcome,
            error=await self._by_hand(job.runtime, delivery) if is_by_hand else _error_of(outcome, error, noted),
            at=job.at,
        )

    async def _by_hand(self, runtime: QueueRuntime, delivery: AnyDelivery) -> HandlerFailed:
        """Return the error of a message that the handler settled itself. A hook may have removed the message since."""
        message = await runtime.queue.get(delivery.id)
        why = None
        if message is not None and settled_by(delivery) == "reject":
            why = message.reason
        elif message is not None:
            why = next((each.error for each in reversed(message.errors) if each.attempt == delivery.attempt), None)
        return HandlerFailed(
            f"the handler settled the message itself, by d.{settled_by(delivery)}()" + (f": {why}" if why else "")
        )

    def _outcome_of(self, runtime: QueueRuntime, delivery: AnyDelivery) -> str:
        if (runtime, delivery.id) in self._dead:
            self._dead.discard((runtime, delivery.id))
            return "dead"
        return "lost" if delivery.lost else str(settled_by(delivery))

    def _note_error(self, delivery: AnyDelivery, error: BaseException) -> None:
        self._errors[delivery] = error

    def _note_dead(self, runtime: QueueRuntime, ids: Sequence[str]) -> None:
        self._dead.update((runtime, id_) for id_ in ids)
        self._dead_hooks.start(runtime, ids)

    # Called by the parts

    def _on_progress(self, runtime: QueueRuntime) -> None:  # noqa: ARG002
        self._progress.set()

    def _on_lost_in_thread(self, runtime: QueueRuntime, lost: Sequence[AnyDelivery]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_lost, runtime, lost)

    def _on_lost(self, runtime: QueueRuntime, lost: Sequence[AnyDelivery]) -> None:
        runtime.source.held.difference_update(lost)
        self._dispatchers[runtime].note_lost(lost)


def _body_of(delivery: AnyDelivery) -> Any:
    try:
        return delivery.body
    except CodecError:
        return delivery.raw


def _error_of(outcome: str, raised: BaseException | None, noted: Noted) -> BaseException | None:
    """Return the error of an outcome: always one for a failure."""
    decision = noted.decision
    if outcome not in _FAILED:
        return None if isinstance(raised, Outcome) else raised
    if noted.was_refused:
        return CodecError(decision.error)
    if decision.verb == "defer" and not noted.is_by_hand:
        return HandlerFailed("it was deferred too often")
    if raised is not None:
        return raised
    if isinstance(decision.error, BaseException):  # returned, not raised
        return decision.error
    return Reject(decision.reason) if decision.verb == "reject" else HandlerFailed(decision.error or "failed")
