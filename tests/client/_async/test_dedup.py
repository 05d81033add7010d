"""Deduplication and replacement."""

import pytest

from duly import AsyncDuly, AsyncQueue
from tests.client._async.given import check_accounts, counted, given_leased, seen, take, take_bodies, take_one
from tests.client.place import Place


async def test_within_the_window_the_first_id_is_returned_and_nothing_is_stored(queue: AsyncQueue) -> None:
    """001-6."""
    first = await queue.send("first", dedup="pay-17")

    again = await queue.send("second", dedup="pay-17")

    assert again == first
    assert await take_bodies(queue) == ["first"]
    assert await counted(queue) == {"sent": 1, "duplicates": 1, "delivered": 1, "acked": 1}


async def test_within_the_window_a_consumed_message_still_counts(queue: AsyncQueue, clock: Place) -> None:
    delivery = await given_leased(queue, dedup="pay-17", dedup_for=60)
    await delivery.ack()

    clock.advance(59)

    assert await queue.send("again", dedup="pay-17") == delivery.id
    assert await take(queue) == []


async def test_after_the_window_the_value_is_free(queue: AsyncQueue, clock: Place) -> None:
    first = await queue.send("first", dedup="pay-17", dedup_for=60)

    clock.advance(61)
    second = await queue.send("second", dedup="pay-17")

    assert second != first
    assert await take_bodies(queue) == ["first", "second"]


async def test_the_window_is_the_queues_unless_given(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, dedup_for=10)
    await queue.send("short", dedup="a")
    await queue.send("long", dedup="b", dedup_for=100)

    clock.advance(50)
    await queue.send_many(["between"])
    await queue.send("short again", dedup="a")
    await queue.send("long again", dedup="b")

    assert await take_bodies(queue) == ["short", "long", "between", "short again"]


async def test_different_values_do_not_meet(queue: AsyncQueue) -> None:
    for value in ("a", "A", "a ", "ä"):
        await queue.send(value, dedup=value)

    assert await take_bodies(queue) == ["a", "A", "a ", "ä"]


async def test_a_value_belongs_to_its_queue(queue: AsyncQueue, app: AsyncDuly) -> None:
    other = app.queue(queue.name + "-2")

    await queue.send(1, dedup="a")
    await other.send(2, dedup="a")

    assert await take_bodies(other) == [2]


async def test_cancel_frees_the_value(queue: AsyncQueue) -> None:
    first = await queue.send("first", dedup="pay-17")
    await queue.cancel(first)

    second = await queue.send("second", dedup="pay-17")

    assert second != first
    assert await take_bodies(queue) == ["second"]


async def test_purge_frees_the_values(queue: AsyncQueue) -> None:
    await queue.send("first", dedup="pay-17")
    await queue.purge()

    await queue.send("second", dedup="pay-17")

    assert await take_bodies(queue) == ["second"]


async def test_cancelling_an_earlier_message_leaves_the_value_to_the_later_one(queue: AsyncQueue, clock: Place) -> None:
    first = await queue.send("first", dedup="a", dedup_for=5)
    clock.advance(6)
    second = await queue.send("second", dedup="a", dedup_for=60)

    await queue.cancel(first)

    assert await queue.send("third", dedup="a") == second


async def test_replace_gives_a_waiting_message_the_new_body_and_due_time(queue: AsyncQueue, clock: Place) -> None:
    first = await queue.send("a", dedup="search-9", replace=True, delay=2)
    clock.advance(1.5)

    second = await queue.send("ab", dedup="search-9", replace=True, delay=2)
    clock.advance(1.5)
    early = await take(queue)
    clock.advance(1)

    assert (second, early) == (first, [])
    assert await take_bodies(queue) == ["ab"]
    assert await counted(queue) == {"sent": 1, "replaced": 1, "delivered": 1, "acked": 1}


async def test_replace_takes_the_new_priority_headers_and_ttl(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("a", dedup="d", headers={"v": "1"}, ttl=1000)

    await queue.send("b", dedup="d", replace=True, priority=7, headers={"v": "2"}, ttl=5)

    message = await seen(queue, id_)
    assert (message.body, message.priority, message.headers) == ("b", 7, {"v": "2"})
    clock.advance(6)
    assert await take(queue) == []
    await check_accounts(queue)


async def test_replace_of_a_leased_message_stores_a_new_one(queue: AsyncQueue) -> None:
    held = await given_leased(queue, "old", dedup="d")

    new = await queue.send("new", dedup="d", replace=True)

    assert new != held.id
    assert await take_bodies(queue) == ["new"]
    await held.ack()
    await check_accounts(queue)


async def test_replace_of_a_finished_message_stores_a_new_one(queue: AsyncQueue) -> None:
    held = await given_leased(queue, "old", dedup="d")
    await held.ack()

    await queue.send("new", dedup="d", replace=True)

    assert await take_bodies(queue) == ["new"]


async def test_replace_of_nothing_sends(queue: AsyncQueue) -> None:
    await queue.send("new", dedup="d", replace=True)

    assert await take_bodies(queue) == ["new"]
    assert await counted(queue) == {"sent": 1, "delivered": 1, "acked": 1}


async def test_replace_prolongs_the_window(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("a", dedup="d", dedup_for=10, replace=True, delay=100)
    clock.advance(8)
    await queue.send("b", dedup="d", dedup_for=10, replace=True, delay=100)
    clock.advance(8)

    await queue.send("c", dedup="d", replace=True, delay=0)

    assert await take_bodies(queue) == ["c"]
    assert (await queue.stats()).live == 0


async def test_replaced_bytes_are_accounted_for(queue: AsyncQueue) -> None:
    """I1."""
    await queue.send("x" * 1000, dedup="d")

    await queue.send("y", dedup="d", replace=True)

    assert (await queue.stats()).bytes < 200
    await check_accounts(queue)


@pytest.mark.parametrize("verb", ["retry", "defer", "release"])
async def test_a_dedup_value_stays_taken_while_its_message_is_retried(queue: AsyncQueue, verb: str) -> None:
    held = await given_leased(queue, dedup="d")
    await (held.release() if verb == "release" else getattr(held, verb)(0))

    assert await queue.send("again", dedup="d") == held.id
    assert (await take_one(queue)).id == held.id
