"""Exactly once: an order becomes an invoice and a parcel, and the stock shrinks, in one step with the end of the order.

Whoever dies in the middle leaves no half of it: either all has happened and the order is finished, or nothing has and
the order comes again.
"""

import asyncio
import os

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
orders = app.queue("example-orders")
invoices = app.queue("example-invoices")
parcels = app.queue("example-parcels")


@orders.handler
async def on_order(order: dict[str, int], d: duly.AsyncDelivery) -> None:
    await d.commit(
        send=[
            (invoices, {"order": order["number"], "cents": order["count"] * 250}),
            (parcels, duly.Send({"order": order["number"]}, key=f"customer-{order['customer']}")),
        ],
        redis=[
            ("HINCRBY", "example:stock", "tea", -order["count"]),
            ("ZINCRBY", "example:customers", order["count"], f"customer-{order['customer']}"),
        ],
    )


async def main() -> None:
    await orders.send_many([{"number": n, "count": 2, "customer": n % 3} for n in range(10)])
    async with duly.Worker(app):
        while (await orders.stats()).live:  # noqa: ASYNC110 - until nothing is left
            await asyncio.sleep(0.02)

    made = [(await queue.stats()).sent for queue in (invoices, parcels)]
    print("10 orders made", made[0], "invoices and", made[1], "parcels")
    assert made == [10, 10]

    await orders.send("not an order")
    (d,) = await orders.receive()
    try:
        await d.commit(send=[(parcels, "?")], redis=[("INCR", "example:stock")])
    except duly.UsageError as error:
        print("refused:", error)  # a hash is no number: nothing was sent, and the message is still ours
    await d.reject("not an order")
    assert (await parcels.stats()).sent == 10

    for queue in (orders, invoices, parcels):
        await queue.delete()
    await app.aclose()


asyncio.run(main())
