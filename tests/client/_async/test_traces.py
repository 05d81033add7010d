"""I9: what a queue leaves behind when it is empty."""

import pytest

from duly import AsyncDuly, AsyncQueue, Keep, Send
from tests.client._async.given import SETTLES, given_dead, given_in, given_leased, settle, take, take_bodies, take_one
from tests.client.place import Place, ServerPlace

# On servers: memory:// has no keys.


def check_left(server: ServerPlace, queue: str) -> None:
    """Fail unless only stats, meta, and a history and call records that expire are left."""
    left = dict(server.keys(queue))
    assert 0 < left.pop("history", 1) <= 8 * 86_400_000
    assert {key for key in left if not key.startswith("call:")} <= {"stats", "meta"}
    assert all(0 < ttl <= 3_600_000 for key, ttl in left.items() if key.startswith("call:"))


@pytest.mark.parametrize("verb", SETTLES)
async def test_an_emptied_queue_leaves_only_stats_meta_and_expiring_call_records(
    queue: AsyncQueue, server: ServerPlace, verb: str
) -> None:
    """I9."""
    await queue.send_many([Send(n, priority=n, ttl=600, headers={"a": "b"}) for n in range(3)])
    for delivery in await take(queue):
        await settle(delivery, verb)
    await queue.redrive()
    for message in await queue.list("delayed"):
        await queue.promote(message.id)
    await take_bodies(queue)

    check_left(server, queue.name)


async def test_messages_with_trouble_leave_nothing(queue: AsyncQueue, server: ServerPlace, clock: Place) -> None:
    """I9."""
    await (await given_leased(queue)).retry(delay=0, error=ValueError("trouble"))
    await take_one(queue, lease=5)
    clock.advance(6)
    await (await take_one(queue)).ack()

    check_left(server, queue.name)


@pytest.mark.parametrize("state", ["ready", "delayed", "leased", "dead"])
async def test_a_cancelled_message_leaves_nothing(queue: AsyncQueue, server: ServerPlace, state: str) -> None:
    """I9."""
    id_ = await given_in(queue, state, dedup="d", ttl=600)

    assert await queue.cancel(id_, running=state == "leased")

    check_left(server, queue.name)


async def test_a_purged_queue_leaves_nothing(app: AsyncDuly, queue_name: str, server: ServerPlace) -> None:
    """I9."""
    queue = app.queue(queue_name, done=Keep(count=10))
    await given_dead(queue, "dead", dedup="a")
    await (await given_leased(queue, "done", dedup="b")).ack()
    await queue.send_many([Send(n, priority=n, dedup=str(n), ttl=600, delay=n) for n in range(9)])

    await queue.purge()

    check_left(server, queue_name)


async def test_expired_messages_leave_nothing(queue: AsyncQueue, server: ServerPlace, clock: Place) -> None:
    """I9."""
    await queue.send_many([Send(n, ttl=5) for n in range(20)])
    clock.advance(6)

    await take(queue)

    check_left(server, queue.name)


async def test_dedup_values_go_with_their_window(queue: AsyncQueue, server: ServerPlace, clock: Place) -> None:
    """I9, 001-6."""
    await (await given_leased(queue, dedup="d", dedup_for=60)).ack()
    assert 0 < server.keys(queue.name)["dedup"] <= 62_000

    clock.advance(120)

    check_left(server, queue.name)


async def test_a_wait_that_is_over_leaves_nothing(queue: AsyncQueue, server: ServerPlace) -> None:
    """I9."""
    assert await queue.receive(wait=0.1) == []
    await queue.send("body")
    (delivery,) = await queue.receive(wait=1)
    await delivery.ack()
    assert await queue.receive(wait=0.1) == []

    check_left(server, queue.name)


async def test_a_retry_that_died_and_was_cancelled_leaves_nothing(queue: AsyncQueue, server: ServerPlace) -> None:
    """I9."""
    delivery = await given_leased(queue, ttl=600)
    await delivery.retry(delay=0, error="trouble")
    again = await take_one(queue)
    await again.reject("no use")

    await queue.cancel(again.id)

    check_left(server, queue.name)


async def test_call_records_are_few_however_many_messages_there_were(queue: AsyncQueue, server: ServerPlace) -> None:
    """I9 I6."""
    for number in range(50):
        await queue.send(number)
        await take_bodies(queue)

    assert len([key for key in server.keys(queue.name) if key.startswith("call:")]) <= 4
