"""All operations of the API, in the order of its documentation."""

from __future__ import annotations

from typing import Final

from duly.web.api import deliveries, events, messages, queues, schedules, upkeep
from duly.web.api.operation import Operation

OPERATIONS: Final[tuple[Operation, ...]] = (
    *queues.OPERATIONS,
    *upkeep.OPERATIONS,
    *messages.OPERATIONS,
    *deliveries.OPERATIONS,
    *events.OPERATIONS,
    *queues.OTHER_OPERATIONS,
    *schedules.OPERATIONS,
    *upkeep.OTHER_OPERATIONS,
)
