"""Logs once a minute how many messages were retried. A warning per retry would hide all other lines."""

import asyncio
import logging
from typing import Final

from duly.worker.logs import event

_LOG: Final = logging.getLogger("duly.worker")
_PERIOD: Final = 60.0


class RetrySummary:
    """Counts retries by queue. The first retry starts a minute, at whose end each queue logs a warning."""

    def __init__(self, period: float = _PERIOD) -> None:
        self._period = period
        self._counts: dict[str, int] = {}
        self._errors: dict[str, str] = {}

    def add(self, queue: str, error: str) -> None:
        """Count a retry. In the event loop only."""
        if not self._counts:
            asyncio.get_running_loop().call_later(self._period, self._report)
        self._counts[queue] = self._counts.get(queue, 0) + 1
        self._errors[queue] = error

    def _report(self) -> None:
        counts, self._counts = self._counts, {}
        for queue, count in counts.items():
            event(
                _LOG, logging.WARNING, "messages.retried", queue=queue, count=count, seconds=self._period,
                last_error=self._errors.pop(queue),
            )  # fmt: skip
