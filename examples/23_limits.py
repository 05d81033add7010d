"""Limits over all workers: deliveries per second, and messages in flight.

Two workers with 20 handlers each could call the bank forty times at once. One queue delivers at most 30 messages per
second, another one has at most 4 in flight.
"""

import asyncio
import os
import time

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
by_rate = app.queue("example-rate", rate="30/s")
at_once = app.queue("example-in-flight", max_in_flight=4)
running: set[int] = set()
most: list[int] = []


@by_rate.handler(concurrency=20)
async def on_call(delay: float) -> None:
    await asyncio.sleep(delay)


@at_once.handler(concurrency=20)
async def on_upload(upload: int) -> None:
    running.add(upload)
    most.append(len(running))
    await asyncio.sleep(0.05)
    running.remove(upload)


async def work_off(queue: duly.AsyncQueue) -> float:
    start = time.monotonic()
    async with duly.Worker(app, queues=[queue.name]), duly.Worker(app, queues=[queue.name]):
        while (await queue.stats()).live:  # noqa: ASYNC110 - until nothing is left
            await asyncio.sleep(0.01)
    return time.monotonic() - start


async def main() -> None:
    await by_rate.send_many([0.001] * 45)
    seconds = await work_off(by_rate)
    print(f"rate=30/s: 45 calls in {seconds:.2f} s")
    assert seconds > 1.4, "evenly: one at once, then 44 intervals of a thirtieth of a second"

    ids = await at_once.send_many(list(range(20)))
    held = await at_once.receive(limit=100)  # by hand: the limit applies to every consumer
    print(f"{len(held)} are in flight;", await at_once.explain(ids[-1]))
    for d in held:
        await d.release()
    seconds = await work_off(at_once)
    print(f"max_in_flight=4: 20 uploads in {seconds:.2f} s, never more than {max(most)} at once")
    assert max(most) <= 4

    await by_rate.delete()
    await at_once.delete()
    await app.aclose()


asyncio.run(main())
