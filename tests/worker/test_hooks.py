"""Hooks: when they run, and that no hook can harm a message or the worker."""

import asyncio
import contextlib
import contextvars
import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import duly
from duly import Batch, Defer, Keep, Recycle, Reject, Retry
from duly._sync import blocked_loop
from tests.conftest import StartedServer
from tests.worker.rig import Bench, comes_to, eventually, given_bench

VALUE = contextvars.ContextVar("VALUE", default="nothing")

HANG = 15.0
"""Seconds that a hook hangs. A worker that waits for its end has no timeout."""


def failed_hooks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the hooks whose failure was logged."""
    fields = [getattr(record, "duly", {}) for record in caplog.records]
    return [each["hook"].rpartition(".")[2] for each in fields if each.get("event") == "hook.failed"]


# Starting and stopping


async def test_hooks_frame_the_life_of_a_worker(bench: Bench) -> None:
    events: list[str] = []
    bench.define(lambda body, d: events.append("handler"))

    @bench.app.on_start
    def first() -> None:
        events.append("start")

    @bench.app.on_start
    async def second() -> None:
        await asyncio.sleep(0.01)
        events.append("start, async")

    @bench.app.on_stop
    async def third() -> None:
        await asyncio.sleep(0.01)
        events.append("stop, async")

    @bench.app.on_stop
    def fourth() -> None:
        events.append("stop")

    await bench.queue.send("body")

    async with bench.worker():
        assert events[:2] == ["start", "start, async"]
        await bench.comes_to(sent=1, delivered=1, acked=1)

    assert events == ["start", "start, async", "handler", "stop, async", "stop"]


@pytest.mark.parametrize(("kind", "warnings"), [("def", 0), ("async def", 1)])
async def test_a_call_of_the_sync_client_warns_in_async_hooks_only(
    server: StartedServer,
    queue_name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    warnings: int,
) -> None:
    """While a `def` hook runs, nothing else has to."""
    monkeypatch.setattr(blocked_loop, "_warned", [])
    sent: list[Any] = []
    async with given_bench(server("valkey").url, queue_name, "Duly, async def") as bench:
        bench.define(lambda body, d: None)
        queue = bench.app.queue(queue_name)

        def send() -> None:
            sent.append(queue.send("body"))

        async def send_async() -> None:
            send()

        hook = send if kind == "def" else send_async
        bench.app.on_start(hook)
        bench.app.on_stop(hook)

        async with bench.worker():
            await asyncio.sleep(0)

    assert len(sent) == 2
    assert sum("blocks the running event loop" in record.getMessage() for record in caplog.records) == warnings


async def test_the_last_handler_ends_before_on_stop(bench: Bench) -> None:
    events: list[str] = []
    started, freed, free = asyncio.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def act_async(body: Any, d: Any) -> None:
        started.set()
        await freed.wait()
        events.append("handler")

    def act(body: Any, d: Any) -> None:
        loop.call_soon_threadsafe(started.set)
        free.wait()
        events.append("handler")

    bench.define(act_async if bench.is_async else act)
    bench.app.on_stop(lambda: events.append("stop"))
    await bench.queue.send("body")

    async with bench.worker():
        await started.wait()
        loop.call_later(0.05, freed.set)
        loop.call_later(0.05, free.set)

    assert events == ["handler", "stop"]
    await bench.comes_to(sent=1, delivered=1, acked=1)


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_worker_whose_start_fails_takes_no_message(bench: Bench, kind: str) -> None:
    events: list[str] = []
    bench.define(lambda body, d: events.append("handler"))

    def fail() -> None:
        raise ConnectionError("no database")

    async def fail_async() -> None:
        fail()

    bench.app.on_start(fail if kind == "def" else fail_async)
    await bench.queue.send("body")

    with pytest.raises(ConnectionError, match="no database"):
        async with bench.worker():
            pytest.fail("it started")

    await bench.comes_to(sent=1, ready=1)
    assert [each for each in await bench.aio.workers() if bench.queue_name in each.queues] == []
    assert events == []


async def test_an_error_at_the_stop_is_logged_and_the_rest_is_done(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []
    bench.define(lambda body, d: None)

    @bench.app.on_stop
    def broken() -> None:
        raise ValueError("broken")

    @bench.app.on_stop
    async def broken_too() -> None:
        raise ValueError("broken")

    @bench.app.on_stop
    def last() -> None:
        events.append("last")

    async with bench.worker() as worker:
        pass

    assert events == ["last"]
    assert failed_hooks(caplog) == ["broken", "broken_too"]
    assert worker._async_app.is_closed


@pytest.mark.parametrize(("occasion", "kind"), [("on_stop", "async def"), ("on_dead", "async def"), ("on_dead", "def")])
async def test_a_hook_that_hangs_does_not_hold_the_worker_forever(
    queue_name: str, monkeypatch: pytest.MonkeyPatch, occasion: str, kind: str
) -> None:
    """Except for a `def` at the stop: it runs in the event loop."""
    monkeypatch.setattr("duly.worker.worker._FLUSH_TIMEOUT", 0.2)
    monkeypatch.setattr("duly.worker.worker._STOP_HOOKS_TIMEOUT", 0.2)
    async with given_bench("memory://", queue_name, "AsyncDuly, async def") as bench:
        events: list[str] = []
        begun, freed, free = threading.Event(), asyncio.Event(), threading.Event()

        def hang(*_: Any) -> None:
            begun.set()
            free.wait(HANG)
            events.append("end of the hook")

        async def hang_async(*_: Any) -> None:
            begun.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HANG):
                    await freed.wait()
            events.append("end of the hook")

        getattr(bench.app, occasion)(hang if kind == "def" else hang_async)
        bench.define(lambda body, d: Reject("no use"))
        await bench.queue.send("body")

        async with bench.worker(grace=0.1):
            await bench.comes_to(sent=1, delivered=1, buried=1, dead=1)
            if occasion == "on_dead":
                await eventually(begun.is_set)
        events.append("end of the worker")

        free.set()
        freed.set()
        assert begun.is_set()
        assert events[0] == "end of the worker"


# Around the handler


async def test_hooks_and_handler_share_their_context_variables(bench: Bench) -> None:
    seen: list[tuple[str, str]] = []

    @bench.app.before
    def before(d: Any) -> None:
        seen.append(("before", VALUE.get()))
        VALUE.set(f"before {d.body}")

    @bench.app.after
    def after(d: Any, outcome: str) -> None:
        seen.append((outcome, VALUE.get()))

    def act(body: Any, d: Any) -> None:
        seen.append(("handler", VALUE.get()))
        VALUE.set(f"handler {body}")

    bench.define(act, concurrency=1)
    await bench.queue.send_many([1, 2])

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, acked=2)

    expected = [[("before", "nothing"), ("handler", f"before {n}"), ("ack", f"handler {n}")] for n in (1, 2)]
    assert seen == [*expected[0], *expected[1]]


async def test_hooks_run_in_their_order(bench: Bench) -> None:
    events: list[Any] = []
    for name in ("a", "b"):
        bench.app.before(lambda d, name=name: events.append(f"before {name}"))
        bench.app.after(lambda d, outcome, name=name: events.append(f"after {name}: {outcome}"))
        bench.app.on_error(lambda d, error, name=name: events.append(f"error {name}: {error}"))

    def act(body: Any, d: Any) -> None:
        events.append(body)
        if body == "bad":
            raise ValueError("broken")

    bench.define(act, concurrency=1, retry=Retry(first=60))
    await bench.queue.send_many(["good", "bad"])

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, acked=1, retried=1, delayed=1)

    begin = ["before a", "before b"]
    assert events == [
        *begin, "good", "after a: ack", "after b: ack",
        *begin, "bad", "error a: broken", "error b: broken", "after a: retry", "after b: retry",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (None, "ack"),
        (False, "retry"),
        (Recycle(60), "recycle"),
        (Defer(60), "defer"),
        (Reject("no use"), "reject"),
        (ValueError("broken"), "retry"),
    ],
    ids=repr,
)
async def test_after_receives_the_outcome_of_the_message(memory_bench: Bench, end: Any, outcome: str) -> None:
    outcomes: list[str] = []
    memory_bench.app.after(lambda d, outcome: outcomes.append(outcome))

    def act(body: Any, d: Any) -> Any:
        if isinstance(end, Exception):
            raise end
        return end

    memory_bench.define(act, retry=Retry(first=60))
    await memory_bench.queue.send("body")

    async with memory_bench.worker():
        await eventually(lambda: outcomes)

    assert outcomes == [outcome]


async def test_after_receives_the_verb_by_which_the_handler_settled(memory_bench: Bench) -> None:
    outcomes: list[str] = []
    memory_bench.app.after(lambda d, outcome: outcomes.append(outcome))

    def act(body: Any, d: Any) -> Any:
        if memory_bench.is_async:
            return d.defer(60)
        d.defer(60)
        return False

    memory_bench.define(act)
    await memory_bench.queue.send("body")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, deferred=1, delayed=1)
        await eventually(lambda: outcomes)

    assert outcomes == ["defer"]


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ValueError("broken"), {"retried": 1, "delayed": 1}),
        (Reject("not now"), {"buried": 1, "dead": 1}),
        (Defer(60), {"deferred": 1, "delayed": 1}),
        (SystemExit(1), {"retried": 1, "delayed": 1}),
    ],
    ids=repr,
)
async def test_an_error_before_the_handler_is_the_handlers(
    memory_bench: Bench, error: BaseException, counts: dict[str, int]
) -> None:
    events: list[Any] = []

    @memory_bench.app.before
    def before(d: Any) -> None:
        raise error

    memory_bench.app.on_error(lambda d, received: events.append(received))
    memory_bench.define(lambda body, d: events.append("handler"), retry=Retry(first=60))
    await memory_bench.queue.send("body")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, **counts)

    assert events == [error]


class Broken:
    """A hook that is not a function."""

    def __call__(self, *_: Any) -> None:
        raise ValueError("broken")


def broken(*_: Any) -> None:
    raise ValueError("broken")


def exits(*_: Any) -> None:
    raise SystemExit(1)


def cancelled(*_: Any) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "hook",
    [broken, Broken(), functools.partial(broken), exits, cancelled],
    ids=lambda hook: type(hook).__name__ + getattr(hook, "__name__", ""),
)
@pytest.mark.parametrize("occasion", ["after", "on_error"])
async def test_an_error_after_the_handler_is_logged_and_changes_nothing(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture, occasion: str, hook: Any
) -> None:
    received: list[Any] = []
    getattr(memory_bench.app, occasion)(hook)
    getattr(memory_bench.app, occasion)(lambda *args: received.append(args))

    def act(body: Any, d: Any) -> None:
        if occasion == "on_error":
            raise Defer(60)

    counts = {"deferred": 3, "delayed": 3} if occasion == "on_error" else {"acked": 3}
    memory_bench.define(act, concurrency=1)
    await memory_bench.queue.send_many(range(3))

    async with memory_bench.worker() as worker:
        await memory_bench.comes_to(sent=3, delivered=3, **counts)

    assert len(received) == 3
    assert len(failed_hooks(caplog)) == 3
    assert not worker.was_cut_off


async def test_after_runs_for_messages_that_no_handler_received(memory_bench: Bench) -> None:
    events: list[tuple[str, str]] = []
    memory_bench.app.before(lambda d: events.append(("before", d.id)))
    memory_bench.app.after(lambda d, outcome: events.append((outcome, d.id)))
    memory_bench.define(lambda body, d: None, body=int)
    id_ = await memory_bench.queue.send("no number")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, buried=1, dead=1)

    assert events == [("reject", id_)]


async def test_hooks_run_for_each_message_of_a_batch(memory_bench: Bench) -> None:
    events: list[tuple[Any, ...]] = []
    memory_bench.app.before(lambda d: events.append(("before", d.body)))
    memory_bench.app.after(lambda d, outcome: events.append((outcome, d.body)))
    memory_bench.define(lambda bodies, ds: [True, False], batch=Batch(max=2, wait=60), retry=Retry(first=60))
    await memory_bench.queue.send_many(["a", "b"])

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=2, delivered=2, acked=1, retried=1, delayed=1)

    assert events == [("before", "a"), ("before", "b"), ("ack", "a"), ("retry", "b")]


async def test_hooks_get_the_delivery_of_the_handler(bench: Bench) -> None:
    given: list[Any] = []
    bench.app.before(given.append)
    bench.define(lambda body, d: given.append(d))
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)

    assert given[0] is given[1]
    assert type(given[0]) is (duly.AsyncDelivery if bench.is_async else duly.Delivery)


# Dead messages


def rejecting(bench: Bench) -> dict[str, Any]:
    bench.define(lambda body, d: Reject("no use"))
    return {"reason": "no use"}


def failing(bench: Bench) -> dict[str, Any]:
    def act(body: Any, d: Any) -> None:
        raise ValueError("broken")

    bench.define(act, retry=Retry(attempts=2, first=0))
    return {"reason": "failed at attempt 2 of 2", "failures": 2}


def not_decoding(bench: Bench) -> dict[str, Any]:
    bench.define(lambda body, d: None, body=int)
    return {"reason": "decode", "raw": b'"body"'}


def rejecting_itself(bench: Bench) -> dict[str, Any]:
    bench.define(lambda body, d: d.reject("by hand"))
    return {"reason": "by hand"}


def retrying_itself(bench: Bench) -> dict[str, Any]:
    bench.define(lambda body, d: d.retry(error="not again"), retry=Retry(attempts=1))
    return {"reason": "failed"}


@pytest.mark.parametrize("dying", [rejecting, failing, not_decoding, rejecting_itself, retrying_itself])
async def test_on_dead_runs_for_dead_messages(bench: Bench, dying: Callable[[Bench], dict[str, Any]]) -> None:
    received: list[tuple[str, duly.Message]] = []
    fields = dying(bench)
    queue = bench.app.queue(bench.queue_name)

    @queue.on_dead
    def of_queue(message: duly.Message) -> None:
        received.append(("queue", message))

    @queue.on_dead
    async def of_queue_async(message: duly.Message) -> None:
        await asyncio.sleep(0)
        received.append(("queue, async", message))

    @bench.app.on_dead
    def of_app(message: duly.Message) -> None:
        received.append(("app", message))

    @bench.app.on_dead
    async def of_app_async(message: duly.Message) -> None:
        received.append(("app, async", message))

    id_ = await bench.queue.send("body")

    async with bench.worker():
        await eventually(lambda: len(received) >= 4)

    assert [who for who, _ in received] == ["queue", "queue, async", "app", "app, async"]
    for _, message in received:
        assert (message.id, message.queue, message.state, message.body) == (id_, bench.queue_name, "dead", "body")
        assert {name: getattr(message, name) for name in fields} == fields


async def test_on_dead_runs_for_poison_that_a_claim_finds(bench: Bench) -> None:
    received: list[duly.Message] = []
    bench.app.on_dead(received.append)
    bench.define(lambda body, d: None, crash_limit=1)
    id_ = await bench.queue.send("body")
    assert await bench.queue.receive(limit=1, wait=0, lease=0.01)

    async with bench.worker():
        await eventually(lambda: received)

    assert [(message.id, message.reason, message.crashes) for message in received] == [(id_, "poison", 1)]


async def test_on_dead_runs_for_a_message_that_dies_during_the_stop(bench: Bench) -> None:
    received: list[duly.Message] = []
    started, freed, free = asyncio.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    bench.app.on_dead(received.append)

    async def act_async(body: Any, d: Any) -> None:
        started.set()
        await freed.wait()
        raise Reject("late")

    def act(body: Any, d: Any) -> None:
        loop.call_soon_threadsafe(started.set)
        free.wait()
        raise Reject("late")

    bench.define(act_async if bench.is_async else act)
    await bench.queue.send("body")

    async with bench.worker():
        await started.wait()
        loop.call_later(0.05, freed.set)
        loop.call_later(0.05, free.set)

    assert [message.reason for message in received] == ["late"]


async def test_each_queue_has_its_own_on_dead_hooks(memory_bench: Bench, queue_name: str) -> None:
    received: list[tuple[str, str]] = []
    names = {name: f"{name}-{queue_name}"[:120] for name in ("a", "b")}
    for name, queue_name_of in names.items():
        memory_bench.define(lambda body, d: Reject("no use"), queue=queue_name_of)
        queue: Any = memory_bench.app.queue(queue_name_of)
        queue.on_dead(lambda message, name=name: received.append((name, message.body)))
        await memory_bench.aio.queue(queue_name_of).send(f"of {name}")

    async with memory_bench.worker():
        await eventually(lambda: len(received) >= 2)

    assert sorted(received) == [("a", "of a"), ("b", "of b")]


async def test_on_dead_runs_once_for_each_of_many_dead_messages(memory_bench: Bench) -> None:
    received: list[str] = []
    memory_bench.app.on_dead(lambda message: received.append(message.id))
    memory_bench.define(lambda body, d: Reject("no use"))
    ids = await memory_bench.queue.send_many(range(50))

    async with memory_bench.worker():
        await eventually(lambda: len(received) >= 50)

    assert sorted(received) == sorted(ids)


async def test_a_hook_may_use_the_app(bench: Bench, queue_name: str) -> None:
    other = f"other-{queue_name}"[:120]

    @bench.app.on_dead
    async def receive(message: duly.Message) -> None:
        await bench.aio.queue(other).send({"dead": message.id})

    bench.define(lambda body, d: Reject("no use"))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await comes_to(bench.aio.queue(other), sent=1, ready=1)

    (message,) = await bench.aio.queue(other).list("ready")
    assert message.body == {"dead": id_}


def stops(*_: Any) -> None:
    raise StopIteration


@pytest.mark.parametrize(
    "error", [ValueError("broken"), SystemExit(1), StopIteration(), asyncio.CancelledError()], ids=repr
)
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_an_error_in_on_dead_does_not_stop_other_hooks(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture, kind: str, error: BaseException
) -> None:
    received: list[str] = []

    @memory_bench.app.on_dead
    def fails(message: duly.Message) -> None:
        if kind == "def":
            raise error

    @memory_bench.app.on_dead
    async def fails_async(message: duly.Message) -> None:
        if kind == "async def":
            raise error

    memory_bench.app.on_dead(lambda message: received.append(message.body))
    memory_bench.define(lambda body, d: Reject("no use"), concurrency=1)
    await memory_bench.queue.send_many(["a", "b"])

    async with memory_bench.worker() as worker:
        await eventually(lambda: len(received) >= 2)

    assert sorted(received) == ["a", "b"]
    assert len(failed_hooks(caplog)) == 2
    assert not worker.was_cut_off


async def test_a_dead_message_that_was_trimmed_is_logged(memory_bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    received: list[Any] = []
    memory_bench.app.on_dead(received.append)
    memory_bench.define(lambda body, d: Reject("no use"), dead=Keep(count=0))
    id_ = await memory_bench.queue.send("body")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, buried=1, trimmed=1)

    missed = [record.duly for record in caplog.records if getattr(record, "duly", {}).get("event") == "on_dead.missed"]  # type: ignore[attr-defined]
    assert [each["id"] for each in missed] == [id_]
    assert received == []
