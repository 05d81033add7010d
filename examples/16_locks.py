"""Locks in handlers: a message that finds its lock busy is deferred, and delays no other message.

Two orders of the same item are never packed at once. If a lock is never freed, only its own message becomes dead.
"""

import asyncio
import os

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
orders = app.queue("example-locks")
packing: dict[str, int] = {}
packed: list[tuple[str, int]] = []


@orders.handler
async def on_order(order: dict[str, str], d: duly.AsyncDelivery) -> None:
    item = order["item"]
    # Redelivered after 50 ms, 75 ms, 112 ms ... without spending an attempt; dead after 8 deferrals.
    busy = duly.Defer(0.05, factor=1.5, limit=8)
    async with d.lock(f"stock:{item}", ttl=30, on_busy=busy) as lock:
        packing[item] = packing.get(item, 0) + 1
        assert packing[item] == 1, "two at once"
        await asyncio.sleep(0.02)
        packing[item] -= 1
        packed.append((item, lock.fence))  # a database should store this fencing token, and refuse smaller ones


async def main() -> None:
    async with app.lock("stock:cursed", ttl=600):  # the holder hangs
        cursed = await orders.send({"item": "cursed"})
        await orders.send_many([{"item": item} for item in ("book", "book", "lamp", "lamp", "pen")])
        async with duly.Worker(app):
            while (await orders.stats()).live:  # noqa: ASYNC110 - until nothing is left
                await asyncio.sleep(0.05)

    message = await orders.get(cursed)
    assert message is not None
    print("packed", [item for item, _ in sorted(packed)])
    print("dead:", message.reason)
    assert sorted(item for item, _ in packed) == ["book", "book", "lamp", "lamp", "pen"]
    assert message.reason == "deferred 8 times: lock 'stock:cursed' was busy"
    await orders.delete()
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
