"""Bodies: the values that handlers receive, and the outcome of bodies that do not decode."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from duly._core.keys import QueueKeys
from tests.worker.rig import Bench, returning


@dataclass
class Order:
    number: int


class Point(msgspec.Struct):
    x: int


class Customer(pydantic.BaseModel):
    name: str


class Line(TypedDict):
    text: str


class Pair(NamedTuple):
    left: int
    right: int


BODIES: list[tuple[Any, Any, Any]] = [
    (Order, {"number": 1}, Order(1)),
    (Order, Order(1), Order(1)),
    (Point, Point(3), Point(3)),
    (Customer, Customer(name="Ann"), Customer(name="Ann")),
    (Customer, {"name": "Ann"}, Customer(name="Ann")),
    (list[Customer], [{"name": "Ann"}], [Customer(name="Ann")]),
    (Line, {"text": "t"}, {"text": "t"}),
    (Pair, Pair(1, 2), Pair(1, 2)),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (bytes, b"\x00\xff", b"\x00\xff"),
    (bytes, b"", b""),
    (str, "", ""),
    (int, 0, 0),
    (type(None), None, None),
    (int | None, None, None),
    (int | str, "x", "x"),
    (Order | None, {"number": 2}, Order(2)),
    (Order | bytes, b"raw", b"raw"),
    (bytes | None, None, None),
    (None, {"a": [1, None]}, {"a": [1, None]}),
    (None, None, None),
    (None, "", ""),
    (None, b"", b""),
    (Any, [1], [1]),
]


@pytest.mark.parametrize(("kind", "sent", "got"), BODIES)
async def test_bodies_arrive_as_the_annotated_type(memory_bench: Bench, kind: Any, sent: Any, got: Any) -> None:
    bodies: list[Any] = []
    memory_bench.define(lambda body, d: bodies.append(body), body=kind)
    await memory_bench.queue.send(sent)

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, acked=1)

    assert bodies == [got]
    assert type(bodies[0]) is type(got)


async def test_a_sender_without_a_type_and_a_worker_with_one(bench: Bench) -> None:
    bodies: list[Any] = []
    bench.define(lambda body, d: bodies.append((body, d.body, d.raw)), type=Order)
    await bench.queue.send({"number": 7})

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)

    assert bodies == [(Order(7), Order(7), b'{"number":7}')]


@pytest.mark.parametrize(
    ("kind", "sent", "raw"),
    [
        (Order, {"number": "one"}, b'{"number":"one"}'),
        (Customer, {"name": 1}, b'{"name":1}'),
        (Point, b"\x80raw", b"\x80raw"),
        (bytes, "text", b'"text"'),
        (int, None, b"null"),
        (Order, "", b'""'),
    ],
)
async def test_a_body_that_does_not_decode_is_dead_at_once(bench: Bench, kind: Any, sent: Any, raw: bytes) -> None:
    called: list[Any] = []
    bench.define(lambda body, d: called.append(body), body=kind)
    good = {Order: {"number": 1}, Customer: {"name": "A"}, Point: {"x": 1}, bytes: b"b", int: 1}[kind]
    id_ = await bench.queue.send(sent)
    await bench.queue.send(good)

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, buried=1, dead=1, acked=1)

    message = await bench.seen(id_)
    assert (message.state, message.reason, message.raw) == ("dead", "decode", raw)
    assert (message.failures, message.attempt) == (0, 1)
    assert message.errors[-1].error
    assert len(called) == 1


async def test_a_type_may_raise_any_exception(memory_bench: Bench) -> None:
    @dataclass
    class Picky:
        number: int

        def __post_init__(self) -> None:
            raise LookupError("not this one")

    memory_bench.define(returning(None), body=Picky)
    id_ = await memory_bench.queue.send({"number": 1})

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, buried=1, dead=1)

    assert (await memory_bench.seen(id_)).reason == "decode"


async def test_a_damaged_record_is_dead_and_the_worker_continues(memory_bench: Bench) -> None:
    bench = memory_bench
    bench.define(returning(None))
    id_ = await bench.queue.send("body")
    engine: Any = bench.aio._link.engine
    keys = QueueKeys("duly", bench.queue_name)
    record = engine._queue(keys).state.messages[id_.encode()].record
    engine.damage(keys, id_, record[:-3] + b"\xc1\xc1\xc1")
    await bench.queue.send("good")

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, buried=1, dead=1, acked=1)

    assert (await bench.seen(id_)).reason == "decode"
