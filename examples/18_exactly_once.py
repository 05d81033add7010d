"""Exactly once: an order becomes an invoice, a parcel and an event, and reduces the stock, in one step with its ack.

A crash leaves nothing half done: either all effects have happened and the order is finished, or none has and the order
is redelivered.
"""

import asyncio
import os

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
orders = app.queue("example-orders", done=duly.Keep(count=100))  # stores results
invoices = app.queue("example-invoices")
parcels = app.queue("example-parcels")
events = app.topic("example-events")


@orders.handler
async def on_order(order: dict[str, int], d: duly.AsyncDelivery) -> dict[str, int]:
    left, _ = await d.commit(
        send=[
            (invoices, {"order": order["number"], "cents": order["count"] * 250}),
            (parcels, duly.Send({"order": order["number"]}, key=f"customer-{order['customer']}")),
        ],
        publish=[(events, {"packed": order["number"]})],
        redis=[
            ("HINCRBY", "example:stock", "tea", -order["count"]),
            ("ZINCRBY", "example:customers", order["count"], f"customer-{order['customer']}"),
        ],
    )
    return {"left": left}  # the result; commit(result=...) would store one in the same step


async def main() -> None:
    ids = await orders.send_many([{"number": n, "count": 2, "customer": n % 3} for n in range(10)])
    async with duly.Worker(app):
        left = [(await orders.result(id_))["left"] for id_ in ids]

    made = [(await queue.stats()).sent for queue in (invoices, parcels)]
    packed = {entry.body["packed"] for entry in await events.read()}
    print("10 orders made", made[0], "invoices,", made[1], "parcels and", len(packed), "events")
    assert (made, packed) == ([10, 10], set(range(10)))
    assert max(left) - min(left) == 18  # each took two of the stock

    await orders.send("not an order")
    (d,) = await orders.receive()
    try:
        await d.commit(send=[(parcels, "?")], redis=[("INCR", "example:stock")])
    except duly.UsageError as error:
        print("refused:", error)  # a hash is not a number: nothing was sent, and we still have the message
    await d.reject("not an order")
    assert (await parcels.stats()).sent == 10

    for each in (orders, invoices, parcels, events):
        await each.delete()
    await app.aclose()


asyncio.run(main())
