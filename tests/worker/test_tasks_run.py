"""Tasks: functions that workers call by name."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pydantic
import pytest

import duly
from duly import Defer, Recycle, Reject, Retry, RetryIn
from tests.worker.rig import Bench, eventually, given_bench

COLOURS = ("Duly", "AsyncDuly")


@dataclass
class User:
    name: str


class Address(pydantic.BaseModel):
    street: str


class Point(msgspec.Struct):
    x: int


@pytest.fixture(params=COLOURS)
async def bench(request: pytest.FixtureRequest, backend: str, queue_name: str) -> AsyncIterator[Bench]:
    async with given_bench(backend, queue_name, request.param) as bench:
        yield bench


@pytest.fixture(params=COLOURS)
async def memory_bench(request: pytest.FixtureRequest, queue_name: str) -> AsyncIterator[Bench]:
    """For tests that do not depend on the server."""
    async with given_bench("memory://", queue_name, request.param) as bench:
        yield bench


def task_of(bench: Bench, function: Any, **options: Any) -> Any:
    """Make a task of the bench's queue that is sent with `await`."""
    app: Any = bench.app
    task = app.task(queue=options.pop("queue", bench.queue_name), **options)(function)
    return task.aio if isinstance(task, duly.Task) else task


async def test_tasks_of_both_kinds_share_a_queue(bench: Bench) -> None:
    calls: list[tuple[Any, ...]] = []

    async def welcome(user_id: int, lang: str = "en") -> None:
        await asyncio.sleep(0)
        calls.append(("welcome", user_id, lang, threading.current_thread() is threading.main_thread()))

    def invoice(number: int, *, copies: int = 1) -> None:
        calls.append(("invoice", number, copies, threading.current_thread() is threading.main_thread()))

    welcoming, invoicing = task_of(bench, welcome), task_of(bench, invoice)
    await welcoming.send(1)
    await welcoming.send(2, lang="zh")
    await welcoming.send(user_id=3)
    await invoicing.send(4)
    await invoicing.send(5, copies=2)

    async with bench.worker():
        await bench.comes_to(sent=5, delivered=5, acked=5)

    assert sorted(calls) == [
        ("invoice", 4, 1, False),
        ("invoice", 5, 2, False),
        ("welcome", 1, "en", True),
        ("welcome", 2, "zh", True),
        ("welcome", 3, "en", True),
    ]


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_arguments_arrive_as_annotated(memory_bench: Bench, kind: str) -> None:
    calls: list[Any] = []

    async def task_async(user: User, *rest: Point, to: Address | None = None, **more: int) -> None:
        calls.append((user, rest, to, more))

    def task_def(user: User, *rest: Point, to: Address | None = None, **more: int) -> None:
        calls.append((user, rest, to, more))

    task = task_of(memory_bench, task_async if kind == "async def" else task_def, name="task")
    await task.send(User("Ann"), Point(1), Point(2), to=Address(street="Oak"), a=1, b=2)
    await task.send({"name": "Bo"})

    async with memory_bench.worker(concurrency=1):
        await memory_bench.comes_to(sent=2, delivered=2, acked=2)

    assert calls == [
        (User("Ann"), (Point(1), Point(2)), Address(street="Oak"), {"a": 1, "b": 2}),
        (User("Bo"), (), None, {}),
    ]


async def test_the_worker_gives_the_delivery(bench: Bench) -> None:
    given: list[Any] = []

    async def first(d: duly.AsyncDelivery, number: int) -> None:
        given.append((type(d), d.id, number))
        await d.ack()

    def last(number: int, d: duly.Delivery) -> None:
        given.append((type(d), d.id, number))
        d.ack()

    ids = [await task_of(bench, first).send(1), await task_of(bench, last).send(2)]

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, acked=2)

    assert sorted(given, key=lambda row: int(row[2])) == [
        (duly.AsyncDelivery, ids[0], 1),
        (duly.Delivery, ids[1], 2),
    ]


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (False, {"retried": 1, "delayed": 1}),
        (Recycle(60), {"recycled": 1, "delayed": 1}),
        (Defer(60), {"deferred": 1, "delayed": 1}),
        (RetryIn(60), {"retried": 1, "delayed": 1}),
        (Reject("no use"), {"buried": 1, "dead": 1}),
        (ValueError("broken"), {"retried": 1, "delayed": 1}),
        ("a result", {"acked": 1}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_task_ends_like_a_handler(memory_bench: Bench, kind: str, outcome: Any, counts: dict[str, int]) -> None:
    def task_def() -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def task_async() -> Any:
        return task_def()

    task = task_of(memory_bench, task_async if kind == "async def" else task_def, retry=Retry(first=60))
    await task.send()

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, **counts)


async def test_each_task_has_its_own_retry(bench: Bench) -> None:
    """The setting of the message comes first, then that of the task, then that of the queue."""

    async def brief() -> None:
        raise ValueError("brief")

    def patient() -> None:
        raise ValueError("patient")

    async def plain() -> None:
        raise ValueError("plain")

    queue: Any = bench.app.queue(bench.queue_name, retry=Retry(first=300, jitter=0))
    tasks = [
        task_of(bench, brief, queue=queue, retry=Retry(attempts=1)),
        task_of(bench, patient, queue=queue, retry=Retry(first=100, jitter=0)),
        task_of(bench, plain, queue=queue),
    ]
    ids = [await task.send() for task in tasks]
    ids.append(await tasks[0].using(retry=Retry(first=500, jitter=0)).send())

    async with bench.worker():
        await bench.comes_to(sent=4, delivered=4, retried=3, delayed=3, buried=1, dead=1)

    messages = [await bench.seen(id_) for id_ in ids]
    assert [_delay_of(message) for message in messages] == [None, 100, 300, 500]


def _delay_of(message: duly.Message) -> float | None:
    if message.state == "dead" or message.due_at is None:
        return None
    return (message.due_at - message.errors[-1].at).total_seconds()


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_retry_in_a_task_follows_the_policy_of_the_task(memory_bench: Bench, kind: str) -> None:
    async def task_async(d: duly.AsyncDelivery) -> None:
        await d.retry(error="not yet")

    def task_def(d: duly.Delivery) -> None:
        d.retry(error="not yet")

    policy = Retry(attempts=2, first=77, jitter=0)
    task = task_of(memory_bench, task_async if kind == "async def" else task_def, retry=policy)
    id_ = await task.send()

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)
        assert _delay_of(await memory_bench.seen(id_)) == 77
        await memory_bench.queue.promote(id_)
        await memory_bench.comes_to(sent=1, delivered=2, retried=1, buried=1, dead=1)


async def test_each_task_has_its_own_timeout(bench: Bench) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    async def sleeps() -> None:
        await asyncio.sleep(0.2)

    id_ = await task_of(bench, hangs, timeout=0.05, retry=Retry(first=60)).send()
    await task_of(bench, sleeps, timeout=60).send()

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, acked=1, retried=1, delayed=1)

    assert "timeout of 0.05 s" in (await bench.seen(id_)).errors[0].error


async def test_an_unknown_task_is_dead_with_its_bytes(bench: Bench) -> None:
    async def known() -> None: ...

    def known_too() -> None: ...

    task_of(bench, known)
    task_of(bench, known_too)
    raw = b'{"task":"gone","args":[1]}'
    id_ = await bench.queue.send(msgspec.Raw(raw))
    await bench.queue.send({"task": "known"})
    await bench.queue.send({"task": "known_too"})

    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, acked=2, buried=1, dead=1)

    message = await bench.seen(id_)
    assert (message.reason, message.raw, message.failures) == ("unknown task", raw, 0)
    assert "'gone'" in message.errors[-1].error


@pytest.mark.parametrize("flavour", ["async def", "def", "both"])
@pytest.mark.parametrize(
    "body",
    [
        {"task": "add", "args": ["one", 2]},
        {"task": "add", "args": [1]},
        {"task": "add", "args": [1, 2, 3]},
        {"task": "add", "args": [1, 2], "kwargs": {"c": 3}},
        {"task": "add", "kwargs": {"a": 1, "b": None}},
        {"task": "add", "args": {"a": 1}},
        {"task": 1},
        {"args": [1, 2]},
        {},
        [],
        None,
        "",
        "add",
        b"add",
        b"",
        msgspec.Raw(b"{"),
    ],
)
async def test_a_call_whose_arguments_do_not_fit_is_dead_and_not_retried(
    memory_bench: Bench, flavour: str, body: Any
) -> None:
    sums: list[int] = []

    async def add_async(a: int, b: int) -> None:
        sums.append(a + b)

    def add(a: int, b: int) -> None:
        sums.append(a + b)

    task_of(memory_bench, add if flavour == "def" else add_async, name="add")
    if flavour == "both":
        task_of(memory_bench, add, name="another")
    id_ = await memory_bench.queue.send(body)
    await memory_bench.queue.send({"task": "add", "args": [1, 2]})

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=2, delivered=2, acked=1, buried=1, dead=1)

    message = await memory_bench.seen(id_)
    assert (message.reason, message.failures) == ("decode", 0)
    assert message.raw is not None
    assert sums == [3]


async def test_a_task_is_called_later(bench: Bench) -> None:
    calls: dict[str, float] = {}

    async def note(what: str) -> None:
        calls[what] = time.time()

    task = task_of(bench, note)
    began = time.time()

    async with bench.worker():
        far = await task.later(600, "far")
        when = await task.at(datetime.now(UTC) + timedelta(seconds=600), "at")
        await task.later(0.5, "later")
        await task.at(began + 0.5, "at epoch")
        await task.send("now")
        await bench.comes_to(sent=5, delivered=3, acked=3, delayed=2)

    assert calls.keys() == {"now", "later", "at epoch"}
    assert min(calls["later"], calls["at epoch"]) >= began + 0.5
    assert {(await bench.seen(id_)).state for id_ in (far, when)} == {"delayed"}


async def test_a_task_is_sent_with_options(bench: Bench) -> None:
    seen: list[tuple[str, Any]] = []

    async def note(what: str, d: duly.AsyncDelivery) -> None:
        seen.append((what, dict(d.headers)))

    task = task_of(bench, note)
    await task.send("low")
    await task.using(priority=9, headers={"trace": "t"}).send("high")
    await task.using(dedup="once").send("a")
    await task.using(dedup="once").send("b")

    async with bench.worker(concurrency=1):
        await bench.comes_to(sent=3, delivered=3, acked=3, duplicates=1)

    assert seen == [("high", {"trace": "t"}), ("low", {}), ("a", {})]


async def test_a_task_may_send_itself_and_others(bench: Bench) -> None:
    calls: list[int] = []

    async def count(number: int) -> None:
        calls.append(number)
        if number < 5:
            await task.send(number + 1)

    task = task_of(bench, count)
    await task.send(1)

    async with bench.worker():
        await bench.comes_to(sent=5, delivered=5, acked=5)

    assert calls == [1, 2, 3, 4, 5]


async def test_a_def_task_may_send_by_the_sync_app(backend: str, queue_name: str) -> None:
    calls: list[int] = []
    async with given_bench(backend, queue_name, "Duly") as bench:
        assert isinstance(bench.app, duly.Duly)

        @bench.app.task(queue=queue_name)
        def count(number: int) -> None:
            calls.append(number)
            if number < 3:
                count.send(number + 1)

        count.send(1)

        async with bench.worker():
            await bench.comes_to(sent=3, delivered=3, acked=3)

    assert calls == [1, 2, 3]


async def test_a_task_that_is_called_is_its_function() -> None:
    app = duly.Duly("memory://")

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    async def triple(number: int) -> int:
        return 3 * number

    assert double(2) == 4
    assert await triple(2) == 6
    assert app.queue("default").stats().sent == 0


async def test_tasks_bound_their_calls_together(memory_bench: Bench) -> None:
    """The largest setting of a task holds for all tasks, even those of the other kind."""
    lock = threading.Lock()
    running = 0
    free, freed = threading.Event(), asyncio.Event()

    def enter() -> None:
        nonlocal running
        with lock:
            running += 1

    async def waits() -> None:
        enter()
        await freed.wait()

    def blocks() -> None:
        enter()
        free.wait()

    tasks = [task_of(memory_bench, waits, concurrency=3), task_of(memory_bench, blocks, concurrency=2)]
    for _ in range(10):
        for task in tasks:
            await task.send()

    async with memory_bench.worker():
        await eventually(lambda: running >= 3)
        await asyncio.sleep(0.05)
        running_at_first = running
        free.set()
        freed.set()
        await memory_bench.comes_to(sent=20, delivered=20, acked=20)

    assert running_at_first == 3
