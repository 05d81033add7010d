"""Handlers and hooks: functions are checked against the type of their queue, and keep their own type."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_type

import duly


@dataclass
class Order:
    number: int


class Express(Order):
    pass


app = duly.Duly("memory://")
orders = app.queue("orders", type=Order)
plain = app.queue("plain")


@orders.handler
async def body_alone(order: Order) -> None: ...


@orders.handler
def body_and_delivery(order: Order, d: duly.Delivery[Order]) -> int:
    assert_type(d.body, Order)
    return 1


@orders.handler
async def delivery_without_type(order: Order, d: duly.Delivery) -> None: ...


@orders.handler(concurrency=5, timeout=60)
async def async_delivery(order: Order, d: duly.AsyncDelivery[Order]) -> bool:
    return True


@orders.handler
def optional_delivery(order: Order, d: duly.Delivery | None = None) -> None: ...


@orders.handler
def either_delivery(order: Order, d: duly.Delivery | duly.AsyncDelivery) -> None: ...


@orders.handler
async def delivery_alone(d: duly.AsyncDelivery[Order]) -> None: ...


@orders.handler
def delivery_first(d: duly.Delivery[Order], order: Order) -> None: ...


@orders.handler
def more_general(order: object) -> None: ...


@orders.handler
def with_default(order: Order, times: int = 3) -> None: ...


@plain.handler
async def any_body(order: Order, d: duly.AsyncDelivery) -> None: ...


# A decorated function is the function: its parameters, their names and what it returns.
async def call_body() -> None:
    assert_type(await async_delivery(order=Order(1), d=(await orders.aio.receive())[0]), bool)


assert_type(body_and_delivery(Order(1), d=orders.receive()[0]), int)
optional_delivery(Order(1))
with_default(Order(1), times=5)
more_general("anything")
assert_type(body_and_delivery.__name__, str)
body_and_delivery("text", orders.receive()[0])  # E


class Shop:
    def on_order(self, order: Order) -> None: ...
    def __call__(self, order: Order, d: duly.Delivery) -> None: ...


def made(handle: Callable[[Order], None], handle_two: Callable[[Order, duly.Delivery], None]) -> None:
    orders.handler(Shop().on_order)
    orders.handler(Shop())
    orders.handler(handle)
    orders.handler(concurrency=1)(handle_two)
    orders.handler(functools.partial(body_and_delivery, d=orders.receive()[0]))
    plain.handler(handle)


@orders.handler  # E
def wrong_body(order: str) -> None: ...


@orders.handler  # E
async def wrong_body_async(order: str, d: duly.AsyncDelivery) -> None: ...


@orders.handler(concurrency=5)  # E
async def wrong_body_with_options(order: int) -> None: ...


@orders.handler  # E
def too_special(order: Express) -> None: ...


@orders.handler  # E
def wrong_delivery(d: duly.Delivery[str]) -> None: ...


@orders.handler  # E
def wrong_second(order: Order, d: duly.Delivery[str]) -> None: ...


@orders.handler  # E
def no_delivery(order: Order, times: int) -> None: ...


@orders.handler  # E
def three(order: Order, d: duly.Delivery, times: int) -> None: ...


@orders.handler  # E
def nothing() -> None: ...


# Batches


@orders.handler(batch=duly.Batch(max=100))
async def bodies(batch: list[Order]) -> list[bool]:
    return [True for _ in batch]


@orders.handler(batch=duly.Batch())
def bodies_and_deliveries(batch: Sequence[Order], deliveries: list[duly.Delivery[Order]]) -> None: ...


@orders.handler(batch=duly.Batch())
async def async_deliveries(batch: list[Order], deliveries: list[duly.AsyncDelivery]) -> None: ...


@orders.handler(batch=duly.Batch())
def deliveries_alone(deliveries: list[duly.Delivery[Order]]) -> None: ...


@orders.handler(batch=duly.Batch())
def deliveries_first(deliveries: list[duly.Delivery[Order]], batch: list[Order]) -> None: ...


@plain.handler(batch=duly.Batch())
def any_bodies(batch: list[Order]) -> None: ...


async def call_bodies() -> None:
    assert_type(await bodies([Order(1)]), list[bool])


@orders.handler(batch=duly.Batch())  # E
def one_body(order: Order) -> None: ...


@orders.handler(batch=duly.Batch())  # E
def wrong_bodies(batch: list[str]) -> None: ...


# Hooks


@app.before
def before(d: duly.Delivery | duly.AsyncDelivery) -> None: ...


@app.after
def after(d: duly.AsyncDelivery, outcome: str) -> None: ...


@app.on_error
def on_error(d: duly.Delivery, error: BaseException) -> None: ...


@app.on_dead
async def on_dead(message: duly.Message) -> None: ...


@orders.on_dead
def on_dead_order(message: duly.Message) -> None: ...


@app.on_start
async def on_start() -> None: ...


@app.on_stop  # E
def on_stop(reason: str) -> None: ...


@orders.on_dead  # E
def on_dead_body(order: Order) -> None: ...


@app.after  # E
def after_delivery(d: duly.Delivery) -> None: ...
