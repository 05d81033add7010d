"""How long handlers may run. Pure arithmetic: time is an argument."""

import math
from collections.abc import Sequence

from duly.worker.queue_runtime import QueueRuntime
from duly.worker.source import AnyDelivery


class RuntimeLimit:
    """Applies `max_runtime`: leases of handlers that run longer are not renewed any more.

    Such a lease expires. Until then the handler may still finish. After that the message counts as lost.
    """

    def __init__(self, runtime: QueueRuntime) -> None:
        self._runtime = runtime
        self._ends: dict[AnyDelivery, float] = {}
        """When leases expire that are not renewed any more."""
        self._checked_at = -math.inf

    @property
    def next_end(self) -> float:
        """When the next lease that is not renewed expires."""
        return min(self._ends.values(), default=math.inf)

    def split(self, held: Sequence[AnyDelivery], now: float) -> tuple[list[AnyDelivery], list[AnyDelivery]]:
        """Return the deliveries to renew, and those whose lease has expired."""
        runtime = self._runtime
        if runtime.max_runtime is None:
            return list(held), []
        renewed, over, ends = [], [], {}
        for delivery in held:
            started = runtime.started.get(delivery, math.inf)
            if now - started < runtime.max_runtime:
                renewed.append(delivery)
                continue
            # Its lease was last renewed at the last call, or the message was claimed after that and then started.
            end = self._ends.get(delivery) or max(self._checked_at, started) + runtime.lease
            if end <= now:
                over.append(delivery)
            else:
                ends[delivery] = end
        self._ends, self._checked_at = ends, now
        return renewed, over
