"""Leases: what happens to a message whose consumer falls silent, and how one that works keeps it."""

import logging

import pytest

from duly import AsyncDuly, AsyncQueue, LeaseLost
from tests.client._async.given import (
    SETTLES,
    check_accounts,
    counted,
    given_leased,
    outlive,
    seen,
    settle,
    take,
    take_bodies,
    take_one,
    until,
)
from tests.client.place import Place


async def test_a_message_of_a_silent_consumer_is_delivered_again_with_one_crash_more(
    queue: AsyncQueue, clock: Place
) -> None:
    """I8 I12, 000-3 001-7 003-4."""
    first = await given_leased(queue, lease=10)

    clock.advance(11)
    again = await take_one(queue)

    assert (again.id, again.crashes, again.attempt, again.failures) == (first.id, 1, 2, 0)
    assert (await queue.stats()).crashed == 1


async def test_a_message_of_a_silent_consumer_returns_to_its_own_place(queue: AsyncQueue, clock: Place) -> None:
    """000-13."""
    await queue.send_many(["first", "second", "third"])
    await take_one(queue, limit=1, lease=10)

    clock.advance(11)

    assert await take_bodies(queue) == ["first", "second", "third"]


async def test_a_crashed_retry_returns_to_the_place_of_its_retry(queue: AsyncQueue, clock: Place) -> None:
    await (await given_leased(queue, "retried")).retry(delay=5)
    await queue.send("between")
    clock.advance(6)
    await queue.send("last")
    await queue.ack_many(await take(queue, limit=1))
    retried = await take_one(queue, limit=1, lease=3)
    clock.advance(4)

    assert retried.body == "retried"
    assert await take_bodies(queue) == ["retried", "last"]


async def test_the_crash_limit_makes_a_message_dead_of_poison(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    """I8."""
    queue = app.queue(queue_name, crash_limit=2, lease=10)
    first = await given_leased(queue)
    clock.advance(11)
    await take_one(queue)
    clock.advance(11)

    assert await take(queue) == []

    message = await seen(queue, first.id)
    assert (message.state, message.reason, message.crashes, message.attempt) == ("dead", "poison", 2, 3)
    await check_accounts(queue)


async def test_failures_do_not_count_towards_the_crash_limit(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, crash_limit=2, lease=10)
    await (await given_leased(queue)).retry(delay=0)
    await take_one(queue)
    clock.advance(11)

    assert (await take_one(queue)).attempt == 3


async def test_each_message_of_a_batch_has_its_own_crash(queue: AsyncQueue, clock: Place) -> None:
    await queue.send_many(range(250))
    await take(queue, limit=250, lease=10)
    clock.advance(11)

    taken = []
    while some := await take(queue, limit=100):
        taken += some

    assert [delivery.body for delivery in taken] == list(range(250))
    assert {delivery.crashes for delivery in taken} == {1}


async def test_a_reclaimed_message_is_logged_with_its_consumer_and_age(
    queue: AsyncQueue, clock: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """000-15."""
    delivery = await given_leased(queue, lease=10)
    holder = (await seen(queue, delivery.id)).consumer
    clock.advance(12)

    with caplog.at_level(logging.WARNING, "duly"):
        await take(queue)

    (line,) = (record.getMessage() for record in caplog.records)
    assert delivery.id in line
    assert f"held by {holder}" in line
    assert "ran out 2." in line


@pytest.mark.parametrize(("count", "crash_limit"), [(6, 3), (6, 1), (5, 3)])
async def test_many_messages_that_one_claim_takes_back_are_one_warning(
    app: AsyncDuly, queue_name: str, clock: Place, caplog: pytest.LogCaptureFixture, count: int, crash_limit: int
) -> None:
    """000-15: each has its own line at level DEBUG."""
    queue = app.queue(queue_name, crash_limit=crash_limit)
    ids = await queue.send_many(range(count))
    await take(queue, lease=10)
    holder = queue._link.consumer
    clock.advance(12)

    with caplog.at_level(logging.DEBUG, "duly"):
        await take(queue)

    records = [record for record in caplog.records if "ran out" in record.getMessage()]
    singles = [record for record in records if "the lease of message" in record.getMessage()]
    assert [next(id_ for id_ in ids if id_ in record.getMessage()) for record in singles] == ids
    assert all(f"held by {holder}: it is " in record.getMessage() for record in singles)
    warnings = [record.getMessage() for record in records if record.levelno == logging.WARNING]
    if count == 5:
        assert warnings == [record.getMessage() for record in singles]
        return
    (line,) = warnings
    assert line.startswith(f"the leases of message {ids[0]} and 5 others of queue '{queue_name}' ran out up to 2.")
    fate = "they are dead" if crash_limit == 1 else "they are delivered again"
    assert line.endswith(f"held by {holder}: {fate}")


async def test_the_log_of_many_expired_leases_counts_the_dead_messages(
    app: AsyncDuly, queue_name: str, clock: Place, caplog: pytest.LogCaptureFixture
) -> None:
    queue = app.queue(queue_name, crash_limit=2)
    await queue.send_many(range(2))
    await take(queue, lease=10)
    clock.advance(11)
    await queue.send_many(range(5))
    await take(queue, lease=10)
    clock.advance(11)

    with caplog.at_level(logging.WARNING, "duly"):
        await take(queue)

    (line,) = (text for record in caplog.records if "ran out" in (text := record.getMessage()) and "others" in text)
    assert line.endswith("2 of them are dead, the others are delivered again")


@pytest.mark.parametrize("verb", [*SETTLES, "extend"])
async def test_a_stale_settle_is_refused_and_changes_nothing(queue: AsyncQueue, clock: Place, verb: str) -> None:
    """I5, 000-7 000-8 003-16."""
    late = await given_leased(queue, lease=10)
    clock.advance(11)
    new = await take_one(queue)
    before = (await counted(queue), await seen(queue, late.id))

    with pytest.raises(LeaseLost, match=late.id):
        await (late.extend(60) if verb == "extend" else settle(late, verb))

    assert (await counted(queue), await seen(queue, late.id)) == before
    assert late.lost
    await new.ack()


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_late_settle_is_accepted_until_another_consumer_takes_the_message(
    queue: AsyncQueue, clock: Place, verb: str
) -> None:
    """I1, 000-7."""
    late = await given_leased(queue, lease=10)
    clock.advance(11)

    await settle(late, verb)

    assert (await queue.stats()).crashed == 0
    assert (await queue.stats()).leased == 0
    await check_accounts(queue)


async def test_a_message_that_is_acked_after_its_lease_but_before_a_claim_is_not_redelivered(
    queue: AsyncQueue, clock: Place
) -> None:
    """I2, 000-7."""
    late = await given_leased(queue, lease=10)
    clock.advance(11)
    judged = (await queue.pending()).messages[0].deadline_in < 0

    await late.ack()

    assert judged
    assert await take(queue) == []
    assert await counted(queue) == {"sent": 1, "delivered": 1, "acked": 1}


async def test_an_expired_message_that_is_claimed_before_the_ack_is_delivered_once_more_and_ends_once(
    queue: AsyncQueue, clock: Place
) -> None:
    """I2 I5, 000-7 000-8."""
    late = await given_leased(queue, lease=10)
    clock.advance(11)
    new = await take_one(queue)

    with pytest.raises(LeaseLost):
        await late.ack()
    await new.ack()

    assert await take(queue) == []
    assert await counted(queue) == {"sent": 1, "delivered": 2, "crashed": 1, "acked": 1}


async def test_a_stale_ack_does_not_end_a_retry_that_waits(queue: AsyncQueue, clock: Place) -> None:
    """I5."""
    late = await given_leased(queue, lease=10)
    clock.advance(11)
    await (await take_one(queue)).retry(delay=0)

    with pytest.raises(LeaseLost):
        await late.ack()

    assert len(await take(queue)) == 1


async def test_extend_moves_the_deadline(queue: AsyncQueue, clock: Place) -> None:
    delivery = await given_leased(queue, lease=10)
    clock.advance(8)

    await delivery.extend(20)
    clock.advance(17)
    early = await take(queue)
    clock.advance(3.1)

    assert early == []
    assert len(await take(queue)) == 1


async def test_extend_may_shorten_a_lease(queue: AsyncQueue, clock: Place) -> None:
    delivery = await given_leased(queue, lease=1000)

    await delivery.extend(5)
    clock.advance(6)

    assert len(await take(queue)) == 1


async def test_extend_of_a_settled_delivery_is_refused(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    await delivery.ack()

    with pytest.raises(LeaseLost, match=delivery.id):
        await delivery.extend(60)


async def test_renewal_outlives_the_lease(queue: AsyncQueue, clock: Place) -> None:
    """000-9 003-4."""
    await queue.send("body")
    (delivery,) = await queue.receive(lease=4.5, renew=True)

    await outlive(queue, delivery, clock)

    assert await take(queue) == []
    await delivery.ack()
    assert (await queue.stats()).crashed == 0


async def test_renewal_ends_with_the_settle(queue: AsyncQueue) -> None:
    await queue.send("body")
    (delivery,) = await queue.receive(lease=0.6, renew=True)

    await delivery.retry(delay=0)
    (again,) = await queue.receive(lease=0.6)
    (third,) = await queue.receive(wait=10)

    assert (again.failures, third.crashes) == (1, 1)


async def test_renewal_stops_at_max_runtime(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, lease=0.5, max_runtime=0.6)
    await queue.send("body")
    (held,) = await queue.receive(renew=True)

    (again,) = await queue.receive(wait=10)

    assert (again.id, again.crashes) == (held.id, 1)


async def test_a_consumer_with_renewal_learns_that_its_lease_was_lost(queue: AsyncQueue) -> None:
    await queue.send("body")
    (delivery,) = await queue.receive(lease=0.6, renew=True)

    await queue.cancel(delivery.id, running=True)
    await until(lambda: delivery.lost)

    with pytest.raises(LeaseLost):
        await delivery.ack()


async def test_a_delivery_that_its_owner_dropped_is_not_renewed_forever(queue: AsyncQueue) -> None:
    await queue.send("body")
    await queue.receive(lease=0.6, renew=True)

    (again,) = await queue.receive(wait=10)

    assert again.crashes == 1
