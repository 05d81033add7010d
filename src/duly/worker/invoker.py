"""Prepares the call of a handler for a message, and turns its return or error into a decision. For slots and threads.

An *item* is the input of one call: a delivery, or a DeliveryBatch for batch handlers. A *decision* states how
the settler settles one message.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from duly._core import codec, results, signatures
from duly._core.handlers import Bound, Handler, TaskDefinition, TaskSet, UnknownTask
from duly._core.hooks import Hooks
from duly._core.observing import Observer, Processing
from duly._core.outcome_rules import ACK, Decision, decision_of_return, decisions_of_batch, is_failure
from duly.errors import CodecError
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.settler import Settler
from duly.worker.source import AnyDelivery

_LOG: Final = logging.getLogger("duly.worker")

LOST: Final = Decision("lost")
"""The lease of the message was lost: there is nothing to settle."""

RELEASE: Final = Decision("release")
"""The handler was not started, or cut off by a shutdown: the message is redelivered at once and counts no attempt."""

POISON: Final = Decision("reject", reason="poison")
"""The message has crashed too often, but the consumer that reclaimed its lease has another crash limit, or none."""

Conclusion = Decision | list[Decision]
"""The result of an item: a decision, or one for each message of a batch."""


class DeliveryBatch:
    """Messages for one call of a batch handler. `excluded` has the decisions for those that it does not receive."""

    __slots__ = ("deliveries", "excluded")

    def __init__(self, deliveries: Sequence[AnyDelivery]) -> None:
        self.deliveries: Sequence[AnyDelivery] = deliveries
        self.excluded: list[Decision | None] = [None] * len(deliveries)


Item = AnyDelivery | DeliveryBatch


class Invoker:
    """The steps of a runner for one item: decode, prepare the call, turn its end into a decision, settle."""

    def __init__(self, runtime: QueueRuntime, hooks: Hooks, settler: Settler) -> None:
        self.runtime = runtime
        self._observer = runtime.queue._app._definitions.observer
        self._processings: dict[Any, Processing] = {}
        """The handlers that run, by their item, if there is an observer."""
        self.context: contextvars.Context = contextvars.copy_context()
        """The context variables that a handler starts with."""
        self._hooks = hooks
        self._settler = settler
        self._keeps_results = runtime.options.done is not None
        """Whether the return values of handlers are stored."""
        self.is_observed: bool = (
            runtime.max_runtime is not None
            or bool(hooks.before or hooks.after or hooks.on_error)
            or self._observer is not None
        )
        """Whether `on_started` and `on_ended` have anything to do."""

    def deliveries(self, item: Any) -> Sequence[AnyDelivery]:
        """Return the messages of an item."""
        return (item,)

    def is_lost(self, item: Any) -> bool:
        """Return whether the lease of every message of the item was lost."""
        lost: bool = item.lost
        return lost

    def prepare(self, item: Any) -> Bound | Decision:
        """Return the call of the handler, or a decision for a message that was lost, is poison or does not decode."""
        if item.lost:
            return LOST
        if item._counts and self.runtime.has_crashed_too_often(item):  # most messages have no counts
            return POISON
        item._is_in_handler = self._keeps_results
        try:
            return self._call_for(item, codec.read_envelope(item._record))
        except CodecError as error:
            return rejection_of(error)

    def _call_for(self, delivery: AnyDelivery, envelope: codec.Envelope) -> Bound:
        raise NotImplementedError

    def same_for_all(self, item: Any, decision: Decision) -> Conclusion:  # noqa: ARG002
        """Judge all messages of an item alike."""
        return decision

    def conclusion_of(self, item: Any, value: Any) -> Conclusion:
        """Turn a return value into a decision. Pack a value that is stored now, before other code can change it."""
        decision = ACK if value is None else decision_of_return(value)
        if self._keeps_results and decision is ACK and value is not None:
            return Decision("ack", result=self._packed_result(item, value))
        return decision

    def _packed_result(self, delivery: AnyDelivery, value: Any) -> str:
        packed = results.packed_result(value, self.runtime.options.max_message_bytes)
        if why := results.refusal_of(packed):
            event(_LOG, logging.WARNING, "result.refused", queue=self.runtime.name, id=delivery.id, error=why)
        return packed

    def settle(self, item: Any, conclusion: Any) -> None:
        """Pass the decision to the settler. In the event loop only."""
        self._settler.add(self.runtime, item, conclusion)

    def on_started(self, item: Any) -> None:
        """Note that a handler starts, and run the `before` hooks. Their errors count as errors of the handler."""
        if self._observer is not None:
            self._processings[item] = self._processing(self._observer, item)
        if self.runtime.max_runtime is not None:
            now = time.monotonic()
            self.runtime.started.update((delivery, now) for delivery in self.deliveries(item))
        for hook in self._hooks.before:
            for delivery in self.deliveries(item):
                hook(delivery)

    def _processing(self, observer: Observer, item: Any) -> Processing:
        deliveries = self.deliveries(item)
        for delivery in deliveries:
            delivery._processing = None  # `with d:` in the handler is a part of this
        return observer.processing(deliveries, in_worker=True)

    def _end_processing(self, observer: Observer, item: Any, decisions: Sequence[Decision]) -> None:
        outcomes = [
            delivery._settled or decision.verb
            for delivery, decision in zip(self.deliveries(item), decisions, strict=True)
        ]
        processing = self._processings.pop(item, None)
        if processing is None:  # the handler was not called
            if set(outcomes) == {LOST.verb}:
                return
            processing = self._processing(observer, item)
        processing.ended(outcomes, next((each.error for each in decisions if is_failure(each)), None))

    def on_ended(self, item: Any, conclusion: Any, error: BaseException | None) -> None:
        """Run the `on_error` and `after` hooks. Their errors are only logged: the message has its decision."""
        decisions = conclusion if isinstance(conclusion, list) else [conclusion]
        for delivery, decision in zip(self.deliveries(item), decisions, strict=True):
            if error is not None:
                self._run_hooks(self._hooks.on_error, delivery, error)
            self._run_hooks(self._hooks.after, delivery, delivery._settled or decision.verb)
        if self._observer is not None:
            self._run_hooks([self._end_processing], self._observer, item, decisions)

    def _run_hooks(self, hooks: Sequence[Callable[..., Any]], *args: Any) -> None:
        for hook in hooks:
            try:
                hook(*args)
            except BaseException as error:  # noqa: BLE001 - it must not end the slot or the thread
                name = signatures.name_of(hook)
                event(_LOG, logging.ERROR, "hook.failed", hook=name, queue=self.runtime.name, exc_info=error)


class HandlerInvoker(Invoker):
    """Calls the handler of a queue with one message."""

    def __init__(self, runtime: QueueRuntime, hooks: Hooks, settler: Settler, handler: Handler) -> None:
        super().__init__(runtime, hooks, settler)
        self._bind = handler.bind
        self._limits = _time_limits(handler)

    def _call_for(self, delivery: AnyDelivery, envelope: codec.Envelope) -> Bound:
        bound = self._bind(envelope.content, envelope.body, delivery)
        return bound._replace(**self._limits) if self._limits else bound


class TaskInvoker(Invoker):
    """Calls the task that a message names."""

    def __init__(self, runtime: QueueRuntime, hooks: Hooks, settler: Settler, tasks: TaskSet) -> None:
        super().__init__(runtime, hooks, settler)
        self._tasks = tasks
        self._limits = {name: _time_limits(task) for name, task in tasks.tasks.items()}

    def _call_for(self, delivery: AnyDelivery, envelope: codec.Envelope) -> Bound:
        task, call = self._tasks.find(envelope.content, envelope.body)
        delivery._task_retry = task.retry
        bound = task.bind(call, delivery)
        limits = self._limits[task.name]
        return bound._replace(**limits) if limits else bound


class BatchInvoker(Invoker):
    """Calls a batch handler with several messages."""

    def __init__(self, runtime: QueueRuntime, hooks: Hooks, settler: Settler, handler: Handler) -> None:
        super().__init__(runtime, hooks, settler)
        self._handler = handler
        self._limits = _time_limits(handler)

    def deliveries(self, item: Any) -> Sequence[AnyDelivery]:
        """Return the messages of a batch."""
        deliveries: Sequence[AnyDelivery] = item.deliveries
        return deliveries

    def is_lost(self, item: Any) -> bool:
        """Return whether the lease of every message was lost."""
        return all(delivery.lost for delivery in item.deliveries)

    def prepare(self, item: Any) -> Bound | Decision:
        """Decode each message. The handler does not receive those that do not decode, are poison or were lost."""
        bodies, kept = [], []
        for position, delivery in enumerate(item.deliveries):
            if delivery.lost:
                item.excluded[position] = LOST
                continue
            if self.runtime.has_crashed_too_often(delivery):
                item.excluded[position] = POISON
                continue
            try:
                envelope = codec.read_envelope(delivery._record)
                bodies.append(self._handler.decode_one(envelope.content, envelope.body))
                kept.append(delivery)
            except CodecError as error:
                item.excluded[position] = rejection_of(error)
        if not kept:
            return LOST
        return Bound(self._handler.function, self._handler.arguments(bodies, kept), {})._replace(**self._limits)

    def same_for_all(self, item: Any, decision: Decision) -> Conclusion:
        """Return one decision for all messages that the handler received."""
        return [refused or decision for refused in item.excluded]

    def conclusion_of(self, item: Any, value: Any) -> Conclusion:
        """Return the decision for each message."""
        decisions = iter(decisions_of_batch(value, item.excluded.count(None)))
        return [refused or next(decisions) for refused in item.excluded]

    def settle(self, item: Any, conclusion: Any) -> None:
        """Pass the decisions to the settler. In the event loop only."""
        self.runtime.batches -= 1
        for delivery, decision in zip(item.deliveries, conclusion, strict=True):
            self._settler.add(self.runtime, delivery, decision)


def rejection_of(error: CodecError) -> Decision:
    """Reject a message that does not decode: a retry would not help."""
    reason = "unknown task" if isinstance(error, UnknownTask) else "decode"
    return Decision("reject", reason=reason, error=str(error))


def overrun_error(seconds: float) -> TimeoutError:
    """Return the error of a handler that took too long."""
    return TimeoutError(f"the handler took longer than its timeout of {seconds:g} s")


def _time_limits(handler: Handler | TaskDefinition) -> dict[str, Any]:
    """Return the fields of a call that limit its time: an async function that ends itself, or a limit for a thread."""
    if handler.timeout is None:
        return {}
    return {"function": _timed(handler.function, handler.timeout)} if handler.is_async else {"timeout": handler.timeout}


def _timed(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Limit the time of an async function."""

    async def timed(*args: Any, **kwargs: Any) -> Any:
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await function(*args, **kwargs)
        except TimeoutError as error:
            if scope.expired():
                raise overrun_error(seconds) from error
            raise

    return timed
