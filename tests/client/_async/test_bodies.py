"""Bodies arrive unchanged."""

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from duly import AsyncDuly, AsyncQueue, CodecError, Send, UsageError
from tests.client._async.given import given_leased, seen, take_bodies, take_one


@dataclass
class Order:
    number: int
    lines: list[str]


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Customer(pydantic.BaseModel):
    name: str
    born: date


class Colour(enum.Enum):
    RED = "red"


PLAIN: list[Any] = [
    "", "text", "中文 ✓ \U0001f600", "\x00\n", None, True, 0, -1, 2**53, 2**70, 1.5, [], {}, [[]],
    {"a": {"b": [1, {"c": None}]}}, {"": ""}, b"", b"raw", bytes(range(256)),
]  # fmt: skip


@pytest.mark.parametrize("body", PLAIN, ids=repr)
async def test_a_plain_body_arrives_as_it_was(queue: AsyncQueue, body: Any) -> None:
    """004-8."""
    delivery = await given_leased(queue, body)

    assert delivery.body == body
    assert type(delivery.body) is type(body)
    assert (await seen(queue, delivery.id)).body == body


async def test_bytes_are_stored_untouched(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue, b"\xff\x00{not json")

    assert delivery.raw == b"\xff\x00{not json"


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_a_bytes_like_body_arrives_as_bytes(queue: AsyncQueue, kind: Any) -> None:
    assert (await given_leased(queue, kind(b"raw"))).body == b"raw"


async def test_text_is_stored_as_utf_8_without_escapes(queue: AsyncQueue) -> None:
    assert (await given_leased(queue, "订单")).raw == '"订单"'.encode()


TYPED: list[tuple[Any, Any, Any]] = [
    (Order, Order(1, ["a", "b"]), {"number": 1, "lines": ["a", "b"]}),
    (Point, Point(1, 2), {"x": 1, "y": 2}),
    (Customer, Customer(name="Li", born=date(2000, 1, 2)), {"name": "Li", "born": "2000-01-02"}),
    (list[Point], [Point(1)], [{"x": 1, "y": 0}]),
    (datetime, datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC), "2030-01-02T03:04:05Z"),
    (uuid.UUID, uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Decimal, Decimal("1.10"), "1.10"),
    (Colour, Colour.RED, "red"),
    (int, 5, 5),
    (bytes, b"raw", b"raw"),
]


@pytest.mark.parametrize(("kind", "body", "plain"), TYPED)
async def test_a_typed_queue_returns_the_type_and_a_plain_one_the_stored_value(
    app: AsyncDuly, queue_name: str, kind: Any, body: Any, plain: Any
) -> None:
    typed, untyped = app.queue(queue_name, type=kind), app.queue(queue_name)
    await typed.send(body)
    delivery = await take_one(typed)

    assert delivery.body == body
    assert (await seen(untyped, delivery.id)).body == plain


@pytest.mark.parametrize(("kind", "body", "plain"), TYPED)
async def test_a_delivery_decodes_to_a_type(queue: AsyncQueue, kind: Any, body: Any, plain: Any) -> None:
    delivery = await given_leased(queue, body)

    assert delivery.decode(kind) == body
    assert delivery.body == plain


async def test_a_typed_queue_takes_plain_values_of_its_shape(app: AsyncDuly, queue_name: str) -> None:
    queue: AsyncQueue[Any] = app.queue(queue_name, type=Order)

    await queue.send({"number": 1, "lines": []})

    assert await take_bodies(queue) == [Order(1, [])]


@pytest.mark.parametrize("body", [{"number": "one", "lines": []}, {}, "text", None, b"raw", Point(1)], ids=repr)
async def test_a_typed_queue_refuses_a_body_that_does_not_fit(app: AsyncDuly, queue_name: str, body: Any) -> None:
    queue = app.queue(queue_name, type=Order)

    with pytest.raises(UsageError, match=queue_name):
        await queue.send(body)

    assert (await queue.stats()).sent == 0


async def test_a_body_that_does_not_decode_is_a_codec_error_and_stays_settleable(
    app: AsyncDuly, queue_name: str
) -> None:
    await app.queue(queue_name).send({"other": True})
    delivery = await take_one(app.queue(queue_name, type=Order))

    with pytest.raises(CodecError, match="Order"):
        _ = delivery.body

    assert delivery.raw == b'{"other":true}'
    await delivery.reject("decode")


async def test_get_of_a_body_that_does_not_decode_shows_the_raw_bytes(app: AsyncDuly, queue_name: str) -> None:
    id_ = await app.queue(queue_name).send({"other": True})

    message = await seen(app.queue(queue_name, type=Order), id_)

    assert message.body == message.raw == b'{"other":true}'


async def test_a_body_of_the_largest_size_arrives(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_message_bytes=100_000)

    await queue.send(b"x" * 100_000)

    assert [len(body) for body in await take_bodies(queue)] == [100_000]


async def test_large_bodies_are_delivered_in_several_receives(queue: AsyncQueue) -> None:
    """I11."""
    await queue.send_many([bytes([number]) * 1_000_000 for number in range(6)])

    first = await take_bodies(queue)
    rest = await take_bodies(queue)

    assert 1 <= len(first) < 6
    assert [body[0] for body in first + rest] == list(range(6))


@pytest.mark.parametrize(
    "body",
    [b"x" * 70_000, "x" * 70_000, "中" * 70_000, [{"a": "b" * 70_000}]],
    ids=["bytes", "text", "wide text", "object"],
)
async def test_a_large_body_arrives_by_every_call_that_takes_one(app: AsyncDuly, queue: AsyncQueue, body: Any) -> None:
    await queue.send(body, headers={"a": "b"}, dedup="once", ttl=60)
    sent = await take_one(queue)
    assert (sent.body, sent.headers) == (body, {"a": "b"})

    await sent.recycle(body=body)
    recycled = await take_one(queue)
    assert (recycled.body, recycled.headers) == (body, {"a": "b"})

    await recycled.reject("edit it")
    assert await queue.redrive(edit=lambda _: body) == 1
    redriven = await take_one(queue)
    assert (redriven.body, redriven.headers) == (body, {"a": "b"})

    await redriven.commit(send=[(queue, body)])
    assert await take_bodies(queue) == [body]

    await queue.send_many([1, body, 2, Send(body, priority=9)])
    assert await take_bodies(queue) == [body, 1, body, 2]

    await app.schedule(queue.name, queue, body, every=3600)
    (schedule,) = [each for each in await app.schedules() if each.name == queue.name]
    assert schedule.body == body
