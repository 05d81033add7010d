"""What becomes of a message by what its handler does: the whole table of handlers and workers."""

import asyncio
import contextlib
import contextvars
import math
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import anyio
import msgspec
import pydantic
import pytest

import duly
from duly import Defer, Keep, LeaseLost, Message, Recycle, Reject, Retry, RetryIn
from duly._core import codec
from duly._core.keys import QueueKeys
from tests.worker.rig import ALL_FLAVOURS, FLAVOURS, SOON, Bench, comes_to, eventually, given_bench

Act = Callable[[Any, Any], Any]


@pytest.fixture(params=FLAVOURS)
async def bench(request: pytest.FixtureRequest, backend: str, queue_name: str) -> AsyncIterator[Bench]:
    async with given_bench(backend, queue_name, request.param) as bench:
        yield bench


@pytest.fixture
async def async_bench(backend: str, queue_name: str) -> AsyncIterator[Bench]:
    """For what only an `async def` can do."""
    async with given_bench(backend, queue_name, "AsyncDuly, async def") as bench:
        yield bench


@pytest.fixture(params=ALL_FLAVOURS)
async def memory_bench(request: pytest.FixtureRequest, queue_name: str) -> AsyncIterator[Bench]:
    """For what has nothing to do with the server."""
    async with given_bench("memory://", queue_name, request.param) as bench:
        yield bench


def returning(value: Any) -> Act:
    return lambda body, d: value


def raising(error: BaseException) -> Act:
    def act(body: Any, d: Any) -> None:
        raise error

    return act


def delay_of(message: Message) -> float:
    """Tell for how long the last failure put a message off."""
    assert message.due_at is not None
    return (message.due_at - message.errors[-1].at).total_seconds()


# Returning


class Falsy:
    def __repr__(self) -> str:
        return "Falsy()"

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody should compare what a handler returned")

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


async def test_a_coroutine_that_a_def_returns_is_no_success(backend: str, queue_name: str) -> None:
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


async def test_an_outcome_of_the_users_own_is_an_error_like_any_other(bench: Bench) -> None:
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


async def test_defer_may_go_on_beyond_all_attempts(bench: Bench) -> None:
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
async def test_whatever_is_raised_is_a_failure_and_the_worker_goes_on(
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


# How often, and when again


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
    assert message.reason == "failed 3 times"
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

    async with bench.worker(grace=0.1) as worker:
        await bench.queue.send("good")
        await eventually(lambda: _has_acked(bench, 1))

    assert not worker.was_cut_off


async def _has_acked(bench: Bench, count: int) -> bool:
    return (await bench.queue.stats()).acked == count


# Settled in the handler


SETTLES: dict[str, tuple[tuple[Any, ...], dict[str, int]]] = {
    "ack": ((), {"acked": 1}),
    "retry": ((60,), {"retried": 1, "delayed": 1}),
    "defer": ((60,), {"deferred": 1, "delayed": 1}),
    "recycle": ((60,), {"recycled": 1, "delayed": 1}),
    "reject": (("no use",), {"buried": 1, "dead": 1}),
}
ENDS: dict[str, Any] = {
    "None": None,
    "False": False,
    "Recycle": Recycle(5),
    "error": ValueError("broken"),
    "Reject": Reject("other"),
    "Defer": Defer(5),
}


def ended(how: str) -> Any:
    end = ENDS[how]
    if isinstance(end, Exception):
        raise end
    return end


def settling(bench: Bench, verb: str, args: tuple[Any, ...], how: str = "None", **options: Any) -> Act:
    """Make a handler that settles, and then ends in some way."""

    def act(body: Any, d: duly.Delivery) -> Any:
        getattr(d, verb)(*args, **options)
        return ended(how)

    async def act_async(body: Any, d: duly.AsyncDelivery) -> Any:
        await getattr(d, verb)(*args, **options)
        return ended(how)

    return act_async if bench.is_async else act


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("verb", SETTLES)
async def test_what_the_handler_has_settled_stays_whatever_it_does_next(
    memory_bench: Bench, verb: str, how: str
) -> None:
    await _check_settled_inside(memory_bench, verb, how)


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_handler_may_settle_itself(bench: Bench, verb: str) -> None:
    await _check_settled_inside(bench, verb, "error")


async def _check_settled_inside(bench: Bench, verb: str, how: str) -> None:
    args, counts = SETTLES[verb]
    bench.define(settling(bench, verb, args, how))
    await bench.queue.send("body")
    await bench.queue.send("another")

    async with bench.worker() as worker:
        await bench.comes_to(sent=2, delivered=2, **{name: 2 * count for name, count in counts.items()})
        await eventually(lambda: not any(station.held or station.busy for station in worker._stations))

    assert not worker.was_cut_off


async def test_retry_in_the_handler_goes_by_the_policy_and_keeps_the_error(bench: Bench) -> None:
    bench.define(settling(bench, "retry", (), error="the shop is closed"), retry=Retry(attempts=2, first=60, jitter=0))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)
        message = await bench.seen(id_)
        assert (delay_of(message), message.errors[0].error) == (60, "the shop is closed")
        await bench.queue.promote(id_)
        await bench.comes_to(sent=1, delivered=2, retried=1, buried=1, dead=1)

    assert (await bench.seen(id_)).reason == "failed 2 times"


async def test_release_in_the_handler_gives_the_message_back_at_once(bench: Bench) -> None:
    seen: list[tuple[int, int]] = []

    def act(body: Any, d: duly.Delivery) -> None:
        seen.append((d.attempt, d.deliveries))
        if len(seen) < 3:
            d.release()

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        seen.append((d.attempt, d.deliveries))
        if len(seen) < 3:
            await d.release()

    bench.define(act_async if bench.is_async else act)
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=3, released=2, acked=1)

    assert seen == [(1, 1), (1, 2), (1, 3)]


async def test_recycle_in_the_handler_may_change_the_body(bench: Bench) -> None:
    seen: list[tuple[Any, int]] = []

    def act(body: Any, d: duly.Delivery) -> None:
        seen.append((body, d.attempt))
        if body["step"] < 3:
            d.recycle(body={"step": body["step"] + 1})

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        seen.append((body, d.attempt))
        if body["step"] < 3:
            await d.recycle(body={"step": body["step"] + 1})

    bench.define(act_async if bench.is_async else act)
    await bench.queue.send({"step": 1})

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=3, recycled=2, acked=1)

    assert seen == [({"step": step}, 1) for step in (1, 2, 3)]


async def test_extend_settles_nothing(bench: Bench) -> None:
    bench.define(settling(bench, "extend", (300,)))
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)


@pytest.mark.parametrize(
    ("how", "counts"),
    [
        ("None", {"acked": 1}),
        ("error", {"retried": 1, "delayed": 1}),
        ("Reject", {"buried": 1, "dead": 1}),
        ("Defer", {"deferred": 1}),
    ],
)
async def test_with_d_settles_once(bench: Bench, how: str, counts: dict[str, int]) -> None:
    ran: list[Any] = []

    def act(body: Any, d: duly.Delivery) -> None:
        ran.append(body)
        with d:
            ended("None" if len(ran) > 1 else how)

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        ran.append(body)
        async with d:
            ended("None" if len(ran) > 1 else how)

    bench.define(act_async if bench.is_async else act, retry=Retry(first=60))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        if how == "Defer":
            await eventually(lambda: _is_deferred(bench, id_))
            await bench.queue.promote(id_)
            await bench.comes_to(sent=1, delivered=2, deferred=1, acked=1)
        else:
            await bench.comes_to(sent=1, delivered=1, **counts)

    assert ran == ["body"] * (2 if how == "Defer" else 1)


async def _is_deferred(bench: Bench, id_: str) -> bool:
    return (await bench.seen(id_)).defers == 1


async def test_a_message_that_was_cancelled_meanwhile_is_not_settled(bench: Bench) -> None:
    """The handler learns of it when it settles; returning is no error."""
    cancelled = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def cancel(d: Any) -> None:
        await bench.queue.cancel(d.id)
        cancelled.set()

    def act(body: Any, d: Any) -> Any:
        if bench.is_async:
            return cancel(d)
        asyncio.run_coroutine_threadsafe(cancel(d), loop).result()
        return None

    bench.define(act)
    await bench.queue.send("body")

    async with bench.worker() as worker:
        await cancelled.wait()
        await bench.comes_to(sent=1, delivered=1, cancelled=1)
        await eventually(lambda: not any(station.busy for station in worker._stations))


# Bodies


@dataclass
class Order:
    number: int


class Point(msgspec.Struct):
    x: int


class Customer(pydantic.BaseModel):
    name: str


class Line(TypedDict):
    text: str


class Pair(NamedTuple):
    left: int
    right: int


BODIES: list[tuple[Any, Any, Any]] = [
    (Order, {"number": 1}, Order(1)),
    (Order, Order(1), Order(1)),
    (Point, Point(3), Point(3)),
    (Customer, Customer(name="Ann"), Customer(name="Ann")),
    (Customer, {"name": "Ann"}, Customer(name="Ann")),
    (list[Customer], [{"name": "Ann"}], [Customer(name="Ann")]),
    (Line, {"text": "t"}, {"text": "t"}),
    (Pair, Pair(1, 2), Pair(1, 2)),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (bytes, b"\x00\xff", b"\x00\xff"),
    (bytes, b"", b""),
    (str, "", ""),
    (int, 0, 0),
    (type(None), None, None),
    (int | None, None, None),
    (int | str, "x", "x"),
    (Order | None, {"number": 2}, Order(2)),
    (Order | bytes, b"raw", b"raw"),
    (bytes | None, None, None),
    (None, {"a": [1, None]}, {"a": [1, None]}),
    (None, None, None),
    (None, "", ""),
    (None, b"", b""),
    (Any, [1], [1]),
]


@pytest.mark.parametrize(("kind", "sent", "got"), BODIES)
async def test_bodies_arrive_as_the_annotated_type(memory_bench: Bench, kind: Any, sent: Any, got: Any) -> None:
    bodies: list[Any] = []
    memory_bench.define(lambda body, d: bodies.append(body), body=kind)
    await memory_bench.queue.send(sent)

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, acked=1)

    assert bodies == [got]
    assert type(bodies[0]) is type(got)


async def test_a_sender_without_a_type_and_a_worker_with_one(bench: Bench) -> None:
    bodies: list[Any] = []
    bench.define(lambda body, d: bodies.append((body, d.body, d.raw)), type=Order)
    await bench.queue.send({"number": 7})

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)

    assert bodies == [(Order(7), Order(7), b'{"number":7}')]


@pytest.mark.parametrize(
    ("kind", "sent", "raw"),
    [
        (Order, {"number": "one"}, b'{"number":"one"}'),
        (Customer, {"name": 1}, b'{"name":1}'),
        (Point, b"\x80raw", b"\x80raw"),
        (bytes, "text", b'"text"'),
        (int, None, b"null"),
        (str, "", b'""'),
    ],
)
async def test_a_body_that_does_not_decode_is_dead_at_once(bench: Bench, kind: Any, sent: Any, raw: bytes) -> None:
    if sent == "":
        kind = Order  # the empty string is a body like any other
    called: list[Any] = []
    bench.define(lambda body, d: called.append(body), body=kind)
    good = {Order: {"number": 1}, Customer: {"name": "A"}, Point: {"x": 1}, bytes: b"b", int: 1}[kind]
    id_ = await bench.queue.send(sent)
    await bench.queue.send(good)

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, buried=1, dead=1, acked=1)

    message = await bench.seen(id_)
    assert (message.state, message.reason, message.raw) == ("dead", "decode", raw)
    assert (message.failures, message.attempt) == (0, 1)
    assert message.errors[-1].error
    assert len(called) == 1


async def test_a_type_that_raises_whatever_it_likes_is_no_problem(memory_bench: Bench) -> None:
    @dataclass
    class Picky:
        number: int

        def __post_init__(self) -> None:
            raise LookupError("not this one")

    memory_bench.define(returning(None), body=Picky)
    id_ = await memory_bench.queue.send({"number": 1})

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, buried=1, dead=1)

    assert (await memory_bench.seen(id_)).reason == "decode"


async def test_a_damaged_record_is_dead_and_the_worker_goes_on(memory_bench: Bench) -> None:
    bench = memory_bench
    bench.define(returning(None))
    id_ = await bench.queue.send("body")
    engine: Any = bench.aio._link.engine
    keys = QueueKeys("duly", bench.queue_name)
    record = engine._queue(keys).state.messages[id_.encode()].record
    engine.damage(keys, id_, record[:-3] + b"\xc1\xc1\xc1")
    await bench.queue.send("good")

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, buried=1, dead=1, acked=1)

    assert (await bench.seen(id_)).reason == "decode"


# Time-outs


async def test_a_handler_that_takes_too_long_is_cancelled_and_has_failed(async_bench: Bench) -> None:
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


async def test_a_timeout_of_the_handlers_own_is_its_own(async_bench: Bench) -> None:
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


# What a handler may rely on


LEFT = contextvars.ContextVar("LEFT", default="nothing")


async def test_context_variables_do_not_go_from_one_message_to_the_next(memory_bench: Bench) -> None:
    seen: list[str] = []

    def act(body: Any, d: Any) -> None:
        seen.append(LEFT.get())
        LEFT.set(str(body))

    memory_bench.define(act, concurrency=1)
    await memory_bench.queue.send_many(range(10))

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=10, delivered=10, acked=10)

    assert seen == ["nothing"] * 10


async def test_context_variables_last_as_long_as_the_handler(async_bench: Bench) -> None:
    seen: list[tuple[str, str, str]] = []

    async def child() -> str:
        return LEFT.get()

    async def act(body: Any, d: Any) -> None:
        LEFT.set(str(body))
        await asyncio.sleep(0.001)
        seen.append((LEFT.get(), await asyncio.create_task(child()), await asyncio.to_thread(LEFT.get)))

    async_bench.define(act)
    await async_bench.queue.send_many(range(10))

    async with async_bench.worker():
        await async_bench.comes_to(sent=10, delivered=10, acked=10)

    assert sorted(seen) == [(str(n), str(n), str(n)) for n in range(10)]


async def test_context_variables_of_the_worker_are_seen(memory_bench: Bench) -> None:
    seen: list[str] = []
    memory_bench.define(lambda body, d: seen.append(LEFT.get()))
    await memory_bench.queue.send("body")
    token = LEFT.set("by the program")

    try:
        async with memory_bench.worker():
            await memory_bench.comes_to(sent=1, delivered=1, acked=1)
    finally:
        LEFT.reset(token)

    assert seen == ["by the program"]


async def _uses_timeout() -> str:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    async with asyncio.timeout(60):
        await asyncio.sleep(0)
    return "timeout"


async def _uses_wait_for() -> str:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.001)
    return await asyncio.wait_for(asyncio.sleep(0, "wait_for"), 60)


async def _uses_task_group() -> str:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(0.001, n)) for n in range(3)]
    assert [task.result() for task in tasks] == [0, 1, 2]
    return "task group"


async def _uses_failing_task_group() -> str:
    async def fail() -> None:
        raise LookupError("child")

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await all_of_them()
    return "failing task group"


async def _uses_shield() -> str:
    inner = asyncio.ensure_future(asyncio.sleep(0.005, "shield"))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(inner), 0.001)
    return await inner


async def _uses_current_task() -> str:
    task = asyncio.current_task()
    assert task is not None
    await asyncio.sleep(0)
    assert asyncio.current_task() is task
    assert task in asyncio.all_tasks()
    assert task.cancelling() == 0
    return "current task"


async def _uses_async_generator() -> str:
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    assert [number async for number in numbers()] == [0, 1, 2]
    return "async generator"


async def _uses_anyio() -> str:
    found: list[int] = []

    async def child(number: int) -> None:
        await anyio.sleep(0.001)
        found.append(number)

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(child, number)
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.001):
            await anyio.sleep_forever()
    assert sorted(found) == [0, 1, 2]
    return "anyio"


async def _uses_cancelled_scope() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        group.cancel_scope.cancel()
    return "cancelled scope"


USES = (
    _uses_timeout, _uses_wait_for, _uses_task_group, _uses_failing_task_group, _uses_shield, _uses_current_task,
    _uses_async_generator, _uses_anyio, _uses_cancelled_scope,
)  # fmt: skip


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_a_handler_may_use_all_of_asyncio(async_bench: Bench, concurrency: int) -> None:
    """Each message after the others in the same slot, so that what one leaves behind would hurt the next."""
    results: list[str] = []

    async def act(body: int, d: Any) -> None:
        results.append(await USES[body]())

    async_bench.define(act, concurrency=concurrency, retry=Retry(attempts=1))
    await async_bench.queue.send_many([*range(len(USES)), *reversed(range(len(USES)))])

    async with async_bench.worker():
        await async_bench.comes_to(sent=2 * len(USES), delivered=2 * len(USES), acked=2 * len(USES))

    assert len(results) == 2 * len(USES)


async def test_a_task_that_the_handler_leaves_behind_lives_on(async_bench: Bench) -> None:
    tasks: list[asyncio.Task[str]] = []

    async def act(body: Any, d: Any) -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(0.01, "done")))

    async_bench.define(act, concurrency=1)
    await async_bench.queue.send_many(["a", "b"])

    async with async_bench.worker():
        await async_bench.comes_to(sent=2, delivered=2, acked=2)
        assert await asyncio.gather(*tasks) == ["done", "done"]


async def _awaits_something_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def _cancels_itself_and_pauses() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _cancels_itself_and_goes_on() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await _cancels_itself_and_pauses()


async def _cancels_itself_and_returns() -> None:
    task = asyncio.current_task()
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()


@pytest.mark.parametrize(
    ("oddity", "is_failure"),
    [
        (_awaits_something_cancelled, True),
        (_cancels_itself_and_pauses, True),
        (_cancels_itself_and_goes_on, False),
        (_cancels_itself_and_returns, False),
    ],
)
async def test_a_handler_that_is_cancelled_by_itself_harms_no_other(
    async_bench: Bench, oddity: Any, is_failure: bool
) -> None:
    """One slot: what is left of the cancellation would meet the next message."""
    bench = async_bench
    cancelling: list[int] = []

    async def act(body: str, d: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        await (oddity() if body == "odd" else _uses_failing_task_group())

    bench.define(act, concurrency=1, retry=Retry(first=60))
    await bench.queue.send("odd")
    counts = {"retried": 1, "delayed": 1} if is_failure else {"acked": 1}

    async with bench.worker() as worker:
        await bench.comes_to(sent=1, delivered=1, **counts)
        await bench.queue.send_many(["good", "good"])
        counts["acked"] = counts.get("acked", 0) + 2
        await bench.comes_to(sent=3, delivered=3, **counts)

    assert cancelling == [0, 0, 0]
    assert not worker.was_cut_off


def test_a_program_that_is_torn_down_around_a_worker_ends(queue_name: str) -> None:
    """`asyncio.run` cancels all tasks that are left; a handler that was running must not bring its slot back."""
    ends: list[str] = []

    async def main() -> None:
        app = duly.AsyncDuly("memory://")
        queue = app.queue(queue_name)
        started = asyncio.Event()

        @queue.handler(concurrency=1)
        async def on_message(body: Any) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("cancelled")

        await queue.send("body")
        await duly.Worker(app).__aenter__()  # and nobody leaves it
        await started.wait()

    program = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    program.start()
    program.join(SOON)

    assert not program.is_alive()
    assert ends == ["cancelled"]


# Kept, expired, in order


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


async def test_what_has_expired_is_not_handled(bench: Bench) -> None:
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
        bench.define(lambda body, d: handled.append((body, d.due_at > d.sent_at)))

        async with bench.worker():
            await bench.queue.send("later", delay=0.1)
            await bench.queue.send("now")
            await bench.comes_to(sent=2, delivered=2, acked=2)

    assert handled == [("now", False), ("later", True)]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_so_many_handlers_run_at_once_over_all_queues(
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
