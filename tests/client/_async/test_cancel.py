"""Cancel: True means that no handler has the message, and that none will get it."""

from typing import Final, NamedTuple

import pytest

from duly import AsyncDelivery, AsyncDuly, AsyncQueue, Keep, LeaseLost, Send
from tests.client._async.given import check_accounts, given_in, given_leased, seen, take, take_bodies, take_one
from tests.client.place import Place

LEASE: Final = 5
ENDED: Final = ("ready", "delayed", "parked", "dead")
HELD: Final = ("leased", "lease ran out")
OVER: Final = ("done", "unknown")


class Given(NamedTuple):
    """A message in a state, and the delivery of it that is out."""

    id: str
    held: AsyncDelivery | None = None


async def given(queue: AsyncQueue, clock: Place, state: str) -> Given:
    if state == "unknown":
        return Given("unknown")
    if state == "parked":
        await given_leased(queue, key="k", lease=600)
        id_ = await queue.send("body", key="k")
        assert await take(queue) == []  # a claim parks it
        return Given(id_)
    if state in HELD:
        held = await given_leased(queue, lease=LEASE)
        clock.advance(LEASE + 1 if state == "lease ran out" else 0)
        return Given(held.id, held)
    return Given(await given_in(queue, state))


@pytest.fixture
def kept(app: AsyncDuly, queue_name: str) -> AsyncQueue:
    return app.queue(queue_name, done=Keep(count=10))


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("state", ENDED)
async def test_a_message_that_waits_or_is_dead_is_cancelled_once_and_never_delivered(
    kept: AsyncQueue, clock: Place, state: str, running: bool
) -> None:
    """I1 I2, 002-12 003-21."""
    message = await given(kept, clock, state)

    answers = [await kept.cancel(message.id, running=running) for _ in range(3)]

    assert answers == [True, False, False]
    assert await kept.get(message.id) is None
    assert (await kept.stats()).cancelled == 1
    clock.advance(1000)
    assert message.id not in [each.id for each in await take(kept)]
    await check_accounts(kept)


@pytest.mark.parametrize("state", HELD)
async def test_a_message_that_a_consumer_has_is_not_cancelled_and_its_holder_settles_it(
    kept: AsyncQueue, clock: Place, state: str
) -> None:
    """I1 I2."""
    message = await given(kept, clock, state)
    assert message.held is not None

    assert [await kept.cancel(message.id) for _ in range(2)] == [False, False]

    assert (await seen(kept, message.id)).state == "leased"
    await message.held.ack()
    assert (await kept.stats()).cancelled == 0
    assert (await seen(kept, message.id)).state == "done"
    await check_accounts(kept)


async def test_a_message_whose_holder_is_gone_is_redelivered_after_a_cancel_that_returned_false(
    queue: AsyncQueue, clock: Place
) -> None:
    message = await given(queue, clock, "lease ran out")

    assert not await queue.cancel(message.id)

    assert (await take_one(queue)).id == message.id


@pytest.mark.parametrize("state", HELD)
async def test_running_takes_a_message_from_its_holder(kept: AsyncQueue, clock: Place, state: str) -> None:
    """I1 I2 I5."""
    message = await given(kept, clock, state)
    assert message.held is not None

    answers = [await kept.cancel(message.id, running=True) for _ in range(2)]

    assert answers == [True, False]
    with pytest.raises(LeaseLost):
        await message.held.ack()
    clock.advance(1000)
    assert await take(kept) == []
    assert (await kept.stats()).cancelled == 1
    await check_accounts(kept)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("state", OVER)
async def test_a_message_that_is_unknown_or_over_is_not_cancelled(
    kept: AsyncQueue, clock: Place, state: str, running: bool
) -> None:
    message = await given(kept, clock, state)

    assert not await kept.cancel(message.id, running=running)

    assert (await kept.stats()).cancelled == 0
    assert [each.id for each in await kept.list("done")] == ([message.id] if state == "done" else [])


async def test_a_cancelled_message_is_never_delivered(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("body", delay=10)
    await queue.cancel(id_)

    clock.advance(11)

    assert await take(queue) == []


@pytest.mark.parametrize("priority", [0, 9])
async def test_cancel_of_one_leaves_the_others(queue: AsyncQueue, priority: int) -> None:
    ids = await queue.send_many([Send(n, priority=priority) for n in range(3)])

    await queue.cancel(ids[1])

    assert await take_bodies(queue) == [0, 2]
