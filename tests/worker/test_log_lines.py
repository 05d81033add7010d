"""Log lines: one for each change of state, with fields that programs can read, and no bodies."""

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

import duly
from duly import Batch, Defer, Recycle, Reject, Retry, RetryIn
from tests.worker.rig import Bench, eventually

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "duly")
    caplog.set_level(logging.DEBUG, "duly.worker")


def lines(caplog: pytest.LogCaptureFixture, prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return level and fields of the structured lines whose event starts with a prefix."""
    found: list[tuple[str, dict[str, Any]]] = []
    for record in caplog.records:
        fields = getattr(record, "duly", None)
        if fields is not None and fields["event"].startswith(prefix):
            assert record.name == "duly.worker"
            found.append((record.levelname, fields))
    return found


def only(caplog: pytest.LogCaptureFixture, prefix: str) -> tuple[str, dict[str, Any]]:
    (line,) = lines(caplog, prefix)
    return line


def place_of(function: Callable[..., Any], line: int = 1) -> str:
    """Return the place of the nth line of a function."""
    return f"test_log_lines.py:{function.__code__.co_firstlineno + line}"


async def test_the_place_of_a_failure_is_the_users_line_not_that_of_a_library(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def act(body: Any, d: Any) -> None:
        json.loads(body)

    memory_bench.define(act, retry=Retry(first=60, jitter=0))
    await memory_bench.queue.send("no json")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    assert only(caplog, "message.retry")[1]["at"] == place_of(act)


async def test_the_life_of_a_worker(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.define(lambda body, d: None)

    async with bench.worker(grace=12) as worker:
        pass

    name = bench.queue_name
    assert lines(caplog, "worker.") == [
        (
            "INFO",
            {"event": "worker.started", "queues": name, "id": worker._async_app._link.consumer, "pid": os.getpid()},
        ),
        ("INFO", {"event": "worker.stopping", "running": 0, "grace": 12.0}),
        ("INFO", {"event": "worker.stopped", "cut_off": False}),
    ]


async def test_a_message_that_is_simply_done_has_no_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.define(lambda body, d: None)
    ids = await bench.queue.send_many(range(3))

    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, acked=3)

    spoken_of = [record for record in caplog.records if any(id_ in record.getMessage() for id_ in ids)]
    assert [record.levelname for record in spoken_of if record.levelno > logging.DEBUG] == []
    assert lines(caplog, "message.") == []


async def test_a_retry_is_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def act(body: Any, d: Any) -> None:
        raise ValueError("broken")

    bench.define(act, retry=Retry(first=60, jitter=0))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    assert only(caplog, "message.") == (
        "INFO",
        {
            "event": "message.retry",
            "queue": bench.queue_name,
            "id": id_,
            "attempt": 1,
            "delay": 60,
            "error": "ValueError: broken",
            "at": place_of(act),
        },
    )
    level, fields = only(caplog, "handler.")
    assert (level, fields["id"]) == ("DEBUG", id_)
    assert 'raise ValueError("broken")' in caplog.text  # the traceback


@pytest.mark.parametrize(
    ("dying", "reason", "error"),
    [("fails", "failed", "ValueError: broken"), ("rejects", "no use", ""), ("does not decode", "decode", None)],
)
async def test_a_death_is_one_line(
    bench: Bench, caplog: pytest.LogCaptureFixture, dying: str, reason: str, error: str | None
) -> None:
    def act(body: Any, d: Any) -> None:
        raise Reject("no use") if dying == "rejects" else ValueError("broken")

    bench.define(act, body=int if dying == "does not decode" else None, retry=Retry(attempts=1))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, buried=1, dead=1)

    level, fields = only(caplog, "message.")
    assert level == "WARNING"
    if error is None:
        error = fields["error"]
        assert error
    place = {"at": place_of(act)} if dying == "fails" else {}
    assert fields == {
        "event": "message.dead", "queue": bench.queue_name, "id": id_, "attempt": 1, "reason": reason, "error": error,
        **place,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("end", "event"), [(Defer(60, reason="closed"), "message.defer"), (Recycle(60), "message.recycle")]
)
async def test_normal_outcomes_are_logged_as_debug(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture, end: Any, event: str
) -> None:
    memory_bench.define(lambda body, d: end)
    id_ = await memory_bench.queue.send("body")

    async with memory_bench.worker():
        await eventually(lambda: lines(caplog, "message."))

    level, fields = only(caplog, "message.")
    assert (level, fields["event"], fields["id"], fields["delay"]) == ("DEBUG", event, id_, 60)
    assert fields.get("reason") == (end.reason if event == "message.defer" else None)


async def test_each_message_released_at_a_stop_is_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.define(lambda bodies, ds: None, batch=Batch(max=10, wait=600))
    ids = await bench.queue.send_many(range(2))

    async with bench.worker() as worker:
        await eventually(lambda: worker._busy() == 2)

    found = lines(caplog, "message.")
    assert [(level, fields["event"]) for level, fields in found] == [("INFO", "message.release")] * 2
    assert sorted(fields["id"] for _, fields in found) == sorted(ids)
    assert only(caplog, "worker.stopping")[1]["running"] == 2


async def test_handlers_that_are_cut_off_are_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    started, free = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def act_async(body: Any, d: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    def act(body: Any, d: Any) -> None:
        loop.call_soon_threadsafe(started.set)
        free.wait(20)

    bench.define(act_async if bench.is_async else act)
    id_ = await bench.queue.send("body")

    async with bench.worker(grace=0.05) as worker:
        await started.wait()
    free.set()

    assert worker.was_cut_off
    assert [fields["event"] for _, fields in lines(caplog)] == [
        "worker.started", "worker.stopping", "worker.cut_off", "message.release", "worker.stopped",
    ]  # fmt: skip
    assert only(caplog, "worker.cut_off") == ("WARNING", {"event": "worker.cut_off", "running": 1})
    assert only(caplog, "message.")[1]["id"] == id_
    assert only(caplog, "worker.stopped")[1]["cut_off"] is True


async def test_a_lease_that_was_lost_is_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    started, over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def act_async(body: Any, d: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    def act(body: Any, d: Any) -> None:
        loop.call_soon_threadsafe(started.set)
        while not d.lost:
            threading.Event().wait(0.005)
        loop.call_soon_threadsafe(over.set)

    bench.define(act_async if bench.is_async else act, lease=0.9)
    id_ = await bench.queue.send("body")

    async with bench.worker() as worker:
        await started.wait()
        await bench.queue.cancel(id_, running=True)
        await over.wait()
        await eventually(lambda: not worker._busy())

    assert only(caplog, "lease.") == (
        "WARNING",
        {"event": "lease.lost", "queue": bench.queue_name, "id": id_, "attempt": 1},
    )


async def test_a_settle_after_the_lease_was_lost_is_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()

    def act(body: Any, d: Any) -> Any:
        cancelling = bench.queue.cancel(d.id, running=True)
        if bench.is_async:
            return _without_result(cancelling)
        asyncio.run_coroutine_threadsafe(cancelling, loop).result()
        return None

    bench.define(act)
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await eventually(lambda: lines(caplog, "settle."))

    level, fields = only(caplog, "settle.")
    assert (level, fields["event"], fields["id"], fields["verb"]) == ("WARNING", "settle.lost", id_, "ack")


@pytest.mark.parametrize(("verb", "args"), [("ack", ()), ("commit", ()), ("defer", (60,)), ("reject", ("no use",))])
async def test_an_error_after_the_handler_has_settled_is_one_line(
    bench: Bench, caplog: pytest.LogCaptureFixture, verb: str, args: tuple[Any, ...]
) -> None:
    def act(body: Any, d: duly.Delivery) -> None:
        getattr(d, verb)(*args)
        raise ValueError("too late")

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        await getattr(d, verb)(*args)
        raise ValueError("too late")

    handler = act_async if bench.is_async else act
    bench.define(handler)
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await eventually(lambda: lines(caplog, "handler."))

    assert only(caplog, "handler.") == (
        "WARNING",
        {
            "event": "handler.failed_after_settle",
            "queue": bench.queue_name,
            "id": id_,
            "settled": verb,
            "error": "ValueError: too late",
            "at": place_of(handler, 2),
        },
    )


@pytest.mark.parametrize("end", [None, False, Recycle(5), Reject("other"), Defer(5), RetryIn(5)])
async def test_an_outcome_after_the_handler_has_settled_is_not_an_error(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture, end: Any
) -> None:
    def act(body: Any, d: duly.Delivery) -> Any:
        d.ack()
        return end

    async def act_async(body: Any, d: duly.AsyncDelivery) -> Any:
        await d.ack()
        return end

    memory_bench.define(act_async if memory_bench.is_async else act)
    await memory_bench.queue.send("body")

    async with memory_bench.worker() as worker:
        await eventually(lambda: _is_acked(memory_bench))
        await eventually(lambda: not any(runtime.source.held for runtime in worker._runtimes))

    assert lines(caplog, "handler.") == []


async def test_an_error_of_a_handler_that_has_lost_its_message_is_not_one_line_more(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()

    def act(body: Any, d: duly.Delivery) -> None:
        asyncio.run_coroutine_threadsafe(_cancelled(memory_bench, d.id), loop).result()
        d.ack()

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        await _cancelled(memory_bench, d.id)
        await d.ack()

    memory_bench.define(act_async if memory_bench.is_async else act)
    await memory_bench.queue.send("body")

    async with memory_bench.worker() as worker:
        await eventually(lambda: _is_empty(memory_bench))
        await eventually(lambda: not any(runtime.source.held for runtime in worker._runtimes))

    assert lines(caplog, "handler.") == []


async def _cancelled(bench: Bench, id_: str) -> bool:
    return await bench.queue.cancel(id_, running=True)


async def _is_empty(bench: Bench) -> bool:
    return (await bench.queue.stats()).live == 0


async def _without_result(awaitable: Any) -> None:
    await awaitable


async def test_a_lease_that_ran_out_elsewhere_is_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.define(lambda body, d: None)
    id_ = await bench.queue.send("body")
    await bench.queue.receive(limit=1, wait=0, lease=0.01)

    async with bench.worker():
        await eventually(lambda: _is_acked(bench))

    found = [record.getMessage() for record in caplog.records if id_ in record.getMessage()]
    assert len(found) == 1
    assert "ran out" in found[0]


async def _is_acked(bench: Bench) -> bool:
    return (await bench.queue.stats()).acked == 1


@dataclass
class Account:
    password: int


class Struct(msgspec.Struct):
    password: int


class Model(pydantic.BaseModel):
    password: int


@pytest.mark.parametrize("kind", [Account, Struct, Model, bytes, int, None])
@pytest.mark.parametrize("body", [{"password": SECRET}, SECRET, SECRET.encode()], ids=["dict", "str", "bytes"])
async def test_bodies_are_never_logged(
    memory_bench: Bench, caplog: pytest.LogCaptureFixture, kind: Any, body: Any
) -> None:
    """With every outcome. Only the text of a handler's own error may contain the body."""
    ends: list[Any] = [ValueError("broken"), Reject("no use"), Defer(0), Recycle(), False]

    def act(body: Any, d: Any) -> Any:
        end = ends.pop(0) if ends else None
        if isinstance(end, Exception):
            raise end
        return end

    memory_bench.define(act, body=kind, concurrency=1, retry=Retry(first=0))
    await memory_bench.queue.send_many([body] * 5)

    async with memory_bench.worker():
        await eventually(lambda: _is_worked_off(memory_bench))

    assert caplog.records
    for record in caplog.records:
        written = [record.getMessage(), record.exc_text or "", json.dumps(getattr(record, "duly", {}), default=str)]
        assert SECRET not in " ".join(written)


async def _is_worked_off(bench: Bench) -> bool:
    return (await bench.queue.stats()).live == 0


async def test_arguments_of_tasks_are_never_logged(queue_name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with duly.AsyncDuly("memory://") as app:

        @app.task(queue=queue_name)
        async def log_in(user: str, account: Model | None = None, number: int = 0) -> None: ...

        queue = log_in.queue
        for call in (
            {"task": "log_in", "args": [SECRET]},
            {"task": "log_in", "args": ["u", {"password": SECRET}]},
            {"task": "log_in", "args": ["u", None, SECRET]},
            {"task": "log_in", "args": [SECRET, None, 0, SECRET]},
            {"task": "unknown", "args": [SECRET]},
            [SECRET],
        ):
            await queue.send(call)

        async with duly.Worker(app):
            await eventually(lambda: _has_buried(queue, 5))

    assert len(lines(caplog, "message.dead")) == 5
    assert [record.getMessage() for record in caplog.records if SECRET in record.getMessage()] == []


async def _has_buried(queue: duly.AsyncQueue, count: int) -> bool:
    return (await queue.stats()).dead == count


async def test_events_are_logged_as_text_as_well(memory_bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def act(body: Any, d: Any) -> None:
        raise ValueError('two\nlines and "quotes"')

    memory_bench.define(act, retry=Retry(first=60, jitter=0))
    id_ = await memory_bench.queue.send("body")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    (record,) = [record for record in caplog.records if "message.retry" in record.getMessage()]
    assert record.getMessage() == (
        f"message.retry queue={memory_bench.queue_name} id={id_} attempt=1 delay=60.0 "
        'error="ValueError: two\\nlines and \\"quotes\\"" '
        f"at={place_of(act)}"
    )


async def test_a_worker_that_stops_sums_up_its_retries(memory_bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def act(body: Any, d: Any) -> None:
        raise ValueError("no stock")

    memory_bench.define(act, retry=Retry(first=60, jitter=0))
    await memory_bench.queue.send_many([1, 2, 3])

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=3, delivered=3, retried=3, delayed=3)
        assert lines(caplog, "messages.retried") == []

    level, fields = only(caplog, "messages.retried")
    assert (level, fields["count"], fields["last_error"]) == ("WARNING", 3, "ValueError: no stock")
