"""Waking: no consumer sleeps past something that it could take.

The consumers here poll only every 5 s, so a consumer that acts sooner was woken.
"""

import time

import pytest

from duly import AsyncDelivery, AsyncDuly, AsyncQueue
from tests.client._async.given import SOON, InBackground, given_blocked, given_dead, given_leased, pause, until
from tests.client.place import Place


async def woken(consumer: InBackground[list[AsyncDelivery]]) -> AsyncDelivery:
    """Return the delivery of a consumer that was woken in time."""
    (delivery,) = await consumer.result()
    return delivery


async def test_a_send_wakes(queue: AsyncQueue, place: Place) -> None:
    """001-4 002-1."""
    (consumer,) = await given_blocked(place, queue)

    await queue.send("body")

    assert (await woken(consumer)).body == "body"


async def test_a_send_of_another_app_wakes(queue: AsyncQueue, other_app: AsyncDuly, place: Place) -> None:
    (consumer,) = await given_blocked(place, queue)

    await other_app.queue(queue.name).send("body")

    assert (await woken(consumer)).body == "body"


@pytest.mark.parametrize("priority", [0, 5])
async def test_a_delayed_send_that_becomes_the_next_wakes(queue: AsyncQueue, place: Place, priority: int) -> None:
    await queue.send("much later", delay=60)
    (consumer,) = await given_blocked(place, queue)

    await queue.send("soon", delay=0.2, priority=priority)

    assert (await woken(consumer)).body == "soon"


async def test_a_first_delayed_send_wakes(queue: AsyncQueue, place: Place) -> None:
    (consumer,) = await given_blocked(place, queue)

    await queue.send("soon", delay=0.2)

    assert (await woken(consumer)).body == "soon"


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("retry", (0,)),
        ("retry", (0.2,)),
        ("defer", (0,)),
        ("defer", (0.2,)),
        ("release", ()),
        ("recycle", ()),
        ("recycle", (0.2,)),
    ],
)
async def test_a_released_message_wakes_a_consumer(
    queue: AsyncQueue, place: Place, verb: str, arguments: tuple[float, ...]
) -> None:
    held = await given_leased(queue)
    (consumer,) = await given_blocked(place, queue)

    await getattr(held, verb)(*arguments)

    assert (await woken(consumer)).id == held.id


async def test_a_redrive_wakes(queue: AsyncQueue, place: Place) -> None:
    id_ = await given_dead(queue)
    (consumer,) = await given_blocked(place, queue)

    await queue.redrive()

    assert (await woken(consumer)).id == id_


async def test_a_promote_wakes(queue: AsyncQueue, place: Place) -> None:
    id_ = await queue.send("later", delay=60)
    (consumer,) = await given_blocked(place, queue)

    await queue.promote(id_)

    assert (await woken(consumer)).id == id_


@pytest.mark.parametrize("delay", [0, 0.2])
async def test_an_earlier_due_time_wakes(queue: AsyncQueue, place: Place, delay: float) -> None:
    id_ = await queue.send("later", delay=60)
    (consumer,) = await given_blocked(place, queue)

    await queue.reschedule(id_, delay=delay)

    assert (await woken(consumer)).id == id_


async def test_a_resume_wakes(queue: AsyncQueue, place: Place) -> None:
    await queue.send("body")
    await queue.pause()
    (consumer,) = await given_blocked(place, queue)

    await queue.resume()

    assert (await woken(consumer)).body == "body"


async def test_a_message_sent_while_paused_is_found_after_the_resume(queue: AsyncQueue, place: Place) -> None:
    await queue.pause()
    (consumer,) = await given_blocked(place, queue)
    await queue.send("body")

    await queue.resume()

    assert (await woken(consumer)).body == "body"


async def test_a_shorter_lease_wakes(queue: AsyncQueue, place: Place) -> None:
    held = await given_leased(queue, lease=600)
    (consumer,) = await given_blocked(place, queue)

    await held.extend(0.2)

    assert (await woken(consumer)).id == held.id


async def test_a_lease_that_runs_out_wakes(queue: AsyncQueue, place: Place) -> None:
    """002-9."""
    held = await given_leased(queue, lease=1)
    (consumer,) = await given_blocked(place, queue)

    assert (await woken(consumer)).id == held.id


async def test_many_messages_wake_many_consumers(queue: AsyncQueue, other_app: AsyncDuly, place: Place) -> None:
    other = other_app.queue(queue.name)
    consumers = await given_blocked(place, queue, other, queue)

    await queue.send_many([1, 2, 3])

    assert sorted([(await woken(consumer)).body for consumer in consumers]) == [1, 2, 3]


async def test_a_second_consumer_takes_over_the_watch_when_the_first_took_a_message(
    queue: AsyncQueue, other_app: AsyncDuly, place: Place
) -> None:
    """002-9."""
    first, second = await given_blocked(place, queue, other_app.queue(queue.name))

    await queue.send_many(["now"])
    await queue.send("soon", delay=0.3)

    # A thread may take longer than the delay to start. Then the second consumer claims first.
    assert {(await woken(first)).body, (await woken(second)).body} == {"now", "soon"}


async def test_a_second_consumer_watches_the_lease_that_the_first_took(
    app: AsyncDuly, other_app: AsyncDuly, queue_name: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-9. The first one polls no more often than the other, or it would lose its place in the line."""
    monkeypatch.setattr("duly._core.patience._SHORTEST_PERIOD", 5.0)
    dying, patient = app.queue(queue_name, lease=1), other_app.queue(queue_name)
    (first,) = await given_blocked(place, dying)
    second = InBackground(lambda: patient.receive(limit=1, wait=20))
    await until(lambda: place.blocked() == 2)

    held_id = await dying.send("body")

    assert (await woken(first)).id == held_id
    assert (await woken(second)).crashes == 1


async def test_a_consumer_that_leaves_passes_the_watch_on(
    queue: AsyncQueue, other_app: AsyncDuly, place: Place
) -> None:
    """The first learns of the delayed message and leaves before it is due."""
    leaving = InBackground(lambda: queue.receive(limit=1, wait=0.6))
    await until(lambda: place.blocked() == 1)
    staying = InBackground(lambda: other_app.queue(queue.name).receive(limit=1, wait=20))
    await until(lambda: place.blocked() == 2 or not leaving.is_running)

    await queue.send("soon", delay=1)

    assert await leaving.result() == []
    assert (await woken(staying)).body == "soon"


# --- async only
async def test_a_consumer_that_is_cancelled_passes_the_watch_on(
    queue: AsyncQueue, other_app: AsyncDuly, place: Place
) -> None:
    """In asyncio only: a thread is not cancelled."""
    first, second = await given_blocked(place, queue, other_app.queue(queue.name))
    await queue.send("soon", delay=2)
    await until(lambda: place.blocked() == 2)

    first.cancel()
    try:
        assert [delivery.body for delivery in await second.result()] == ["soon"]
    finally:
        await until(lambda: place.blocked() == 0)
        await pause(0.05)  # until the connections of the cancelled ones are back


# --- end
async def test_a_message_due_in_a_moment_is_not_slept_past(queue: AsyncQueue) -> None:
    """The end of so short a wait may overtake its beginning."""
    for number in range(100):
        await queue.send(number, delay=number * 0.000_02)
        began = time.monotonic()
        (delivery,) = await queue.receive(limit=1, wait=20)
        assert time.monotonic() - began < SOON
        await delivery.ack()


async def test_a_consumer_of_another_queue_is_left_alone(queue: AsyncQueue, app: AsyncDuly, place: Place) -> None:
    (consumer,) = await given_blocked(place, app.queue(queue.name + "-2"), wait=0.4)

    await queue.send("body")

    assert await consumer.result() == []


async def test_a_wake_token_that_no_consumer_took_costs_one_claim_at_most(queue: AsyncQueue) -> None:
    for _ in range(3):
        await queue.send("body", delay=60)
    began = time.monotonic()

    assert await queue.receive(wait=0.3) == []

    assert time.monotonic() - began >= 0.3
