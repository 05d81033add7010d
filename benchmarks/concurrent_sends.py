"""How many concurrent `await queue.send()` calls per second, 100 at a time?"""

import asyncio

import duly
from benchmarks.rig import BODY, Result, Rig, median

AT_ONCE = 100
ROUNDS = 60


def measure(rig: Rig) -> list[Result]:
    """Gather 100 sends at a time: they become one script call."""
    samples = asyncio.run(_samples(rig.url))
    return [
        Result(
            "100 concurrent awaits of send",
            median(samples),
            "messages/s",
            100_000,
            higher_is_better=True,
            samples=samples,
        )
    ]


async def _samples(url: str) -> list[float]:
    async with duly.AsyncDuly(url) as app:
        queue = app.queue("concurrent")
        samples = []
        for _ in range(8):
            loop = asyncio.get_running_loop()
            started = loop.time()
            for _ in range(ROUNDS):
                await asyncio.gather(*[queue.send(BODY) for _ in range(AT_ONCE)])
            samples.append(AT_ONCE * ROUNDS / (loop.time() - started))
        await queue.delete()
    return samples
