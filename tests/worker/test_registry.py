"""The registry of workers: the entry of a running worker, and its removal when the worker stops."""

import asyncio
import os
import socket
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

import duly
from duly import Retry
from tests.worker.rig import Bench, eventually, given_bench


@pytest.fixture(autouse=True)
def _frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.worker.janitor._HEARTBEAT_EVERY", 0.02)


async def entries(bench: Bench) -> list[duly.WorkerInfo]:
    """Return the workers of this test."""
    return [worker for worker in await bench.aio.workers() if bench.queue_name in worker.queues]


async def entry(bench: Bench) -> duly.WorkerInfo:
    """Return the worker of this test after its first heartbeat."""
    await eventually(lambda: _is_shown(bench, 1))
    (worker,) = await entries(bench)
    return worker


async def _is_shown(bench: Bench, count: int) -> bool:
    return len(await entries(bench)) == count


async def _has(bench: Bench, **fields: Any) -> bool:
    worker = await entry(bench)
    return {name: getattr(worker, name) for name in fields} == fields


async def test_a_worker_is_listed_with_host_and_pid(bench: Bench) -> None:
    bench.define(lambda body, d: None)
    before = datetime.now(UTC)

    async with bench.worker(concurrency=7) as running:
        worker = await entry(bench)

    assert (worker.host, worker.pid) == (socket.gethostname(), os.getpid())
    assert (worker.queues, worker.concurrency) == ((bench.queue_name,), 7)
    assert before <= worker.started_at <= datetime.now(UTC)
    assert (worker.in_flight, worker.handled, worker.version) == (0, 0, duly.__version__)
    assert worker.last_poll is not None
    assert 0 <= worker.last_beat <= worker.last_poll
    assert worker.id == running._async_app._link.consumer


async def test_the_first_beat_does_not_wait(backend: str, queue_name: str) -> None:
    """With the usual interval of heartbeats."""
    async with given_bench(backend, queue_name, "AsyncDuly, async def") as bench:
        bench.define(lambda body, d: None)
        async with bench.worker():
            await eventually(lambda: _is_shown(bench, 1), timeout=4)


async def test_all_queues_of_a_worker_are_listed_with_their_sums(bench: Bench, queue_name: str) -> None:
    other = f"other-{queue_name}"[:120]
    bench.define(lambda body, d: None, concurrency=2)
    bench.define(lambda body, d: None, queue=other, concurrency=3)

    async with bench.worker():
        worker = await entry(bench)

    assert (worker.queues, worker.concurrency) == ((bench.queue_name, other), 5)


async def test_messages_in_flight_are_counted(bench: Bench) -> None:
    free, freed = threading.Event(), asyncio.Event()

    async def act_async(body: Any, d: Any) -> None:
        await freed.wait()

    def act(body: Any, d: Any) -> None:
        free.wait()

    bench.define(act_async if bench.is_async else act)
    await bench.queue.send_many(range(3))

    async with bench.worker():
        await eventually(lambda: _has(bench, in_flight=3, handled=0))
        worker = await entry(bench)
        assert dict((await bench.queue.pending()).consumers) == {worker.id: 3}
        free.set()
        freed.set()
        await eventually(lambda: _has(bench, in_flight=0, handled=3))


async def test_handled_messages_are_counted(bench: Bench) -> None:
    """Finished, failed, dead, and settled by the handler."""

    def act(body: str, d: Any) -> Any:
        if body == "fails":
            raise ValueError("broken")
        if body == "acks":
            return d.ack()
        return {"succeeds": None, "rejects": duly.Reject("no use"), "defers": duly.Defer(60)}[body]

    bench.define(act, retry=Retry(first=60))
    await bench.queue.send_many(["succeeds", "fails", "acks", "rejects", "defers"])

    async with bench.worker():
        await eventually(lambda: _has(bench, in_flight=0, handled=5))


async def test_a_worker_that_stops_in_order_is_gone_at_once(bench: Bench) -> None:
    bench.define(lambda body, d: None)

    async with bench.worker():
        await entry(bench)

    assert await entries(bench) == []


async def test_a_worker_that_stops_at_once_is_removed(bench: Bench) -> None:
    bench.define(lambda body, d: None)

    async with bench.worker():
        pass

    assert await entries(bench) == []
    await asyncio.sleep(0.05)
    assert await entries(bench) == []


async def test_each_worker_has_its_own_entry(bench: Bench) -> None:
    bench.define(lambda body, d: None)

    async with bench.worker() as first:
        async with bench.worker() as second:
            await eventually(lambda: _is_shown(bench, 2))
            ids = {worker.id for worker in await entries(bench)}
            assert ids == {first._async_app._link.consumer, second._async_app._link.consumer}
        assert [worker.id for worker in await entries(bench)] == [first._async_app._link.consumer]


async def test_heartbeats_continue(bench: Bench) -> None:
    bench.define(lambda body, d: None)

    async with bench.worker():
        worker = await entry(bench)
        for _ in range(3):
            await bench.queue.send("body")
        await eventually(lambda: _has(bench, handled=3))
        assert (await entry(bench)).started_at == worker.started_at


async def test_a_sync_app_shows_the_same(backend: str, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with given_bench(backend, queue_name, "Duly, def") as bench:
        assert isinstance(bench.app, duly.Duly)
        bench.define(lambda body, d: None)

        async with bench.worker():
            worker = await entry(bench)
            (shown,) = [each for each in bench.app.workers() if each.id == worker.id]
            assert (shown.pid, shown.queues) == (worker.pid, worker.queues)


def test_app_run_is_listed_and_removed(backend: str, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread, where there are no signals."""
    workers: list[duly.Worker] = []
    started = threading.Event()

    class Noted(duly.Worker):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            workers.append(self)

    monkeypatch.setattr("duly.worker.event_loop.Worker", Noted)
    with duly.Duly(backend) as app:
        queue = app.queue(queue_name)
        handled = threading.Event()

        @queue.handler
        def on_message(body: Any) -> None:
            handled.set()

        app.on_start(started.set)
        queue.send("body")
        thread = threading.Thread(target=app.run, kwargs={"grace": 5})
        thread.start()
        assert started.wait(20)
        assert handled.wait(20)
        workers[0]._loop.call_soon_threadsafe(workers[0].stop)
        thread.join(20)

        assert not thread.is_alive()
        assert [each for each in app.workers() if queue_name in each.queues] == []
        stats = queue.stats()
        assert (stats.acked, stats.live) == (1, 0)
