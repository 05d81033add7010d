"""A consumer: `python -m duly.demo.consumer NAME`. The name contains the queue. It may be killed at any time."""

import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import duly
from duly.demo.history import Acked, Acking, Delivered, History
from duly.demo.plan import Plan
from duly.demo.process import is_over, run_process

BATCH: Final = 20
WORK: Final = 0.002
"""Seconds that a message takes. A batch is far shorter than the lease, so only a killed process loses its leases."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def consume(plan: Plan, name: str, app: duly.Duly, history: History) -> None:
    """Receive, record, work, ack, record."""
    queue = plan.open_queue(app, name.rpartition("-")[0])
    while not is_over():
        batch = queue.receive(limit=BATCH, wait=0.5)
        history.write(_delivered(name, d) for d in batch)
        for d in batch:
            time.sleep(WORK)
            history.write([Acking(process=name, queue=d.queue, id=d.id, fence=d.fence)])
            try:
                d.ack()
            except duly.LeaseLost:
                history.write([Acked(process=name, queue=d.queue, id=d.id, fence=d.fence, lost=True)])
            else:
                history.write([Acked(process=name, queue=d.queue, id=d.id, fence=d.fence)])


def _delivered(name: str, d: duly.Delivery) -> Delivered:
    return Delivered(
        process=name,
        queue=d.queue,
        id=d.id,
        fence=d.fence,
        attempt=d.attempt,
        sent_at=_microseconds(d.sent_at),
        due_at=_microseconds(d.due_at),
    )


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


if __name__ == "__main__":
    run_process(consume, sys.argv[1:])
