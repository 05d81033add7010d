"""The ways in which a handler fails: retry by policy, retry after a given time, defer, reject. And a dead hook."""

import asyncio
import os
from collections import Counter

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
payments = app.queue("example-failing", retry=duly.Retry(attempts=3, first=0.05, factor=2))
calls: Counter[str] = Counter()


@payments.handler(timeout=0.2)
async def on_payment(kind: str, d: duly.AsyncDelivery) -> bool | None:
    calls[kind] += 1
    print(f"{kind}: attempt {d.attempt}, deferred {d.defers} times")
    if kind == "the bank is down":
        raise ConnectionError("no answer")  # retried by the policy; dead after the third attempt
    if kind == "the bank asks for patience" and d.attempt == 1:
        raise duly.RetryIn(0.1)  # counts as a failure, with our own delay
    if kind == "the lock is busy" and d.defers < 2:
        raise duly.Defer(0.1)  # later: no attempt is spent, and no thread sleeps
    if kind == "no such account":
        raise duly.Reject("no such account")  # dead at once: a retry would not help
    if kind == "it hangs":
        await asyncio.sleep(60)  # the timeout ends this, and counts as a failure
    return kind != "returns False"  # False: like an error, by the policy


@payments.on_dead
async def report_dead(message: duly.Message) -> None:
    print(f"dead: {message.body} - {message.reason}", "-", message.errors[-1].error if message.errors else "")


async def main() -> None:
    await payments.send_many(
        [
            "the bank is down",
            "the bank asks for patience",
            "the lock is busy",
            "no such account",
            duly.Send("it hangs", retry=duly.Retry(attempts=1)),  # a message may carry its own policy
            duly.Send("returns False", retry=duly.Retry(delays=[0.05])),
        ]
    )
    async with duly.Worker(app):
        while (await payments.stats()).live:  # noqa: ASYNC110 - until nothing is left
            await asyncio.sleep(0.05)

    assert calls["the bank is down"] == 3
    assert calls["the lock is busy"] == 3
    stats = await payments.stats()
    print("finished", stats.acked, "dead", stats.dead)
    await payments.redrive()  # with all attempts: when the bank is up again
    await payments.delete()
    await app.aclose()


asyncio.run(main())
