"""Limits in workers: the sum over all workers is within the limit, no message is left, and no worker spins."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import duly
from tests.conftest import StartedServer, need
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess, eventually, module_of

TOLERANCE: Final = 0.1


@pytest.mark.slow
@pytest.mark.quiet
def test_two_workers_share_a_rate(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    url, rate, seconds = server("valkey").url, 50, 0.5
    source = module_of(
        queue_name,
        f"rate='{rate}/s'",
        """
        @orders.handler(concurrency=10)
        async def on_order(body, d):
            note("begin", id=d.id, fence=d.fence)
        """,
    )
    with (
        duly.Duly(url) as app,
        WorkerProcess(url, tmp_path, source) as one,
        WorkerProcess(url, tmp_path, source) as other,
    ):
        one.wait_for_start()
        other.wait_for_start()
        queue = app.queue(queue_name)
        queue.send_many(range(220))
        wait_until(lambda: queue.stats().live == 0)

        notes = one.notes("begin")
        claims = sorted(note["fence"] / 1e6 for note in notes)
        assert len(claims) == 220
        # From the first claim on, the count never exceeds the share of the elapsed time by more than one. No stretch
        # has more than that and the allowance that it may catch up with.
        assert all(n <= 1 + (at - claims[0] + 1e-3) * rate for n, at in enumerate(claims, 1))
        for i, start in enumerate(claims):
            for n, at in enumerate(claims[i:], 1):
                assert n <= 1 + (TOLERANCE + at - start + 1e-3) * rate
        # The limit is used up in most stretches. In the others the machine may have been busy.
        stretches = Counter(int((at - claims[0]) / seconds) for at in claims)
        well_used = [n for n in stretches.values() if n >= 0.7 * rate * seconds]
        assert len(well_used) >= 220 / (rate * seconds) / 2, stretches
        assert one.stop() == other.stop() == 0


@pytest.fixture
def shared(backend: str, queue_name: str) -> str:
    """Return an address that two apps of this process share."""
    return f"{backend}{queue_name}" if backend == "memory://" else backend


async def test_workers_together_hold_no_more_than_allowed(shared: str, queue_name: str) -> None:
    running, most, done, handlers = 0, 0, list[int](), list[int]()

    async def handle(worker: int, body: int) -> None:
        nonlocal running, most
        handlers.append(worker)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done.append(body)

    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(duly.AsyncDuly(shared)) for _ in range(2)]
        for number, app in enumerate(apps):

            async def on_message(body: int, number: int = number) -> None:
                await handle(number, body)

            app.queue(queue_name, max_in_flight=3).handler(concurrency=10)(on_message)
        queue = apps[0].queue(queue_name)
        await queue.send_many(range(60))
        for app in apps:
            await stack.enter_async_context(duly.Worker(app, duly.WorkerOptions()))
        await eventually(lambda: len(done) == 60)

    assert most == 3
    assert set(handlers) == {0, 1}
    assert sorted(done) == list(range(60))


async def test_a_worker_continues_when_another_makes_room(shared: str, queue_name: str) -> None:
    """A worker that polls only every 5 s is woken when another consumer settles its message."""
    done: list[int] = []

    async with duly.AsyncDuly(shared) as app, duly.AsyncDuly(shared) as other:
        queue = app.queue(queue_name, max_in_flight=1, lease=60)

        @queue.handler(concurrency=10)
        async def on_message(body: int, d: duly.AsyncDelivery) -> None:
            done.append(body)

        elsewhere = other.queue(queue_name, max_in_flight=1, lease=60)
        await elsewhere.send_many(range(3))
        (held,) = await elsewhere.receive(limit=10, wait=0)
        async with duly.Worker(app, duly.WorkerOptions()):
            await asyncio.sleep(0.3)
            assert done == []
            begin = time.monotonic()
            await held.ack()
            await eventually(lambda: done == [1, 2])
            assert time.monotonic() - begin < 4


# --- No worker spins -------------------------------------------------------------------------------------------------

PERIOD: Final = 1.0
SENDS: Final = 60
MOST_CALLS: Final = 4.0
"""Scripts per second: one poll per period, a heartbeat, a renewal, and some to spare."""

JOBS: Final = """
orders = app.queue("orders", lease=6, {options})


@orders.handler(concurrency=10)
async def handle(body, d):
    note("begin", id=d.id)
    await asyncio.sleep(body)
"""


@contextmanager
def limited_worker(directory: Path, options: str) -> Iterator[tuple[Server, Any]]:
    """Return a server with one worker, which serves only a limited queue."""
    need("valkey")
    with (
        Server("valkey") as server,
        redis.Redis.from_url(server.url) as client,
        WorkerProcess(server.url, directory, JOBS.format(options=options)) as worker,
    ):
        worker.wait_for_start()
        yield server, client


def scripts_run(client: Any) -> int:
    stats = client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("evalsha", "eval", "blpop"))


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.parametrize(("options", "seconds"), [("rate='1/m'", 0), ("max_in_flight=1", 30)])
def test_a_worker_that_waits_for_a_limit_does_not_spin(tmp_path: Path, options: str, seconds: float) -> None:
    with limited_worker(tmp_path, options) as (server, client), duly.Duly(server.url) as app:
        queue = app.queue("orders")
        queue.send_many([seconds] * 20)
        wait_until(lambda: queue.stats().delivered == 1)
        time.sleep(PERIOD / 2)
        began, before = time.monotonic(), scripts_run(client)
        for _ in range(SENDS):
            queue.send(seconds)
            time.sleep(0.02)
        calls = scripts_run(client) - before - SENDS

        assert calls <= MOST_CALLS * (time.monotonic() - began + 1)
        assert queue.stats().delivered == 1
