"""Effects that happen at most once."""

from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, LeaseLost, UsageError, once
from tests.client._async.given import SETTLES, given_leased, settle, take_one
from tests.client.place import Place


@pytest.fixture
def name(queue_name: str) -> str:
    return f"effect of {queue_name}"


async def test_a_delivery_may_cause_an_effect_once(queue: AsyncQueue, name: str) -> None:
    delivery = await given_leased(queue)

    assert [await once(delivery, name, 60) for _ in range(3)] == [True, False, False]
    assert await once(delivery, name + "}", 60) is True


async def test_a_second_message_may_not_cause_it(queue: AsyncQueue, other_app: AsyncDuly, name: str) -> None:
    """For example a duplicate of another producer."""
    first = await given_leased(queue)
    second = await given_leased(other_app.queue(queue.name))
    third = await given_leased(other_app.queue(queue.name + "-2"), id=first.id)

    assert await once(first, name, 60) is True
    assert await once(second, name, 60) is False
    assert await once(third, name, 60) is False


@pytest.mark.parametrize("verb", ["retry", "defer", "release"])
async def test_a_message_that_was_given_back_may_cause_it_again(
    queue: AsyncQueue, name: str, clock: Place, verb: str
) -> None:
    first = await given_leased(queue)
    assert await once(first, name, 3600) is True
    await settle(first, verb)
    clock.advance(61)

    again = await take_one(queue)

    assert [await once(again, name, 3600) for _ in range(2)] == [True, False]


async def test_a_message_whose_consumer_died_may_not_cause_it_again(
    queue: AsyncQueue, other_app: AsyncDuly, name: str, clock: Place
) -> None:
    """The effect may have happened."""
    dead = await given_leased(queue, lease=30)
    assert await once(dead, name, 3600) is True
    clock.advance(31)

    again = await take_one(other_app.queue(queue.name))
    assert again.crashes == 1
    assert await once(again, name, 3600) is False
    await again.retry(0)
    last = await take_one(queue)
    assert await once(last, name, 3600) is False

    assert await once(dead, name + "-2", 3600) is True  # it does not know of its death yet
    assert await once(last, name + "-2", 3600) is False


async def test_a_crash_before_it_asked_does_no_harm(queue: AsyncQueue, name: str, clock: Place) -> None:
    await given_leased(queue, lease=30)
    clock.advance(31)

    again = await take_one(queue)

    assert await once(again, name, 60) is True


async def test_a_message_that_was_recycled_or_redriven_may_not_cause_it_again(queue: AsyncQueue, name: str) -> None:
    first = await given_leased(queue)
    assert await once(first, name, 60) is True
    await first.recycle()
    recycled = await take_one(queue)
    assert await once(recycled, name, 60) is False
    assert await once(recycled, name + "-2", 60) is True
    await recycled.reject("no use")
    await queue.redrive()
    redriven = await take_one(queue)

    assert await once(redriven, name + "-2", 60) is False


async def test_a_redriven_message_may_not_cause_it_even_if_it_is_given_back_before_it_asks(
    queue: AsyncQueue, name: str
) -> None:
    await queue.send("a")
    d = await take_one(queue)
    assert await once(d, name, 60)
    await d.reject("for example, it died in the middle")
    await queue.redrive()
    await (await take_one(queue)).release()

    assert await once(await take_one(queue), name, 60) is False


async def test_an_effect_is_forgotten_after_its_ttl(queue: AsyncQueue, name: str, clock: Place) -> None:
    delivery = await given_leased(queue)
    await once(delivery, name, 60)
    clock.advance(59)
    assert await once(delivery, name, 60) is False
    clock.advance(1.1)

    assert await once(delivery, name, 60) is True


async def test_an_effect_belongs_to_its_namespace(queue: AsyncQueue, backend: str, name: str) -> None:
    async with AsyncDuly(backend, namespace="elsewhere") as elsewhere:
        for each in (queue, elsewhere.queue(queue.name)):
            assert await once(await given_leased(each), name, 60) is True


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_delivery_that_is_over_may_cause_nothing(queue: AsyncQueue, name: str, verb: str) -> None:
    delivery = await given_leased(queue)
    await settle(delivery, verb)

    with pytest.raises(LeaseLost, match=delivery.id):
        await once(delivery, name, 60)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(("", 60), "empty"), ((None, 60), "str"), (("a", 0), "ttl"), (("a", -1), "ttl"), (("a", "60"), "ttl")],
    ids=repr,
)
async def test_once_refuses(queue: AsyncQueue, arguments: tuple[Any, ...], complaint: str) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match=complaint):
        await once(delivery, *arguments)
    with pytest.raises(UsageError, match="delivery"):
        await once(delivery.id, "a", 60)  # type: ignore[call-overload]


# --- async only
async def test_an_answer_of_once_that_was_not_awaited_is_not_true(queue: AsyncQueue, name: str) -> None:
    """In asyncio only."""
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match="await"):
        bool(once(delivery, name, 60))


# --- end
