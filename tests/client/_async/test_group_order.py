"""Order in a group: that of the stream with one member, and of each key with many. Filters by headers."""

from typing import Any

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncTopic, MessageId, Retry, Send
from tests.client._async.given import (
    check_accounts,
    counted,
    given_read,
    seen,
    settle,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import Place


async def keyed(events: AsyncTopic, *bodies: str) -> list[MessageId]:
    """Publish texts like k1, whose first letter is their key."""
    return await events.publish_many([Send(body, key=body[0]) for body in bodies])


# The order of the stream


async def test_a_single_member_gets_entries_in_the_order_of_the_stream(archive: AsyncGroup) -> None:
    found: list[Any] = []
    for first in range(0, 300, 100):
        await archive.topic.publish_many(range(first, first + 100))
        found += await take_bodies(archive, limit=33)
    while some := await take_bodies(archive, limit=33):
        found += some

    assert found == list(range(300))


async def test_a_released_message_keeps_its_place(archive: AsyncGroup) -> None:
    await archive.topic.publish_many(range(6))
    held = await take(archive, limit=4)

    for d in (held[3], held[1], held[2]):
        await d.release()

    assert [d.body for d in await take(archive)] == [1, 2, 3, 4, 5]


async def test_a_message_with_an_expired_lease_keeps_its_place(archive: AsyncGroup, clock: Place) -> None:
    await archive.topic.publish_many(range(6))
    await take(archive, limit=2, lease=20)
    await take(archive, limit=2, lease=10)
    clock.advance(21)

    assert [d.body for d in await take(archive)] == [0, 1, 2, 3, 4, 5]


# The order of keys


async def test_one_entry_of_each_key_is_leased_at_a_time(archive: AsyncGroup, other_app: AsyncDuly) -> None:
    """I7."""
    other = other_app.topic(archive.topic.name).group(archive.name)
    await keyed(archive.topic, "a1", "b1", "a2", "b2", "a3")

    first = await take(archive)
    assert [d.body for d in first] == ["a1", "b1"]
    assert await take(other) == []
    await first[0].ack()
    second = await take(other)
    assert [d.body for d in second] == ["a2"]
    await first[1].ack()
    assert await take_bodies(archive) == ["b2"]
    await second[0].ack()

    assert await take_bodies(other) == ["a3"]
    await check_accounts(archive)


async def test_entries_without_a_key_do_not_wait(archive: AsyncGroup) -> None:
    await archive.topic.publish_many([Send("a1", key="a"), "x", Send("a2", key="a"), "y"])

    assert [d.body for d in await take(archive)] == ["a1", "x", "y"]
    assert (await archive.stats()).parked == 1


async def test_a_message_that_waits_behind_its_key_is_held_by_no_member(archive: AsyncGroup) -> None:
    ids = await keyed(archive.topic, "a1", "a2", "a3")
    await take_one(archive)

    assert [row.id for row in (await archive.pending()).messages] == ids[:1]
    assert [info.pending for info in await archive.topic.groups()] == [1]


@pytest.mark.parametrize("verb", ["retry", "defer", "release"])
async def test_an_entry_that_is_retried_keeps_its_key(archive: AsyncGroup, clock: Place, verb: str) -> None:
    """I7."""
    await keyed(archive.topic, "a1", "a2")
    (first,) = await take(archive)

    await settle(first, verb)

    clock.advance(70)
    assert [d.body for d in await take(archive)] == ["a1"]
    await check_accounts(archive)


async def test_a_recycled_entry_lets_the_next_of_its_key_pass(archive: AsyncGroup) -> None:
    """It is as new, so it comes behind them."""
    await keyed(archive.topic, "a1", "a2")

    await (await take_one(archive)).recycle()

    assert await take_bodies(archive) == ["a2"]
    assert await take_bodies(archive) == ["a1"]


async def test_an_entry_that_ran_out_keeps_its_key(archive: AsyncGroup, clock: Place) -> None:
    """I7."""
    await keyed(archive.topic, "a1", "a2")
    (first,) = await take(archive, lease=10)
    clock.advance(11)

    assert [d.body for d in await take(archive)] == ["a1"]
    assert first.key == "a"


async def test_a_dead_letter_lets_the_next_of_its_key_pass(archive: AsyncGroup) -> None:
    await keyed(archive.topic, "a1", "a2")

    await (await take_one(archive)).reject("no use")

    assert await take_bodies(archive) == ["a2"]


async def test_a_dead_letter_may_block_its_key_until_it_is_redriven(app: AsyncDuly, queue_name: str) -> None:
    group = app.topic(queue_name, on_dead="block").group("g")
    await keyed(group.topic, "a1", "b1", "a2")
    a1, b1 = await take(group)

    await a1.reject("no use")
    await b1.ack()

    assert await take(group) == []
    await group.redrive()
    assert await take_bodies(group) == ["a1"]
    assert await take_bodies(group) == ["a2"]
    await check_accounts(group)


async def test_a_key_is_held_separately_in_each_group(archive: AsyncGroup, live: AsyncGroup) -> None:
    await keyed(archive.topic, "a1", "a2")
    await take_one(archive)

    assert await take_bodies(live) == ["a1"]
    assert await take_bodies(live) == ["a2"]
    assert await take(archive) == []


async def test_many_entries_of_one_key_come_one_by_one_and_in_order(archive: AsyncGroup) -> None:
    """I7."""
    await archive.topic.publish_many([Send(number, key="k") for number in range(120)])
    found: list[Any] = []
    while some := await take(archive):
        assert len(some) == 1
        found.append(some[0].body)
        await some[0].ack()

    assert found == list(range(120))
    await check_accounts(archive)


async def test_a_failure_in_between_does_not_disturb_the_order_of_its_key(
    app: AsyncDuly, queue_name: str, clock: Place
) -> None:
    """I7."""
    group = app.topic(queue_name, retry=Retry(delays=[10] * 5)).group("g")
    await group.topic.publish_many([Send(number, key=f"k{number % 3}") for number in range(30)])
    acked: list[int] = []
    while some := await take(group):
        for d in some:
            if d.body % 4 == 0 and d.attempt == 1:
                await d.retry(error="boom")
            else:
                await d.ack()
                acked.append(d.body)
        clock.advance(11)

    for key in range(3):
        assert [number for number in acked if number % 3 == key] == list(range(key, 30, 3))
    await check_accounts(group)


async def test_a_parked_entry_is_seen_and_can_be_cancelled(archive: AsyncGroup) -> None:
    ids = await keyed(archive.topic, "a1", "a2", "a3")
    first = await take_one(archive)

    assert [(m.id, m.state, m.key) for m in await archive.list("parked")] == [
        (ids[1], "parked", "a"), (ids[2], "parked", "a"),
    ]  # fmt: skip
    assert await archive.cancel(ids[1]) is True
    await first.ack()

    assert await take_bodies(archive) == ["a3"]
    await check_accounts(archive)


# Filters


async def given_regions(events: AsyncTopic) -> None:
    await events.publish_many(
        [
            Send("eu 1", headers={"region": "eu", "kind": "order"}),
            Send("us 1", headers={"region": "us", "kind": "order"}),
            Send("none"),
            Send("eu 2", headers={"region": "eu", "kind": "refund"}),
            Send("cn 1", headers={"region": "cn"}),
        ]
    )


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"region": "eu"}, ["eu 1", "eu 2"]),
        ({"region": ["us", "cn"]}, ["us 1", "cn 1"]),
        ({"region": ("us",)}, ["us 1"]),
        ({"region": "eu", "kind": "order"}, ["eu 1"]),
        ({"region": ["eu", "us"], "kind": ["order"]}, ["eu 1", "us 1"]),
        ({"region": "mars"}, []),
        ({}, ["eu 1", "us 1", "none", "eu 2", "cn 1"]),
        (None, ["eu 1", "us 1", "none", "eu 2", "cn 1"]),
    ],
    ids=str,
)
async def test_a_group_with_headers_gets_entries_that_have_them(
    events: AsyncTopic, headers: Any, expected: list[str]
) -> None:
    await given_regions(events)
    group = events.group("g", headers=headers)

    assert await take_bodies(group) == expected

    stats = await group.stats()
    assert (stats.sent, stats.filtered, stats.unread) == (len(expected), 5 - len(expected), 0)
    await check_accounts(group)


async def test_an_entry_that_one_group_skips_reaches_another(events: AsyncTopic) -> None:
    await given_regions(events)
    assert await take_bodies(events.group("eu", headers={"region": "eu"})) == ["eu 1", "eu 2"]

    assert len(await take_bodies(events.group("all"))) == 5


async def test_a_filter_skips_many_letters_that_do_not_match(events: AsyncTopic) -> None:
    await events.publish_many(["no"] * 2500)
    await events.publish("yes", headers={"a": "b"})
    group = events.group("g", headers={"a": "b"})

    found = await group.receive(limit=1, wait=10)

    assert [d.body for d in found] == ["yes"]
    assert (await group.stats()).filtered == 2500


async def test_a_filtered_entry_is_freed_if_nothing_is_kept(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=None)
    group = events.group("g", headers={"a": "b"})
    await group.create()
    await events.publish_many(["no"] * 10)
    await events.publish("yes", headers={"a": "b"})

    assert await take_bodies(group) == ["yes"]

    assert (await events.stats()).length == 0


async def test_a_delayed_entry_keeps_its_headers_and_its_key(events: AsyncTopic, clock: Place) -> None:
    await events.publish_many(
        [
            Send("a1", delay=10, key="a", headers={"region": "eu", "x": "y" * 300}),
            Send("a2", delay=11, key="a", headers={"region": "eu"}),
            Send("us", delay=12, headers={"region": "us"}),
            Send(b"\xff\x00", delay=13, headers={"region": "eu"}),
        ]
    )
    clock.advance(20)
    group = events.group("g", headers={"region": "eu"})

    found = await take(group)

    assert [(d.body, d.key) for d in found] == [("a1", "a"), (b"\xff\x00", None)]
    assert found[0].headers == {"region": "eu", "x": "y" * 300}
    assert (await group.stats()).parked == 1


async def test_a_message_in_the_store_is_delivered_even_if_the_filter_has_changed(events: AsyncTopic) -> None:
    """A filter applies when entries are read. Entries that were read belong to the group."""
    held = await given_read(events.group("g"), "body")
    await held.release()

    strict = events.group("g", headers={"a": "b"})

    assert (await seen(strict, held.id)).state == "ready"
    assert await take_bodies(strict) == ["body"]
    assert await counted(strict) == {"sent": 1, "delivered": 2, "released": 1, "acked": 1}
