"""Messages that come back after each ack, until they are cancelled or were acked often enough."""

from datetime import timedelta
from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, Keep, LeaseLost, Repeat, Retry, Send, UsageError
from tests.client._async.given import check_accounts, counted, seen, take, take_one
from tests.client.place import Place


async def test_a_repeated_message_is_due_after_first_and_then_after_growing_delays(
    queue: AsyncQueue, clock: Place
) -> None:
    id_ = await queue.send("pay", repeat=Repeat(first=60, factor=2))

    for cycle, delay in enumerate((60, 120, 240, 480)):
        clock.advance(delay - 3)
        assert await take(queue) == []
        clock.advance(4)
        delivery = await take_one(queue)
        assert (delivery.id, delivery.body, delivery.cycles, delivery.attempt) == (id_, "pay", cycle, 1)
        await delivery.ack()

    assert (await seen(queue, id_)).cycles == 4
    assert await counted(queue) == {"sent": 1, "delayed": 1, "delivered": 4, "recycled": 4}
    await check_accounts(queue)


async def test_after_the_given_number_of_times_it_is_finished(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("pay", repeat=Repeat(first=60, times=3))

    for _ in range(3):
        clock.advance(61)
        await (await take_one(queue)).ack()

    assert await counted(queue) == {"sent": 1, "delivered": 3, "recycled": 2, "acked": 1}
    await check_accounts(queue)


async def test_one_time_is_a_plain_message_with_a_delay(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("once", repeat=Repeat(first=60, times=1))
    clock.advance(61)

    await (await take_one(queue)).ack()

    assert await counted(queue) == {"sent": 1, "delivered": 1, "acked": 1}


async def test_a_delay_sets_the_first_due_time(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("now", delay=0, repeat=Repeat(first=60))
    await queue.send("at", at=clock.now(), repeat=Repeat(first=60))

    for delivery in await take(queue):
        await delivery.ack()
    clock.advance(57)
    assert await take(queue) == []
    clock.advance(4)

    assert sorted(delivery.body for delivery in await take(queue)) == ["at", "now"]


async def test_no_delay_is_longer_than_max(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("pay", delay=0, repeat=Repeat(first=60, factor=1e300, max=100))
    for _ in range(3):
        await (await take_one(queue)).ack()
        clock.advance(101)

    assert (await take_one(queue)).cycles == 3


async def test_a_decaying_delay_has_a_number_of_times(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("pay", repeat=Repeat(first=60, factor=0.5, times=2))
    clock.advance(61)
    await (await take_one(queue)).ack()
    clock.advance(31)

    await (await take_one(queue)).ack()

    assert (await queue.stats()).live == 0


@pytest.mark.parametrize("is_leased", [False, True])
async def test_cancel_stops_it(queue: AsyncQueue, clock: Place, is_leased: bool) -> None:
    id_ = await queue.send("pay", repeat=Repeat(first=60))
    clock.advance(61)
    delivery = await take_one(queue)
    if not is_leased:
        await delivery.ack()

    assert await queue.cancel(id_, running=True)

    if is_leased:
        with pytest.raises(LeaseLost):
            await delivery.ack()
    clock.advance(1000)
    assert await take(queue) == []
    await check_accounts(queue)


async def test_ack_many_sorts_them(queue: AsyncQueue) -> None:
    await queue.send_many(
        [
            "plain",
            Send("again", delay=0, repeat=Repeat(first=60)),
            Send("keyed", key="k"),
            Send("last", delay=0, repeat=Repeat(first=60, times=1)),
        ]
    )
    deliveries = await take(queue)
    assert len(deliveries) == 4

    assert await queue.ack_many(deliveries) == []

    assert await counted(queue) == {"sent": 4, "delivered": 4, "acked": 3, "recycled": 1, "delayed": 1}
    assert all(delivery.is_settled for delivery in deliveries)
    assert await queue.ack_many(deliveries) == []
    with pytest.raises(LeaseLost):
        await deliveries[0].retry()


async def test_ack_many_returns_the_lost_leases(queue: AsyncQueue) -> None:
    ids = await queue.send_many([Send(n, delay=0, repeat=Repeat(first=60)) for n in range(3)])
    deliveries = await take(queue)
    await queue.cancel(ids[1], running=True)

    lost = await queue.ack_many(deliveries)

    assert [delivery.id for delivery in lost] == [ids[1]]


async def test_leaving_a_block_is_an_ack(queue: AsyncQueue) -> None:
    await queue.send("pay", delay=0, repeat=Repeat(first=60))
    async with await take_one(queue):
        pass

    assert await counted(queue) == {"sent": 1, "delivered": 1, "recycled": 1, "delayed": 1}


async def test_the_same_ack_again_is_a_success(queue: AsyncQueue) -> None:
    await queue.send("pay", delay=0, repeat=Repeat(first=60))
    delivery = await take_one(queue)
    await delivery.ack()

    await delivery.ack()

    with pytest.raises(LeaseLost):
        await delivery.recycle()
    assert (await queue.stats()).recycled == 1


async def test_a_failure_is_retried_by_its_policy_and_starts_over_after_an_ack(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("pay", delay=0, repeat=Repeat(first=60), retry=Retry(attempts=2, first=5, jitter=0))
    await (await take_one(queue)).retry(error="boom")
    clock.advance(6)
    second = await take_one(queue)
    assert second.attempt == 2

    await second.ack()
    clock.advance(61)

    third = await take_one(queue)
    assert (third.attempt, third.cycles) == (1, 1)


async def test_recycle_by_hand_keeps_the_rule_and_counts(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("pay", delay=0, headers={"h": "1"}, repeat=Repeat(first=60, times=2))
    await (await take_one(queue)).recycle(body="pay now")
    delivery = await take_one(queue)
    assert (delivery.body, delivery.cycles, delivery.headers) == ("pay now", 1, {"h": "1"})

    await delivery.ack()

    assert (await queue.stats()).live == 0


async def test_a_message_with_a_key_lets_others_of_the_key_continue(queue: AsyncQueue) -> None:
    await queue.send("again", delay=0, key="k", repeat=Repeat(first=60))
    await queue.send("next", key="k")

    await (await take_one(queue)).ack()

    assert (await take_one(queue)).body == "next"


async def test_commit_does_not_end_it(queue: AsyncQueue) -> None:
    await queue.send("pay", delay=0, repeat=Repeat(first=60))
    delivery = await take_one(queue)

    with pytest.raises(UsageError, match="repeat="):
        await delivery.commit()

    await delivery.ack()
    assert await counted(queue) == {"sent": 1, "delivered": 1, "recycled": 1, "delayed": 1}


async def test_commit_may_be_the_last_time(queue: AsyncQueue) -> None:
    await queue.send("pay", delay=0, repeat=Repeat(first=60, times=1))

    await (await take_one(queue)).commit(send=[(queue, "next")])

    assert (await take_one(queue)).body == "next"


async def test_the_last_ack_keeps_the_result(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    id_ = await queue.send("pay", delay=0, repeat=Repeat(first=60, times=2))
    await (await take_one(queue)).ack(result="first")
    assert (await seen(queue, id_)).state == "delayed"
    clock.advance(61)

    await (await take_one(queue)).ack(result="second")

    assert await queue.result(id_, wait=0) == "second"


async def test_seconds_may_be_a_timedelta(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("pay", repeat=Repeat(first=timedelta(minutes=1), max=timedelta(days=1)))

    clock.advance(61)

    assert (await take_one(queue)).body == "pay"


@pytest.mark.parametrize(
    "options",
    [
        {"first": 0}, {"first": -1}, {"first": float("inf")}, {"first": "60"}, {"factor": -1}, {"factor": float("nan")},
        {"factor": 0.5}, {"times": 0}, {"times": 1.5}, {"max": 0}, {"first": 10, "max": 5},
    ],
    ids=repr,
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"Repeat\."):
        Repeat(**options)


async def test_anything_but_a_rule_is_refused(queue: AsyncQueue) -> None:
    with pytest.raises(UsageError, match=r"duly\.Repeat"):
        await queue.send("pay", repeat=60)  # type: ignore[arg-type]
    assert await counted(queue) == {}
