"""Logs once a minute how many messages were retried. A warning per retry would hide all other lines."""

import asyncio
import logging
from typing import Final

from duly.worker.logs import event

_LOG: Final = logging.getLogger("duly.worker")
_PERIOD: Final = 60.0


class RetrySummary:
    """Counts retries by queue. The first retry starts a minute. At its end, each queue logs a warning.

    A worker that stops earlier logs what it has counted.
    """

    def __init__(self, period: float = _PERIOD) -> None:
        self._period = period
        self._counts: dict[str, int] = {}
        self._errors: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, queue: str, error: str) -> None:
        """Count a retry. In the event loop only."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._period, self._report, self._period)
        self._counts[queue] = self._counts.get(queue, 0) + 1
        self._errors[queue] = error

    def close(self) -> None:
        """Log the retries since the last summary, because the worker stops."""
        if self._timer is not None:
            self._report(self._period - max(self._timer.when() - asyncio.get_running_loop().time(), 0))

    def _report(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counts, self._counts = self._counts, {}
        for queue, count in counts.items():
            event(
                _LOG, logging.WARNING, "messages.retried", queue=queue, count=count, seconds=round(seconds, 3),
                last_error=self._errors.pop(queue),
            )  # fmt: skip
