"""Settling: each way to end a delivery, and each of them twice."""

from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, AsyncTopic, Keep, LeaseLost, UsageError
from tests.client._async.given import (
    SETTLES,
    check_accounts,
    counted,
    given_leased,
    seen,
    settle,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import Place

AFTER = {
    "ack": {"acked": 1},
    "retry": {"retried": 1, "delayed": 1},
    "defer": {"deferred": 1, "delayed": 1},
    "recycle": {"recycled": 1, "ready": 1},
    "reject": {"buried": 1, "dead": 1},
    "release": {"released": 1, "ready": 1},
}


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_settle_moves_the_message_and_is_counted(queue: AsyncQueue, verb: str) -> None:
    """I1 I2."""
    delivery = await given_leased(queue)

    await settle(delivery, verb)

    assert await counted(queue) == {"sent": 1, "delivered": 1, **AFTER[verb]}
    assert delivery.is_settled
    await check_accounts(queue)


@pytest.mark.parametrize("verb", SETTLES)
async def test_the_same_verb_again_is_a_success_and_changes_nothing(queue: AsyncQueue, verb: str) -> None:
    """I6, 003-15."""
    delivery = await given_leased(queue)
    await settle(delivery, verb)
    before = await counted(queue)

    await settle(delivery, verb)

    assert await counted(queue) == before


@pytest.mark.parametrize("second", SETTLES)
@pytest.mark.parametrize("first", SETTLES)
async def test_another_verb_afterwards_is_refused_and_changes_nothing(
    queue: AsyncQueue, first: str, second: str
) -> None:
    """I5, 003-16."""
    if first == second:
        return
    delivery = await given_leased(queue)
    await settle(delivery, first)
    before = await counted(queue)

    with pytest.raises(LeaseLost, match=delivery.id):
        await settle(delivery, second)

    assert await counted(queue) == before


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_cancelled_message_cannot_be_settled(queue: AsyncQueue, verb: str) -> None:
    """I5."""
    delivery = await given_leased(queue)
    await queue.cancel(delivery.id, running=True)

    with pytest.raises(LeaseLost, match=queue.name):
        await settle(delivery, verb)

    assert await counted(queue) == {"sent": 1, "delivered": 1, "cancelled": 1}


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_message_of_a_deleted_queue_cannot_be_settled(queue: AsyncQueue, verb: str) -> None:
    """I5."""
    delivery = await given_leased(queue)
    await queue.delete()

    with pytest.raises(LeaseLost):
        await settle(delivery, verb)


async def test_an_acked_message_is_gone(queue: AsyncQueue) -> None:
    """000-2 003-15."""
    delivery = await given_leased(queue)

    await delivery.ack()

    assert await queue.get(delivery.id) is None
    assert await take(queue) == []


async def test_an_acked_message_is_kept_where_done_is_kept(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=2))
    ids = await queue.send_many(["a", "b", "c"])

    await queue.ack_many(await take(queue))

    assert [message.id for message in await queue.list("done")] == ids[1:]
    assert await counted(queue) == {"sent": 3, "delivered": 3, "acked": 3, "done": 2, "done_trimmed": 1}
    await check_accounts(queue)


async def test_defer_spends_no_attempt_and_redelivers_after_its_delay(queue: AsyncQueue, clock: Place) -> None:
    """I3, 002-6."""
    await (await given_leased(queue)).defer(10)

    clock.advance(9)
    early = await take(queue)
    clock.advance(1.1)
    again = await take_one(queue)

    assert early == []
    assert (again.attempt, again.failures, again.defers) == (1, 0, 1)


async def test_defer_moves_the_due_time(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    await delivery.defer(10)

    message = await seen(queue, delivery.id)
    assert message.due_at is not None
    assert (message.due_at - delivery.due_at).total_seconds() == pytest.approx(10, abs=5)


async def test_defer_may_continue_forever(queue: AsyncQueue) -> None:
    """I8."""
    await queue.send("body")
    for _ in range(20):
        await (await take_one(queue)).defer(0)

    last = await take_one(queue)

    assert (last.attempt, last.defers) == (1, 20)


async def test_release_puts_a_message_back_to_its_own_place(queue: AsyncQueue) -> None:
    """000-13."""
    await queue.send_many(["first", "second", "third"])
    first = await take_one(queue, limit=1)

    await first.release()

    assert await take_bodies(queue) == ["first", "second", "third"]


async def test_release_spends_no_attempt(queue: AsyncQueue) -> None:
    await (await given_leased(queue)).release()

    again = await take_one(queue)

    assert (again.attempt, again.crashes, again.failures, again.defers, again.deliveries) == (1, 0, 0, 0, 2)


async def test_recycle_puts_one_copy_at_the_tail_as_new(queue: AsyncQueue) -> None:
    """I2, 000-12 000-13."""
    await (await given_leased(queue, "item", headers={"a": "b"}, priority=2)).retry(delay=0)
    again = await take_one(queue)
    await queue.send("other", priority=2)

    await again.recycle()

    other, new = await take(queue)
    assert (other.body, new.id, new.body, new.headers) == ("other", again.id, "item", {"a": "b"})
    assert (new.attempt, new.failures, new.deliveries) == (1, 0, 1)
    assert new.sent_at > again.sent_at
    await check_accounts(queue)


async def test_recycle_takes_a_delay_and_a_new_body(queue: AsyncQueue, clock: Place) -> None:
    """000-12."""
    delivery = await given_leased(queue, "short")

    await delivery.recycle(10, body={"longer": "x" * 1000})
    early = await take(queue)
    clock.advance(10.1)
    again = await take_one(queue)

    assert early == []
    assert (again.id, again.body) == (delivery.id, {"longer": "x" * 1000})
    await check_accounts(queue)


@pytest.mark.parametrize("body", [None, b"", ""], ids=repr)
async def test_recycle_takes_an_empty_body_as_well(queue: AsyncQueue, body: object) -> None:
    delivery = await given_leased(queue, "full")

    await delivery.recycle(body=body)

    assert (await take_one(queue)).body == body


async def test_recycle_forgets_earlier_errors(queue: AsyncQueue) -> None:
    await (await given_leased(queue)).retry(delay=0, error="trouble")
    again = await take_one(queue)

    await again.recycle()

    assert (await seen(queue, again.id)).errors == ()


async def test_recycling_a_hundred_items_keeps_a_hundred(queue: AsyncQueue) -> None:
    """I2, 000-12."""
    ids = await queue.send_many(range(100))

    for _ in range(3):
        for delivery in await take(queue, limit=100):
            await delivery.recycle()

    assert [delivery.id for delivery in await take(queue, limit=1000)] == ids


async def test_reject_makes_a_message_dead_with_its_reason(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue, "body")

    await delivery.reject("no such customer")

    message = await seen(queue, delivery.id)
    assert (message.state, message.reason, message.body) == ("dead", "no such customer", "body")
    assert message.failures == 0
    assert message.finished_at is not None


@pytest.mark.parametrize(
    "reason", ["", "中文", "x" * 100_000, "bad \ud800 text", "\x00"], ids=lambda text: repr(text)[:20]
)
async def test_any_text_may_be_a_reason(queue: AsyncQueue, reason: str) -> None:
    delivery = await given_leased(queue)

    await delivery.reject(reason)

    assert (await seen(queue, delivery.id)).state == "dead"


async def test_dead_letters_are_bounded_and_trimmed_ones_are_counted(app: AsyncDuly, queue_name: str) -> None:
    """I1."""
    queue = app.queue(queue_name, dead=Keep(count=2))
    for number in range(4):
        await (await given_leased(queue, number)).reject("no use")

    assert [message.body for message in await queue.list("dead")] == [2, 3]
    assert (await queue.stats()).trimmed == 2
    await check_accounts(queue)


async def test_old_dead_letters_go(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, dead=Keep(age=3600))
    await (await given_leased(queue, "old")).reject("no use")
    clock.advance(3601)

    await (await given_leased(queue, "new")).reject("no use")

    assert [message.body for message in await queue.list("dead")] == ["new"]


async def test_ack_many_finishes_all(queue: AsyncQueue) -> None:
    await queue.send_many(range(10))

    lost = await queue.ack_many(await take(queue))

    assert lost == []
    assert await counted(queue) == {"sent": 10, "delivered": 10, "acked": 10}


async def test_ack_many_returns_those_whose_lease_was_lost(queue: AsyncQueue, clock: Place) -> None:
    """I5, 003-18."""
    await queue.send_many(["lost", "kept"])
    first = await take_one(queue, limit=1, lease=10)
    second = await take_one(queue, limit=1, lease=100)
    clock.advance(11)
    new = await take_one(queue)

    lost = await queue.ack_many([first, second])

    assert lost == [first]
    assert first.lost
    assert second.is_settled
    await new.ack()


@pytest.mark.parametrize("given", [["id"], "id", [None], [["list"]], 5], ids=repr)
async def test_ack_many_takes_deliveries_only(queue: AsyncQueue, events: AsyncTopic, given: Any) -> None:
    for inbox in (queue, events.group("g")):
        with pytest.raises(UsageError, match=f"(?s)^{inbox.title}: ack_many takes .*deliveries.*, not "):
            await inbox.ack_many(given)


async def test_ack_many_of_one_delivery_that_is_not_in_a_list_finishes_nothing(queue: AsyncQueue) -> None:
    held = await given_leased(queue)

    with pytest.raises(UsageError, match=r"list of deliveries.*d\.ack\(\)"):
        await queue.ack_many(held)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"not '{held.id}'"):
        await queue.ack_many([held, held.id])  # type: ignore[list-item]

    assert (await seen(queue, held.id)).state == "leased"


async def test_ack_many_again_is_a_success(queue: AsyncQueue) -> None:
    """I6."""
    await queue.send_many(range(3))
    deliveries = await take(queue)
    await deliveries[0].ack()

    assert await queue.ack_many(deliveries) == []
    assert await queue.ack_many(deliveries) == []
    assert (await queue.stats()).acked == 3


async def test_ack_many_returns_messages_that_were_settled_otherwise(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    await delivery.release()

    assert await queue.ack_many([delivery]) == [delivery]


async def test_ack_many_takes_more_than_a_thousand_and_nothing(queue: AsyncQueue) -> None:
    await queue.send_many(range(1500))
    deliveries = await take(queue, limit=1000) + await take(queue, limit=1000)

    assert await queue.ack_many(deliveries) == []
    assert await queue.ack_many([]) == []
    assert (await queue.stats()).acked == 1500


async def test_a_delivery_is_settled_by_the_queue_it_came_from(queue: AsyncQueue, app: AsyncDuly) -> None:
    other = app.queue(queue.name + "-2")
    mine, theirs = await given_leased(queue, id="same"), await given_leased(other, id="same")

    await theirs.ack()

    assert (await seen(queue, mine.id)).state == "leased"
