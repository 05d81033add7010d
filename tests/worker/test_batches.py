"""Batch handlers: how messages are collected, and the outcome of each of them."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import duly
from duly import Batch, Defer, Recycle, Reject, Retry, RetryIn
from duly.worker.batch_collector import BatchCollector
from tests.worker.rig import FLAVOURS, Bench, comes_to, eventually, given_bench

AT_ONCE = 0.0
LONG = 600.0
"""Seconds that no test waits for."""


@dataclass
class Order:
    number: int


def define(bench: Bench, act: Callable[..., Any], batch: Batch, body: Any = Any, **options: Any) -> None:
    """Make `act(bodies, deliveries)` the batch handler, with bodies of any type or of `body`."""
    bench.define(act, body=list[body], batch=batch, **options)


# Collecting


async def test_a_full_batch_does_not_wait(bench: Bench) -> None:
    batches: list[list[int]] = []
    define(bench, lambda bodies, ds: batches.append(bodies), Batch(max=10, wait=LONG))
    await bench.queue.send_many(range(30))

    async with bench.worker():
        await bench.comes_to(sent=30, delivered=30, acked=30)

    assert sorted(batches) == [list(range(10)), list(range(10, 20)), list(range(20, 30))]


async def test_a_batch_that_is_not_full_is_handled_after_the_wait(bench: Bench) -> None:
    batches: list[list[int]] = []
    define(bench, lambda bodies, ds: batches.append(bodies), Batch(max=10, wait=0.05))
    await bench.queue.send_many(range(3))

    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, acked=3)
        await bench.queue.send("alone")
        await bench.comes_to(sent=4, delivered=4, acked=4)

    assert batches == [[0, 1, 2], ["alone"]]


@pytest.mark.parametrize("bound", [None, 1])
async def test_messages_that_arrive_one_by_one_are_collected(bench: Bench, bound: int | None) -> None:
    batches: list[list[int]] = []
    define(bench, lambda bodies, ds: batches.append(bodies), Batch(max=5, wait=LONG))

    async with bench.worker(concurrency=bound):
        for n in range(5):
            await bench.queue.send(n)
        await bench.comes_to(sent=5, delivered=5, acked=5)

    assert batches == [[0, 1, 2, 3, 4]]


async def test_a_batch_of_one_is_still_a_list(bench: Bench) -> None:
    batches: list[Any] = []
    define(bench, lambda bodies, ds: batches.append(bodies), Batch(max=1, wait=LONG), concurrency=1)
    await bench.queue.send_many(["a", "b"])

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, acked=2)

    assert batches == [["a"], ["b"]]


async def test_nothing_waits_where_there_is_no_wait(bench: Bench) -> None:
    sizes: list[int] = []
    define(bench, lambda bodies, ds: sizes.append(len(bodies)), Batch(max=1000, wait=AT_ONCE))
    await bench.queue.send_many(range(20))

    async with bench.worker():
        await bench.comes_to(sent=20, delivered=20, acked=20)

    assert sum(sizes) == 20


async def test_batches_are_never_larger_than_asked_for(bench: Bench) -> None:
    sizes: list[int] = []
    define(bench, lambda bodies, ds: sizes.append(len(bodies)), Batch(max=7, wait=0.01), concurrency=3)

    async with bench.worker():
        for _ in range(10):
            await bench.queue.send_many(range(50))
        await bench.comes_to(sent=500, delivered=500, acked=500)

    assert max(sizes) == 7
    assert sum(sizes) == 500


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_bound_on_the_worker_counts_batches_not_messages(bench: Bench, concurrency: int) -> None:
    sizes: list[int] = []
    define(bench, lambda bodies, ds: sizes.append(len(bodies)), Batch(max=10, wait=LONG), concurrency=3)
    await bench.queue.send_many(range(30))

    async with bench.worker(concurrency=concurrency):
        await bench.comes_to(sent=30, delivered=30, acked=30)

    assert sizes == [10, 10, 10]


async def test_weights_leave_batches_as_large_as_they_are(bench: Bench, queue_name: str) -> None:
    sizes: dict[str, list[int]] = {"a": [], "b": []}
    names = {name: f"{name}-{queue_name}"[:120] for name in sizes}
    for name, queue in names.items():
        batch = Batch(max=10, wait=LONG)
        define(bench, lambda bodies, ds, name=name: sizes[name].append(len(bodies)), batch, queue=queue)
        await bench.aio.queue(queue).send_many(range(20))

    async with bench.worker(queues={names["a"]: 3, names["b"]: 1}):
        await eventually(lambda: sizes == {"a": [10, 10], "b": [10, 10]})


@pytest.mark.parametrize("concurrency", [None, 1, 3])
async def test_concurrency_limits_the_batches_that_run_at_once(memory_bench: Bench, concurrency: int | None) -> None:
    """One by default."""
    expected = concurrency or 1
    lock, free, freed = threading.Lock(), threading.Event(), asyncio.Event()
    running = 0

    def enter() -> None:
        nonlocal running
        with lock:
            running += 1

    async def act_async(bodies: Any, ds: Any) -> None:
        enter()
        await freed.wait()

    def act(bodies: Any, ds: Any) -> None:
        enter()
        free.wait()

    options = {} if concurrency is None else {"concurrency": concurrency}
    define(memory_bench, act_async if memory_bench.is_async else act, Batch(max=2, wait=AT_ONCE), **options)
    await memory_bench.queue.send_many(range(20))

    async with memory_bench.worker():
        await eventually(lambda: running >= expected)
        await asyncio.sleep(0.05)
        at_first = running
        free.set()
        freed.set()
        await memory_bench.comes_to(sent=20, delivered=20, acked=20)

    assert at_first == expected


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_bound_on_the_worker_holds_for_batches_that_are_not_full(queue_name: str, flavour: str) -> None:
    """Two calls of one message each count as two calls."""
    lock, free, freed = threading.Lock(), threading.Event(), asyncio.Event()
    running, most = 0, 0

    def change(by: int) -> None:
        nonlocal running, most
        with lock:
            running += by
            most = max(most, running)

    async def act_async(bodies: Any, ds: Any) -> None:
        change(1)
        await freed.wait()
        change(-1)

    def act(bodies: Any, ds: Any) -> None:
        change(1)
        free.wait()
        change(-1)

    names = [f"{name}-{queue_name}"[:120] for name in ("a", "b")]
    async with given_bench("memory://", queue_name, flavour) as bench:
        for name in names:
            handler = act_async if bench.is_async else act
            define(bench, handler, Batch(max=10, wait=AT_ONCE), queue=name, concurrency=5)

        async with bench.worker(concurrency=2):
            for expected in (1, 2):
                await bench.aio.queue(names[0]).send("body")
                await eventually(lambda expected=expected: running == expected)  # type: ignore[misc]
            await bench.aio.queue(names[1]).send("body")
            await asyncio.sleep(0.1)
            free.set()
            freed.set()
            await comes_to(bench.aio.queue(names[1]), sent=1, delivered=1, acked=1)

    assert most == 2


class Runner:
    """Records the batches that it receives."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def add(self, groups: Any) -> None:
        self.batches += [list(group.deliveries) for group in groups]


class Loop:
    """An event loop whose timers the test fires."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        timer = (seconds, call)
        self.timers.append(timer)
        loop = self

        class Handle:
            def cancel(self) -> None:
                if timer in loop.timers:
                    loop.timers.remove(timer)

        return Handle()

    def end_timers(self) -> None:
        for timer in list(self.timers):
            self.timers.remove(timer)
            timer[1]()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr("asyncio.get_running_loop", lambda: loop)
    return loop


def collector(runner: Runner, most: int) -> Any:
    runtime: Any = SimpleNamespace(collected=0, batches=0)
    return BatchCollector(runtime, runner, Batch(max=most, wait=5))  # type: ignore[arg-type]


def test_the_wait_is_that_of_the_first_message(loop: Loop) -> None:
    runner = Runner()
    collecting = collector(runner, 10)

    collecting.add(["a"])
    collecting.add(["b"])
    assert [seconds for seconds, _ in loop.timers] == [5]
    loop.end_timers()

    assert runner.batches == [["a", "b"]]


def test_each_batch_has_its_own_wait(loop: Loop) -> None:
    """The wait of a full batch must not shorten the wait of the next one."""
    runner = Runner()
    collecting = collector(runner, 2)

    collecting.add(["a"])
    first = loop.timers[0]
    collecting.add(["b"])
    assert loop.timers == []
    collecting.add(["c"])
    assert len(loop.timers) == 1
    assert loop.timers[0] is not first
    second = loop.timers[0]
    collecting.add(["d", "e"])
    assert len(loop.timers) == 1
    assert loop.timers[0] is not second
    loop.end_timers()

    assert runner.batches == [["a", "b"], ["c", "d"], ["e"]]


def test_a_suspect_does_not_wait_for_others(loop: Loop) -> None:
    runner = Runner()
    collecting = collector(runner, 10)

    collecting.add(["suspect"], at_once=True)

    assert runner.batches == [["suspect"]]
    assert loop.timers == []


def test_collected_messages_can_be_taken_back(loop: Loop) -> None:
    runner = Runner()
    collecting = collector(runner, 2)
    collecting.add(["a", "b", "c"])

    assert (collecting._runtime.batches, collecting._runtime.collected) == (1, 1)
    assert collecting.take_back() == ["c"]
    assert (collecting._runtime.batches, collecting._runtime.collected) == (1, 0)
    assert collecting.take_back() == []
    assert loop.timers == []
    assert runner.batches == [["a", "b"]]


# Ending


async def test_each_message_has_its_own_outcome(bench: Bench) -> None:
    outcomes: list[Any] = [
        True, None, "anything", False, Recycle(60), Defer(60), RetryIn(60), Reject("no use"), ValueError("broken"),
    ]  # fmt: skip
    define(bench, lambda bodies, ds: outcomes, Batch(max=9, wait=LONG), retry=Retry(first=60, jitter=0))
    ids = await bench.queue.send_many(range(9))

    async with bench.worker():
        await bench.comes_to(
            sent=9, delivered=9, acked=3, retried=3, recycled=1, deferred=1, delayed=5, buried=1, dead=1
        )

    messages = [await bench.queue.get(id_) for id_ in ids]
    assert messages[:3] == [None] * 3
    false, recycled, deferred, retried, rejected, failed = messages[3:]
    assert false and recycled and deferred and retried and rejected and failed  # noqa: PT018
    assert "returned False" in false.errors[0].error
    assert (recycled.attempt, deferred.defers, retried.failures) == (1, 1, 1)
    assert rejected.reason == "no use"
    assert failed.errors[0].error == "ValueError: broken"


async def test_one_outcome_may_be_for_all(bench: Bench) -> None:
    define(bench, lambda bodies, ds: False, Batch(max=3, wait=LONG), retry=Retry(first=60))
    await bench.queue.send_many(range(3))

    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, retried=3, delayed=3)


async def test_an_error_is_a_failure_of_all(bench: Bench) -> None:
    def act(bodies: Any, ds: Any) -> None:
        raise ValueError("broken")

    define(bench, act, Batch(max=3, wait=LONG), retry=Retry(attempts=2, first=60, jitter=0))
    ids = await bench.queue.send_many([*range(2), duly.Send(2, retry=Retry(attempts=1))])

    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, retried=2, delayed=2, buried=1, dead=1)

    errors = [(await bench.seen(id_)).errors[0].error for id_ in ids]
    assert errors == ["ValueError: broken"] * 3


async def test_an_outcome_that_is_raised_is_for_all(bench: Bench) -> None:
    def act(bodies: Any, ds: Any) -> None:
        raise Reject("all of it")

    define(bench, act, Batch(max=3, wait=LONG))
    await bench.queue.send_many(range(3))

    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, buried=3, dead=3)


@pytest.mark.parametrize("count", [0, 1, 2, 4])
async def test_a_wrong_number_of_outcomes_is_a_failure_of_all(memory_bench: Bench, count: int) -> None:
    define(memory_bench, lambda bodies, ds: [True] * count, Batch(max=3, wait=LONG), retry=Retry(first=60))
    ids = await memory_bench.queue.send_many(range(3))

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=3, delivered=3, retried=3, delayed=3)

    error = (await memory_bench.seen(ids[0])).errors[0].error
    assert f"{count} outcomes for 3 messages" in error


@pytest.mark.parametrize("make", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
async def test_any_exception_is_a_failure_and_the_worker_continues(memory_bench: Bench, make: Any) -> None:
    def act(bodies: Any, ds: Any) -> None:
        if "bad" in bodies:
            raise make

    define(memory_bench, act, Batch(max=2, wait=LONG), retry=Retry(first=60))
    await memory_bench.queue.send_many(["bad", "good", "good", "good"])

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=4, delivered=4, retried=2, delayed=2, acked=2)


async def test_a_message_that_does_not_decode_is_dead_and_the_others_are_handled(bench: Bench) -> None:
    batches: list[Any] = []

    def act(bodies: Any, ds: Any) -> list[Any]:
        batches.append([(body, d.id) for body, d in zip(bodies, ds, strict=True)])
        return [True, False, Reject("third")]

    define(bench, act, Batch(max=6, wait=LONG), body=Order, retry=Retry(first=60))
    bodies: list[Any] = [{"number": 0}, "bad", {"number": 2}, b"bad", {"number": "bad"}, {"number": 5}]
    ids = await bench.queue.send_many(bodies)

    async with bench.worker():
        await bench.comes_to(sent=6, delivered=6, acked=1, retried=1, delayed=1, buried=4, dead=4)

    assert batches == [[(Order(0), ids[0]), (Order(2), ids[2]), (Order(5), ids[5])]]
    assert [(await bench.seen(ids[n])).reason for n in (1, 3, 4, 5)] == ["decode", "decode", "decode", "third"]
    assert (await bench.seen(ids[1])).raw == b'"bad"'


async def test_a_batch_of_which_nothing_decodes_calls_no_handler(bench: Bench) -> None:
    batches: list[Any] = []
    define(bench, lambda bodies, ds: batches.append(bodies), Batch(max=2, wait=LONG), body=Order)
    await bench.queue.send_many(["bad", "bad", {"number": 1}, {"number": 2}])

    async with bench.worker():
        await bench.comes_to(sent=4, delivered=4, buried=2, dead=2, acked=2)

    assert batches == [[Order(1), Order(2)]]


async def test_an_error_does_not_change_messages_that_did_not_decode(memory_bench: Bench) -> None:
    def act(bodies: Any, ds: Any) -> None:
        raise ValueError("broken")

    define(memory_bench, act, Batch(max=2, wait=LONG), body=Order, retry=Retry(first=60))
    await memory_bench.queue.send_many(["bad", {"number": 1}])

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=2, delivered=2, buried=1, dead=1, retried=1, delayed=1)


async def test_messages_that_the_handler_has_settled_stay_settled(bench: Bench) -> None:
    def act(bodies: Any, ds: list[duly.Delivery]) -> list[Any]:
        ds[0].ack()
        ds[1].defer(60)
        ds[2].reject("no use")
        return [False] * 4

    async def act_async(bodies: Any, ds: list[duly.AsyncDelivery]) -> list[Any]:
        await ds[0].ack()
        await ds[1].defer(60)
        await ds[2].reject("no use")
        return [False] * 4

    define(bench, act_async if bench.is_async else act, Batch(max=4, wait=LONG), retry=Retry(first=60))
    await bench.queue.send_many(range(4))

    async with bench.worker() as worker:
        await bench.comes_to(sent=4, delivered=4, acked=1, deferred=1, buried=1, dead=1, retried=1, delayed=2)
        await eventually(lambda: not worker._busy())


async def test_a_handler_may_take_bodies_only_or_deliveries_only(bench: Bench, queue_name: str) -> None:
    got: dict[str, Any] = {}
    names = [f"{n}-{queue_name}"[:120] for n in range(4)]

    def bodies_only(orders: list[Order]) -> None:
        got["bodies"] = orders

    async def bodies_only_async(orders: list[Order]) -> None:
        got["bodies, async"] = orders

    def deliveries_only(ds: list[duly.Delivery]) -> None:
        got["deliveries"] = [(type(d), d.body) for d in ds]

    async def deliveries_only_async(ds: list[duly.AsyncDelivery]) -> None:
        got["deliveries, async"] = [(type(d), d.body) for d in ds]

    functions: list[Any] = [bodies_only, bodies_only_async, deliveries_only, deliveries_only_async]
    for name, function in zip(names, functions, strict=True):
        queue: Any = bench.app.queue(name)
        queue.handler(batch=Batch(max=2, wait=LONG))(function)
        await bench.aio.queue(name).send_many([{"number": 1}, {"number": 2}])

    async with bench.worker():
        for name in names:
            await comes_to(bench.aio.queue(name), sent=2, delivered=2, acked=2)

    plain = [{"number": 1}, {"number": 2}]
    assert got == {
        "bodies": [Order(1), Order(2)],
        "bodies, async": [Order(1), Order(2)],
        "deliveries": [(duly.Delivery, body) for body in plain],
        "deliveries, async": [(duly.AsyncDelivery, body) for body in plain],
    }


async def test_a_batch_that_exceeds_its_timeout_fails(backend: str, queue_name: str) -> None:
    async with given_bench(backend, queue_name, "AsyncDuly, async def") as bench:

        async def act(bodies: Any, ds: Any) -> None:
            await asyncio.Event().wait()

        define(bench, act, Batch(max=2, wait=LONG), timeout=0.05, retry=Retry(first=60))
        ids = await bench.queue.send_many(range(2))

        async with bench.worker():
            await bench.comes_to(sent=2, delivered=2, retried=2, delayed=2)

        errors = [(await bench.seen(id_)).errors[0].error for id_ in ids]
        assert all("timeout of 0.05 s" in error for error in errors)


# Stopping


async def test_collected_messages_are_released_at_a_stop(bench: Bench) -> None:
    batches: list[Any] = []
    define(bench, lambda bodies, ds: batches.append(bodies), Batch(max=10, wait=LONG))
    ids = await bench.queue.send_many(range(3))

    async with bench.worker() as worker:
        await eventually(lambda: worker._busy() == 3)

    await bench.comes_to(sent=3, delivered=3, released=3, ready=3)
    assert [(await bench.seen(id_)).attempt for id_ in ids] == [1, 1, 1]
    assert batches == []
    assert not worker.was_cut_off


async def test_a_running_batch_is_finished_and_collected_messages_are_released(bench: Bench) -> None:
    started, freed, free = asyncio.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def act_async(bodies: Any, ds: Any) -> None:
        started.set()
        await freed.wait()

    def act(bodies: Any, ds: Any) -> None:
        loop.call_soon_threadsafe(started.set)
        free.wait()

    define(bench, act_async if bench.is_async else act, Batch(max=2, wait=LONG), concurrency=2)
    await bench.queue.send_many(range(2))

    async with bench.worker() as worker:
        await started.wait()
        await bench.queue.send(2)
        await eventually(lambda: worker._busy() == 3)
        loop.call_later(0.05, free.set)
        loop.call_later(0.05, freed.set)

    await bench.comes_to(sent=3, delivered=3, acked=2, released=1, ready=1)
    assert not worker.was_cut_off
