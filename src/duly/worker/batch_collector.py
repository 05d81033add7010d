"""Collects messages for batch handlers, until the batch is full or its first message has waited long enough."""

import asyncio
from collections.abc import Sequence

from duly.options import Batch, checked_seconds
from duly.worker.async_runner import AsyncRunner
from duly.worker.invoker import DeliveryBatch
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.source import AnyDelivery
from duly.worker.thread_runner import ThreadRunner


class BatchCollector:
    """Makes batches of messages for a runner."""

    def __init__(self, runtime: QueueRuntime, runner: AsyncRunner | ThreadRunner, batch: Batch) -> None:
        self._runtime = runtime
        self._runner = runner
        self._max = batch.max
        self._wait = checked_seconds(batch.wait, "Batch.wait")
        self._collected: list[AnyDelivery] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, deliveries: Sequence[AnyDelivery], *, at_once: bool = False) -> None:
        """Collect. `at_once`: run the batch now, because no more messages will come."""
        collected = self._collected
        collected += deliveries
        while len(collected) >= self._max:
            self._stop_timer()  # the next batch has its own wait
            self._run(collected[: self._max])
            del collected[: self._max]
        if at_once:
            self._run_collected()
        elif collected and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait, self._run_collected)
        self._runtime.collected = len(self._collected)

    def take_back(self) -> list[AnyDelivery]:
        """Remove and return the messages that are collected and not passed to the runner."""
        self._stop_timer()
        collected, self._collected = self._collected, []
        self._runtime.collected = 0
        return collected

    def _run_collected(self) -> None:
        self._stop_timer()
        if self._collected:
            self._run(self._collected)
            self._collected = []
            self._runtime.collected = 0

    def _run(self, deliveries: Sequence[AnyDelivery]) -> None:
        self._runtime.batches += 1
        self._runner.add([DeliveryBatch(deliveries)])

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
