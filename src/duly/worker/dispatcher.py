"""Passes the messages of one queue to the runner of its handler: slots for `async def`, threads for `def`."""

from collections.abc import Callable, Iterable, Sequence

from duly._async.delivery import AsyncDelivery
from duly._core.handlers import TaskSet
from duly._core.hooks import Hooks
from duly.worker.async_runner import AsyncRunner
from duly.worker.batch_collector import BatchCollector
from duly.worker.invoker import RELEASE, BatchInvoker, Conclusion, HandlerInvoker, Invoker, Item, TaskInvoker
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.settler import Settler
from duly.worker.source import AnyDelivery
from duly.worker.thread_runner import ThreadRunner


class Dispatcher:
    """The runners of one queue."""

    def __init__(
        self,
        runtime: QueueRuntime,
        hooks: Hooks,
        settler: Settler,
        on_overrun: Callable[[AnyDelivery, float], None] | None = None,
    ) -> None:
        """Take `on_overrun`, which is called with a message and the timeout that its `def` handler has exceeded."""
        self._runtime = runtime
        self._on_overrun = on_overrun
        self._settler = settler
        self._invoker = _invoker_for(runtime, hooks, settler)
        self._async_runner = AsyncRunner(self._invoker, runtime.slots)
        self._thread_runner = ThreadRunner(self._invoker, runtime.slots, self._note_overrun)
        self._runners = (self._async_runner, self._thread_runner)
        batch = runtime.handler.batch
        self._collector = None if batch is None else BatchCollector(runtime, self._runner_for(runtime.is_async), batch)

    def dispatch(self, deliveries: Sequence[AnyDelivery], *, alone: bool = False) -> None:
        """Run the handler on deliveries. `alone`: nothing else is claimed until they are done."""
        if self._collector is not None:
            self._collector.add(deliveries, at_once=alone)
        elif self._runtime.is_mixed:
            self._async_runner.add([each for each in deliveries if isinstance(each, AsyncDelivery)])
            self._thread_runner.add([each for each in deliveries if not isinstance(each, AsyncDelivery)])
        else:
            self._runner_for(self._runtime.is_async).add(deliveries)

    def run_async(self, item: Item) -> None:
        """Start an `async def` handler, and settle when it ends."""
        self._async_runner.add([item])

    def run_here(self, item: Item) -> Conclusion:
        """Run a `def` handler in this thread, without settling."""
        return self._thread_runner.handle(item)

    def settle(self, item: Item, conclusion: Conclusion) -> None:
        """Settle an item with its conclusion."""
        self._invoker.settle(item, conclusion)

    def release(self, deliveries: Iterable[AnyDelivery]) -> None:
        """Release deliveries."""
        for delivery in deliveries:
            self._settler.add(self._runtime, delivery, RELEASE)

    def release_waiting(self) -> None:
        """Release messages whose handler has not started."""
        if self._collector is not None:
            self.release(self._collector.take_back())
        self.release_beyond(0)

    def cut_off(self) -> int:
        """Release messages whose handler runs, and return the number of handlers."""
        running = 0
        for runner in self._runners:
            items = runner.running()
            for item in items:
                for delivery in self._invoker.deliveries(item):
                    delivery.lost = True
            runner.cancel(items, "stop")
            running += len(items)
        return running

    def note_lost(self, lost: Iterable[AnyDelivery]) -> None:
        """Cancel the handlers of messages whose lease was lost."""
        lost_deliveries = set(lost)
        for runner in self._runners:
            items = [item for item in runner.running() if self._is_lost(item, lost_deliveries)]
            if items:
                runner.cancel(items, "lost")

    def _is_lost(self, item: Item, lost_deliveries: set[AnyDelivery]) -> bool:
        return any(each in lost_deliveries for each in self._invoker.deliveries(item)) and self._invoker.is_lost(item)

    def _note_overrun(self, item: Item, seconds: float) -> None:
        if self._on_overrun is not None:
            self._on_overrun(self._invoker.deliveries(item)[0], seconds)

    @property
    def waiting(self) -> int:
        """Handler calls that wait for a slot."""
        return sum(runner.waiting for runner in self._runners)

    @property
    def has_begun(self) -> bool:
        """Whether any handler runs."""
        return any(runner.has_begun for runner in self._runners)

    def release_beyond(self, waiting: int) -> None:
        """Release handler calls that wait for a slot, except for the first `waiting`."""
        for runner in self._runners:
            for item in runner.take_back(waiting):
                self._invoker.settle(item, self._invoker.same_for_all(item, RELEASE))

    def close(self) -> None:
        """Start no more handlers. Do not wait for those that run."""
        for runner in self._runners:
            runner.close()

    async def aclose(self) -> None:
        """End all slots and threads."""
        for runner in self._runners:
            await runner.aclose()

    def _runner_for(self, is_async: bool) -> AsyncRunner | ThreadRunner:  # noqa: FBT001
        return self._async_runner if is_async else self._thread_runner


def _invoker_for(runtime: QueueRuntime, hooks: Hooks, settler: Settler) -> Invoker:
    handler = runtime.handler
    if isinstance(handler, TaskSet):
        return TaskInvoker(runtime, hooks, settler, handler)
    kind = HandlerInvoker if handler.batch is None else BatchInvoker
    return kind(runtime, hooks, settler, handler)
