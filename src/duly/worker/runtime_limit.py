"""How long handlers may run: arithmetic that is asked, not run."""

import math
from collections.abc import Sequence

from duly.worker.queue_runtime import QueueRuntime
from duly.worker.source import AnyDelivery


class RuntimeLimit:
    """Divides what is held by `max_runtime`: renewed while a handler is within it; lost when it is over.

    Past it a lease is left to run out. The handler may still finish until then.
    """

    def __init__(self, runtime: QueueRuntime) -> None:
        self._runtime = runtime
        self._ends: dict[AnyDelivery, float] = {}
        """Of leases that are not renewed any more."""
        self._checked_at = -math.inf

    @property
    def next_end(self) -> float:
        """When the next of them is over."""
        return min(self._ends.values(), default=math.inf)

    def split(self, held: Sequence[AnyDelivery], now: float) -> tuple[list[AnyDelivery], list[AnyDelivery]]:
        """Tell what is to be renewed, and what is over."""
        runtime = self._runtime
        if runtime.max_runtime is None:
            return list(held), []
        renewed, over, ends = [], [], {}
        for delivery in held:
            started = runtime.started.get(delivery, math.inf)
            if now - started < runtime.max_runtime:
                renewed.append(delivery)
                continue
            # It was last renewed at the last look, or claimed after it and then started.
            end = self._ends.get(delivery) or max(self._checked_at, started) + runtime.lease
            if end <= now:
                over.append(delivery)
            else:
                ends[delivery] = end
        self._ends, self._checked_at = ends, now
        return renewed, over
