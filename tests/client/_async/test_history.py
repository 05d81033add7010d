"""stats(history=...): what happened in each interval."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from duly import AsyncGroup, AsyncQueue, AsyncTopic, Histogram, Send, UsageError
from tests.client._async.given import take
from tests.client.place import Place


def begin_minute(clock: Place) -> None:
    """Let no minute end between the next calls."""
    clock.advance(61 - clock.now() % 60)


async def test_history_has_a_point_for_each_minute(queue: AsyncQueue, clock: Place) -> None:
    """new-3."""
    begin_minute(clock)
    await queue.send_many(["a", "b"])
    for delivery in await take(queue, 1):
        await delivery.ack()
    clock.advance(180)
    await queue.send("c")

    history = (await queue.stats(history="1h")).history

    assert [(point.sent, point.delivered, point.acked) for point in history] == [
        (2, 1, 1),
        (0, 0, 0),
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert [point.depth for point in history] == [0, 1, 1, 1]
    assert history[3].oldest_age == pytest.approx(179, abs=30)
    assert all(earlier.end == later.start for earlier, later in pairwise(history))
    assert {point.end - point.start for point in history} == {timedelta(minutes=1)}
    assert (await queue.stats()).history == ()


async def test_history_shows_the_backlog_of_keys_while_nothing_is_received(queue: AsyncQueue, clock: Place) -> None:
    begin_minute(clock)
    await queue.send_many([Send(number, key="k") for number in range(3)])
    await take(queue, 3)
    await queue.send("other", key="l")
    for number in range(3):
        clock.advance(60)
        await queue.send(number, key="l")

    history = (await queue.stats(history="1h")).history

    assert [point.depth for point in history] == [0, 3, 4, 5]
    assert [point.oldest_age for point in history] == [0, *(pytest.approx(60 * n, abs=30) for n in (1, 2, 3))]


async def test_history_shows_the_age_of_priorities_while_nothing_is_received(queue: AsyncQueue, clock: Place) -> None:
    begin_minute(clock)
    await queue.send("first", priority=5)
    for number in range(3):
        clock.advance(60)
        await queue.send(number)

    history = (await queue.stats(history="1h")).history

    assert [point.depth for point in history] == [None] * 4
    assert [point.oldest_age for point in history] == [0, *(pytest.approx(60 * n, abs=30) for n in (1, 2, 3))]


async def test_history_shows_how_deliveries_ended(queue: AsyncQueue, clock: Place) -> None:
    await queue.send_many(["retried", "dead", "crashed"])
    first, second, _ = await take(queue, 3)
    await first.retry(delay=0)
    await second.reject("no")
    await queue.send("expires", ttl=1, delay=30)
    clock.advance(120)
    await take(queue, 3)

    history = (await queue.stats(history=timedelta(hours=1))).history

    sums = [sum(getattr(point, name) for point in history) for name in ("retried", "dead", "crashed", "expired")]
    assert sums == [1, 1, 1, 1]


async def test_a_longer_history_has_longer_intervals_and_misses_nothing(queue: AsyncQueue, clock: Place) -> None:
    for _ in range(5):
        await queue.send_many(["a", "b"])
        clock.advance(3600)

    for span, seconds in (("24h", 600), ("7d", 3600)):
        history = (await queue.stats(history=span)).history
        assert sum(point.sent for point in history) == 10
        assert {(point.end - point.start).total_seconds() for point in history} == {seconds}


async def test_a_queue_that_was_never_used_has_no_history(queue: AsyncQueue) -> None:
    await take(queue, 1)

    stats = await queue.stats(history="1h")

    assert (stats.history, stats.lateness_times, stats.handling_times) == ((), Histogram.empty(), Histogram.empty())


async def test_delete_ends_the_history(queue: AsyncQueue, clock: Place) -> None:
    """I9."""
    begin_minute(clock)
    await queue.send("a")
    await queue.delete()
    clock.advance(60)
    await queue.send("b")

    assert [point.sent for point in (await queue.stats(history="1h")).history] == [1]


async def test_a_group_has_its_own_history(events: AsyncTopic, archive: AsyncGroup, clock: Place) -> None:
    begin_minute(clock)
    await events.publish_many(["a", "b", "c"])
    await take(archive, 1)
    clock.advance(60)
    await take(archive, 3)

    history = (await archive.stats(history=600)).history

    assert sum(point.sent for point in history) == 3
    assert history[-1].depth == 2


@pytest.mark.parametrize("history", ["", "soon", "30s", "8d", 0, -1, 59, 700_000, float("nan"), True, b"1h"])
async def test_a_history_is_a_minute_at_least_and_a_week_at_most(queue: AsyncQueue, history: Any) -> None:
    with pytest.raises(UsageError, match="history must be"):
        await queue.stats(history=history)
