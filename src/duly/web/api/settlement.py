"""Settles many deliveries in few calls. Each call settles all of its deliveries or none.

`duly._port` makes the steps. If the server rejects a call, for example because of a damaged lease, each of its
deliveries is settled in a separate call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from duly import AsyncDelivery
from duly import _port as port
from duly._port import Inbox, Row, Step
from duly.errors import DulyError, ServerError, Unavailable
from duly.web.problems import Refused, status_of

_LOG: Final = logging.getLogger("duly")
_MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of one call, which blocks the server. A body may be the same for a thousand messages."""
_MAX_NAMED: Final = 20
"""Messages that one error names."""
SAME_BODY: Final = object()
"""The default: a message keeps its body."""

Deliveries = Sequence[AsyncDelivery]


def ack_steps(inbox: Inbox, deliveries: Deliveries, result: Any = None) -> list[Step]:
    """Finish messages; those with repeat are delivered again. The queue may keep the result."""
    options = inbox.options
    packed = "" if result is None or options.done is None else port.packed_result(result, options.max_message_bytes)
    steps = port.acked(deliveries, packed)
    if problem := port.result_problem(packed):
        _LOG.warning("the result of %d messages of %s is not kept: %s", len(steps[0].rows), inbox.title, problem)
    return steps


def recycle_steps(inbox: Inbox, deliveries: Deliveries, delay: float, body: Any = SAME_BODY) -> list[Step]:
    """Finish messages and store them again as new, with another body if one is given."""
    if body is SAME_BODY:
        return port.recycled(deliveries, delay)
    return port.recycled_with_body(inbox, deliveries, delay, body)


class _Tally:
    """The results so far."""

    def __init__(self, inbox: Inbox, count: int) -> None:
        self._inbox = inbox
        self._count = count
        self.settled = 0
        self.lost: list[AsyncDelivery] = []
        self.refused: list[AsyncDelivery] = []
        self._error: ServerError | None = None

    async def run(self, step: Step) -> None:
        """Run a step. If the server rejects it, run it for each delivery, so that only damaged ones fail."""
        way, rows = step
        try:
            positions = await port.run_step(self._inbox, step)
        except Unavailable:
            raise
        except ServerError as error:
            if len(rows) == 1:
                self._error = error
                self.refused.append(rows[0][0])
            else:
                for row in rows:
                    await self.run(Step(way, [row]))
        else:
            self._record_result(step, positions)

    def _record_result(self, step: Step, positions: Sequence[int]) -> None:
        for position, row in enumerate(step.rows):
            if position in positions:
                self.lost.append(row[0])
                continue
            self.settled += 1
            if step.way.reason is not None:
                port.log_dead(row[0], step.way.reason(row))

    def interrupted_by(self, error: DulyError) -> DulyError:
        """Add to an error the messages that were settled before. A repeated call reports them as lost."""
        handled = self.settled + len(self.lost)
        if not handled:
            return error
        done = f"{handled} of {self._count} receipts were settled or lost before"
        detail = f"{error}. {done}: repeat the call, which reports them as lost"
        return Refused(status_of(error), detail, getattr(error, "headers", None))

    def raise_if_refused(self) -> None:
        """Raise an error that names the messages which the server did not settle."""
        if self._error is None:
            return
        names = ", ".join(each.id for each in self.refused[:_MAX_NAMED])
        unnamed = len(self.refused) - _MAX_NAMED
        raise Refused(
            status_of(self._error),
            f"of {self._count} messages {self.settled} were settled and {len(self.lost)} lost; the server rejected "
            f"{names}{f' and {unnamed} more' if unnamed > 0 else ''}: {self._error}",
        ) from self._error


async def settle(inbox: Inbox, steps: Sequence[Step]) -> list[AsyncDelivery]:
    """Run all steps and return the deliveries whose leases were lost. Stops at the first call without an answer."""
    tally = _Tally(inbox, sum(len(each.rows) for each in steps))
    for step in _split_by_size(steps):
        try:
            await tally.run(step)
        except DulyError as error:
            raise tally.interrupted_by(error) from error
    tally.raise_if_refused()
    return tally.lost


def _split_by_size(steps: Sequence[Step]) -> Iterator[Step]:
    """Split the rows of each step, so that no call is too large."""
    for step in steps:
        rows, size = list[Row](), 0
        for row in step.rows:
            added = sum(len(part) for part in row[1:] if isinstance(part, str | bytes))
            if rows and size + added > _MAX_BYTES:
                yield Step(step.way, rows)
                rows, size = [], 0
            rows.append(row)
            size += added
        if rows:
            yield Step(step.way, rows)
