"""Locks: one holder at a time, and what happens to those who find it busy."""

import logging
import time
from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, Defer, Duly, LockBusy, LockLost, UsageError, Wait
from tests.client._async.given import SOON, InBackground, counted, given_leased, pause, seen, take_one, until
from tests.client.place import Place


@pytest.fixture
def name(queue_name: str) -> str:
    return f"lock of {queue_name} {{}}%"


async def hold(app: AsyncDuly, name: str, wait: float = 20, for_: float = 0.0) -> int:
    """Take a lock, hold it for a while, and give its fence."""
    async with app.lock(name, on_busy=Wait(wait)) as lock:
        await pause(for_)
        return lock.fence


async def given_waiting(place: Place, app: AsyncDuly, name: str, *waits: float) -> list[InBackground[int]]:
    """Let some wait for a lock that is held, until all of them block, in this order."""
    found: list[InBackground[int]] = []
    for wait in waits:
        found.append(InBackground(lambda wait=wait: hold(app, name, wait)))  # type: ignore[misc]
        # One that waits for a moment only has given up by then, if the machine is slow.
        await until(lambda: place.blocked() == len(found) or not all(each.is_running for each in found))
    return found


async def is_free(app: AsyncDuly, name: str) -> bool:
    """Return whether a lock can be taken now."""
    try:
        async with app.lock(name):
            return True
    except LockBusy:
        return False


# Holding


async def test_a_lock_keeps_others_out_until_its_block_ends(app: AsyncDuly, other_app: AsyncDuly, name: str) -> None:
    async with app.lock(name) as lock:
        assert lock.name == name
        assert not await is_free(other_app, name)
        assert not lock.lost

    assert await is_free(other_app, name)
    assert not lock.lost


async def test_a_block_that_raises_frees_its_lock_and_the_error_propagates(app: AsyncDuly, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with app.lock(name):
            1 / 0  # noqa: B018

    assert await is_free(app, name)


async def test_the_error_for_a_busy_lock_names_the_lock_its_holder_and_the_time(
    queue: AsyncQueue, app: AsyncDuly, other_app: AsyncDuly, name: str
) -> None:
    delivery = await given_leased(queue)
    async with delivery.lock(name, ttl=100):
        with pytest.raises(LockBusy) as caught:
            async with other_app.lock(name):
                pass

    assert repr(name) in str(caught.value)
    assert app._link.consumer in str(caught.value)
    assert delivery.id in caught.value.by
    assert caught.value.name == name
    assert 90 < caught.value.left <= 100


async def test_a_lock_is_not_re_entrant(app: AsyncDuly, name: str) -> None:
    lock = app.lock(name)
    async with lock:
        with pytest.raises(LockBusy):
            async with app.lock(name):
                pass
        with pytest.raises(LockBusy):
            async with lock:
                pass
        assert not await is_free(app, name)

    assert await is_free(app, name)


async def test_fences_grow_with_every_holding(app: AsyncDuly, other_app: AsyncDuly, name: str) -> None:
    fences = [await hold(each, name) for each in (app, other_app, app, app)]
    lock = app.lock(name)
    for _ in range(2):
        async with lock:
            fences.append(lock.fence)

    assert fences == sorted(set(fences))


async def test_locks_of_other_names_and_namespaces_are_others(app: AsyncDuly, backend: str, name: str) -> None:
    async with AsyncDuly(backend, namespace="elsewhere") as elsewhere, app.lock(name):
        assert await is_free(app, name + "}")
        assert await is_free(elsewhere, name)


async def test_a_lock_is_not_shown_as_a_queue(app: AsyncDuly, name: str) -> None:
    async with app.lock(name):
        assert [each for each in await app.queues() if "lock" in each and "~" in each] == []


# Losing


async def test_a_lock_that_expired_is_lost_and_reported_once(
    app: AsyncDuly, name: str, clock: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "duly"):
        async with app.lock(name, ttl=30) as lock:
            clock.advance(31)

    assert lock.lost
    (said,) = [record.message for record in caplog.records if repr(name) in record.message]
    assert said.startswith(f"lock {name!r} was lost: its ttl ran out")


async def test_a_lock_that_another_caller_took_is_not_freed_by_its_former_holder(
    app: AsyncDuly, other_app: AsyncDuly, name: str, clock: Place
) -> None:
    async with app.lock(name, ttl=30) as lost:
        clock.advance(31)
        async with other_app.lock(name, ttl=30) as taken:
            assert taken.fence > lost.fence
            await lost.__aexit__(None, None, None)
            assert lost.lost
            assert not await is_free(app, name)
    assert not taken.lost


async def test_a_holder_can_see_that_its_time_is_over(app: AsyncDuly, name: str) -> None:
    async with app.lock(name, ttl=0.1) as lock:
        await pause(0.2)
        assert lock.lost

    assert lock.lost
    assert await is_free(app, name)


async def test_an_extended_lock_is_held_for_longer(app: AsyncDuly, name: str, clock: Place) -> None:
    async with app.lock(name, ttl=30) as lock:
        clock.advance(20)
        await lock.extend(30)
        clock.advance(20)
        assert not await is_free(app, name)

    assert not lock.lost


@pytest.mark.parametrize("options", [{"ttl": 0}, {"on_busy": "wait"}])
def test_the_error_for_a_bad_option_of_a_lock_names_the_option(
    app: AsyncDuly, name: str, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=f"^lock '{name}': .*{next(iter(options))}"):
        app.lock(name, **options)


async def test_a_lock_that_ran_out_cannot_be_extended(app: AsyncDuly, name: str, clock: Place) -> None:
    async with app.lock(name, ttl=30) as lock:
        clock.advance(31)
        for _ in range(2):
            with pytest.raises(LockLost, match="lost"):
                await lock.extend(30)
        assert lock.lost
    with pytest.raises(UsageError, match="not held"):
        await lock.extend(30)


# Waiting


async def test_a_waiting_caller_has_the_lock_as_soon_as_it_is_free(
    app: AsyncDuly, other_app: AsyncDuly, name: str, place: Place
) -> None:
    async with app.lock(name) as lock:
        (waiting,) = await given_waiting(place, other_app, name, 20)

    assert await waiting.result() > lock.fence


async def test_waiting_callers_get_the_lock_one_after_the_other(
    app: AsyncDuly, other_app: AsyncDuly, name: str, place: Place
) -> None:
    async with app.lock(name):
        waiting = await given_waiting(place, other_app, name, 20, 20, 20)

    fences = [await each.result() for each in waiting]
    assert len(set(fences)) == 3


async def test_a_wait_for_a_lock_that_is_over_raises_lock_busy(app: AsyncDuly, name: str) -> None:
    async with app.lock(name):
        began = time.monotonic()
        with pytest.raises(LockBusy):
            await hold(app, name, wait=0.3)
        assert time.monotonic() - began >= 0.3


async def test_a_caller_that_waits_no_time_tries_once(app: AsyncDuly, name: str) -> None:
    assert await hold(app, name, wait=0)
    async with app.lock(name):
        with pytest.raises(LockBusy):
            await hold(app, name, wait=0)


async def test_a_waiting_caller_has_the_lock_of_a_holder_that_died(
    app: AsyncDuly, other_app: AsyncDuly, name: str
) -> None:
    dead = app.lock(name, ttl=0.5)
    await dead.__aenter__()

    assert await InBackground(lambda: hold(other_app, name)).result() > dead.fence


async def test_a_waiting_caller_notices_that_the_end_has_come_nearer(
    app: AsyncDuly, other_app: AsyncDuly, name: str, place: Place
) -> None:
    async with app.lock(name, ttl=600) as lock:
        (waiting,) = await given_waiting(place, other_app, name, 20)
        await lock.extend(0.2)
        assert await waiting.result() > lock.fence


async def test_a_caller_that_gives_up_takes_no_wake_up_from_the_others(
    app: AsyncDuly, other_app: AsyncDuly, name: str, place: Place
) -> None:
    async with app.lock(name):
        impatient, patient = await given_waiting(place, other_app, name, 0.4, 20)
        with pytest.raises(LockBusy):
            await impatient.result()

    assert await patient.result()


# --- async only
async def test_a_cancelled_caller_takes_no_wake_up_from_the_others(
    other_app: AsyncDuly, backend: str, name: str, place: Place
) -> None:
    """In asyncio only: a thread is not cancelled. It is woken and cancelled before it could do anything."""
    with Duly(backend) as app:  # its calls leave the others no time in between
        with app.lock(name):
            cancelled, patient = await given_waiting(place, other_app, name, 20, 20)
        cancelled.cancel()

    try:
        assert await patient.result()
    finally:
        await until(lambda: place.blocked() == 0)
        await pause(0.05)  # until the connections of the cancelled one are back


async def test_a_caller_that_is_cancelled_while_it_takes_the_lock_does_not_keep_it(app: AsyncDuly, name: str) -> None:
    """In asyncio only: a thread is not cancelled."""
    for number in range(10):
        taking = InBackground(lambda: hold(app, name, for_=60))
        await pause(0.0002 * number)
        taking.cancel()
        await until(lambda: not taking.is_running)  # noqa: B023

        assert await InBackground(lambda: hold(app, name, wait=SOON)).result()


# --- end
# Locks of messages


async def test_a_busy_lock_defers_the_message_by_default(
    queue: AsyncQueue, other_app: AsyncDuly, name: str, clock: Place
) -> None:
    """002-6 004-5."""
    delivery = await given_leased(queue)
    began = clock.now()
    async with other_app.lock(name, ttl=600), delivery, delivery.lock(name):
        pytest.fail("the lock is busy")

    message = await seen(queue, delivery.id)
    assert (message.defers, message.failures, message.attempt) == (1, 0, 1)
    assert message.due_at is not None
    assert began + 1 < message.due_at.timestamp() <= clock.now() + 2
    clock.advance(2.1)
    async with await take_one(queue) as again, again.lock(name):
        assert again.defers == 1
    assert await counted(queue) == {"sent": 1, "delivered": 2, "deferred": 1, "acked": 1}


async def test_a_busy_lock_may_be_an_error(queue: AsyncQueue, other_app: AsyncDuly, name: str) -> None:
    """002-4 004-5."""
    delivery = await given_leased(queue)
    async with other_app.lock(name):
        with pytest.raises(LockBusy):
            async with delivery, delivery.lock(name, on_busy="raise"):
                pytest.fail("the lock is busy")

    message = await seen(queue, delivery.id)
    assert (message.failures, message.defers) == (1, 0)
    assert message.errors[0].error.startswith(f"LockBusy: lock {name!r} is held by ")


async def test_a_busy_lock_may_be_waited_for(queue: AsyncQueue, other_app: AsyncDuly, name: str, place: Place) -> None:
    """002-5 004-5."""
    delivery = await given_leased(queue)

    async def work() -> None:
        async with delivery, delivery.lock(name, on_busy=Wait(20)):
            pass

    async with other_app.lock(name):
        working = InBackground(work)
        await until(lambda: place.blocked() == 1)
    await working.result()

    assert await counted(queue) == {"sent": 1, "delivered": 1, "acked": 1}


async def test_a_lock_of_the_app_may_defer_as_well(queue: AsyncQueue, app: AsyncDuly, name: str) -> None:
    delivery = await given_leased(queue)
    async with app.lock(name), delivery, app.lock(name, on_busy=Defer(60)):
        pytest.fail("the lock is busy")

    assert await counted(queue) == {"sent": 1, "delivered": 1, "deferred": 1, "delayed": 1}


async def test_a_defer_that_is_used_again_gathers_nothing(queue: AsyncQueue, app: AsyncDuly, name: str) -> None:
    shared = Defer(60)
    async with app.lock(name):
        for _ in range(2):
            with pytest.raises(Defer) as caught:
                async with app.lock(name, on_busy=shared):
                    pass
            assert caught.value is not shared
            assert (caught.value.delay, str(caught.value)) == (60, str(shared))

    assert shared.__traceback__ is None


# Deferring again and again


async def test_the_delays_of_a_defer_grow_up_to_their_bound(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("body")
    for delay in (10, 30, 60, 60):
        began = clock.now()
        async with await take_one(queue):
            raise Defer(10, factor=3, max=60)
        due_at = (await seen(queue, id_)).due_at
        assert due_at is not None
        assert began + delay <= due_at.timestamp() <= clock.now() + delay
        clock.advance(60.1)

    assert (await seen(queue, id_)).defers == 4


async def test_a_message_that_was_deferred_too_often_is_dead(
    queue: AsyncQueue, app: AsyncDuly, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """002-6."""
    id_ = await queue.send("body")
    async with app.lock(name):
        with caplog.at_level(logging.WARNING, "duly"):
            for _ in range(3):
                async with await take_one(queue) as delivery, delivery.lock(name, on_busy=Defer(0, limit=2)):
                    pytest.fail("the lock is busy")

    message = await seen(queue, id_)
    assert (message.state, message.defers, message.failures) == ("dead", 2, 0)
    assert message.reason == f"deferred 2 times: lock {name!r} was busy"
    assert f"is dead: rejected: deferred 2 times: lock {name!r} was busy" in caplog.text


async def test_a_defer_of_ones_own_making_is_read_with_care(queue: AsyncQueue) -> None:
    class Bare(Defer):
        def __init__(self) -> None:
            pass

    class Delayed(Bare):
        delay = 60.0

    async with await given_leased(queue, "delayed") as delayed:
        raise Delayed
    async with await given_leased(queue, "bare") as bare:
        raise Bare

    assert (await seen(queue, delayed.id)).defers == 1
    assert (await seen(queue, bare.id)).failures == 1


# Bad input


@pytest.mark.parametrize(
    ("arguments", "options", "complaint"),
    [
        (("",), {}, "empty"),
        ((None,), {}, "str"),
        (("a\nb",), {}, "control"),
        (("a\x85b",), {}, "control"),
        (("\ud800",), {}, "Unicode"),
        (("x" * 100_000,), {}, "bytes"),
        (("a",), {"ttl": 0}, "ttl"),
        (("a",), {"ttl": -1}, "ttl"),
        (("a",), {"ttl": float("nan")}, "ttl"),
        (("a",), {"ttl": "30"}, "ttl"),
        (("a",), {"on_busy": "wait"}, "on_busy"),
        (("a",), {"on_busy": None}, "on_busy"),
        (("a",), {"on_busy": 5}, "on_busy"),
    ],
    ids=repr,
)
async def test_a_lock_refuses(
    app: AsyncDuly, queue: AsyncQueue, arguments: tuple[Any, ...], options: dict[str, Any], complaint: str
) -> None:
    delivery = await given_leased(queue)
    for make in (app.lock, delivery.lock):
        with pytest.raises(UsageError, match=complaint):
            make(*arguments, **options)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Wait, {"seconds": -1}),
        (Wait, {"seconds": "5"}),
        (Wait, {"seconds": float("inf")}),
        (Defer, {"delay": 1, "factor": -1}),
        (Defer, {"delay": 1, "factor": float("nan")}),
        (Defer, {"delay": 1, "factor": "2"}),
        (Defer, {"delay": 1, "max": -1}),
        (Defer, {"delay": 1, "limit": 0}),
        (Defer, {"delay": 1, "limit": 1.5}),
    ],
    ids=repr,
)
def test_a_wait_or_a_defer_refuses(make: Any, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        make(**options)
