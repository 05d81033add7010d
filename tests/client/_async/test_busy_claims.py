"""Claims that meet many messages that cannot be delivered: messages behind them are delivered, in order."""

import time

import pytest

from duly import AsyncDuly, AsyncQueue, Keep, Send
from tests.client._async.given import take
from tests.client.place import Place

WAIT = 20
"""Seconds. A receive that takes longer has slept instead of claiming again."""


async def given_expired(queue: AsyncQueue, clock: Place, count: int, priority: int = 0) -> None:
    await queue.send_many([Send(n, ttl=1, priority=priority) for n in range(count)])
    clock.advance(2)


@pytest.mark.parametrize("wait", [0, WAIT])
async def test_a_message_behind_many_expired_ones_is_received_at_once(
    queue: AsyncQueue, clock: Place, wait: float
) -> None:
    await given_expired(queue, clock, 1500)
    await queue.send("behind")
    began = time.monotonic()

    (delivery,) = await queue.receive(wait=wait)

    assert delivery.body == "behind"
    assert time.monotonic() - began < WAIT / 2


@pytest.mark.parametrize("wait", [0, WAIT])
async def test_a_message_behind_a_long_lane_is_received_at_once(queue: AsyncQueue, wait: float) -> None:
    await queue.send_many([Send(n, key="busy") for n in range(3000)])
    await take(queue, limit=1)
    await queue.send("behind")
    began = time.monotonic()

    (delivery,) = await queue.receive(wait=wait)

    assert delivery.body == "behind"
    assert time.monotonic() - began < WAIT / 2


async def test_a_lower_priority_does_not_overtake_after_expired_messages(queue: AsyncQueue, clock: Place) -> None:
    await given_expired(queue, clock, 150, priority=5)
    await queue.send("high", priority=5, key="k")
    await queue.send("low", key="k")

    (delivery,) = await take(queue, limit=1)

    assert delivery.body == "high"


async def test_the_end_of_a_ttl_lets_the_next_of_its_lane_in(queue: AsyncQueue) -> None:
    await queue.send("a", key="k", ttl=1)
    await queue.send("b", key="k")
    (first,) = await take(queue)
    assert await take(queue) == []  # b is parked
    await first.retry(3600)
    began = time.monotonic()

    (delivery,) = await queue.receive(wait=WAIT)

    assert delivery.body == "b"
    assert time.monotonic() - began < 4  # not by the safety net, which is 5 s


async def test_a_lane_continues_when_the_dead_letter_before_it_is_trimmed(
    app: AsyncDuly, queue: AsyncQueue, clock: Place
) -> None:
    queue = app.queue(queue.name, on_dead="block", dead=Keep(age=60))
    await queue.send_many([Send("a", key="k"), Send("b", key="k")])
    (first,) = await take(queue)
    assert await take(queue) == []
    await first.reject("no")
    clock.advance(61)

    (delivery,) = await queue.receive(wait=WAIT)

    assert delivery.body == "b"
