"""Lateness and handling times: workers collect them, and the history of the queue shows them."""

import asyncio
import threading
import time
from typing import Any

import pytest

from duly import Histogram
from duly._core.codec import stamped
from duly._core.replies import Claimed
from duly.worker.times import Times
from tests.worker.rig import Bench, eventually


@pytest.fixture
def frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.worker.janitor._HEARTBEAT_EVERY", 0.02)
    monkeypatch.setattr("duly.worker.janitor._REPORT_EVERY", 0.02)


@pytest.mark.usefixtures("frequent_reports")
async def test_a_running_worker_reports_its_times(bench: Bench) -> None:
    """new-3."""
    bench.define(lambda body, d: time.sleep(0.03))
    await bench.queue.send_many(["a", "b", "c"])

    async with bench.worker():
        await eventually(lambda: _has_times(bench, 3))

    stats = await bench.queue.stats(history="1h")
    assert stats.handling_times.total >= 0.09
    assert sum(point.lateness.count for point in stats.history) == 3


@pytest.mark.usefixtures("frequent_reports")
async def test_times_do_not_wait_for_a_handler_that_takes_long(bench: Bench) -> None:
    end: Any = asyncio.Event() if bench.is_async else threading.Event()
    bench.define(lambda body, d: end.wait() if body == "slow" else None)
    await bench.queue.send_many([*["quick"] * 5, "slow"])

    async with bench.worker():
        await eventually(lambda: _has_handled(bench, 5))
        end.set()
        await eventually(lambda: _has_handled(bench, 6))


async def _has_handled(bench: Bench, count: int) -> bool:
    return (await bench.queue.stats()).handling_times.count == count


async def _has_times(bench: Bench, count: int) -> bool:
    stats = await bench.queue.stats()
    return (stats.lateness_times.count, stats.handling_times.count) == (count, count)


async def test_a_worker_that_stops_reports_the_last_times(bench: Bench) -> None:
    bench.define(lambda body, d: time.sleep(0.001))
    await bench.queue.send_many(["a", "b"])

    async with bench.worker():
        await eventually(lambda: _is_acked(bench, 2))

    assert await _has_times(bench, 2)


async def _is_acked(bench: Bench, count: int) -> bool:
    return (await bench.queue.stats()).acked == count


@pytest.mark.parametrize(("is_group", "bucket"), [(False, 0), (True, 3)])
def test_an_entry_is_due_when_it_was_published(is_group: bool, bucket: int) -> None:
    times = Times(is_group=is_group)
    now = 1_800_000_000_000_000
    record = stamped(now - 20_000, now - 500, b"")
    times.add_claimed(Claimed(False, False, now, None, now, [b"a"], [record], [b""], []))

    lateness, handling = times.take()

    counts = [int(number) for number in lateness.split(",")[1:]]
    assert counts == [int(at == bucket) for at in range(len(Histogram.BOUNDS) + 1)]
    assert (handling, times.has_any) == (",".join("0" * 18), False)
