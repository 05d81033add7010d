"""Retrying: when a failed message comes back, and when it does not."""

from datetime import timedelta
from typing import Any

import pytest

from duly import AsyncDelivery, AsyncDuly, AsyncQueue, Message, Retry, Send, UsageError
from tests.client._async.given import check_accounts, given_leased, seen, take, take_one
from tests.client.place import Place


def delay_of(message: Message) -> float:
    """Return how long the last failure delayed a message, by the clock of the queue."""
    assert message.due_at is not None
    return (message.due_at - message.errors[-1].at).total_seconds()


async def delays_of(queue: AsyncQueue, clock: Place, times: int, **options: Any) -> list[int]:
    """Let a message fail, and return how many whole seconds it waits each time."""
    delivery = await given_leased(queue, **options)
    waits = []
    for _ in range(times):
        await delivery.retry(error="boom")
        waits.append(round(delay_of(await seen(queue, delivery.id))))
        clock.advance(waits[-1] + 1)
        delivery = await take_one(queue)
    return waits


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Retry(first=10, factor=2, jitter=0, attempts=9), [10, 20, 40, 80]),
        (Retry(first=640, factor=0.5, jitter=0), [640, 320, 160, 80]),
        (Retry(first=10, factor=10, max=500, jitter=0), [10, 100, 500, 500]),
        (Retry(first=timedelta(minutes=1), factor=1, jitter=0), [60, 60, 60, 60]),
        (Retry(delays=[120, 600, 600, 3600]), [120, 600, 600, 3600]),
        (Retry(delays=[20, timedelta(seconds=30)], attempts=9), [20, 30, 30, 30]),
        (Retry(delay=lambda attempt: attempt * 100), [100, 200, 300, 400]),
        (Retry(delay=lambda attempt: timedelta(minutes=attempt)), [60, 120, 180, 240]),
    ],
    ids=["growth", "decay", "longest", "constant", "list", "last of list repeats", "callable", "timedelta"],
)
async def test_a_policy_sets_when_a_message_is_retried(
    app: AsyncDuly, queue_name: str, clock: Place, policy: Retry, delays: list[int]
) -> None:
    """004-11."""
    queue = app.queue(queue_name, retry=policy)

    assert await delays_of(queue, clock, 4) == delays


async def test_jitter_spreads_the_default_delay(queue: AsyncQueue) -> None:
    ids = await queue.send_many(range(30))
    for delivery in await take(queue):
        await delivery.retry(error="boom")

    delays = [delay_of(await seen(queue, id_)) for id_ in ids]

    assert len(set(delays)) > 10
    assert all(0 < each <= 1.1 for each in delays)


async def test_a_message_brings_its_own_policy(queue: AsyncQueue, clock: Place) -> None:
    """003-6."""
    own = Retry(delays=[50, 70], attempts=4)

    assert await delays_of(queue, clock, 3, retry=own) == [50, 70, 70]


async def test_a_policy_of_one_message_is_not_that_of_another(app: AsyncDuly, queue_name: str) -> None:
    """003-6."""
    queue = app.queue(queue_name, retry=Retry(attempts=5))
    fragile, common = await given_leased(queue, retry=Retry(attempts=1)), await given_leased(queue)

    await fragile.retry()
    await common.retry()

    assert (await seen(queue, fragile.id)).state == "dead"
    assert (await seen(queue, common.id)).state == "delayed"


async def test_options_of_one_message_reach_no_other_of_the_same_call(
    app: AsyncDuly, queue_name: str, clock: Place
) -> None:
    """003-6: messages of one call, one claim and one settle have their own retries and ttl."""
    queue = app.queue(queue_name, retry=Retry(delays=[5]))
    options: list[dict[str, Any]] = [{}, {"retry": Retry(attempts=1)}, {"ttl": 3}, {}, {"retry": Retry(delays=[50])}]
    sent = await queue.send_many([Send(n, **each) for n, each in enumerate(options)])
    for delivery in await queue.receive(10, wait=0):
        await delivery.retry()
    clock.advance(6)

    assert [delivery.body for delivery in await take(queue)] == [0, 3]
    messages = [await queue.get(id_) for id_ in sent]
    states = [None if message is None else message.state for message in messages]
    assert states == ["leased", "dead", None, "leased", "delayed"]
    assert (await queue.stats()).expired == 1


async def test_the_policy_is_that_of_the_consumer(app: AsyncDuly, queue_name: str) -> None:
    await app.queue(queue_name, retry=Retry(attempts=1)).send("body")

    delivery = await take_one(app.queue(queue_name, retry=Retry(attempts=5)))
    await delivery.retry(delay=0)

    assert (await app.queue(queue_name).stats()).ready == 1


@pytest.mark.parametrize("delay", [0, 20, timedelta(seconds=20)])
async def test_a_delay_given_takes_precedence(queue: AsyncQueue, clock: Place, delay: Any) -> None:
    """I3, 003-16."""
    delivery = await given_leased(queue)

    await delivery.retry(delay=delay)
    clock.advance(20.1 if delay else 0)

    assert (await take_one(queue)).failures == 1


async def fail_until_dead(queue: AsyncQueue, **options: Any) -> AsyncDelivery:
    """Let a message fail until it is dead, and give its last delivery."""
    delivery = await given_leased(queue, **options)
    while True:
        await delivery.retry(delay=0, error=ValueError(f"trouble {delivery.attempt}"))
        taken = await take(queue)
        if not taken:
            return delivery
        (delivery,) = taken


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_at_its_last_attempt_a_failed_message_is_dead(app: AsyncDuly, queue_name: str, attempts: int) -> None:
    """I8, 003-1 003-13."""
    queue = app.queue(queue_name, retry=Retry(attempts=attempts))

    last = await fail_until_dead(queue)

    message = await seen(queue, last.id)
    assert (message.state, last.attempt, message.failures) == ("dead", attempts, attempts)
    assert message.reason is not None
    assert "failed" in message.reason
    await check_accounts(queue)


async def test_a_list_of_delays_has_one_attempt_more_than_delays(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, retry=Retry(delays=[0, 0]))

    assert (await fail_until_dead(queue)).attempt == 3


async def test_a_dead_message_keeps_its_errors_and_tracebacks(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, retry=Retry(attempts=3))

    last = await fail_until_dead(queue)

    errors = (await seen(queue, last.id)).errors
    assert [(each.attempt, each.error) for each in errors] == [(n, f"ValueError: trouble {n}") for n in (1, 2, 3)]
    assert all("ValueError: trouble" in each.traceback for each in errors)
    assert all(each.consumer for each in errors)


async def test_the_last_five_errors_are_kept(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, retry=Retry(attempts=8))

    last = await fail_until_dead(queue)

    assert [each.attempt for each in (await seen(queue, last.id)).errors] == [4, 5, 6, 7, 8]


async def test_a_waiting_retry_shows_its_error(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    await delivery.retry(error="no answer")

    (error,) = (await seen(queue, delivery.id)).errors
    assert (error.error, error.traceback) == ("no answer", "")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [
        "",
        "中文",
        "x" * 100_000,
        "bad \ud800 text",
        ValueError("bad \ud800 text"),
        ValueError("x" * 100_000),
        Unspeakable(),
    ],
    ids=lambda error: (
        f"{type(error).__name__} {str(error)[:12]!a}" if not isinstance(error, Unspeakable) else "unspeakable"
    ),
)
async def test_any_error_can_be_kept(queue: AsyncQueue, error: Any) -> None:
    delivery = await given_leased(queue)

    await delivery.retry(delay=0, error=error)

    errors = (await seen(queue, delivery.id)).errors
    assert all(len(each.error) < 2000 and len(each.traceback) < 20_000 for each in errors)
    assert (await queue.stats()).ready == 1


async def test_crashes_do_not_exhaust_the_attempts_but_a_failure_after_them_does(
    app: AsyncDuly, queue_name: str, clock: Place
) -> None:
    """I8."""
    queue = app.queue(queue_name, retry=Retry(attempts=2), crash_limit=9, lease=5)
    delivery = await given_leased(queue)
    for _ in range(3):
        clock.advance(6)
        delivery = await take_one(queue)

    await delivery.retry()

    message = await seen(queue, delivery.id)
    assert (message.state, message.crashes, message.failures) == ("dead", 3, 1)


async def test_a_policy_is_called_with_the_attempt_which_counts_crashes_as_well(
    app: AsyncDuly, queue_name: str, clock: Place
) -> None:
    queue = app.queue(queue_name, retry=Retry(delay=lambda attempt: attempt * 100), lease=5)
    await given_leased(queue)
    clock.advance(6)
    delivery = await take_one(queue)

    await delivery.retry(error="boom")

    assert round(delay_of(await seen(queue, delivery.id))) == 200


@pytest.mark.parametrize("answer", [-1, float("nan"), "soon"])
async def test_a_user_policy_that_returns_nonsense_is_named(app: AsyncDuly, queue_name: str, answer: Any) -> None:
    queue = app.queue(queue_name, retry=Retry(delay=lambda attempt: answer))
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match=r"Retry\.delay"):
        await delivery.retry()

    await delivery.retry(delay=0)
