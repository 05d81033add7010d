"""Bodies are decoded to the annotation of the handler. A body that does not fit becomes a dead letter at once."""

import asyncio
import os
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))


@dataclass
class Order:
    number: int
    items: list[str]


class Payment(msgspec.Struct):
    order: int
    cents: int


class Address(pydantic.BaseModel):
    city: str
    zip: str = pydantic.Field(pattern=r"^\d{5}$")


class Visit(TypedDict):
    page: str


orders = app.queue("example-typed-orders")
payments = app.queue("example-typed-payments", type=Payment)  # also validated when sent
addresses = app.queue("example-typed-addresses")
visits = app.queue("example-typed-visits")


@orders.handler
async def on_order(order: Order) -> None:
    print("order", order.number, "with", len(order.items), "items")


@payments.handler
async def on_payment(payment) -> None:  # the queue has a type
    print("payment of", payment.cents, "cents")


@addresses.handler
async def on_address(address: Address) -> None:
    print("address in", address.city)


@visits.handler
async def on_visit(visit: Visit, d: duly.AsyncDelivery) -> None:
    print("visit of", visit["page"], "sent at", f"{d.sent_at:%H:%M}")


async def main() -> None:
    queues = [orders, payments, addresses, visits]
    await orders.send(Order(1, ["tea", "cups"]))
    await payments.send(Payment(order=1, cents=499))
    await addresses.send({"city": "Berlin", "zip": "10117"})
    await addresses.send({"city": "Nowhere", "zip": "none"})  # not an Address: dead, reason "decode"
    await visits.send({"page": "/tea"})

    async with duly.Worker(app):
        while any([(await queue.stats()).live for queue in queues]):  # noqa: ASYNC110 - until nothing is left
            await asyncio.sleep(0.05)

    for letter in await addresses.list("dead"):
        print("dead:", letter.reason, "-", letter.errors[-1].error.splitlines()[0], "-", letter.raw)
    for queue in queues:
        await queue.delete()
    await app.aclose()


asyncio.run(main())
