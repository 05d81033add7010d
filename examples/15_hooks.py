"""Hooks run around every handler of an app: here for a trace id in each log line, and for statistics.

A context variable that a hook sets is visible to its handler: each message has its own context.
"""

import asyncio
import contextvars
import logging
import os
import time
from collections import Counter

import duly

log = logging.getLogger("shop")
app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
orders = app.queue("example-hooked", retry=duly.Retry(attempts=2, first=0.05))
prices = app.queue("example-hooked-prices")

trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="-")
began: contextvars.ContextVar[float] = contextvars.ContextVar("began")
outcomes: Counter[tuple[str, str]] = Counter()
seconds: Counter[str] = Counter()


class WithTrace(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.trace = trace.get()
        return True


@app.before
def begin(d: duly.AsyncDelivery) -> None:
    trace.set(d.headers.get("trace", d.id))  # for OpenTelemetry, see 36_tracing.py
    began.set(time.perf_counter())


@app.after
def end(d: duly.AsyncDelivery, outcome: str) -> None:  # "ack", "retry", "defer", "recycle", "reject", "release", "lost"
    outcomes[d.queue, outcome] += 1
    seconds[d.queue] += time.perf_counter() - began.get(time.perf_counter())


@app.on_error
def report(d: duly.AsyncDelivery, error: BaseException) -> None:
    if not isinstance(error, duly.Outcome):  # Defer, RetryIn and Reject are not errors
        log.error("attempt %d of %s failed: %r", d.attempt, d.queue, error)


@app.on_dead
def report_dead(message: duly.Message) -> None:
    log.error("message %s of %s is dead: %s", message.body, message.queue, message.reason)


@orders.handler
async def on_order(order: int) -> None:
    await asyncio.sleep(0.01)  # other handlers run in the meantime, each with its own trace
    log.info("handling order %d", order)
    if order == 2:
        raise ValueError("no such order")


@prices.handler
def on_price(price: int) -> None:  # runs in a thread, and so do its hooks
    log.info("handling price %d", price)


async def main() -> None:
    handler = logging.StreamHandler()
    handler.addFilter(WithTrace())
    logging.basicConfig(format="%(levelname)-7s trace=%(trace)s %(message)s", level="INFO", handlers=[handler])
    await orders.send_many([duly.Send(n, headers={"trace": f"trace-{n}"}) for n in (1, 2, 3)])
    await prices.send(100, headers={"trace": "trace-100"})
    async with duly.Worker(app):
        while (await orders.stats()).live or (await prices.stats()).live:  # noqa: ASYNC110 - until nothing is left
            await asyncio.sleep(0.05)

    print(dict(outcomes))
    assert outcomes == {(orders.name, "ack"): 2, (orders.name, "retry"): 2, (prices.name, "ack"): 1}
    await orders.delete()
    await prices.delete()
    await app.aclose()


asyncio.run(main())
