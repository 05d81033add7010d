"""`with d:` settles what the block leaves unsettled."""

import logging

import pytest

from duly import AsyncQueue, Defer, LeaseLost, Outcome, Reject, RetryIn
from tests.client._async.given import SETTLES, counted, given_leased, seen, settle, take, take_one
from tests.client.place import Place


async def test_a_block_that_ends_acks(queue: AsyncQueue) -> None:
    async with await given_leased(queue) as delivery:
        assert delivery.body == "body"

    assert await counted(queue) == {"sent": 1, "delivered": 1, "acked": 1}


async def test_a_block_that_raises_retries_and_the_error_propagates(queue: AsyncQueue) -> None:
    """000-2 002-11."""
    delivery = await given_leased(queue)

    with pytest.raises(ZeroDivisionError):
        async with delivery:
            1 / 0  # noqa: B018

    message = await seen(queue, delivery.id)
    assert (message.state, message.failures) == ("delayed", 1)
    assert message.errors[0].error == "ZeroDivisionError: division by zero"
    assert "1 / 0" in message.errors[0].traceback


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Defer(60), {"deferred": 1, "delayed": 1}),
        (RetryIn(60), {"retried": 1, "delayed": 1}),
        (Reject("no use"), {"buried": 1, "dead": 1}),
        (Defer(0), {"deferred": 1, "ready": 1}),
        (RetryIn(0), {"retried": 1, "ready": 1}),
    ],
    ids=repr,
)
async def test_an_outcome_settles_and_goes_no_further(
    queue: AsyncQueue, outcome: Outcome, expected: dict[str, int]
) -> None:
    async with await given_leased(queue):
        raise outcome

    assert await counted(queue) == {"sent": 1, "delivered": 1, **expected}


async def test_the_delay_of_an_outcome_is_kept(queue: AsyncQueue, clock: Place) -> None:
    async with await given_leased(queue):
        raise RetryIn(30)

    clock.advance(27)
    early = await take(queue)
    clock.advance(3.1)

    assert early == []
    assert (await take_one(queue)).failures == 1


async def test_the_reason_of_a_reject_is_kept(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    async with delivery:
        raise Reject("no such customer")

    assert (await seen(queue, delivery.id)).reason == "no such customer"


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_delivery_that_was_settled_inside_is_left_alone(queue: AsyncQueue, verb: str) -> None:
    delivery = await given_leased(queue)
    async with delivery:
        await settle(delivery, verb)
        before = await counted(queue)

    assert await counted(queue) == before


async def test_an_error_after_a_settle_propagates_and_changes_nothing(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(ValueError, match="later"):  # noqa: PT012
        async with delivery:
            await delivery.ack()
            raise ValueError("later")

    assert await counted(queue) == {"sent": 1, "delivered": 1, "acked": 1}


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_an_interrupt_releases_and_propagates(queue: AsyncQueue, interrupt: type[BaseException]) -> None:
    """002-10."""
    delivery = await given_leased(queue)

    with pytest.raises(interrupt):
        async with delivery:
            raise interrupt

    assert await counted(queue) == {"sent": 1, "delivered": 1, "released": 1, "ready": 1}
    assert (await take_one(queue)).attempt == 1


async def test_a_block_whose_lease_was_lost_raises_lease_lost(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(LeaseLost, match=delivery.id):
        async with delivery:
            await queue.cancel(delivery.id, running=True)


async def test_an_error_in_a_block_whose_lease_was_lost_is_not_hidden(
    queue: AsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = await given_leased(queue)

    with caplog.at_level(logging.WARNING, "duly"), pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with delivery:
            await queue.cancel(delivery.id, running=True)
            1 / 0  # noqa: B018

    assert delivery.id in caplog.text


async def test_an_outcome_that_cannot_be_read_is_a_failure_and_is_logged(
    queue: AsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = await given_leased(queue)
    defer = Defer(5)
    defer.delay = -1

    with caplog.at_level(logging.WARNING, "duly"):
        async with delivery:
            raise defer

    assert "an outcome of type Defer cannot be read" in caplog.text
    assert (await seen(queue, delivery.id)).failures == 1
