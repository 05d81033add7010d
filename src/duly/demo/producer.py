"""A producer: `python -m duly.demo.producer NAME`. It sends bursts of messages, and delayed messages."""

import sys
import time

import duly
from duly.demo.history import History, Sent
from duly.demo.plan import ORDERS, REMINDERS, Plan
from duly.demo.process import run_process

_SOONEST = 0.3
_GOLDEN = 0.618034
"""The fractional parts of its multiples fill the range from 0 to 1 evenly and in no order."""


def delay_of(number: int, longest: float) -> float:
    """Return the delay of the n-th reminder. Delays are spread over the rest of the run, in no order."""
    return round(_SOONEST + number * _GOLDEN % 1 * max(longest - _SOONEST, 0), 3)


def produce(plan: Plan, name: str, app: duly.Duly, history: History) -> None:
    """Send, and record each id that was returned."""
    orders, reminders = plan.open_queue(app, ORDERS), plan.open_queue(app, REMINDERS)
    began = time.monotonic()
    for burst in range(plan.bursts):
        ids = orders.send_many({"order": f"{name}-{burst}-{n}"} for n in range(plan.orders_a_burst))
        history.write(Sent(process=name, queue=ORDERS, id=id_) for id_ in ids)
        for n in range(plan.reminders_a_burst):
            number = burst * plan.reminders_a_burst + n
            delay = delay_of(number, plan.seconds - (time.monotonic() - began))
            id_ = reminders.send({"remind": f"{name}-{number}"}, delay=delay)
            history.write([Sent(process=name, queue=REMINDERS, id=id_, delay=delay)])
        next_at = began + (burst + 1) * plan.sending_seconds / plan.bursts
        time.sleep(max(next_at - time.monotonic(), 0))


if __name__ == "__main__":
    run_process(produce, sys.argv[1:])
