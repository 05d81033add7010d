"""Receiving: how many, how long, in which order, never early."""

import random
import time
from datetime import timedelta

import pytest

from duly import AsyncDuly, AsyncQueue
from tests.client._async.given import SOON, given_blocked, given_leased, seen, take, take_bodies, take_one
from tests.client.place import Place


async def test_no_more_than_the_limit_is_taken(queue: AsyncQueue) -> None:
    """001-10."""
    await queue.send_many(range(5))

    taken = [len(await take(queue, limit=2)) for _ in range(4)]

    assert taken == [2, 2, 1, 0]


async def test_a_thousand_are_taken_at_once(queue: AsyncQueue) -> None:
    await queue.send_many(range(1001))

    assert len(await take(queue, limit=1000)) == 1000


async def test_without_a_wait_an_empty_queue_answers_at_once(queue: AsyncQueue) -> None:
    """002-3."""
    began = time.monotonic()

    assert await queue.receive(wait=0) == []

    assert time.monotonic() - began < SOON


@pytest.mark.parametrize("wait", [0.2, timedelta(seconds=0.2)])
async def test_when_the_wait_is_over_there_is_nothing(queue: AsyncQueue, wait: float) -> None:
    """001-13 002-3."""
    began = time.monotonic()

    assert await queue.receive(wait=wait) == []

    assert 0.2 <= time.monotonic() - began < SOON


async def test_the_wait_ends_although_the_next_message_is_due_later(queue: AsyncQueue) -> None:
    await queue.send("later", delay=60)
    began = time.monotonic()

    assert await queue.receive(wait=0.2) == []

    assert 0.2 <= time.monotonic() - began < SOON


async def test_waiting_messages_are_received_without_waiting(queue: AsyncQueue) -> None:
    await queue.send("body")
    began = time.monotonic()

    assert len(await queue.receive(limit=10, wait=20)) == 1

    assert time.monotonic() - began < SOON


async def test_a_blocked_receive_gets_a_message_at_once(queue: AsyncQueue, place: Place) -> None:
    """001-4 002-1."""
    (consumer,) = await given_blocked(place, queue)
    began = time.monotonic()

    await queue.send("body")
    (delivery,) = await consumer.result()

    assert delivery.body == "body"
    assert time.monotonic() - began < SOON


async def test_nothing_is_early_and_nothing_is_forgotten(queue: AsyncQueue) -> None:
    """I3."""
    delays = [random.uniform(0, 0.4) for _ in range(40)]
    for delay in delays:
        await queue.send(delay, delay=delay)

    taken = 0
    while taken < 40:
        taken += len(await queue.receive(limit=3, wait=10))

    pending = await queue.pending()
    assert len(pending.messages) == 40
    for row in pending.messages:
        due_at = (await seen(queue, row.id)).due_at
        assert due_at is not None
        assert row.deadline - timedelta(seconds=30) >= due_at


async def test_a_delayed_message_is_delivered_soon_after_it_is_due(queue: AsyncQueue) -> None:
    await queue.send("body", delay=0.3)

    (delivery,) = await queue.receive(wait=20)

    message = await seen(queue, delivery.id)
    assert message.deadline is not None
    assert timedelta(0) <= message.deadline - timedelta(seconds=30) - delivery.due_at < timedelta(seconds=SOON)


async def test_two_consumers_never_get_the_same_message(queue: AsyncQueue, other_app: AsyncDuly) -> None:
    """I4, 002-8."""
    other = other_app.queue(queue.name)
    await queue.send_many(range(100))

    taken = []
    for _ in range(10):
        taken += [delivery.id for each in (queue, other) for delivery in await take(each, limit=5)]

    assert len(taken) == len(set(taken)) == 100


async def test_a_message_that_is_leased_is_not_delivered(queue: AsyncQueue) -> None:
    """I4."""
    await given_leased(queue)

    assert await take(queue) == []


async def test_a_receive_chooses_its_lease(queue: AsyncQueue, clock: Place) -> None:
    """002-13 000-5."""
    await queue.send_many(["long", "short"])
    await take_one(queue, limit=1, lease=100)
    await take_one(queue, limit=1, lease=timedelta(seconds=10))

    clock.advance(11)

    assert await take_bodies(queue) == ["short"]


async def test_the_lease_is_the_queues_unless_given(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, lease=timedelta(seconds=10))
    await given_leased(queue)

    clock.advance(7)
    early = await take(queue)
    clock.advance(3.1)

    assert early == []
    assert len(await take(queue)) == 1


async def test_the_counters_of_a_first_delivery(queue: AsyncQueue) -> None:
    first = await given_leased(queue)

    assert (first.attempt, first.deliveries, first.failures, first.crashes, first.defers) == (1, 1, 0, 0, 0)
    assert not first.lost
    assert not first.is_settled


async def test_attempt_counts_failures_and_crashes_and_deliveries_counts_all(queue: AsyncQueue, clock: Place) -> None:
    """I8."""
    await (await given_leased(queue)).retry(delay=0)
    await (await take_one(queue)).defer(0)
    await (await take_one(queue)).release()
    await take_one(queue, lease=5)
    clock.advance(6)

    last = await take_one(queue)

    assert (last.failures, last.defers, last.crashes, last.attempt, last.deliveries) == (1, 1, 1, 3, 5)


async def test_the_fence_grows_with_every_delivery(queue: AsyncQueue, clock: Place) -> None:
    """I5."""
    fences = []
    await queue.send("body")
    for verb in ("retry", "defer", "recycle"):
        delivery = await take_one(queue)
        fences.append(delivery.fence)
        await getattr(delivery, verb)(0)
    fences.append((await take_one(queue, lease=1)).fence)
    clock.advance(2)
    fences.append((await take_one(queue)).fence)

    assert fences == sorted(set(fences))


async def test_the_fence_grows_though_the_queue_was_deleted(queue: AsyncQueue) -> None:
    """I5."""
    before = await given_leased(queue, id="mine")
    await queue.delete()

    after = await given_leased(queue, id="mine")

    assert after.fence > before.fence


async def test_a_paused_queue_delivers_nothing(queue: AsyncQueue) -> None:
    await queue.send("body")
    await queue.pause()

    assert await queue.receive(wait=0.1) == []


async def test_the_repr_of_a_delivery_names_it_without_its_body(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue, "secret")

    assert delivery.id in repr(delivery)
    assert queue.name in repr(delivery)
    assert "secret" not in repr(delivery)
