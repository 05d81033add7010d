"""forecast(): what becomes due when; spread=: messages that do not become due all at once."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, Bucket, Repeat, Send, UsageError
from tests.client._async.given import seen, take, take_bodies, take_one
from tests.client.place import Place


async def due_of(queue: AsyncQueue, id_: str) -> float:
    """Return when a message is due, in seconds since the epoch."""
    due = (await seen(queue, id_)).due_at
    assert due is not None
    return due.timestamp()


async def test_a_forecast_counts_what_becomes_due_in_each_interval(queue: AsyncQueue, clock: Place) -> None:
    """new-14."""
    await queue.send("now")
    await queue.send_many([Send("soon", delay=600), Send("soon too", delay=601), Send("later", delay=20 * 3600)])
    await queue.send("too far", delay=25 * 3600)

    forecast = await queue.forecast()

    assert sum(bucket.count for bucket in forecast) == 3
    assert [bucket.count for bucket in forecast if bucket.count] in ([2, 1], [1, 1, 1])
    assert forecast[-1].end - forecast[0].start == timedelta(days=1)
    assert all(earlier.end == later.start for earlier, later in pairwise(forecast))
    assert abs(forecast[0].start.timestamp() - clock.now()) < 60
    (last,) = (bucket for bucket in forecast[30:] if bucket.count)
    assert last.start.timestamp() <= clock.now() + 20 * 3600 + 60
    assert last.end.timestamp() >= clock.now() + 20 * 3600 - 60


async def test_a_retry_is_in_the_forecast(queue: AsyncQueue) -> None:
    await queue.send("failing")
    await (await take_one(queue)).retry(delay=1800)

    assert sum(bucket.count for bucket in await queue.forecast("1h")) == 1
    assert sum(bucket.count for bucket in await queue.forecast(timedelta(minutes=10))) == 0


async def test_a_group_has_a_forecast_of_its_retries(app: AsyncDuly, queue_name: str) -> None:
    topic = app.topic(queue_name)
    group = topic.group("archive")
    await topic.publish("x")
    (delivery,) = await group.receive(limit=1, wait=0)
    await delivery.retry(delay=1800)

    assert sum(bucket.count for bucket in await group.forecast(3600)) == 1


async def test_a_queue_that_was_never_used_has_an_empty_forecast(queue: AsyncQueue) -> None:
    forecast = await queue.forecast(60)

    assert forecast
    assert {(type(bucket), bucket.count) for bucket in forecast} == {(Bucket, 0)}


@pytest.mark.parametrize("ahead", [0, 0.5, -1, "soon", "0s", None, True, 11 * 366 * 86400, float("nan")])
async def test_a_forecast_of_no_time_is_refused(queue: AsyncQueue, ahead: Any) -> None:
    with pytest.raises(UsageError, match="ahead"):
        await queue.forecast(ahead)


async def test_spread_messages_are_never_early_and_never_too_late(queue: AsyncQueue, clock: Place) -> None:
    """new-14, I3."""
    start = clock.now() + 60
    ids = await queue.send_many([Send(n, at=start, spread=60) for n in range(200)])

    due = [await due_of(queue, id_) - start for id_ in ids]

    assert min(due) >= 0
    assert max(due) <= 60.001
    clock.advance(start - clock.now() - 1)
    assert await take(queue) == []
    clock.advance(62)
    assert sorted(await take_bodies(queue, 200)) == list(range(200))


async def test_spread_messages_are_spread(queue: AsyncQueue) -> None:
    """new-14: with 300 messages, each quarter of the time has some, except once in 10 ** 36 runs."""
    await queue.send_many(range(300), spread=3600)

    forecast = await queue.forecast(3600)

    quarters = [0, 0, 0, 0]
    for bucket in forecast:
        share = (bucket.start - forecast[0].start) / timedelta(hours=1)
        quarters[int(share * 4)] += bucket.count
    assert all(quarters)
    assert sum(quarters) >= 295
    assert max(bucket.count for bucket in forecast) < 100


async def test_a_spread_is_added_to_a_delay(queue: AsyncQueue, clock: Place) -> None:
    before = clock.now()
    id_ = await queue.send("later", delay=100, spread=20)

    due = await due_of(queue, id_)

    assert before + 100 - 1 <= due <= clock.now() + 121


async def test_a_message_of_send_many_keeps_its_own_spread(queue: AsyncQueue, clock: Place) -> None:
    own, other = await queue.send_many([Send("own", spread=0), Send("other", delay=10)], spread=1000)

    assert await due_of(queue, own) <= clock.now() + 1
    assert await due_of(queue, other) >= clock.now() + 8


async def test_a_send_that_is_repeated_keeps_its_due_time(queue: AsyncQueue) -> None:
    """A second message with the value stores nothing, so its random time does not matter."""
    first = await queue.send("a", dedup="d", spread=1000)
    due = await due_of(queue, first)

    assert await queue.send("b", dedup="d", spread=1000) == first
    assert await due_of(queue, first) == due


async def test_a_replacement_gets_a_new_random_time(queue: AsyncQueue, clock: Place) -> None:
    first = await queue.send("a", dedup="d", spread=10)
    assert await queue.send("b", dedup="d", replace=True, delay=5000, spread=10) == first

    assert (await seen(queue, first)).body == "b"
    assert clock.now() + 4990 <= await due_of(queue, first) <= clock.now() + 5011


async def test_messages_of_a_key_are_delivered_by_their_random_times(queue: AsyncQueue, clock: Place) -> None:
    """I7: the order within a key is that of the due times."""
    ids = await queue.send_many([Send(n, key="k", spread=100) for n in range(20)])
    due = {n: await due_of(queue, id_) for n, id_ in enumerate(ids)}
    clock.advance(101)

    order = []
    for _ in ids:
        delivery = await take_one(queue)
        order.append(delivery.body)
        await delivery.ack()

    assert order == sorted(due, key=lambda n: due[n])


async def test_a_repeating_message_is_spread_once(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("again", repeat=Repeat(first=100), spread=50)

    assert await due_of(queue, id_) >= clock.now() + 98
    clock.advance(151)
    await (await take_one(queue)).ack()
    assert await due_of(queue, id_) == pytest.approx(clock.now() + 100, abs=2)


@pytest.mark.parametrize("spread", [-1, "60", True, float("inf"), 11 * 366 * 86400])
async def test_a_wrong_spread_is_refused_before_anything_is_sent(queue: AsyncQueue, spread: Any) -> None:
    for send in (
        lambda: queue.send("a", spread=spread),
        lambda: queue.send_many(["a", Send("b", spread=spread)]),
        lambda: queue.send_many([], spread=spread),
    ):
        with pytest.raises(UsageError, match="spread"):
            await send()
    assert (await queue.stats()).sent == 0


async def test_an_entry_of_a_topic_has_no_spread(app: AsyncDuly, queue_name: str) -> None:
    with pytest.raises(UsageError, match="spread= is for messages of a queue"):
        await app.topic(queue_name).publish_many([Send("x", spread=60)])


async def test_a_schedule_has_no_spread(app: AsyncDuly, queue: AsyncQueue) -> None:
    with pytest.raises(UsageError, match="spread"):
        await app.schedule(f"{queue.name}-nightly", queue, Send("x", spread=60), every=60)
