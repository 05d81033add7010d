"""Bugs that workers once had, one test for each."""

import asyncio
import logging
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import duly
from duly import Batch, Defer, Keep, Reject, Retry, RetryIn
from duly._core.keys import QueueKeys
from duly.worker import logs
from tests.conftest import StartedServer
from tests.servers import Server
from tests.waiting import PATIENCE, wait_until
from tests.warm import WarmPopen
from tests.worker.rig import Bench, WorkerProcess, comes_to, eventually, given_bench, module_of, raising

FOREVER: Final = 600


@pytest.fixture
async def async_bench(queue_name: str) -> AsyncIterator[Bench]:
    async with given_bench("memory://", queue_name, "AsyncDuly, async def") as bench:
        yield bench


@pytest.fixture
async def server_bench(server: StartedServer, queue_name: str) -> AsyncIterator[Bench]:
    async with given_bench(server("valkey").url, queue_name, "AsyncDuly, async def") as bench:
        yield bench


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Block threads for the time of the test."""
    event = threading.Event()
    yield event
    event.set()


async def make_suspect(queue: duly.AsyncQueue) -> None:
    """Make a consumer claim the only message of a queue, and crash."""
    assert len(await queue.receive(limit=1, lease=0.05)) == 1
    await asyncio.sleep(0.1)


# Suspects


async def test_a_suspect_that_hangs_does_not_hold_up_the_others(queue_name: str, gate: threading.Event) -> None:
    async with given_bench("memory://", queue_name, "Duly, def") as bench:
        others: list[Any] = []
        began = threading.Event()

        def hang(body: Any, d: Any) -> None:
            began.set()
            gate.wait()

        bench.define(hang, lease=0.3, max_runtime=0.1, crash_limit=2)
        bench.define(lambda body, d: others.append(body), queue=f"{queue_name}-other")
        await bench.queue.send("poor")
        await make_suspect(bench.queue)

        async with bench.worker(grace=0):
            await eventually(began.is_set)
            await bench.aio.queue(f"{queue_name}-other").send("well")
            await eventually(lambda: others == ["well"])


async def test_a_handler_that_hung_long_ago_does_not_make_every_suspect_wait(
    queue_name: str, gate: threading.Event
) -> None:
    async with given_bench("memory://", queue_name, "Duly, def") as bench:
        crashes: list[int] = []

        def hang(body: Any, d: Any) -> None:
            crashes.append(d.crashes)
            gate.wait()

        bench.define(hang, lease=0.3, max_runtime=0.1, crash_limit=3)
        await bench.queue.send("poor")

        async with bench.worker(grace=0):
            await bench.comes_to(sent=1, delivered=3, crashed=3, buried=1, dead=1)

        assert crashes == [0, 1, 2]


async def test_a_suspect_behind_higher_priorities_does_not_block_them(async_bench: Bench) -> None:
    done: list[Any] = []
    began, all_done = asyncio.Event(), asyncio.Event()

    async def act(body: Any, d: Any) -> None:
        if body == "long":
            began.set()
            await all_done.wait()
        else:
            done.append(body)

    async_bench.define(act, concurrency=2, lease=FOREVER, crash_limit=2)
    await async_bench.queue.send("poor")
    await make_suspect(async_bench.queue)
    await async_bench.queue.send("long", priority=5)

    async with async_bench.worker(grace=0):
        await eventually(began.is_set)
        for n in range(20):
            await async_bench.queue.send(n, priority=5)
        await eventually(lambda: len(done) >= 20)
        assert "poor" not in done
        all_done.set()
        await async_bench.comes_to(sent=22, delivered=23, crashed=1, acked=22)


# Outcomes


class Busy(Defer):
    def __init__(self) -> None:
        """Forget `super().__init__()`, so that there is no delay."""


class Unnumbered(RetryIn):
    delay = math.nan

    def __init__(self) -> None: ...


class Negative(RetryIn):
    delay = -5

    def __init__(self) -> None: ...


class Coded(Reject):
    def __init__(self) -> None:
        self.reason: Any = 404


def _deferred_by_timedelta() -> Defer:
    outcome = Defer(1)
    outcome.delay = timedelta(seconds=3)  # type: ignore[assignment]
    return outcome


@pytest.mark.parametrize(
    "outcome", [Busy(), Unnumbered(), Negative(), _deferred_by_timedelta()], ids=lambda each: type(each).__name__
)
async def test_an_outcome_with_an_invalid_delay_settles_and_its_slot_continues(
    memory_bench: Bench, outcome: duly.Outcome
) -> None:
    fail = raising(outcome)
    memory_bench.define(
        lambda body, d: fail(body, d) if body == "odd" else None,
        concurrency=1,
        retry=Retry(first=60, jitter=0),
    )
    await memory_bench.queue.send_many(["odd", "well"])

    async with memory_bench.worker() as worker:
        if isinstance(outcome, Defer) and not isinstance(outcome, Busy):
            await eventually(lambda: _is_acked(memory_bench.queue, 1))
        else:
            await memory_bench.comes_to(sent=2, delivered=2, retried=1, delayed=1, acked=1)

    assert not worker.was_cut_off
    assert (await memory_bench.queue.stats()).leased == 0


async def _is_acked(queue: duly.AsyncQueue, count: int) -> bool:
    stats = await queue.stats()
    return stats.acked == count and stats.leased == 0


async def test_a_reason_that_is_not_text_is_stored(memory_bench: Bench) -> None:
    memory_bench.define(raising(Coded()))
    id_ = await memory_bench.queue.send("body")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, buried=1, dead=1)

    assert (await memory_bench.seen(id_)).reason == "404"


# Messages claimed ahead


async def test_a_batch_handler_that_runs_leaves_the_next_batch_to_others(server_bench: Bench) -> None:
    release = asyncio.Event()
    began = asyncio.Event()

    async def act(bodies: Any, d: Any) -> None:
        began.set()
        await release.wait()

    server_bench.define(act, batch=Batch(max=100, wait=0.05))
    await server_bench.queue.send("first")

    async with server_bench.worker():
        await eventually(began.is_set)
        await server_bench.queue.send_many(range(50))
        await asyncio.sleep(0.3)
        await server_bench.comes_to(sent=51, delivered=1, leased=1, ready=50)
        release.set()
        await eventually(lambda: _is_acked(server_bench.queue, 51))


async def test_messages_claimed_ahead_are_released_when_handlers_become_slow(server_bench: Bench) -> None:
    release = asyncio.Event()

    async def act(body: Any, d: Any) -> None:
        if body == "slow":
            await release.wait()

    server_bench.define(act, concurrency=10)
    for _ in range(3):
        await server_bench.queue.send_many(["fast"] * 1000)
    await server_bench.queue.send_many(["slow"] * 1000)

    async with server_bench.worker(grace=0):
        await eventually(lambda: _has_released_excess(server_bench.queue, acked=3000, slots=10))
        release.set()
        await eventually(lambda: _is_acked(server_bench.queue, 4000))


async def _has_released_excess(queue: duly.AsyncQueue, acked: int, slots: int) -> bool:
    stats = await queue.stats()
    return stats.acked == acked and (stats.released > 0 or stats.leased == slots)


# Handlers that are cancelled


async def test_a_thousand_handlers_that_lose_their_leases_at_once_are_all_cancelled(async_bench: Bench) -> None:
    running = 0

    async def act(body: Any, d: Any) -> None:
        nonlocal running
        running += 1
        try:
            await asyncio.sleep(FOREVER)
        finally:
            running -= 1

    async_bench.define(act, concurrency=1000, lease=1)
    await async_bench.queue.send_many(range(1000))

    async with async_bench.worker(grace=0):
        await eventually(lambda: running == 1000)
        while await async_bench.queue.purge("leased"):
            pass
        await eventually(lambda: running == 0)


async def test_a_handler_that_shrugs_a_loss_off_does_not_shade_the_next(async_bench: Bench) -> None:
    began = asyncio.Event()

    async def act(body: Any, d: Any) -> None:
        if body == "second":
            raise ValueError("mine")
        began.set()
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()

    async_bench.define(act, concurrency=1, lease=0.6, retry=Retry(first=60, jitter=0))
    first = await async_bench.queue.send("first")

    async with async_bench.worker(grace=0):
        await eventually(began.is_set)
        await async_bench.queue.cancel(first, running=True)
        second = await async_bench.queue.send("second")
        await eventually(lambda: _has_failed(async_bench, second))

    assert (await async_bench.seen(second)).errors[0].error == "ValueError: mine"


async def _has_failed(bench: Bench, id_: str) -> bool:
    return (await bench.seen(id_)).failures == 1


async def test_slots_live_on_when_tasks_of_finished_handlers_are_cancelled(async_bench: Bench) -> None:
    tasks: set[asyncio.Task[Any]] = set()

    async def act(body: Any, d: Any) -> None:
        here = asyncio.current_task()
        assert here is not None
        if body == "killer":
            for task in tasks - {here}:
                task.cancel()
        tasks.add(here)
        await asyncio.sleep(0.01)

    async_bench.define(act, concurrency=10, retry=Retry(first=0))
    await async_bench.queue.send_many(range(10))

    async with async_bench.worker() as worker:
        await async_bench.comes_to(sent=10, delivered=10, acked=10)
        await async_bench.queue.send_many(["killer", *range(30)])
        await eventually(lambda: _is_acked(async_bench.queue, 41))

    assert not worker.was_cut_off


# Stopping


async def test_two_orders_to_stop_cut_nothing_off_where_nothing_runs(server_bench: Bench) -> None:
    server_bench.define(lambda body, d: None)

    async with server_bench.worker() as worker:
        await server_bench.queue.send("body")
        await server_bench.comes_to(sent=1, delivered=1, acked=1)
        worker.stop()
        worker.stop()

    assert not worker.was_cut_off


async def test_nothing_is_claimed_after_the_order_to_stop(memory_bench: Bench) -> None:
    memory_bench.define(lambda body, d: None)

    async with memory_bench.worker() as worker:
        worker.stop()
        await asyncio.sleep(0.05)
        await memory_bench.queue.send("body")
        await asyncio.sleep(0.2)
        await memory_bench.comes_to(sent=1, ready=1)


async def test_the_order_to_stop_ends_a_hook_that_waits(async_bench: Bench) -> None:
    began = asyncio.Event()

    async def wait() -> None:
        began.set()
        await asyncio.sleep(FOREVER)

    async_bench.define(lambda body, d: None)
    async_bench.app.on_start(wait)
    worker = async_bench.worker()
    running = asyncio.create_task(worker.run())
    await began.wait()
    worker.stop()

    assert await asyncio.wait_for(running, PATIENCE)


async def test_a_server_that_is_away_is_not_waited_for_as_handlers_are(
    server: StartedServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server("valkey")  # or the test is skipped
    monkeypatch.setattr("duly.worker.worker._SETTLE_TIMEOUT", 0.2)
    monkeypatch.setattr("duly.worker.worker._FLUSH_TIMEOUT", 0.2)
    own = Server("valkey")
    try:
        async with given_bench(own.url, queue_name, "AsyncDuly, async def") as bench:
            began, may_end = asyncio.Event(), asyncio.Event()

            async def act(body: Any, d: Any) -> None:
                began.set()
                await may_end.wait()

            bench.define(act)
            await bench.queue.send("body")
            async with asyncio.timeout(PATIENCE), bench.worker(grace=FOREVER) as worker:
                await eventually(began.is_set)
                own.kill9()
                may_end.set()
                await asyncio.sleep(0.1)
            assert worker.was_cut_off
    finally:
        own.close()


# Others


async def test_on_dead_hooks_of_many_messages_use_a_few_threads(async_bench: Bench, gate: threading.Event) -> None:
    lock = threading.Lock()
    running, most, calls = 0, 0, 0

    def on_dead(message: duly.Message) -> None:
        nonlocal running, most, calls
        with lock:
            running += 1
            most = max(most, running)
        gate.wait()
        with lock:
            running -= 1
            calls += 1

    async_bench.define(raising(Reject("no")), concurrency=1)
    async_bench.app.queue(async_bench.queue_name).on_dead(on_dead)
    for n in range(30):
        await async_bench.queue.send(n)

    async with async_bench.worker():
        await async_bench.comes_to(sent=30, delivered=30, buried=30, dead=30)
        await asyncio.sleep(0.1)
        gate.set()
        await eventually(lambda: calls == 30)

    assert most <= 4


def test_a_log_event_stays_on_its_line() -> None:
    text = "bad\n00:00:00 CRITICAL worker.broken error=fake\x1b[31m"
    record = logging.LogRecord("duly", logging.WARNING, __file__, 1, "rejected: %s", (text,), None)

    line = logs._TextLines().format(record)

    assert line.isprintable()
    assert r"bad\n00:00:00" in line


async def test_a_queue_that_cannot_be_tidied_does_not_keep_others_from_it(
    server: StartedServer, server_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.worker.janitor._TIDY_EVERY", 0.05)
    monkeypatch.setattr("duly.worker.janitor._HEARTBEAT_EVERY", 0.05)
    broken, name = server_bench.queue_name, f"{server_bench.queue_name}-other"
    for each in (broken, name):
        server_bench.define(raising(Reject("no")), queue=each, dead=Keep(age=0.1))
    with redis.Redis.from_url(server("valkey").url) as client:
        client.set(QueueKeys("duly", broken).key("dead"), "nonsense")
        other = server_bench.aio.queue(name)
        await other.send_many(range(5))

        async with server_bench.worker(grace=1):
            await comes_to(other, sent=5, delivered=5, buried=5, trimmed=5)
        client.delete(QueueKeys("duly", broken).key("dead"))


# Real processes


SIGNAL_DURING_A_FORK = """
import asyncio, os, signal

os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))  # before the hook of the worker
from duly.worker.signals import handled

async def main():
    received = []
    with handled(received.append):
        child = os.fork()
        if child == 0:
            os._exit(0)  # not reached: the signal is for the child
        _, status = os.waitpid(child, 0)
        await asyncio.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.2)
    print(-os.waitstatus_to_exitcode(status), *received)

asyncio.run(main())
"""


def test_a_signal_during_a_fork_goes_to_the_new_process() -> None:
    """Under load a pool ends its processes before they have started. This used to stop the worker."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNAL_DURING_A_FORK], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == (f"{signal.SIGTERM:d} SIGINT\n", "")


@pytest.mark.fault
@pytest.mark.slow
def test_a_pool_of_processes_in_a_handler_does_not_stop_the_worker(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(
        queue_name,
        "lease=5",
        """
        import multiprocessing

        @orders.handler(concurrency=1)
        def on_order(body):
            with multiprocessing.get_context("fork").Pool(2) as pool:  # leaving it sends SIGTERM
                note("result", result=pool.map(abs, [body, body]))
        """,
    )
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as worker:
        app.queue(queue_name).send_many([-1, -2, -3])
        wait_until(lambda: app.queue(queue_name).stats().acked == 3 or worker.process.poll() is not None)

        assert [note["result"] for note in worker.notes("result")] == [[1, 1], [2, 2], [3, 3]]
        assert "worker.signal" not in worker.log()
        assert worker.stop() == 0


@pytest.mark.fault
@pytest.mark.slow
def test_one_signal_stops_all_workers_of_a_process(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    program = tmp_path / "two.py"
    program.write_text(f"""
import asyncio, logging, os
import duly

logging.basicConfig(level=logging.INFO)

async def main():
    apps = [duly.AsyncDuly(os.environ["DULY_URL"], namespace=name) for name in ("one", "two")]
    for app in apps:
        @app.queue({queue_name!r}).handler
        async def on_message(body): ...
    print(await asyncio.gather(*(app.run() for app in apps)))

asyncio.run(main())
""")
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = WarmPopen(
            [sys.executable, str(program)],
            env={**os.environ, "DULY_URL": server("valkey").url},
            stdout=out,
            stderr=out,
        )
    try:
        wait_until(lambda: log.read_text().count("worker.started") == 2 or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        status = process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait(PATIENCE)

    assert status == 0, log.read_text()
    assert log.read_text().count("worker.stopped cut_off=false") == 2


@pytest.mark.fault
@pytest.mark.slow
def test_no_grace_cuts_nothing_off_where_nothing_runs(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    source = module_of(queue_name, "", "@orders.handler\nasync def on_order(body): ...")
    with WorkerProcess(server("valkey").url, tmp_path, source, "--grace", "0") as worker:
        worker.wait_for_start()
        assert worker.stop() == 0, worker.log()


@pytest.mark.fault
@pytest.mark.slow
def test_a_signal_ends_a_worker_whose_hooks_wait(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    source = module_of(
        queue_name,
        "",
        f"""
        @orders.handler
        async def on_order(body): ...

        @app.on_start
        async def begin():
            note("starting")
            await asyncio.sleep({FOREVER})
        """,
    )
    with WorkerProcess(server("valkey").url, tmp_path, source) as worker:
        wait_until(lambda: bool(worker.notes("starting")))
        assert worker.stop() == 0, worker.log()
        assert "worker.started" not in worker.log()
