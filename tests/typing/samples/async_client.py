"""The async client: the same types, awaited."""

from dataclasses import dataclass
from typing import Any, assert_type

import duly


@dataclass
class Order:
    number: int


app = duly.AsyncDuly("memory://")
orders: duly.AsyncQueue[Order] = app.queue("orders", type=Order)
events = app.topic("events", type=Order)

assert_type(app.queue("plain"), duly.AsyncQueue[Any])
assert_type(events.group("archive"), duly.AsyncGroup[Order])


@orders.handler
async def on_order(order: Order, d: duly.AsyncDelivery[Order]) -> None:
    assert_type(await once(d), bool)


@app.task
async def welcome(user_id: int) -> bool:
    return True


async def once(d: duly.AsyncDelivery) -> bool:
    return await duly.once(d, "mail", ttl=60)


async def use() -> None:
    assert_type(await orders.send(Order(1)), duly.MessageId)
    assert_type(await welcome.send(42), duly.MessageId)
    assert_type(await welcome(42), bool)
    for d in await orders.receive():
        async with d:
            assert_type(d.body, Order)
    await orders.send("text")  # E
    await events.publish("text")  # E
    await welcome.send("42")  # E


@orders.handler  # E
async def on_text(text: str) -> None: ...


async def mixed_up(queue: duly.Queue[Order]) -> None:
    await use_queue(queue)  # E


async def use_queue(queue: duly.AsyncQueue[Order]) -> None:
    await queue.send(Order(1))
