"""From messages to the call of a handler, and from its end to verdicts. The same for slots and threads.

What one call is given is its *item*: a delivery, or a DeliveryBatch of them for batch handlers.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from duly._core import codec, results, signatures
from duly._core.handlers import Bound, Handler, TaskSet, UnknownTask
from duly._core.hooks import Hooks
from duly._core.outcome_rules import ACK, Verdict, verdict_of_return, verdicts_of_batch
from duly.errors import CodecError
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.settler import Settler
from duly.worker.source import AnyDelivery

_LOG: Final = logging.getLogger("duly.worker")

LOST: Final = Verdict("lost")
"""Somebody else has the message by now: there is nothing to tell the server."""

RELEASE: Final = Verdict("release")
"""Not started, or cut off by a shutdown: back at once, no attempt spent."""

Conclusion = Verdict | list[Verdict]
"""What becomes of an item: a verdict, or one for each message of a group."""


class DeliveryBatch:
    """Messages for one call of a batch handler. `refusals` has the verdicts of those that it does not see."""

    __slots__ = ("deliveries", "excluded")

    def __init__(self, deliveries: Sequence[AnyDelivery]) -> None:
        self.deliveries = deliveries
        self.excluded: list[Verdict | None] = [None] * len(deliveries)


Item = AnyDelivery | DeliveryBatch


class Invoker:
    """What a runner does with one message: decode, call, judge, settle."""

    def __init__(self, runtime: QueueRuntime, hooks: Hooks, settler: Settler) -> None:
        self.runtime = runtime
        self.context = contextvars.copy_context()
        """What context variables are when a handler begins."""
        self._hooks = hooks
        self._settler = settler
        self._keeps_results = runtime.options.done is not None
        """Whether what handlers return is kept."""
        self.is_observed = runtime.max_runtime is not None or bool(hooks.before or hooks.after or hooks.on_error)
        """Whether `started` and `ended` have anything to do."""

    def deliveries(self, item: Any) -> Sequence[AnyDelivery]:
        """Tell which messages an item has."""
        return (item,)

    def is_lost(self, item: Any) -> bool:
        """Whether all of it was taken over by others."""
        lost: bool = item.lost
        return lost

    def prepare(self, item: Any) -> Bound | Verdict:
        """Say what to call, or the verdict where no call is needed: it was lost, or does not decode."""
        if item.lost:
            return LOST
        item._is_in_handler = self._keeps_results
        try:
            return self._call_for(item, codec.read_envelope(item._record))
        except CodecError as error:
            return rejection_of(error)

    def _call_for(self, delivery: AnyDelivery, envelope: codec.Envelope) -> Bound:
        raise NotImplementedError

    def same_for_all(self, item: Any, verdict: Verdict) -> Conclusion:  # noqa: ARG002
        """Judge all messages of an item alike."""
        return verdict

    def conclusion_of(self, item: Any, value: Any) -> Conclusion:
        """Judge what the handler returned, and pack it where it is kept: before anybody changes it."""
        verdict = verdict_of_return(value)
        if self._keeps_results and verdict is ACK and value is not None:
            return Verdict("ack", result=self._packed_result(item, value))
        return verdict

    def _packed_result(self, delivery: AnyDelivery, value: Any) -> str:
        packed = results.packed_result(value, self.runtime.options.max_message_bytes)
        if why := results.refusal_of(packed):
            event(_LOG, logging.WARNING, "result.refused", queue=self.runtime.name, id=delivery.id, error=why)
        return packed

    def settle(self, item: Any, conclusion: Any) -> None:
        """Pass the conclusion on. In the event loop only."""
        self._settler.add(self.runtime, item, conclusion)

    def on_started(self, item: Any) -> None:
        """Note that a handler begins, and run the hooks before it. Their errors are the handler's."""
        if self.runtime.max_runtime is not None:
            now = time.monotonic()
            self.runtime.started.update((delivery, now) for delivery in self.deliveries(item))
        for hook in self._hooks.before:
            for delivery in self.deliveries(item):
                hook(delivery)

    def on_ended(self, item: Any, conclusion: Any, error: BaseException | None) -> None:
        """Run the hooks after a handler. Their errors are logged: the message has its verdict."""
        verdicts = conclusion if isinstance(conclusion, list) else [conclusion]
        for delivery, verdict in zip(self.deliveries(item), verdicts, strict=True):
            if error is not None:
                self._run_hooks(self._hooks.on_error, delivery, error)
            self._run_hooks(self._hooks.after, delivery, delivery._settled or verdict.verb)

    def _run_hooks(self, hooks: Sequence[Callable[..., Any]], *args: Any) -> None:
        for hook in hooks:
            try:
                hook(*args)
            except BaseException as error:  # noqa: BLE001 - it must not end the slot or the thread
                name = signatures.name_of(hook)
                event(_LOG, logging.ERROR, "hook.failed", hook=name, queue=self.runtime.name, exc_info=error)


class HandlerInvoker(Invoker):
    """One message, one handler."""

    def __init__(self, runtime: QueueRuntime, hooks: Hooks, settler: Settler, handler: Handler) -> None:
        super().__init__(runtime, hooks, settler)
        self._bind = handler.bind
        self._timed = _timed(handler.function, handler.timeout)

    def _call_for(self, delivery: AnyDelivery, envelope: codec.Envelope) -> Bound:
        bound = self._bind(envelope.content, envelope.body, delivery)
        return bound if self._timed is None else bound._replace(function=self._timed)


class TaskInvoker(Invoker):
    """One message, the task that it names."""

    def __init__(self, runtime: QueueRuntime, hooks: Hooks, settler: Settler, tasks: TaskSet) -> None:
        super().__init__(runtime, hooks, settler)
        self._tasks = tasks
        self._timed = {name: _timed(task.function, task.timeout) for name, task in tasks.tasks.items()}

    def _call_for(self, delivery: AnyDelivery, envelope: codec.Envelope) -> Bound:
        task, call = self._tasks.find(envelope.content, envelope.body)
        delivery._task_retry = task.retry
        bound = task.bind(call, delivery)
        timed = self._timed[task.name]
        return bound if timed is None else bound._replace(function=timed)


class BatchInvoker(Invoker):
    """Several messages, one handler."""

    def __init__(self, runtime: QueueRuntime, hooks: Hooks, settler: Settler, handler: Handler) -> None:
        super().__init__(runtime, hooks, settler)
        self._handler = handler
        self._function = _timed(handler.function, handler.timeout) or handler.function

    def deliveries(self, item: Any) -> Sequence[AnyDelivery]:
        """Tell which messages a group has."""
        deliveries: Sequence[AnyDelivery] = item.deliveries
        return deliveries

    def is_lost(self, item: Any) -> bool:
        """Whether all of it was taken over by others."""
        return all(delivery.lost for delivery in item.deliveries)

    def prepare(self, item: Any) -> Bound | Verdict:
        """Decode each; the handler does not see those that do not decode, nor those that were lost."""
        bodies, kept = [], []
        for position, delivery in enumerate(item.deliveries):
            if delivery.lost:
                item.excluded[position] = LOST
                continue
            try:
                envelope = codec.read_envelope(delivery._record)
                bodies.append(self._handler.decode_one(envelope.content, envelope.body))
                kept.append(delivery)
            except CodecError as error:
                item.excluded[position] = rejection_of(error)
        return Bound(self._function, self._handler.arguments(bodies, kept), {}) if kept else LOST

    def same_for_all(self, item: Any, verdict: Verdict) -> Conclusion:
        """Judge all alike, but for those that the handler did not see."""
        return [refused or verdict for refused in item.excluded]

    def conclusion_of(self, item: Any, value: Any) -> Conclusion:
        """Judge each by its own outcome."""
        judged = iter(verdicts_of_batch(value, item.excluded.count(None)))
        return [refused or next(judged) for refused in item.excluded]

    def settle(self, item: Any, conclusion: Any) -> None:
        """Pass the verdicts on. In the event loop only."""
        self.runtime.batches -= 1
        for delivery, verdict in zip(item.deliveries, conclusion, strict=True):
            self._settler.add(self.runtime, delivery, verdict)


def rejection_of(error: CodecError) -> Verdict:
    """Judge a message that does not decode: to try again would not help."""
    reason = "unknown task" if isinstance(error, UnknownTask) else "decode"
    return Verdict("reject", reason=reason, error=str(error))


def _timed(function: Callable[..., Any], seconds: float | None) -> Callable[..., Any] | None:
    """Bound the time of an async function."""
    if seconds is None:
        return None

    async def timed(*args: Any, **kwargs: Any) -> Any:
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await function(*args, **kwargs)
        except TimeoutError as error:
            if scope.expired():
                raise TimeoutError(f"the handler took longer than its timeout of {seconds:g} s") from error
            raise

    return timed
