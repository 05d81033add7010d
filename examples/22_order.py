"""The stock of five items, set again and again: several consumers, random failures, and the last value wins.

Without keys a message that fails is redelivered after its successors, and an old value overwrites a new one. With
`key=` the messages of an item are handled one at a time, in order, by any worker and through failures.
"""

import asyncio
import logging
import os
import random

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
retry = duly.Retry(attempts=1000, first=0.01, factor=1)  # more than enough
unordered = app.queue("example-stock-unordered", retry=retry)
ordered = app.queue("example-stock-ordered", retry=retry)
ITEMS = ("tea", "cups", "pots", "trays", "spoons")
VALUES = (9, 7, 5, 3, 1)  # the stock of each item, as it shrinks
stock: dict[tuple[str, str], int] = {}
history: dict[tuple[str, str], list[int]] = {}


@unordered.handler(concurrency=20)
@ordered.handler(concurrency=20)
async def on_stock(change: dict[str, int], d: duly.AsyncDelivery) -> None:
    await asyncio.sleep(random.uniform(0, 0.02))  # some are faster than others
    if random.random() < 0.4:
        raise ConnectionError("the shelf does not answer")  # retried
    where = (d.queue, d.headers["item"])
    stock[where] = change["left"]
    history.setdefault(where, []).append(change["left"])


async def change_stock() -> None:
    for left in VALUES:
        for item in ITEMS:
            await unordered.send({"left": left}, headers={"item": item})
            await ordered.send({"left": left}, headers={"item": item}, key=item)


async def main() -> None:
    await change_stock()

    async with duly.Worker(app), duly.Worker(app), duly.Worker(app):  # three consumers, of 20 handlers each
        while (await unordered.stats()).live or (await ordered.stats()).live:  # noqa: ASYNC110 - until nothing is left
            await asyncio.sleep(0.05)

    for queue in (unordered, ordered):
        print(f"{queue.name}: {(await queue.stats()).retried} failures")
        for item in ITEMS:
            seen = history[queue.name, item]
            order = "in order" if seen == list(VALUES) else "out of order"
            print(f"  {item:7} {seen} {order}; in the end {'right' if seen[-1] == VALUES[-1] else 'wrong'}")
    assert all(history[ordered.name, item] == list(VALUES) for item in ITEMS)
    assert all(stock[ordered.name, item] == VALUES[-1] for item in ITEMS)

    for queue in (unordered, ordered):
        await queue.delete()
    await app.aclose()


if __name__ == "__main__":
    logging.getLogger("duly.worker").setLevel(logging.ERROR)  # failures are expected here
    asyncio.run(main())
