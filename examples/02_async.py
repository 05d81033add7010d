"""A producer and three consumers in one event loop. Duly sends concurrent messages in one round trip."""

import asyncio
import os

import duly


async def consume(name: str, mail: duly.AsyncQueue) -> int:
    done = 0
    while batch := await mail.receive(limit=10, wait=0.5):  # [] when nothing came for half a second
        for d in batch:
            async with d:
                await asyncio.sleep(0.001)  # the work
                done += 1
    print(name, "handled", done)
    return done


async def main() -> None:
    async with duly.AsyncDuly(os.environ.get("DULY_URL", "memory://")) as app:
        mail = app.queue("example-mail")
        consumers = [asyncio.create_task(consume(f"consumer {n}", mail)) for n in range(3)]
        await asyncio.gather(*(mail.send({"to": f"user-{n}"}) for n in range(300)))
        print("together", sum(await asyncio.gather(*consumers)))
        await mail.delete()


asyncio.run(main())
