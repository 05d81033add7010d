"""Results: the returned value, callers that wait for it, and waits that end without one.

A waiting caller polls every 5 s, so a caller that acts sooner was woken.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from duly import (
    AsyncDelivery,
    AsyncDuly,
    AsyncQueue,
    CodecError,
    HandlerFailed,
    Keep,
    NotFinished,
    ResultGone,
    UsageError,
)
from tests.client._async.given import SOON, InBackground, check_accounts, given_leased, pause, seen, take_one, until
from tests.client.place import Place


@pytest.fixture
def kept(app: AsyncDuly, queue_name: str) -> AsyncQueue:
    """Return a queue that keeps finished messages."""
    return app.queue(queue_name, done=Keep(count=1000), max_message_bytes=1000)


async def given_waiting(place: Place, queue: AsyncQueue, id: str, wait: float = 60) -> InBackground[Any]:  # noqa: A002
    """Start a wait for a result, and return when it blocks."""
    waiter = InBackground(lambda: queue.result(id, wait))
    await until(lambda: place.blocked() == 1)
    return waiter


async def test_a_message_past_its_ttl_has_no_result_even_before_it_is_removed(clock: Place, kept: AsyncQueue) -> None:
    id_ = await kept.send("body", ttl=60)
    with pytest.raises(NotFinished):
        await kept.result(id_, wait=0)

    clock.advance(61)

    with pytest.raises(ResultGone):
        await kept.result(id_, wait=0)
    assert (await kept.stats()).expired == 0


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, 1.5, "", "text\n\0ü", [], [1, None, {"a": "b"}], {"n": 1}, b"", b"\0\xff raw"],
    ids=repr,
)
async def test_a_result_is_returned_unchanged(kept: AsyncQueue, value: Any) -> None:
    delivery = await given_leased(kept)

    await delivery.ack(result=value)

    assert await kept.result(delivery.id, wait=0) == value
    message = await seen(kept, delivery.id)
    assert (message.state, message.result) == ("done", value)
    (listed,) = await kept.list("done")
    assert listed.result == value
    await check_accounts(kept)


async def test_without_a_result_it_is_none(kept: AsyncQueue) -> None:
    first, second = await given_leased(kept), await given_leased(kept)
    await first.ack()
    await kept.ack_many([second])

    assert [await kept.result(each.id, wait=0) for each in (first, second)] == [None, None]


async def test_leaving_a_block_finishes_without_a_result(kept: AsyncQueue) -> None:
    delivery = await given_leased(kept)
    async with delivery:
        pass

    assert await kept.result(delivery.id, wait=0) is None


async def test_a_message_with_a_key_has_a_result_and_passes_its_lane_on(kept: AsyncQueue) -> None:
    first = await given_leased(kept, key="k")
    await kept.send("next", key="k")

    await first.ack(result=1)

    assert await kept.result(first.id, wait=0) == 1
    assert (await take_one(kept)).body == "next"


async def test_the_same_ack_again_is_a_success_and_changes_nothing(kept: AsyncQueue) -> None:
    delivery = await given_leased(kept)
    await delivery.ack(result=1)

    await delivery.ack(result=2)

    assert await kept.result(delivery.id, wait=0) == 1


async def test_a_queue_that_keeps_nothing_ignores_a_result(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    await delivery.ack(result=object())

    assert await queue.get(delivery.id) is None


async def test_a_queue_that_keeps_nothing_is_not_asked(queue: AsyncQueue) -> None:
    with pytest.raises(UsageError, match=r"done=duly\.Keep"):
        await queue.result("id")


@pytest.mark.parametrize("wait", [-1, float("nan"), "1"])
async def test_a_bad_wait_is_refused(kept: AsyncQueue, wait: Any) -> None:
    with pytest.raises(UsageError):
        await kept.result("id", wait=wait)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "of type object cannot be kept"),
        (float("nan"), "no NaN"),
        ("x" * 1000, "1002 bytes is over max_message_bytes=1000"),
        (b"x" * 1001, "1001 bytes is over max_message_bytes=1000"),
        ("\ud800", "cannot be kept"),
    ],
    ids=["object", "nan", "large", "large bytes", "surrogate"],
)
async def test_a_result_that_cannot_be_kept_is_logged_and_the_message_is_finished(
    kept: AsyncQueue, value: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = await given_leased(kept)

    await delivery.ack(result=value)

    with pytest.raises(CodecError, match=why):
        await kept.result(delivery.id, wait=0)
    message = await seen(kept, delivery.id)
    assert (message.state, message.result) == ("done", None)
    assert [why in record.getMessage() for record in caplog.records if record.name == "duly"] == [True]


async def test_bytes_up_to_the_limit_are_kept(kept: AsyncQueue) -> None:
    delivery = await given_leased(kept)

    await delivery.ack(result=b"x" * 1000)

    assert await kept.result(delivery.id, wait=0) == b"x" * 1000


# Waiting


async def test_a_result_wakes_its_waiting_caller(kept: AsyncQueue, place: Place) -> None:
    delivery = await given_leased(kept)
    waiter = await given_waiting(place, kept, delivery.id)

    await delivery.ack(result="here")

    assert await waiter.result() == "here"


async def test_a_result_of_another_process_wakes(
    kept: AsyncQueue, other_app: AsyncDuly, queue_name: str, place: Place
) -> None:
    id_ = await kept.send("body")
    waiter = await given_waiting(place, kept, id_)

    await (await take_one(other_app.queue(queue_name, done=Keep(count=10)))).ack(result=1)

    assert await waiter.result() == 1


async def test_a_message_that_waits_is_waited_for(kept: AsyncQueue, place: Place) -> None:
    id_ = await kept.send("body", delay=0.3)
    waiter = await given_waiting(place, kept, id_)

    (delivery,) = await kept.receive(wait=10)
    await delivery.ack(result=1)

    assert await waiter.result() == 1


async def _cancel(queue: AsyncQueue, delivery: AsyncDelivery) -> None:
    assert await queue.cancel(delivery.id, running=True)


async def _reject(_: AsyncQueue, delivery: AsyncDelivery) -> None:
    await delivery.reject("no use")


async def _fail(queue: AsyncQueue, delivery: AsyncDelivery) -> None:
    await delivery.retry(0, error="boom")
    while delivery.attempt < 5:
        (delivery,) = await queue.receive(wait=10)
        await delivery.retry(0, error="boom")


@pytest.mark.parametrize(
    ("end", "text"),
    [(_cancel, "is unknown"), (_reject, "is dead: no use"), (_fail, "failed at attempt 5 of 5, last error: boom")],
    ids=["cancel", "reject", "last failure"],
)
async def test_an_end_without_a_result_wakes(
    kept: AsyncQueue, place: Place, end: Callable[[AsyncQueue, AsyncDelivery], Awaitable[None]], text: str
) -> None:
    delivery = await given_leased(kept)
    waiter = await given_waiting(place, kept, delivery.id)

    await end(kept, delivery)

    with pytest.raises(HandlerFailed, match=text) as failed:
        await waiter.result()
    assert delivery.id in str(failed.value)
    assert (failed.value.message is None) == (end is _cancel) == isinstance(failed.value, ResultGone)


async def test_a_dead_message_comes_with_the_error(kept: AsyncQueue) -> None:
    delivery = await given_leased(kept)
    await delivery.reject("no use")

    with pytest.raises(HandlerFailed) as failed:
        await kept.result(delivery.id)

    assert failed.value.message is not None
    assert (failed.value.message.state, failed.value.message.reason) == ("dead", "no use")


async def test_an_unknown_message_raises_at_once(kept: AsyncQueue) -> None:
    began = time.monotonic()

    with pytest.raises(ResultGone, match="never sent"):
        await kept.result("nobody", wait=60)

    assert time.monotonic() - began < SOON


async def test_a_trimmed_message_has_no_result(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=1))
    first, second = await given_leased(queue), await given_leased(queue)
    await first.ack(result=1)
    await second.ack(result=2)

    with pytest.raises(ResultGone, match="trimmed"):
        await queue.result(first.id, wait=0)
    assert await queue.result(second.id, wait=0) == 2


async def test_a_wait_that_ends_without_a_result_raises(kept: AsyncQueue, place: Place) -> None:
    id_ = await kept.send("body")

    for wait in (0, 0.2):
        with pytest.raises(NotFinished, match=id_) as late:
            await kept.result(id_, wait=wait)
        assert isinstance(late.value, TimeoutError)

    await until(lambda: place.blocked() == 0)


async def test_an_end_that_is_not_announced_is_found_by_polling(kept: AsyncQueue, place: Place) -> None:
    id_ = await kept.send("body")
    waiter = await given_waiting(place, kept, id_)

    await kept.purge()

    with pytest.raises(ResultGone, match="purged"):
        await waiter.result(within=5 + SOON)


async def test_a_message_that_is_retried_is_waited_for_until_its_end(kept: AsyncQueue, place: Place) -> None:
    delivery = await given_leased(kept)
    waiter = await given_waiting(place, kept, delivery.id)

    await delivery.retry(0, error="once")
    await (await take_one(kept)).recycle()
    await pause(0.2)
    assert waiter.is_running
    await (await take_one(kept)).ack(result="at last")

    assert await waiter.result() == "at last"


async def test_many_wait_for_one(kept: AsyncQueue, place: Place) -> None:
    delivery = await given_leased(kept)
    waiters = [InBackground(lambda: kept.result(delivery.id, 60)) for _ in range(5)]
    await until(lambda: place.blocked() == 1)
    await pause(0.2)

    await delivery.ack(result=1)

    assert [await waiter.result() for waiter in waiters] == [1] * 5


async def test_each_caller_gets_its_own_result_in_any_order(kept: AsyncQueue, place: Place) -> None:
    deliveries = [await given_leased(kept, n) for n in range(10)]
    waiters = [InBackground(lambda id_=each.id: kept.result(id_, 60)) for each in deliveries]  # type: ignore[misc]
    await until(lambda: place.blocked() >= 1)
    await pause(0.2)

    for n in (0, 9, 5, 4, 3, 8, 1, 2, 6, 7):
        await deliveries[n].ack(result=n)
        assert await waiters[n].result() == n

    assert all(not waiter.is_running for waiter in waiters)


async def test_a_jump_of_the_clock_does_not_end_a_wait(kept: AsyncQueue, clock: Place) -> None:
    id_ = await kept.send("body", delay=3600)
    waiter = await given_waiting(clock, kept, id_)

    clock.advance(3600)
    (delivery,) = await kept.receive(wait=10)
    await delivery.ack(result=1)

    assert await waiter.result(within=5 + SOON) == 1


async def test_nothing_is_left_without_a_waiting_caller(server: Place, app: AsyncDuly, queue_name: str) -> None:
    """I9."""
    queue = app.queue(queue_name, done=Keep(count=0))
    delivery = await given_leased(queue)
    waiter = await given_waiting(server, queue, delivery.id, wait=30)
    await delivery.ack(result=1)
    with pytest.raises(HandlerFailed):
        await waiter.result()

    left = {name: ttl for name, ttl in server.keys(queue_name).items() if not name.startswith("call:")}
    assert left.pop("meta") == -1
    assert 0 < left.pop("history") <= 8 * 86_400_000
    assert set(left) <= {"awaited", "ends"}
    assert all(0 < ttl <= 60_000 for ttl in left.values())


# Leaving in the middle


async def test_a_closed_app_ends_the_wait(backend: str, kept: AsyncQueue, queue_name: str, place: Place) -> None:
    id_ = await kept.send("body")
    app = AsyncDuly(backend)
    queue = app.queue(queue_name, done=Keep(count=10))
    waiters = [InBackground(lambda: queue.result(id_, 60)) for _ in range(3)]
    await until(lambda: place.blocked() == 1)
    await pause(0.1)

    await app.aclose()

    for waiter in waiters:
        with pytest.raises(UsageError, match="closed"):
            await waiter.result(within=5 + SOON)


# --- async only
async def test_a_cancelled_wait_leaves_the_reading_to_another(kept: AsyncQueue, place: Place) -> None:
    delivery = await given_leased(kept)
    first = await given_waiting(place, kept, delivery.id)
    second = InBackground(lambda: kept.result(delivery.id, 60))
    await pause(0.2)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first.result()
    await delivery.ack(result=1)  # perhaps before the other reads

    assert await second.result() == 1


async def test_a_cancelled_wait_leaves_no_connection_blocked(kept: AsyncQueue, place: Place) -> None:
    waiter = await given_waiting(place, kept, await kept.send("body"))

    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter.result()

    await until(lambda: place.blocked() == 0)


# --- end
