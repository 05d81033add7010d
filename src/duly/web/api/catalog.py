"""All operations of the API, in the order of its documentation."""

from __future__ import annotations

from typing import Final

from duly.web.api import deliveries, messages, queues
from duly.web.api.operation import Operation

OPERATIONS: Final[tuple[Operation, ...]] = (
    *queues.OPERATIONS,
    *messages.OPERATIONS,
    *deliveries.OPERATIONS,
    *queues.OTHER_OPERATIONS,
)
