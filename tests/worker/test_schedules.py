"""Schedules fired by workers: one message per occurrence, even if workers are killed, and without other traffic."""

import random
import time
from collections import defaultdict
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import duly
from duly._core import ops
from duly._core.keys import QueueKeys
from duly._core.schedules import read_row
from tests.conftest import StartedServer, need
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker.rig import FLAVOURS, WorkerProcess, eventually, given_bench, module_of

EVERY: Final = 0.2
WORKERS: Final = 3
KILLS: Final = 8

DECLARED: Final = """
    app.schedule({name!r}, orders, "body", every={every}, catch_up="all")

    @orders.handler
    async def on_order(body, d):
        note("slot", id=d.id, run=d.headers["duly-slot"], wall=time.time())
        await asyncio.sleep(0.05)
"""


def runs_of(notes: list[dict[str, Any]]) -> dict[datetime, set[str]]:
    """Return the messages of each occurrence."""
    found = defaultdict(set)
    for each in notes:
        found[datetime.fromisoformat(each["run"])].add(each["id"])
    return found


@pytest.mark.fault
@pytest.mark.slow
def test_workers_that_are_killed_leave_one_message_for_each_run(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    """Every worker declares the schedule at its start. At random moments a worker is killed, and another one starts."""
    url = server("valkey").url
    source = module_of(queue_name, "lease=1, crash_limit=1000", DECLARED.format(name=queue_name, every=EVERY))
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)

        def start() -> WorkerProcess:
            return stack.enter_context(WorkerProcess(url, tmp_path, source))

        workers = [start() for _ in range(WORKERS)]
        for _ in range(KILLS):
            victim = workers.pop(chance.randrange(WORKERS)).wait_for_start()
            time.sleep(chance.uniform(0, 3 * EVERY))
            victim.kill9()
            workers.append(start())
        wait_until(lambda: len(runs_of(workers[0].notes("slot"))) > 30)
        for worker in workers:  # otherwise a worker that starts later declares the schedule again
            worker.wait_for_start()
        assert app.unschedule(queue_name)
        wait_until(lambda: queue.stats().live == 0)
        assert [worker.stop() for worker in workers] == [0] * WORKERS

        runs = runs_of(workers[0].notes("slot"))
        first = min(runs)
        assert sorted(runs) == [first + timedelta(seconds=EVERY) * number for number in range(len(runs))]
        assert {len(ids) for ids in runs.values()} == {1}
        stats = queue.stats()
        assert (stats.sent, stats.acked) == (len(runs), len(runs))
        assert queue.audit().ok


@pytest.mark.slow
def test_an_idle_worker_fires_without_other_traffic(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    """The lease is long: without the next due time the worker would poll every 5 s, and miss four of five."""
    url = server("valkey").url
    source = module_of(queue_name, "lease=60", DECLARED.format(name=queue_name, every=1).replace('"all"', '"one"'))
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as worker:
        worker.wait_for_start()

        wait_until(lambda: len(runs_of(worker.notes("slot"))) >= 8)

        app.unschedule(queue_name)
        notes = worker.notes("slot")
        runs = runs_of(notes)
        assert {len(ids) for ids in runs.values()} == {1}
        assert len(runs) > 0.6 * (max(runs) - min(runs)).total_seconds(), sorted(runs)
        assert all(each["wall"] >= datetime.fromisoformat(each["run"]).timestamp() for each in notes)


@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_a_worker_handles_each_run_once(backend: str, queue_name: str, flavour: str) -> None:
    seen: list[str] = []
    async with given_bench(backend, queue_name, flavour) as bench:
        bench.define(lambda body, d: seen.append(d.headers["duly-slot"]))
        await bench.aio.schedule(queue_name, bench.queue, "body", every=0.1, catch_up="all")
        async with bench.worker():
            await eventually(lambda: len(seen) >= 12)
            await bench.aio.unschedule(queue_name)
            await eventually(lambda: _is_empty(bench.queue))

    moments = sorted(datetime.fromisoformat(run) for run in seen)
    assert moments == [moments[0] + timedelta(seconds=0.1) * number for number in range(len(moments))]


async def _is_empty(queue: duly.AsyncQueue) -> bool:
    return (await queue.stats()).live == 0


async def test_a_full_worker_sends_the_runs_later(backend: str, queue_name: str) -> None:
    """It claims nothing during that time. With catch_up="all" nothing is missing afterwards."""
    seen: list[str] = []
    is_released = False

    async def act(body: Any, d: duly.AsyncDelivery) -> None:
        if body == "slow":
            await eventually(lambda: is_released)
        else:
            seen.append(d.headers["duly-slot"])

    async with given_bench(backend, queue_name, "AsyncDuly, async def") as bench:
        bench.define(act, concurrency=1)
        await bench.queue.send("slow")
        async with bench.worker():
            await eventually(lambda: _is_leased(bench.queue))
            await bench.aio.schedule(queue_name, bench.queue, "quick", every=0.1, catch_up="all")
            await eventually(lambda: _has_waited(bench, 0.5))
            is_released = True
            await eventually(lambda: len(seen) >= 8)
            await bench.aio.unschedule(queue_name)
            await eventually(lambda: _is_empty(bench.queue))

    moments = sorted(datetime.fromisoformat(run) for run in seen)
    assert moments == [moments[0] + timedelta(seconds=0.1) * number for number in range(len(moments))]


async def _is_leased(queue: duly.AsyncQueue) -> bool:
    return (await queue.stats()).leased == 1


async def _has_waited(bench: Any, seconds: float) -> bool:
    """Return whether occurrences have been due for this long without a message."""
    (schedule,) = [each for each in await bench.aio.schedules() if each.name == bench.queue_name]
    assert schedule.last_slot is None
    row = (await bench.aio._link.run(ops.schedules(bench.queue._keys))).rows[bench.queue_name]
    return time.time() * 1e6 - read_row(row).after > seconds * 1e6


@pytest.mark.quiet
@pytest.mark.slow
def test_a_schedule_that_cannot_be_read_keeps_no_worker_busy(tmp_path: Path) -> None:
    need("valkey")
    source = 'app.queue("orders", lease=6).handler(lambda body: note("body", body=body))'
    with Server("valkey") as own, WorkerProcess(own.url, tmp_path, source) as worker, duly.Duly(own.url) as app:
        worker.wait_for_start()
        app._link.run(ops.schedule(QueueKeys("duly", "orders"), "newer", b"\xff?"))
        wait_until(lambda: "'newer'" in worker.log())
        with redis.Redis.from_url(own.url) as client:

            def calls() -> int:
                return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])

            before, used = calls(), worker.cpu_seconds()
            time.sleep(3)  # in which it polls three times, and sends a heartbeat
            assert calls() - before < 12
            assert worker.cpu_seconds() - used < 0.6
        app.queue("orders").send("after all")
        wait_until(lambda: [each["body"] for each in worker.notes("body")] == ["after all"])
        assert worker.log().count("'newer'") == 1
        assert worker.stop() == 0
