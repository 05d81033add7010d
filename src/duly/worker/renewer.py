"""Renews leases in its own thread, so that a handler which blocks the event loop keeps its lease.

One script renews all leases of a queue at a third of their length, including messages that wait for a slot.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from duly._core import ops, patience
from duly._core.call import Call
from duly.errors import DulyError
from duly.options import MAX_BATCH
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.runtime_limit import RuntimeLimit
from duly.worker.source import AnyDelivery
from duly.worker.timers import Timers

_LOG: Final = logging.getLogger("duly.worker")


class Renewer:
    """Renews until stopped. `on_lost` is called in the renewer's thread, with deliveries whose lease was lost."""

    def __init__(
        self,
        runtimes: Sequence[QueueRuntime],
        run: Callable[[Call[Any]], Any],
        on_lost: Callable[[QueueRuntime, Sequence[AnyDelivery]], None],
        settling: Callable[[QueueRuntime], Sequence[AnyDelivery]],
    ) -> None:
        """Take `run`, which carries out a call, and `settling`, which returns deliveries that are being settled."""
        now = time.monotonic()
        self._renewals: Timers[QueueRuntime] = Timers()
        for runtime in runtimes:
            self._renewals.set(runtime, patience.renew_at(now, runtime.lease))
        self._runtime_limits = {runtime: RuntimeLimit(runtime) for runtime in runtimes}
        self._failing: set[QueueRuntime] = set()
        self._run = run
        self._on_lost = on_lost
        self._settling = settling
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="duly-renewer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more leases, and do not wait for a renewal that is in progress."""
        self._is_stopping.set()

    def _work(self) -> None:
        while not self._is_stopping.wait(self._seconds_left()):
            for runtime in self._renewals.due(time.monotonic()):
                if not self._is_stopping.is_set():
                    self._renewals.set(runtime, self._renew(runtime))

    def _seconds_left(self) -> float:
        """Return the seconds until the next renewal."""
        renew_at = self._renewals.next_at()
        return 0.0 if renew_at is None else max(renew_at - time.monotonic(), 0.0)

    def _renew(self, runtime: QueueRuntime) -> float:
        """Renew all leases of a queue, and return when to renew them again."""
        began = time.monotonic()
        held = [delivery for delivery in list(runtime.source.held) if not delivery.is_settled and not delivery.lost]
        renewed, lost = self._runtime_limits[runtime].split(held, began)
        try:
            for first in range(0, len(renewed), MAX_BATCH):
                lost += self._extend(runtime, renewed[first : first + MAX_BATCH])
        except DulyError as error:  # retry soon: it is unknown how long the leases still last
            if self._is_stopping.is_set():
                return began
            if runtime not in self._failing:  # one line per outage
                self._failing.add(runtime)
                event(_LOG, logging.WARNING, "renewal.failed", queue=runtime.name, held=len(held), error=str(error))
            return time.monotonic() + min(runtime.lease / 3, 1.0)
        self._failing.discard(runtime)
        if lost:
            self._note_lost(runtime, lost)
        runtime.lease_validity.renew(began + runtime.lease)
        return min(patience.renew_at(began, runtime.lease), self._runtime_limits[runtime].next_end)

    def _extend(self, runtime: QueueRuntime, deliveries: list[AnyDelivery]) -> list[AnyDelivery]:
        leases = [(delivery, runtime.lease) for delivery in deliveries]
        positions: list[int] = self._run(ops.extend(runtime.source.keys, leases, renews=True))
        if not positions:
            return []
        settling = set(self._settling(runtime))  # first: a delivery that has left this list is settled
        found = [deliveries[position] for position in positions]
        return [each for each in found if each not in settling and not each.is_settled and not _is_settling(each)]

    def _note_lost(self, runtime: QueueRuntime, lost: list[AnyDelivery]) -> None:
        for delivery in lost:
            delivery.lost = True
            event(_LOG, logging.WARNING, "lease.lost", queue=runtime.name, id=delivery.id, attempt=delivery.attempt)
        self._on_lost(runtime, lost)


def _is_settling(delivery: AnyDelivery) -> bool:
    """Return whether the handler is settling it. A blocked event loop may not have read the reply yet."""
    settling = getattr(delivery, "_settling", None)
    return settling is not None and not settling[1].done()
