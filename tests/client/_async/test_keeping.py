"""Retention of a topic: by count, age and bytes, or until every group has acked."""

from datetime import timedelta
from typing import Any

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncTopic, Keep, Send
from tests.client._async.given import check_accounts, settle, take, take_bodies, take_one
from tests.client.place import Place, ServerPlace


@pytest.fixture
def freeing(app: AsyncDuly, queue_name: str) -> AsyncTopic:
    """Return a topic whose entries go when every group has acked them."""
    return app.topic(queue_name, keep=None)


async def bodies_in(events: AsyncTopic) -> list[Any]:
    return [entry.body for entry in await events.read(limit=1000)]


async def length_of(events: AsyncTopic) -> int:
    return (await events.stats()).length


# Bounds


async def test_entries_are_kept_by_count(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=Keep(count=3))
    for number in range(5):
        await events.publish(number)

    assert await bodies_in(events) == [2, 3, 4]
    await events.publish_many(range(10, 20))
    assert await bodies_in(events) == [17, 18, 19]
    assert (await events.stats()).trimmed == 12


async def test_entries_are_kept_by_age(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    events = app.topic(queue_name, keep=Keep(age=timedelta(seconds=100)))
    await events.publish("old")
    clock.advance(60)
    await events.publish("young")
    assert await bodies_in(events) == ["old", "young"]

    clock.advance(60)
    await events.publish("new")

    assert await bodies_in(events) == ["young", "new"]


async def test_entries_are_kept_by_bytes(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=Keep(bytes=100_000))
    for number in range(20):
        await events.publish_many([f"{number:02}" + "x" * 1000] * 20)

    stats = await events.stats()

    assert stats.bytes <= 100_000
    assert 10 <= stats.length < 400
    assert (await events.read(limit=1000))[-1].body.startswith("19")


async def test_without_bounds_all_is_kept(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    events = app.topic(queue_name, keep=Keep())
    await events.publish_many(range(1000))
    clock.advance(10 * 365 * 86400)
    await events.publish("new")

    assert await length_of(events) == 1001


async def test_a_week_is_kept_by_default(events: AsyncTopic, clock: Place) -> None:
    await events.publish("old")
    clock.advance(6 * 86400)
    await events.publish("young")
    assert await bodies_in(events) == ["old", "young"]
    clock.advance(1.1 * 86400)
    await events.publish("new")

    assert await bodies_in(events) == ["young", "new"]


async def test_acks_free_nothing_where_entries_are_kept(events: AsyncTopic) -> None:
    await events.publish_many(range(3))
    assert await take_bodies(events.group("g")) == [0, 1, 2]

    assert await bodies_in(events) == [0, 1, 2]


async def test_an_entry_that_is_trimmed_before_a_group_has_read_it_is_counted_as_missed(
    app: AsyncDuly, queue_name: str
) -> None:
    events = app.topic(queue_name, keep=Keep(count=3))
    behind, at_the_front = events.group("behind"), events.group("front")
    await behind.create()
    for number in range(8):
        await events.publish(number)
        assert await take_bodies(at_the_front) == [number]

    assert {info.name: info.missed for info in await events.groups()} == {"behind": 5, "front": 0}
    assert (await behind.stats()).missed == 5
    assert await take_bodies(behind) == [5, 6, 7]
    await check_accounts(behind)


async def test_read_entries_and_missed_entries_are_distinguished(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=Keep(count=3))
    group = events.group("g")
    await events.publish_many(range(3))
    assert await take_bodies(group, limit=1) == [0]

    for number in range(3, 8):
        await events.publish(number)

    assert await take_bodies(group) == [5, 6, 7]
    assert (await group.stats()).missed == 4


async def test_a_leased_message_outlives_its_entry(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    """I1."""
    events = app.topic(queue_name, keep=Keep(count=1))
    group = events.group("g")
    await events.publish("held")
    held = await take_one(group, lease=10)
    await events.publish_many(range(5))
    assert await bodies_in(events) == [4]

    clock.advance(11)

    again = await take(group)
    assert [d.body for d in again] == ["held", 4]
    assert (again[0].id, again[0].crashes) == (held.id, 1)
    assert await group.ack_many(again) == []
    await check_accounts(group)


@pytest.mark.parametrize("verb", ["retry", "defer", "release", "recycle"])
async def test_a_retried_message_outlives_its_entry(app: AsyncDuly, queue_name: str, clock: Place, verb: str) -> None:
    """I1."""
    events = app.topic(queue_name, keep=Keep(count=1))
    group = events.group("g")
    await events.publish("held")
    await settle(await take_one(group), verb)
    await events.publish("last")
    clock.advance(70)

    assert sorted(await take_bodies(group)) == ["held", "last"]


# Until all have acked


async def test_entries_go_when_every_group_has_acked_them(freeing: AsyncTopic) -> None:
    one, two = freeing.group("one"), freeing.group("two")
    await one.create()
    await two.create()
    await freeing.publish_many(range(5))

    assert await take_bodies(one) == [0, 1, 2, 3, 4]
    assert await length_of(freeing) == 5
    assert await take_bodies(two, limit=3) == [0, 1, 2]
    assert await bodies_in(freeing) == [3, 4]
    assert await take_bodies(two) == [3, 4]

    assert await length_of(freeing) == 0
    for group in (one, two):
        await check_accounts(group)


async def test_nothing_is_freed_while_there_is_no_group(freeing: AsyncTopic, clock: Place) -> None:
    await freeing.publish_many(range(3))
    clock.advance(30 * 86400)
    await freeing.publish(3)

    assert await bodies_in(freeing) == [0, 1, 2, 3]


async def test_an_entry_that_is_held_keeps_later_entries(freeing: AsyncTopic) -> None:
    group = freeing.group("g")
    await freeing.publish_many(range(3))
    held = await take(group)

    await held[1].ack()
    await held[2].ack()
    assert await bodies_in(freeing) == [0, 1, 2]
    await held[0].ack()

    assert await length_of(freeing) == 0


@pytest.mark.parametrize("verb", ["retry", "defer", "release", "recycle", "reject"])
async def test_a_message_in_the_store_of_a_group_frees_its_entry_and_is_not_lost(
    freeing: AsyncTopic, clock: Place, verb: str
) -> None:
    """I1."""
    group = freeing.group("g")
    await freeing.publish("body")
    await settle(await take_one(group), verb)

    assert await length_of(freeing) == 0

    if verb == "reject":
        await group.redrive()
    clock.advance(70)
    assert await take_bodies(group) == ["body"]
    await check_accounts(group)


async def test_parked_messages_free_their_entries_and_are_not_lost(freeing: AsyncTopic) -> None:
    group = freeing.group("g")
    await freeing.publish_many([Send(number, key="k") for number in range(4)])
    found: list[Any] = []
    while some := await take_bodies(group):
        found += some

    assert found == [0, 1, 2, 3]
    assert await length_of(freeing) == 0


async def test_a_late_group_begins_with_the_entries_that_are_left(freeing: AsyncTopic) -> None:
    await freeing.publish_many(["a", "b"])
    assert await take_bodies(freeing.group("early"), limit=1) == ["a"]

    assert await take_bodies(freeing.group("late")) == ["b"]
    assert await take_bodies(freeing.group("early")) == ["b"]
    assert await length_of(freeing) == 0


async def test_a_cancelled_and_a_purged_message_free_their_entries(freeing: AsyncTopic) -> None:
    group = freeing.group("g")
    await freeing.publish_many(range(3))
    held = await take(group, limit=2)

    await group.cancel(held[0].id, running=True)
    assert await bodies_in(freeing) == [1, 2]
    await group.purge()
    await freeing.publish("last")
    assert await take_bodies(group) == ["last"]

    assert await length_of(freeing) == 0


@pytest.mark.one_slot("commit to another queue")
async def test_a_commit_frees_its_entry(freeing: AsyncTopic, app: AsyncDuly) -> None:
    group = freeing.group("g")
    await freeing.publish("body")

    await (await take_one(group)).commit(send=[(app.queue(freeing.name), "next")])

    assert await length_of(freeing) == 0


async def test_memory_returns_to_where_it_was_after_all_have_acked(freeing: AsyncTopic, server: ServerPlace) -> None:
    """Real servers only: there it is a number."""
    groups = [freeing.group(name) for name in ("one", "two", "three")]

    async def publish_and_ack(count: int) -> None:
        await freeing.publish_many([Send("x" * 200, key=f"k{number % 300}") for number in range(count)])
        for group in groups:
            while deliveries := await take(group, limit=1000):
                assert await group.ack_many(deliveries) == []

    for group in groups:
        await group.create()
    await publish_and_ack(300)
    keys = set(server.keys(f"@{freeing.name}"))
    before = (await freeing.stats()).bytes

    await publish_and_ack(1500)

    stats = await freeing.stats()
    assert stats.length == 0
    assert stats.bytes <= before + 2000
    left = {key for key in server.keys(f"@{freeing.name}") if "call:" not in key}
    assert left <= keys
    assert not any(key.endswith((":msgs", ":leased", ":leases", ":counts", ":lanes", ":parked")) for key in left)


async def test_a_group_of_a_keeping_view_and_one_of_a_freeing_view_agree(
    freeing: AsyncTopic, other_app: AsyncDuly
) -> None:
    """Options are a process's view: one that frees does so whenever it ends a lease."""
    keeping: AsyncGroup = other_app.topic(freeing.name).group("g")
    await freeing.publish_many(["a", "b"])
    assert await take_bodies(keeping, limit=1) == ["a"]
    assert await bodies_in(freeing) == ["a", "b"]

    assert await take_bodies(freeing.group("g")) == ["b"]

    assert await length_of(freeing) == 0
