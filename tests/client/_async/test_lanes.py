"""Lanes: messages with the same key come one at a time, in order."""

from typing import Any

import pytest

from duly import AsyncDelivery, AsyncDuly, AsyncQueue, Keep, MessageId, Retry, Send
from tests.client._async.given import (
    check_accounts,
    counted,
    given_blocked,
    seen,
    settle,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import Place


async def given_lane(
    queue: AsyncQueue, *bodies: Any, key: str = "k", **options: Any
) -> tuple[AsyncDelivery, list[MessageId]]:
    """Send messages of one key, and take the first; the others are parked. Give the delivery and all ids."""
    ids = await queue.send_many([Send(body, key=key) for body in bodies])
    (first,) = await take(queue, **options)
    return first, ids


async def finished_in_order(queue: AsyncQueue) -> list[Any]:
    """Take and finish until nothing is due, and give the bodies in their order."""
    found: list[Any] = []
    while bodies := await take_bodies(queue):
        found += bodies
    return found


async def test_one_message_of_a_key_is_leased_at_a_time(queue: AsyncQueue) -> None:
    """I7."""
    await queue.send_many([Send(f"{key}{n}", key=key) for n in range(3) for key in "ab"])
    await queue.send("plain")

    assert [delivery.body for delivery in await take(queue)] == ["a0", "b0", "plain"]
    assert await take(queue) == []
    await check_accounts(queue)


async def test_a_delivery_knows_its_key(queue: AsyncQueue) -> None:
    first, _ = await given_lane(queue, "a", key="user-42")

    assert first.key == "user-42"


async def test_messages_of_a_key_come_in_the_order_in_which_they_were_sent(queue: AsyncQueue, place: Place) -> None:
    """I7 I9."""
    await queue.send_many([Send((key, n), key=key) for n in range(10) for key in ("a", "b", "c")])

    found = await finished_in_order(queue)

    for key in ("a", "b", "c"):
        assert [body for body in found if body[0] == key] == [[key, n] for n in range(10)]
    assert {name for name in place.keys(queue.name) if not name.startswith("call:")} <= {"meta", "history"}


@pytest.mark.parametrize("verb", ["retry", "defer", "release", "crash"])
async def test_a_message_that_is_retried_is_still_the_first_of_its_key(
    queue: AsyncQueue, clock: Place, verb: str
) -> None:
    """I7."""
    first, _ = await given_lane(queue, "a", "b", "c", lease=5)

    if verb != "crash":
        await (first.retry(20) if verb == "retry" else settle(first, verb))
    await queue.send("d", key="k")
    held_up = [] if verb == "release" else await take(queue)
    clock.advance(61)

    assert held_up == []
    assert await finished_in_order(queue) == ["a", "b", "c", "d"]
    await check_accounts(queue)


async def test_a_key_that_waits_holds_up_no_other(queue: AsyncQueue) -> None:
    first, _ = await given_lane(queue, "a", "b")
    await first.defer(60)

    await queue.send("other", key="o")
    await queue.send("plain")

    assert await finished_in_order(queue) == ["other", "plain"]


async def test_within_a_key_the_higher_priority_comes_first(queue: AsyncQueue) -> None:
    first, _ = await given_lane(queue, "first")
    await queue.send_many([Send(priority, key="k", priority=priority) for priority in (0, 9, 5)])
    assert await take(queue) == []

    await first.ack()

    assert await finished_in_order(queue) == [9, 5, 0]


async def test_within_a_key_a_message_that_is_due_later_comes_later(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("later", key="k", delay=10)
    await queue.send("now", key="k")

    assert await finished_in_order(queue) == ["now"]
    clock.advance(11)
    assert await finished_in_order(queue) == ["later"]


async def test_a_key_of_another_queue_is_another_lane(app: AsyncDuly, queue: AsyncQueue) -> None:
    other = app.queue(f"{queue.name[:100]}-other")
    await given_lane(queue, "a", "b")

    await other.send("c", key="k")

    assert (await take_one(other)).body == "c"


@pytest.mark.parametrize("keeps", [False, True])
async def test_many_messages_acked_together_pass_their_lanes_on(app: AsyncDuly, queue_name: str, keeps: bool) -> None:
    queue = app.queue(queue_name, done=Keep(count=100) if keeps else None)
    await queue.send_many([Send(f"{key}{n}", key=key) for key in "abc" for n in range(2)])
    firsts = await take(queue)

    lost = await queue.ack_many(firsts)

    assert lost == []
    assert sorted(delivery.body for delivery in await take(queue)) == ["a1", "b1", "c1"]


async def test_a_parked_message_shows_as_such(queue: AsyncQueue) -> None:
    _, ids = await given_lane(queue, "a", "b", "c")

    assert [(await seen(queue, id_)).state for id_ in ids] == ["leased", "parked", "parked"]
    assert await counted(queue) == {"sent": 3, "delivered": 1, "leased": 1, "parked": 2}
    assert (await queue.stats()).live == 3


@pytest.mark.parametrize("by_id", [False, True])
async def test_parked_messages_are_listed_by_key_and_in_order(queue: AsyncQueue, by_id: bool) -> None:
    for key in ("b", "a"):
        await given_lane(queue, *(f"{key}{n}" for n in range(4)), key=key)

    pages, after = [], None
    while page := await queue.list("parked", limit=2, after=after):
        pages.append([message.body for message in page])
        after = page[-1].id if by_id else page[-1]

    assert pages == [["a1", "a2"], ["a3", "b1"], ["b2", "b3"]]


@pytest.mark.parametrize("verb", ["ack", "recycle", "reject", "cancel", "purge"])
async def test_every_end_of_a_message_wakes_a_consumer_for_the_next_of_its_key(
    queue: AsyncQueue, other_app: AsyncDuly, place: Place, verb: str
) -> None:
    first, ids = await given_lane(queue, "a", "b", "c")
    (consumer,) = await given_blocked(place, other_app.queue(queue.name))

    if verb == "cancel":
        await queue.cancel(ids[0], running=True)
    elif verb == "purge":
        await queue.purge("leased")
    else:
        await settle(first, verb)

    (delivery,) = await consumer.result()
    assert delivery.body == "b"


async def test_a_recycled_message_is_the_last_of_its_key(queue: AsyncQueue) -> None:
    first, _ = await given_lane(queue, "a", "b")

    await first.recycle()

    second = await take_one(queue)
    assert second.body == "b"
    await second.ack()
    again = await take_one(queue)
    assert (again.body, again.cycles, again.attempt) == ("a", 1, 1)


async def test_a_dead_message_lets_its_key_continue(queue: AsyncQueue) -> None:
    first, _ = await given_lane(queue, "a", "b")

    await first.reject("no use")

    assert await finished_in_order(queue) == ["b"]


@pytest.mark.parametrize("way", ["redrive", "cancel", "purge"])
async def test_a_dead_message_can_block_its_key(app: AsyncDuly, queue_name: str, way: str) -> None:
    queue = app.queue(queue_name, on_dead="block", retry=Retry(attempts=1))
    first, ids = await given_lane(queue, "a", "b")
    await first.retry(error="boom")
    await queue.send("other", key="o")
    assert (await seen(queue, ids[0])).state == "dead"
    assert await finished_in_order(queue) == ["other"]
    await check_accounts(queue)

    if way == "redrive":
        assert await queue.redrive() == 1
    elif way == "cancel":
        assert await queue.cancel(ids[0])
    else:
        assert await queue.purge("dead") == 1

    assert await finished_in_order(queue) == (["a", "b"] if way == "redrive" else ["b"])
    await check_accounts(queue)


@pytest.mark.parametrize("next_is_out", [False, True])
async def test_a_redriven_message_returns_to_its_place_in_its_key(queue: AsyncQueue, next_is_out: bool) -> None:
    first, _ = await given_lane(queue, "a", "b", "c")
    await first.reject("no use")
    second = await take_one(queue) if next_is_out else None

    await queue.redrive()
    if second is not None:
        await second.ack()

    assert await finished_in_order(queue) == (["a", "c"] if next_is_out else ["a", "b", "c"])
    await check_accounts(queue)


async def test_a_parked_message_can_be_cancelled(queue: AsyncQueue) -> None:
    first, ids = await given_lane(queue, "a", "b", "c")

    assert await queue.cancel(ids[1])

    await first.ack()
    assert await finished_in_order(queue) == ["c"]
    await check_accounts(queue)


async def test_a_parked_message_can_be_delayed(queue: AsyncQueue, clock: Place) -> None:
    first, ids = await given_lane(queue, "a", "b", "c")

    assert await queue.reschedule(ids[1], delay=10)

    assert (await seen(queue, ids[1])).state == "delayed"
    await first.ack()
    assert await finished_in_order(queue) == ["c"]
    clock.advance(11)
    assert await finished_in_order(queue) == ["b"]


async def test_promote_does_not_let_a_message_slip_past_its_key(queue: AsyncQueue) -> None:
    first, ids = await given_lane(queue, "a", "b", "c")

    assert await queue.promote(ids[2])

    await first.ack()
    assert await finished_in_order(queue) == ["b", "c"]


async def test_purge_ends_parked_messages(queue: AsyncQueue) -> None:
    first, _ = await given_lane(queue, "a", "b", "c")

    assert await queue.purge("parked") == 2

    await first.ack()
    assert await counted(queue) == {"sent": 3, "delivered": 1, "acked": 1, "purged": 2}
    await check_accounts(queue)


async def test_purge_of_ready_messages_leaves_parked_ones(queue: AsyncQueue) -> None:
    first, _ = await given_lane(queue, "a", "b", "c")
    await first.release()

    assert await queue.purge("ready") == 1

    assert await finished_in_order(queue) == ["b", "c"]
    await check_accounts(queue)


async def test_purge_of_all_ends_parked_messages(queue: AsyncQueue) -> None:
    await given_lane(queue, "a", "b", "c")

    assert await queue.purge() == 3
    assert await take(queue) == []
    await check_accounts(queue)


async def test_a_parked_message_expires(queue: AsyncQueue, clock: Place) -> None:
    first, _ = await given_lane(queue, "a", lease=60)
    await queue.send("short", key="k", ttl=5)
    await queue.send("b", key="k")
    assert await take(queue) == []

    clock.advance(6)

    await first.ack()
    assert await finished_in_order(queue) == ["b"]
    assert (await queue.stats()).expired == 1
    await check_accounts(queue)


async def test_a_parked_message_takes_a_new_body(queue: AsyncQueue) -> None:
    first, _ = await given_lane(queue, "a")
    id_ = await queue.send("old", key="k", dedup="x")
    assert await take(queue) == []

    assert await queue.send("new", key="k", dedup="x", replace=True) == id_

    await first.ack()
    assert await finished_in_order(queue) == ["new"]


async def test_a_crashed_message_that_dies_lets_its_key_continue(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, crash_limit=1, lease=5)
    _, ids = await given_lane(queue, "a", "b")

    clock.advance(6)

    assert await finished_in_order(queue) == ["b"]
    assert (await seen(queue, ids[0])).reason == "poison"


async def test_a_stale_holder_does_not_move_its_key_on(queue: AsyncQueue, clock: Place) -> None:
    """I5 I7."""
    first, _ = await given_lane(queue, "a", "b", lease=5)
    clock.advance(6)
    assert (await take_one(queue)).body == "a"

    assert await queue.ack_many([first]) == [first]

    assert await take(queue) == []
