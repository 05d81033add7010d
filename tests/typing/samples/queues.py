"""Queues: types of sent and received bodies, and the options."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

import msgspec
import redis
import redis.asyncio

import duly


@dataclass
class Order:
    number: int


class Express(Order):
    pass


class Refund(msgspec.Struct):
    reason: str


app = duly.Duly("memory://")
orders: duly.Queue[Order] = app.queue("orders", type=Order)
lists = app.queue("lists", type=list[Order])
mixed: duly.Queue[Order | Refund] = app.queue("mixed", type=Order | Refund)
plain = app.queue("plain", lease=60, done=duly.Keep(count=10), shards=1)
app.queue("plain", shards=2)  # E

assert_type(app.queue("orders", type=Order), duly.Queue[Order])
assert_type(lists, duly.Queue[list[Order]])
assert_type(plain, duly.Queue[Any])
assert_type(app.queue("plain", type=None), duly.Queue[Any])
assert_type(app.queue("plain", type=Annotated[int, "positive"]), duly.Queue[Any])
assert_type(orders.aio, duly.AsyncQueue[Order])

app.queue("orders", leese=3)  # E
app.queue("orders", lease="soon")  # E
wrong: duly.Queue[Refund] = orders  # E

# Connecting
duly.Duly(redis.Redis(), namespace="shop")
duly.Duly(redis.asyncio.Redis())
duly.AsyncDuly(app)
duly.Duly(5)  # E
duly.Duly(redis)  # E

# Sending
assert_type(orders.send(Order(1), delay=30), duly.MessageId)
assert_type(orders.send(Order(1), durable="fsync").durable, Literal["fsync"] | int | None)
text: str = orders.send(Order(1))
orders.send(Express(1))
orders.send(duly.Send(Order(1), key="customer-1"))
orders.send(duly.Send(Express(1)))
mixed.send(Refund("late"))
plain.send({"order": 1})
plain.send(b"bytes")
assert_type(orders.send_many([Order(1), duly.Send(Order(2), delay=5)]), list[duly.MessageId])

orders.send("text")  # E
orders.send({"number": 1})  # E
orders.send(Refund("late"))  # E
orders.send(duly.Send("text"))  # E
orders.send(Order(1), dellay=3)  # E
orders.send_many([Order(1), "text"])  # E
orders.send_many([duly.Send(5)])  # E


# Receiving
def receive() -> None:
    for d in orders.receive(limit=10, wait=0):
        assert_type(d, duly.Delivery[Order])
        assert_type(d.body, Order)
        assert_type(d.body.number, int)
        assert_type(d.decode(Refund), Refund)
        assert_type(d.decode(list[int]), list[int])
        d.recycle(60, body=Order(2))
        d.recycle(60, body="text")  # E
        assert d.body.missing  # E
        with d as held:
            assert_type(held.body, Order)
    assert_type(orders.ack_many(orders.receive()), list[duly.Delivery[Order]])
    orders.ack_many(lists.receive())  # E
    for any_delivery in plain.receive():
        assert_type(any_delivery.body, Any)


def without_a_type(d: duly.Delivery, queue: duly.Queue, send: duly.Send) -> None:
    """A class without a type in brackets means any type, also in strict mode."""
    assert_type(d.body, Any)
    assert_type(queue, duly.Queue[Any])
    queue.send(send)
    without_a_type(orders.receive()[0], orders, duly.Send(Order(1)))


# Inspection and management
def look(message: duly.Message) -> duly.Progress | None:
    orders.list("dead")
    orders.list("sleeping")  # E
    orders.redrive(where=duly.Where(error="Timeout*"))
    orders.redrive(where={"error": "Timeout*", "ids": ["a"]})
    orders.redrive(where=lambda each: each.failures > 3, to=plain)
    orders.redrive(where="Timeout")  # E
    orders.redrive(where={"cause": "Timeout*"})  # E
    orders.redrive(to=5)  # E
    orders.purge("dead", where={"reason": "poison"})
    assert_type(orders.get("id"), duly.Message | None)
    return message.progress


def result() -> None:
    try:
        orders.result("id")
    except duly.HandlerFailed as error:
        assert_type(error.message, duly.Message | None)


app.schedule("report", orders, Order(1), cron="0 3 * * *")
app.schedule("report", orders, duly.Send(Order(1), key="k"), every=60)
app.schedule("report", "orders", {"any": "body"}, every=60)
app.schedule("report", orders, "text", every=60)  # E
