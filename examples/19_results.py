"""Wait for a result: the sender of a message gets the return value of its handler."""

import asyncio
import os

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
prices = app.queue("example-prices", done=duly.Keep(count=1000, age=600))  # stores results for ten minutes
STOCK = {"tea": 4.20, "cups": 12.50}


@prices.handler
async def on_question(item: str) -> dict[str, float | str]:
    await asyncio.sleep(0.1)  # the look-up
    if item not in STOCK:
        raise duly.Reject(f"there is no {item!r}")
    return {"item": item, "price": STOCK[item]}


async def main() -> None:
    ids = await prices.send_many(["tea", "cups", "gold"])
    late = await prices.send("tea", delay=3600)

    async with duly.Worker(app):
        for id_ in ids:
            try:
                print("answer:", await prices.result(id_, wait=10))  # wakes up as soon as there is one
            except duly.HandlerFailed as error:
                print("no answer:", error.message.reason if error.message else "unknown")
        try:
            await prices.result(late, wait=0.2)
        except duly.NotFinished:
            print("not yet")

    message = await prices.get(ids[0])
    assert message is not None
    print("kept:", message.state, message.result)
    await prices.delete()
    await app.aclose()


asyncio.run(main())
