"""Bodies of topics arrive unchanged, in a group and in read()."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import msgspec
import pydantic
import pytest

from duly import AsyncDuly, AsyncGroup, AsyncTopic, CodecError, UsageError
from tests.client._async.given import given_read, seen, take_bodies, take_one
from tests.client.place import Place


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


PLAIN: list[Any] = [
    "", "text", "中文 ✓ \U0001f600", "\x00\n", None, True, 0, 2**70, 1.5, [], {}, {"a": {"b": [1, {"c": None}]}},
    b"", b"raw", bytes(range(256)), "x" * 300, b"x" * 70_000,
]  # fmt: skip


@pytest.mark.parametrize("body", PLAIN, ids=lambda body: repr(body)[:20])
async def test_a_plain_body_arrives_in_a_group_as_it_was_published(archive: AsyncGroup, body: Any) -> None:
    d = await given_read(archive, body)
    (entry,) = await archive.topic.read()

    for found in (d.body, entry.body, (await seen(archive, d.id)).body):
        assert found == body
        assert type(found) is type(body)
    assert d.raw == entry.raw


@pytest.mark.parametrize("body", PLAIN, ids=lambda body: repr(body)[:20])
async def test_a_delayed_body_arrives_as_it_was(archive: AsyncGroup, clock: Place, body: Any) -> None:
    await archive.topic.publish(body, delay=10)
    clock.advance(11)

    found = (await take_one(archive)).body

    assert found == body
    assert type(found) is type(body)


@pytest.mark.parametrize(
    ("kind", "body", "plain"),
    [
        (Order, Order(1, ["a", "b"]), {"number": 1, "lines": ["a", "b"]}),
        (Point, Point(1, 2), {"x": 1, "y": 2}),
        (Customer, Customer(name="Li", born=date(2000, 1, 2)), {"name": "Li", "born": "2000-01-02"}),
        (list[Point], [Point(1)], [{"x": 1, "y": 0}]),
        (bytes, b"raw", b"raw"),
        (int, 5, 5),
    ],
    ids=lambda value: getattr(value, "__name__", "-"),
)
async def test_a_typed_topic_gives_its_type_to_every_group(
    app: AsyncDuly, other_app: AsyncDuly, queue_name: str, kind: Any, body: Any, plain: Any
) -> None:
    events = app.topic(queue_name, type=kind)
    await events.publish(body)
    await events.publish(plain)

    assert await take_bodies(events.group("g")) == [body, body]
    assert [entry.body for entry in await events.read()] == [body, body]
    untyped = other_app.topic(queue_name).group("untyped")
    assert await take_bodies(untyped) == [plain, plain]


@pytest.mark.parametrize("delay", [None, 60])
async def test_a_body_of_another_type_is_refused_and_nothing_is_written(
    app: AsyncDuly, queue_name: str, place: Place, delay: float | None
) -> None:
    events = app.topic(queue_name, type=Order)

    with pytest.raises(UsageError, match=queue_name):
        await events.publish({"number": "one"}, delay=delay)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=queue_name):
        await events.publish_many([Order(1, []), 5])  # type: ignore[list-item]

    assert place.keys(f"@{queue_name}") == {}
    assert await events.read() == []


async def test_a_body_that_does_not_decode_raises_and_can_be_rejected(app: AsyncDuly, events: AsyncTopic) -> None:
    await events.publish("text")
    d = await take_one(app.topic(events.name, type=int).group("g"))

    with pytest.raises(CodecError, match=f"{d.id}.*{events.name}/g"):
        _ = d.body
    assert d.raw == b'"text"'
    assert d.decode(str) == "text"
    await d.reject("decode")


async def test_a_delivery_decodes_to_any_type(archive: AsyncGroup) -> None:
    d = await given_read(archive, {"number": 1, "lines": []})

    assert d.decode(Order) == Order(1, [])


async def test_a_recycled_body_is_checked_against_the_topics_type(app: AsyncDuly, queue_name: str) -> None:
    group = app.topic(queue_name, type=Point).group("g")
    d = await given_read(group, Point(1, 2))

    with pytest.raises(UsageError, match="x"):
        await d.recycle(body={"y": 1})
    await d.recycle(body=Point(3))

    assert await take_bodies(group) == [Point(3)]


async def test_large_bodies_all_arrive(archive: AsyncGroup) -> None:
    """Claims take few of them at a time."""
    ids = await archive.topic.publish_many([bytes([number]) * 900_000 for number in range(12)])
    found: list[str] = []
    while some := await archive.receive(limit=100, wait=0):
        found += [d.id for d in some]
        assert all(d.body == d.body[:1] * 900_000 for d in some)
        assert await archive.ack_many(some) == []

    assert found == ids


async def test_large_entries_are_read_in_pages(events: AsyncTopic) -> None:
    ids = await events.publish_many([b"x" * 900_000] * 12)
    found: list[str] = []
    while page := await events.read(after=found[-1] if found else None):
        found += [entry.id for entry in page]

    assert found == ids


async def test_times_are_aware(archive: AsyncGroup) -> None:
    d = await given_read(archive)
    (entry,) = await archive.topic.read()

    for moment in (d.sent_at, d.due_at, entry.published_at):
        assert isinstance(moment, datetime)
        assert moment.tzinfo is not None
