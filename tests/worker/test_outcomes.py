"""The outcome of a message for everything that its handler may do: the whole table, for handlers and workers."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

import duly
from duly import Defer, Keep, LeaseLost, Recycle, Reject, Retry, RetryIn
from duly._core import codec
from duly._core.keys import QueueKeys
from tests.worker.rig import (
    ALL_FLAVOURS,
    FLAVOURS,
    Bench,
    comes_to,
    delay_of,
    eventually,
    given_bench,
    raising,
    returning,
)

# Returning


class Falsy:
    def __repr__(self) -> str:
        return "Falsy()"

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        raise AssertionError("the return value of a handler must not be compared")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("flavour", ALL_FLAVOURS)
@pytest.mark.parametrize("value", [None, True, "done"])
async def test_a_handler_that_returns_has_done_its_work(
    backend: str, queue_name: str, flavour: str, value: Any
) -> None:
    async with given_bench(backend, queue_name, flavour) as bench:
        bench.define(returning(value))
        id_ = await bench.queue.send("body")

        async with bench.worker():
            await bench.comes_to(sent=1, delivered=1, acked=1)

        assert await bench.queue.get(id_) is None


@pytest.mark.parametrize(
    "value",
    [0, 0.0, "", b"", [], {}, (), Falsy(), ValueError("returned"), object, duly.UNCHANGED, math.nan, [False], Recycle],
    ids=repr,
)
async def test_anything_but_false_is_a_success(memory_bench: Bench, value: Any) -> None:
    memory_bench.define(returning(value))
    await memory_bench.queue.send("body")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, acked=1)


async def test_false_is_a_failure(bench: Bench) -> None:
    bench.define(returning(False), retry=Retry(first=60, jitter=0))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    message = await bench.seen(id_)
    assert (message.attempt, message.failures, delay_of(message)) == (2, 1, 60)
    assert "returned False" in message.errors[0].error


async def test_a_coroutine_that_a_def_returns_is_not_a_success(backend: str, queue_name: str) -> None:
    async with given_bench(backend, queue_name, "Duly, def") as bench:

        async def forgotten() -> None: ...

        bench.define(lambda body, d: forgotten())
        id_ = await bench.queue.send("body")

        async with bench.worker():
            await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

        assert "async def" in (await bench.seen(id_)).errors[0].error


async def test_recycle_puts_the_message_back_as_new_with_its_delay(bench: Bench) -> None:
    bench.define(returning(Recycle(60)))
    id_ = await bench.queue.send({"n": 1}, headers={"trace": "t"}, priority=3)
    before = await bench.seen(id_)

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, recycled=1, delayed=1)

    after = await bench.seen(id_)
    assert after.due_at is not None
    assert before.due_at is not None
    assert (after.due_at - before.due_at).total_seconds() >= 60
    assert (after.body, after.headers, after.priority) == ({"n": 1}, {"trace": "t"}, 3)
    assert (after.attempt, after.deliveries, after.errors) == (1, 0, ())


async def test_recycle_forgets_attempts_and_makes_no_second_copy(bench: Bench) -> None:
    attempts: list[int] = []

    def act(body: Any, d: Any) -> Any:
        attempts.append(d.attempt)
        if len(attempts) == 1:
            raise ValueError("once")
        return Recycle() if len(attempts) == 2 else None

    bench.define(act, retry=Retry(first=0))
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=3, retried=1, recycled=1, acked=1)

    assert attempts == [1, 2, 1]


# Raising


OUTCOMES = pytest.mark.parametrize(
    ("outcome", "counts", "fields"),
    [
        (Defer(60), {"deferred": 1, "delayed": 1}, {"defers": 1, "failures": 0, "attempt": 1}),
        (RetryIn(60), {"retried": 1, "delayed": 1}, {"defers": 0, "failures": 1, "attempt": 2}),
        (Reject("no use"), {"buried": 1, "dead": 1}, {"failures": 0, "rejects": 1, "reason": "no use"}),
    ],
    ids=["Defer", "RetryIn", "Reject"],
)


@OUTCOMES
@pytest.mark.parametrize("way", [raising, returning])
async def test_an_outcome_settles_raised_or_returned(
    bench: Bench, outcome: Any, way: Any, counts: dict[str, int], fields: dict[str, Any]
) -> None:
    bench.define(way(outcome))
    id_ = await bench.queue.send("body")
    before = await bench.seen(id_)

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, **counts)

    message = await bench.seen(id_)
    assert {name: getattr(message, name) for name in fields} == fields
    if "delayed" in counts:
        assert message.due_at is not None
        assert before.due_at is not None
        assert (message.due_at - before.due_at).total_seconds() >= 60


async def test_a_subclass_of_outcome_is_an_ordinary_error(bench: Bench) -> None:
    class Odd(duly.Outcome):
        pass

    bench.define(raising(Odd("hm")))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    assert (await bench.seen(id_)).errors[0].error == "Odd: hm"


async def test_retry_in_obeys_the_number_of_attempts(bench: Bench) -> None:
    bench.define(raising(RetryIn(60)), retry=Retry(attempts=1))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, buried=1, dead=1)

    assert (await bench.seen(id_)).reason == "failed"


async def test_defer_may_continue_beyond_all_attempts(bench: Bench) -> None:
    attempts: list[int] = []

    def act(body: Any, d: Any) -> None:
        attempts.append(d.attempt)
        if len(attempts) < 10:
            raise Defer(0)

    bench.define(act, retry=Retry(attempts=1))
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=10, deferred=9, acked=1)

    assert attempts == [1] * 10


async def test_an_error_is_a_failure_and_is_kept_with_its_traceback(bench: Bench) -> None:
    def act_that_breaks(body: Any, d: Any) -> None:
        raise ValueError("broken")

    bench.define(act_that_breaks, retry=Retry(first=60, jitter=0))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    message = await bench.seen(id_)
    (failure,) = message.errors
    assert (failure.error, failure.attempt, delay_of(message)) == ("ValueError: broken", 1, 60)
    assert "act_that_breaks" in failure.traceback
    assert failure.consumer


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def _nested() -> BaseException:
    return ExceptionGroup("several", [ValueError("a"), Reject("b")])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (KeyboardInterrupt, "KeyboardInterrupt"),
        (lambda: SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError, "CancelledError"),
        (GeneratorExit, "GeneratorExit"),
        (lambda: StopIteration("s"), "StopIteration"),
        (lambda: StopAsyncIteration("s"), "StopAsyncIteration"),
        (_nested, "several"),
        (Unprintable, "Unprintable"),
        (lambda: ValueError("x" * 100_000), "ValueError: xxx"),
        (lambda: ValueError("\ud800"), "ValueError: \\ud800"),
        (lambda: LeaseLost("of another"), "LeaseLost: of another"),
        (TimeoutError, "TimeoutError"),
        (MemoryError, "MemoryError"),
    ],
)
async def test_any_exception_is_a_failure_and_the_worker_continues(
    memory_bench: Bench, make: Callable[[], BaseException], text: str
) -> None:
    def act(body: Any, d: Any) -> None:
        if body == "bad":
            raise make()

    memory_bench.define(act, concurrency=1)
    ids = await memory_bench.queue.send_many(["bad", "good", "bad", "good"])

    async with memory_bench.worker() as worker:
        await memory_bench.comes_to(sent=4, delivered=4, retried=2, delayed=2, acked=2)

    assert text in (await memory_bench.seen(ids[0])).errors[0].error
    assert not worker.was_cut_off


# Attempts and delays


async def test_the_last_attempt_makes_it_dead_with_all_errors(bench: Bench) -> None:
    attempts: list[int] = []

    def act(body: Any, d: Any) -> None:
        attempts.append(d.attempt)
        raise ValueError(f"number {d.attempt}")

    bench.define(act, retry=Retry(attempts=3, first=0))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=3, retried=2, buried=1, dead=1)

    message = await bench.seen(id_)
    assert attempts == [1, 2, 3]
    assert message.reason == "failed at attempt 3 of 3"
    assert (message.state, message.failures, message.body) == ("dead", 3, "body")
    assert [(each.attempt, each.error) for each in message.errors] == [
        (number, f"ValueError: number {number}") for number in (1, 2, 3)
    ]


async def test_one_attempt_means_never_again(bench: Bench) -> None:
    bench.define(raising(ValueError("broken")), retry=Retry(attempts=1))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, buried=1, dead=1)

    message = await bench.seen(id_)
    assert (message.reason, message.failures, message.errors[0].error) == ("failed", 1, "ValueError: broken")


async def test_the_policy_of_a_message_overrules_that_of_the_queue(bench: Bench) -> None:
    bench.define(raising(ValueError("broken")), retry=Retry(attempts=1))
    id_ = await bench.queue.send("body", retry=Retry(attempts=2, first=77, jitter=0))

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)
        assert delay_of(await bench.seen(id_)) == 77
        await bench.queue.promote(id_)
        await bench.comes_to(sent=1, delivered=2, retried=1, buried=1, dead=1)


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(attempts=4, first=100, factor=2, jitter=0), [100, 200, 400]),
        (Retry(attempts=4, first=64, factor=0.5, jitter=0), [64, 32, 16]),
        (Retry(attempts=4, first=1000, factor=3, max=2000, jitter=0), [1000, 2000, 2000]),
        (Retry(delays=[120, 600, 3600]), [120, 600, 3600]),
        (Retry(attempts=5, delays=[120, 600]), [120, 600, 600, 600]),
        (Retry(attempts=2, delays=[120, 600]), [120]),
        (Retry(attempts=3, delay=lambda attempt: 100 * attempt), [100, 200]),
    ],
    ids=["growing", "decaying", "capped", "list", "list that repeats", "list that is cut", "callable"],
)
async def test_delays_are_those_of_the_policy(bench: Bench, retry: Retry, delays: list[float]) -> None:
    bench.define(raising(ValueError("broken")), retry=retry)
    id_ = await bench.queue.send("body")
    found = []

    async with bench.worker():
        for count in range(1, len(delays) + 1):
            await bench.comes_to(sent=1, delivered=count, retried=count, delayed=1)
            found.append(delay_of(await bench.seen(id_)))
            await bench.queue.promote(id_)
        await bench.comes_to(sent=1, delivered=len(delays) + 1, retried=len(delays), buried=1, dead=1)

    assert found == delays


async def test_jitter_spreads_delays_within_its_bounds(bench: Bench) -> None:
    bench.define(raising(ValueError("broken")), retry=Retry(first=1000, jitter=0.5, max=1200))
    ids = await bench.queue.send_many(range(30))

    async with bench.worker():
        await bench.comes_to(sent=30, delivered=30, retried=30, delayed=30)

    delays = [delay_of(await bench.seen(id_)) for id_ in ids]
    assert all(500 <= delay <= 1200 for delay in delays)
    assert len(set(delays)) > 10


@pytest.mark.parametrize("answer", [ZeroDivisionError("in the policy"), "soon", -1, math.nan, None, 1e12])
async def test_a_policy_that_fails_leaves_no_message_behind(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    def delay(attempt: int) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    bench = memory_bench
    bench.define(raising(ValueError("broken")), retry=Retry(attempts=2, delay=delay))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await eventually(lambda: _is_failed(bench, id_))
        await bench.queue.promote(id_)
        await bench.comes_to(sent=1, delivered=2, retried=1, buried=1, dead=1)

    assert "the retry policy of queue" in caplog.text
    assert [failure.error for failure in (await bench.seen(id_)).errors] == ["ValueError: broken"] * 2


async def test_an_outcome_that_cannot_be_read_is_a_failure_and_is_logged(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench, defer = memory_bench, Defer(5)
    defer.delay = -1
    bench.define(raising(defer), retry=Retry(first=60))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await eventually(lambda: _is_failed(bench, id_))

    assert "an outcome of type Defer cannot be read" in caplog.text


async def _is_failed(bench: Bench, id_: str) -> bool:
    return (await bench.seen(id_)).failures >= 1


async def test_a_stored_policy_that_makes_no_sense_does_not_stop_the_worker(memory_bench: Bench) -> None:
    """Another version, or another language, may have sent it."""
    bench = memory_bench
    bench.define(lambda body, d: body == "good", retry=Retry(first=60))
    id_ = await bench.queue.send("bad", retry=Retry(attempts=2))
    engine: Any = bench.aio._link.engine
    keys = QueueKeys("duly", bench.queue_name)
    state = engine._queue(keys).state
    record = codec.read_record(state.messages[id_.encode()].record)
    record.envelope.retry = (0, 1.0, 2.0, 60.0, 0.0, None)
    part = codec.written_part(record.envelope)
    state.damage(id_.encode(), codec.stamped(record.sent, record.due, part))

    async with bench.worker(grace=10) as worker:
        await bench.queue.send("good")
        await eventually(lambda: _has_acked(bench, 1))

    assert not worker.was_cut_off


async def _has_acked(bench: Bench, count: int) -> bool:
    return (await bench.queue.stats()).acked == count


# Time-outs


async def test_a_handler_that_exceeds_its_timeout_is_cancelled_and_fails(async_bench: Bench) -> None:
    ends: list[str] = []

    async def act(body: Any, d: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async_bench.define(act, timeout=0.05, retry=Retry(first=60))
    id_ = await async_bench.queue.send("body")

    async with async_bench.worker():
        await async_bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    (failure,) = (await async_bench.seen(id_)).errors
    assert failure.error == "TimeoutError: the handler took longer than its timeout of 0.05 s"
    assert ends == ["cancelled"]


async def test_a_timeout_inside_the_handler_is_not_that_of_the_worker(async_bench: Bench) -> None:
    async def act(body: Any, d: Any) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    async_bench.define(act, timeout=60, retry=Retry(first=60))
    id_ = await async_bench.queue.send("body")

    async with async_bench.worker():
        await async_bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    (failure,) = (await async_bench.seen(id_)).errors
    assert failure.error.startswith("TimeoutError")
    assert "handler took longer" not in failure.error


async def test_a_handler_in_time_is_none_the_wiser(async_bench: Bench) -> None:
    async_bench.define(returning(None), timeout=60, concurrency=1)
    await async_bench.queue.send_many(range(20))

    async with async_bench.worker():
        await async_bench.comes_to(sent=20, delivered=20, acked=20)


# Kept messages, expiry, order


async def test_finished_messages_are_kept_where_done_is_kept(bench: Bench) -> None:
    bench.define(returning("result"), done=Keep(count=2), concurrency=1)
    ids = await bench.queue.send_many(["a", "b", "c"])

    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, acked=3, done=2, done_trimmed=1)

    kept = await bench.queue.list("done")
    assert [(message.id, message.body, message.state) for message in kept] == [
        (ids[1], "b", "done"),
        (ids[2], "c", "done"),
    ]


async def test_an_expired_message_is_not_handled(bench: Bench) -> None:
    handled: list[Any] = []
    bench.define(lambda body, d: handled.append(body))
    await bench.queue.send("old", ttl=0.001)
    await asyncio.sleep(0.05)
    await bench.queue.send("fresh", ttl=600)

    async with bench.worker():
        await bench.comes_to(sent=2, expired=1, delivered=1, acked=1)

    assert handled == ["fresh"]


async def test_higher_priorities_come_first(bench: Bench) -> None:
    handled: list[Any] = []
    bench.define(lambda body, d: handled.append(body), concurrency=1)
    await bench.queue.send_many([duly.Send(n, priority=n) for n in (0, 5, 9, 1, 5)])

    async with bench.worker():
        await bench.comes_to(sent=5, delivered=5, acked=5)

    assert handled == [9, 5, 5, 1, 0]


@pytest.mark.parametrize("is_told", ["handler", "worker"])
async def test_one_worker_with_one_handler_keeps_the_order_of_sends(bench: Bench, is_told: str) -> None:
    handled: list[Any] = []
    bench.define(lambda body, d: handled.append(body), concurrency=1 if is_told == "handler" else 16)
    await bench.queue.send_many(range(100))

    async with bench.worker(concurrency=1 if is_told == "worker" else None):
        for n in range(100, 200):
            await bench.queue.send(n)
        await bench.comes_to(sent=200, delivered=200, acked=200)

    assert handled == list(range(200))


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_delayed_message_is_handled_when_it_is_due(backend: str, queue_name: str, flavour: str) -> None:
    handled: list[tuple[Any, bool]] = []
    async with given_bench(backend, queue_name, flavour) as bench:
        bench.define(lambda body, d: handled.append((body, d.due_at > d.sent_at)), concurrency=1)

        async with bench.worker():
            await bench.queue.send_many([duly.Send("later", delay=0.1), "now"])
            await bench.comes_to(sent=2, delivered=2, acked=2)

    assert handled == [("now", False), ("later", True)]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_concurrency_limits_the_handlers_of_all_queues(
    async_bench: Bench, queue_name: str, concurrency: int
) -> None:
    running, most = 0, 0

    async def act(body: Any, d: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(body % 3 / 1000)
        running -= 1

    names = [f"{n}-{queue_name}"[:120] for n in range(3)]
    for name in names:
        async_bench.define(act, queue=name)
        await async_bench.aio.queue(name).send_many(range(200))

    async with async_bench.worker(concurrency=concurrency):
        for name in names:
            await comes_to(async_bench.aio.queue(name), sent=200, delivered=200, acked=200)

    assert 1 <= most <= concurrency
