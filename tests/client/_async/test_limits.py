"""Limits: rate and max_in_flight hold for all consumers of a queue together."""

import time
from typing import Any

import pytest

from duly import AsyncDuly, UsageError
from tests.client._async.given import check_accounts, counted, given_blocked, settle, take, take_one
from tests.client.place import Place


@pytest.mark.parametrize("rate", ["1/m", "3/s", "10/s", "1000/s"])
async def test_a_rate_begins_with_one_message(app: AsyncDuly, queue_name: str, rate: str) -> None:
    queue = app.queue(queue_name, rate=rate)
    await queue.send_many(range(10))

    assert [delivery.body for delivery in await take(queue)] == [0]


async def test_a_rate_is_even_and_exact(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, rate="1/m", lease=3600)
    await queue.send_many(range(100))
    begin, found = clock.now(), list[tuple[int, int]]()

    for _ in range(60):
        found += [(delivery.body, int(clock.now() - begin) // 60) for delivery in await take(queue)]
        clock.advance(10)

    assert found == [(minute, minute) for minute in range(10)]


async def test_a_rate_catches_up_with_no_more_than_a_tenth_of_a_second(
    app: AsyncDuly, queue_name: str, clock: Place
) -> None:
    queue = app.queue(queue_name, rate="20/s", lease=3600)
    await queue.send_many(range(10))
    await take_one(queue)

    clock.advance(60)

    assert [delivery.body for delivery in await take(queue)] == [1, 2, 3]


async def test_a_rate_has_nothing_to_catch_up_with_after_a_pause(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, rate="20/s", lease=3600)
    await queue.send("long ago")
    await take_one(queue)

    clock.advance(60)
    await queue.send_many(range(10))

    assert [delivery.body for delivery in await take(queue)] == [0]


async def test_a_rate_is_shared_by_all_consumers(app: AsyncDuly, other_app: AsyncDuly, queue_name: str) -> None:
    queues = [each.queue(queue_name, rate="1/m") for each in (app, other_app)]
    await queues[0].send_many(range(10))

    found = [delivery for queue in queues for delivery in await take(queue)]

    assert [delivery.body for delivery in found] == [0]


async def test_a_rate_is_that_of_the_receiver(app: AsyncDuly, other_app: AsyncDuly, queue_name: str) -> None:
    limited = app.queue(queue_name, rate="1/m")
    await limited.send_many(range(10))
    assert len(await take(limited)) == 1
    assert await take(limited) == []

    assert len(await take(other_app.queue(queue_name))) == 9


async def test_a_rate_that_is_raised_holds_from_now_on(
    app: AsyncDuly, other_app: AsyncDuly, queue_name: str, place: Place
) -> None:
    slow, fast = app.queue(queue_name, rate="1/h"), other_app.queue(queue_name, rate="1/m")
    await slow.send_many(range(10))
    assert len(await take(slow)) == 1
    assert await take(fast) == []

    for _ in range(3):
        place.advance(45)  # polling does not restart the minute
        found = await take(fast)
        place.advance(15)
        assert [len(found), len(await take(fast))] == [0, 1]


async def test_a_consumer_waits_for_its_rate_and_no_longer(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, rate="4/s")
    await queue.send_many(range(5))
    begin, found = time.monotonic(), list[int]()

    while len(found) < 5:
        (delivery,) = await queue.receive(limit=10, wait=20)
        found.append(delivery.body)

    assert found == list(range(5))
    assert 4 * 0.25 - 0.01 <= time.monotonic() - begin < 10


async def test_a_message_sent_while_the_rate_is_used_up_is_not_forgotten(
    app: AsyncDuly, queue_name: str, place: Place
) -> None:
    queue = app.queue(queue_name, rate="2/s")
    await queue.send_many(range(2))
    await take_one(queue)
    (consumer,) = await given_blocked(place, queue)

    await queue.send(2)

    (second,) = await consumer.result()
    (third,) = await queue.receive(limit=10, wait=4)
    assert (second.body, third.body) == (1, 2)


async def test_the_number_in_flight_never_exceeds_the_limit(
    app: AsyncDuly, other_app: AsyncDuly, queue_name: str
) -> None:
    queues = [each.queue(queue_name, max_in_flight=3) for each in (app, other_app)]
    await queues[0].send_many(range(10))

    first, second = await take(queues[0], 2), await take(queues[1])

    assert [delivery.body for delivery in (*first, *second)] == [0, 1, 2]
    assert await take(queues[0]) == []
    await first[0].ack()
    assert [delivery.body for delivery in await take(queues[1])] == [3]
    assert (await queues[0].stats()).leased == 3
    await check_accounts(queues[0])


@pytest.mark.parametrize("verb", ["ack", "retry", "defer", "release", "recycle", "reject", "cancel", "purge"])
async def test_every_call_that_makes_room_wakes_a_consumer(
    app: AsyncDuly, other_app: AsyncDuly, queue_name: str, place: Place, verb: str
) -> None:
    queue = app.queue(queue_name, max_in_flight=1)
    await queue.send_many(["first", "second"])
    first = await take_one(queue)
    (consumer,) = await given_blocked(place, other_app.queue(queue_name, max_in_flight=1))

    if verb == "cancel":
        await queue.cancel(first.id, running=True)
    elif verb == "purge":
        await queue.purge("leased")
    else:
        await settle(first, verb)

    (delivery,) = await consumer.result()
    assert delivery.body == ("first" if verb == "release" else "second")


async def test_a_lease_that_runs_out_makes_room(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, max_in_flight=1, lease=5)
    await queue.send_many(["first", "second"])
    await take_one(queue)
    assert await take(queue) == []

    clock.advance(6)

    delivery = await take_one(queue)
    assert (delivery.body, delivery.crashes) == ("first", 1)


async def test_both_limits_hold_together(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, max_in_flight=2, rate="1/s")
    await queue.send_many(range(5))

    taken = [[delivery.body for delivery in await take(queue)]]
    for _ in range(3):
        clock.advance(1)
        taken.append([delivery.body for delivery in await take(queue)])

    assert taken == [[0], [1], [], []]


async def test_a_paused_queue_with_limits_continues_after_resume(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_in_flight=1)
    await queue.send_many(["first", "second"])
    first = await take_one(queue)
    await queue.pause()
    await first.ack()
    assert await take(queue) == []

    await queue.resume()

    assert (await take_one(queue)).body == "second"


async def test_a_limit_alone_counts_nothing(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, rate="1/m", max_in_flight=1)
    await queue.send_many(range(2))
    first = await take_one(queue)
    assert await take(queue) == []

    await first.ack()

    assert await counted(queue) == {"sent": 2, "delivered": 1, "acked": 1, "ready": 1}
    await check_accounts(queue)


@pytest.mark.parametrize(
    "options",
    [
        {"rate": "fast"},
        {"rate": "0/s"},
        {"rate": "-1/s"},
        {"rate": "5"},
        {"rate": 5},
        {"rate": "5/w"},
        {"rate": "2000000/s"},
        {"max_in_flight": 0},
        {"max_in_flight": -1},
        {"max_in_flight": 1.5},
        {"max_in_flight": True},
        {"on_dead": "explode"},
    ],
    ids=str,
)
async def test_a_limit_that_makes_no_sense_is_refused(app: AsyncDuly, queue_name: str, options: dict[str, Any]) -> None:
    (name,) = options

    with pytest.raises(UsageError, match=name):
        app.queue(queue_name, **options)


async def test_retries_and_new_messages_share_deliveries(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, retry_share=0.25)
    await queue.send_many(["retry"] * 20)
    for delivery in await take(queue, 20):
        await delivery.retry(delay=0)
    await queue.send_many(["new"] * 20)

    found = [delivery.body for delivery in await take(queue, 16)]

    assert (found.count("retry"), found.count("new")) == (4, 12)


async def test_without_a_share_the_messages_that_were_due_first_come_first(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name)
    await queue.send_many(["retry"] * 10)
    for delivery in await take(queue, 10):
        await delivery.retry(delay=0)
    await queue.send_many(["new"] * 10)

    assert [delivery.body for delivery in await take(queue, 11)] == [*["retry"] * 10, "new"]


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5, True, "0.5", float("nan"), float("inf")])
async def test_a_share_is_between_0_and_1(app: AsyncDuly, queue_name: str, share: Any) -> None:
    with pytest.raises(UsageError, match="retry_share must be a number between 0 and 1"):
        app.queue(queue_name, retry_share=share)
