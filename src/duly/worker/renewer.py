"""Renews leases in its own thread, so that a handler which blocks the event loop keeps its lease.

One script renews all leases of a queue at a third of their length, including messages that wait for a slot. On a
cluster, each node has its own thread for that, which ends when the queues of the node are renewed.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from duly._core import ops, patience
from duly._core.call import Call
from duly._core.topology import Node
from duly.errors import DulyError
from duly.options import MAX_BATCH
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.runtime_limit import RuntimeLimit
from duly.worker.source import AnyDelivery
from duly.worker.timers import Timers

_LOG: Final = logging.getLogger("duly.worker")


class Renewer:
    """Renews until stopped. `on_lost` is called in a thread of the renewer, with deliveries whose lease was lost."""

    def __init__(
        self,
        runtimes: Sequence[QueueRuntime],
        run: Callable[[Call[Any], float], Any],
        on_lost: Callable[[QueueRuntime, Sequence[AnyDelivery]], None],
        settling: Callable[[QueueRuntime], Sequence[AnyDelivery]],
    ) -> None:
        """Take `run`, which carries out a call within some seconds, and `settling`.

        `settling` returns the deliveries that are being settled.
        """
        self._is_spread = bool(runtimes[0].source.link.is_spread)
        now = time.monotonic()
        self._renewals: Timers[QueueRuntime] = Timers()
        for runtime in runtimes:
            self._renewals.set(runtime, patience.renew_at(now, runtime.lease))
        self._runtime_limits = {runtime: RuntimeLimit(runtime) for runtime in runtimes}
        self._failing: set[QueueRuntime] = set()
        self._run = run
        self._on_lost = on_lost
        self._settling = settling
        self._changed = threading.Condition()
        """Guards the next three."""
        self._is_stopping = False
        self._rounds: dict[Node | None, list[QueueRuntime]] = {}
        """The nodes that have a thread, and the queues that it has not renewed yet."""
        self._thread = threading.Thread(target=self._work, name="duly-renewer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more leases, and do not wait for a renewal that is in progress."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def renew_now(self) -> None:
        """Renew all leases: after a roll-back, a handler should know soon that its lease was lost."""
        now = time.monotonic()
        with self._changed:
            for runtime in self._runtime_limits:
                self._renewals.set(runtime, now)
            self._changed.notify()

    def _work(self) -> None:
        while (due := self._wait_for_due()) is not None:
            for runtime in due:
                held = _held_of(runtime)
                if held and self._is_spread:
                    self._add_to_round(runtime)
                elif not self._is_stopping:
                    self._plan(runtime, self._renew(runtime, held))

    def _wait_for_due(self) -> list[QueueRuntime] | None:
        """Wait until leases are to be renewed, and return their queues. None: the renewer was stopped."""
        with self._changed:
            while not self._is_stopping:
                if due := self._renewals.due(time.monotonic()):
                    return due
                renew_at = self._renewals.next_at()
                self._changed.wait(None if renew_at is None else max(renew_at - time.monotonic(), 0.0))
        return None

    def _plan(self, runtime: QueueRuntime, renew_at: float) -> None:
        with self._changed:
            self._renewals.set(runtime, renew_at)
            self._changed.notify()

    def _add_to_round(self, runtime: QueueRuntime) -> None:
        """Renew the leases of a queue in the thread of its node."""
        node = runtime.source.node
        with self._changed:
            has_thread = node in self._rounds
            self._rounds.setdefault(node, []).append(runtime)
        if not has_thread:
            threading.Thread(target=self._renew_round, args=(node,), name="duly-renewer-of-node", daemon=True).start()

    def _renew_round(self, node: Node | None) -> None:
        while (runtime := self._next_of_round(node)) is not None:
            self._plan(runtime, self._renew(runtime, _held_of(runtime)))

    def _next_of_round(self, node: Node | None) -> QueueRuntime | None:
        with self._changed:
            waiting = self._rounds[node]
            if waiting and not self._is_stopping:
                return waiting.pop(0)
            del self._rounds[node]
            return None

    def _renew(self, runtime: QueueRuntime, held: list[AnyDelivery]) -> float:
        """Renew all leases of a queue, and return when to renew them again."""
        began = time.monotonic()
        renewed, lost = self._runtime_limits[runtime].split(held, began)
        try:
            for first in range(0, len(renewed), MAX_BATCH):
                lost += self._extend(runtime, renewed[first : first + MAX_BATCH])
        except DulyError as error:  # retry soon: it is unknown how long the leases still last
            if self._is_stopping:
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
        call = ops.extend(runtime.source.keys, leases, renews=True)
        positions: list[int] = self._run(call, runtime.lease / 3)
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


def _held_of(runtime: QueueRuntime) -> list[AnyDelivery]:
    """Return the messages whose leases are to be renewed."""
    return [delivery for delivery in list(runtime.source.held) if not delivery.is_settled and not delivery.lost]


def _is_settling(delivery: AnyDelivery) -> bool:
    """Return whether the handler is settling it. A blocked event loop may not have read the reply yet."""
    settling = getattr(delivery, "_settling", None)
    return settling is not None and not settling[1].done()
