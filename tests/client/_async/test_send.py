"""Sending: when, in which order, under which id."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, Keep, Send
from tests.client._async.given import check_accounts, counted, given_leased, seen, take, take_bodies, take_one
from tests.client.place import Place


async def test_a_message_sent_now_is_due_at_once(queue: AsyncQueue) -> None:
    id_ = await queue.send({"order": 1})

    delivery = await take_one(queue)

    assert (delivery.id, delivery.body, delivery.queue) == (id_, {"order": 1}, queue.name)


@pytest.mark.parametrize("delay", [30, 30.0, timedelta(seconds=30)])
async def test_a_delayed_message_is_due_when_its_delay_is_over(queue: AsyncQueue, clock: Place, delay: Any) -> None:
    """I3."""
    await queue.send("later", delay=delay)

    clock.advance(27)
    early = await take(queue)
    clock.advance(3.1)

    assert early == []
    assert await take_bodies(queue) == ["later"]


@pytest.mark.parametrize("kind", [float, int, "utc", "shanghai"])
async def test_a_message_with_a_time_is_due_then(queue: AsyncQueue, clock: Place, kind: Any) -> None:
    """I3."""
    epoch = int(clock.now()) + 60
    zones: dict[Any, Any] = {"utc": UTC, "shanghai": timezone(timedelta(hours=8))}

    id_ = await queue.send("then", at=datetime.fromtimestamp(epoch, zones[kind]) if kind in zones else kind(epoch))

    assert (await seen(queue, id_)).due_at == datetime.fromtimestamp(epoch, UTC)
    clock.advance(56)
    assert await take(queue) == []
    clock.advance(5)
    assert await take_bodies(queue) == ["then"]


async def test_a_time_in_the_past_means_now_and_behind_waiting_messages(queue: AsyncQueue) -> None:
    await queue.send("first")
    await queue.send("past", at=datetime(2001, 9, 9, tzinfo=UTC))
    await queue.send("epoch", at=0)

    assert await take_bodies(queue) == ["first", "past", "epoch"]


async def test_a_delay_may_be_ten_years(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("far", delay=timedelta(days=3650))

    assert await take(queue) == []
    assert (await queue.stats()).next_due_in == pytest.approx(3650 * 86400, abs=60)


async def test_one_consumer_sees_the_order_of_sending(queue: AsyncQueue) -> None:
    """001-2."""
    for number in range(20):
        await queue.send(number)

    seen_order = []
    while taken := await take_bodies(queue, limit=3):
        seen_order += taken

    assert seen_order == list(range(20))


async def test_delayed_messages_come_in_the_order_of_their_due_times(queue: AsyncQueue, clock: Place) -> None:
    for delay in (3, 1, 2):
        await queue.send(delay, delay=delay)

    clock.advance(5)

    assert await take_bodies(queue) == [1, 2, 3]


async def test_ten_priorities_come_highest_first(queue: AsyncQueue) -> None:
    for priority in (3, 0, 9, 5, 1, 7, 2, 8, 4, 6):
        await queue.send(priority, priority=priority)

    assert await take_bodies(queue) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


async def test_within_a_priority_the_order_of_sending_holds(queue: AsyncQueue) -> None:
    for number in range(6):
        await queue.send(number, priority=number % 2)

    assert await take_bodies(queue) == [1, 3, 5, 0, 2, 4]


async def test_a_delayed_message_of_high_priority_does_not_hold_up_due_messages(
    queue: AsyncQueue, clock: Place
) -> None:
    await queue.send("urgent", priority=9, delay=10)
    await queue.send("common")

    assert await take_bodies(queue) == ["common"]


async def test_a_retried_message_keeps_its_priority(queue: AsyncQueue) -> None:
    await queue.send("low")
    urgent = await given_leased_of_priority(queue, 5)

    await urgent.retry(delay=0)

    assert await take_bodies(queue) == ["urgent", "low"]


async def given_leased_of_priority(queue: AsyncQueue, priority: int) -> Any:
    await queue.send("urgent", priority=priority)
    return await take_one(queue, limit=1)


async def test_headers_arrive(queue: AsyncQueue) -> None:
    headers = {"trace": "4bf92f", "语言": "中文", "empty": ""}

    delivery = await given_leased(queue, headers=headers)

    assert delivery.headers == headers
    assert (await seen(queue, delivery.id)).headers == headers


async def test_without_headers_there_are_none(queue: AsyncQueue) -> None:
    assert (await given_leased(queue)).headers == {}


async def test_key_and_priority_arrive(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue, key="user-42", priority=4)

    assert (delivery.key, delivery.priority) == ("user-42", 4)


async def test_an_id_is_a_ulid_and_ids_sort_in_the_order_of_sending(queue: AsyncQueue) -> None:
    """001-5."""
    ids = [await queue.send(number) for number in range(50)]

    assert all(len(id_) == 26 and id_.isalnum() and id_.isupper() for id_ in ids)
    assert all(first < second for first, second in pairwise(ids))


async def test_the_ids_of_two_apps_differ(queue: AsyncQueue, other_app: AsyncDuly) -> None:
    other = other_app.queue(queue.name)

    ids = [await each.send(number) for number in range(50) for each in (queue, other)]

    assert len(set(ids)) == 100


async def test_an_own_id_is_kept(queue: AsyncQueue) -> None:
    assert await queue.send("body", id="101030001:stock:5") == "101030001:stock:5"

    assert (await take_one(queue)).id == "101030001:stock:5"


@pytest.mark.parametrize("state", ["ready", "delayed", "leased", "dead"])
async def test_an_own_id_that_is_in_the_queue_is_stored_once(queue: AsyncQueue, state: str) -> None:
    """I2."""
    await queue.send("first", id="mine", delay=60 if state == "delayed" else 0)
    for delivery in await take(queue):
        if state == "dead":
            await delivery.reject("no use")
        elif state == "ready":
            await delivery.release()

    again = await queue.send("second", id="mine")

    message = await seen(queue, again)
    assert (again, message.state, message.body) == ("mine", state, "first")
    assert await counted(queue) | {"duplicates": 1, "sent": 1} == await counted(queue)


async def test_an_own_id_may_be_used_again_once_finished(queue: AsyncQueue) -> None:
    await (await given_leased(queue, "first", id="mine")).ack()

    await queue.send("second", id="mine")

    assert await take_bodies(queue) == ["second"]
    await check_accounts(queue)


async def test_an_own_id_may_be_used_again_though_the_finished_one_is_kept(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    await (await given_leased(queue, "first", id="mine")).ack()

    await queue.send("second", id="mine")

    assert (await seen(queue, "mine")).body == "second"
    assert await take_bodies(queue) == ["second"]
    await check_accounts(queue)


async def test_an_own_id_may_be_used_again_after_a_cancel(queue: AsyncQueue) -> None:
    await queue.send("first", id="mine")
    await queue.cancel("mine")

    await queue.send("second", id="mine")

    assert await take_bodies(queue) == ["second"]


async def test_the_ttl_of_a_delayed_message_counts_from_its_due_time(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("body", delay=100, ttl=10)

    clock.advance(105)

    assert await take_bodies(queue) == ["body"]


async def test_an_expired_message_is_dropped_and_counted(queue: AsyncQueue, clock: Place) -> None:
    """I1."""
    await queue.send("over", ttl=10)
    await queue.send("stays")

    clock.advance(11)

    assert await take_bodies(queue) == ["stays"]
    assert await counted(queue) == {"sent": 2, "delivered": 1, "acked": 1, "expired": 1}
    await check_accounts(queue)


async def test_a_ttl_continues_during_retries(queue: AsyncQueue, clock: Place) -> None:
    delivery = await given_leased(queue, ttl=10)
    await delivery.retry(delay=20)

    clock.advance(21)

    assert await take(queue) == []
    assert await counted(queue) == {"sent": 1, "delivered": 1, "retried": 1, "expired": 1}
    assert (await queue.stats()).dead == 0


@pytest.mark.parametrize("way", ["release", "defer", "crash"])
async def test_a_message_that_is_retried_after_its_ttl_is_expired(queue: AsyncQueue, clock: Place, way: str) -> None:
    delivery = await given_leased(queue, ttl=10, lease=20)
    if way == "defer":
        await delivery.defer(5)
    clock.advance(21)
    if way == "release":
        await delivery.release()

    assert await take(queue) == []
    assert ((await queue.stats()).expired, (await queue.stats()).dead) == (1, 0)
    await check_accounts(queue)


async def test_the_holder_of_a_message_may_finish_it_after_its_ttl(queue: AsyncQueue, clock: Place) -> None:
    delivery = await given_leased(queue, ttl=10, lease=60)

    clock.advance(20)
    await delivery.ack()

    assert await counted(queue) == {"sent": 1, "delivered": 1, "acked": 1}


async def test_identical_bodies_stay_apart(queue: AsyncQueue) -> None:
    """000-10 002-7."""
    ids = await queue.send_many(["same", "same", "same"])
    first, second, third = await take(queue)

    await second.ack()
    await first.release()

    assert len(set(ids)) == 3
    assert [delivery.id for delivery in await take(queue)] == [first.id]
    assert (await seen(queue, third.id)).state == "leased"


async def test_send_many_keeps_the_order(queue: AsyncQueue) -> None:
    ids = await queue.send_many(range(10))

    deliveries = await take(queue)

    assert [delivery.body for delivery in deliveries] == list(range(10))
    assert [delivery.id for delivery in deliveries] == ids


async def test_send_many_takes_bodies_and_sends(queue: AsyncQueue, clock: Place) -> None:
    ids = await queue.send_many(["plain", Send("urgent", priority=9), Send("later", delay=5), Send("mine", id="mine")])

    assert ids[3] == "mine"
    assert await take_bodies(queue) == ["urgent", "plain", "mine"]
    clock.advance(6)
    assert await take_bodies(queue) == ["later"]


async def test_send_many_takes_more_than_a_thousand(queue: AsyncQueue) -> None:
    ids = await queue.send_many(range(2345))

    taken = [delivery.body for _ in range(3) for delivery in await take(queue, limit=1000)]

    assert len(set(ids)) == 2345
    assert taken == list(range(2345))


async def test_send_many_of_nothing_is_nothing(queue: AsyncQueue, app: AsyncDuly) -> None:
    assert await queue.send_many([]) == []
    assert queue.name not in await app.queues()


async def test_send_many_finds_duplicates_within_a_call(queue: AsyncQueue) -> None:
    ids = await queue.send_many(
        [Send(1, dedup="a"), Send(2, dedup="b"), Send(3, dedup="a"), Send(4, id="x"), Send(5, id="x")]
    )

    assert ids[2] == ids[0]
    assert await take_bodies(queue) == [1, 2, 4]
    assert (await queue.stats()).duplicates == 2


async def test_sent_and_due_are_times_of_the_server(queue: AsyncQueue, clock: Place) -> None:
    """000-11."""
    clock.advance(1000)

    delivery = await given_leased(queue)

    assert delivery.sent_at.timestamp() == pytest.approx(clock.now(), abs=5)
    assert delivery.due_at == delivery.sent_at
