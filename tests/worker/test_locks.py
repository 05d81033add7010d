"""Locks and effects in handlers: three ways to handle a busy lock, exclusion, and at most once through a crash."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

import duly
from duly import Defer, Retry, Wait, once
from tests.conftest import StartedServer
from tests.waiting import PATIENCE, wait_until
from tests.worker.rig import (
    ALL_FLAVOURS,
    FLAVOURS,
    SOON,
    Act,
    Bench,
    WorkerProcess,
    counted,
    eventually,
    given_bench,
    module_of,
)

OTHERS: Final = 300
INCREMENTS: Final = 40


@pytest.fixture(params=ALL_FLAVOURS)
async def any_bench(request: pytest.FixtureRequest, backend: str, queue_name: str) -> AsyncIterator[Bench]:
    async with given_bench(backend, queue_name, request.param) as bench:
        yield bench


class Guarded:
    """A handler that works under a lock, `def` or `async def`. It adds one to a number, without any atomic step."""

    def __init__(self, on_busy: Any, *, through_app: bool = False) -> None:
        self.options = {"ttl": 60, "on_busy": on_busy}
        self.through_app = through_app
        self.total = 0
        self.fences: list[int] = []
        self.done: list[Any] = []

    def of(self, bench: Bench) -> Act:
        async def work_async(body: Any, d: Any) -> None:
            async with self._lock(bench, d, body) as lock:
                self.fences.append(lock.fence)
                before = self.total
                await asyncio.sleep(0.001)
                self.total = before + 1
                self.done.append(body)

        def work(body: Any, d: Any) -> None:
            with self._lock(bench, d, body) as lock:
                self.fences.append(lock.fence)
                before = self.total
                time.sleep(0.001)
                self.total = before + 1
                self.done.append(body)

        return work_async if bench.is_async else work

    def _lock(self, bench: Bench, d: Any, name: Any) -> Any:
        if not self.through_app:
            return d.lock(f"{bench.queue_name}:{name}", **self.options)
        app = bench.app if bench.is_async == isinstance(bench.app, duly.AsyncDuly) else bench.aio
        return app.lock(f"{bench.queue_name}:{name}", **self.options)


def stuck(bench: Bench) -> duly.AsyncLock:
    """Return the lock of messages whose body is "stuck"."""
    return bench.aio.lock(f"{bench.queue_name}:stuck", ttl=3600)


# Three ways to handle a busy lock


async def test_a_handler_may_let_its_message_be_deferred(any_bench: Bench) -> None:
    """002-6 004-5."""
    handler = Guarded(Defer(0.02))
    any_bench.define(handler.of(any_bench))
    async with any_bench.worker():
        async with stuck(any_bench):
            id_ = await any_bench.queue.send("stuck")
            await eventually(lambda: _defers_reach(any_bench, id_, 3))
        await eventually(lambda: handler.done == ["stuck"])
        await eventually(lambda: _is_empty(any_bench))

    found = await counted(any_bench.queue)
    assert found["acked"] == 1
    assert found["deferred"] >= 3
    assert found["delivered"] == found["deferred"] + 1
    assert "retried" not in found


async def test_a_handler_may_raise_and_its_message_is_retried(bench: Bench) -> None:
    """002-4 004-5."""
    handler = Guarded("raise")
    bench.define(handler.of(bench), retry=Retry(attempts=2, first=0.01))
    async with stuck(bench), bench.worker():
        id_ = await bench.queue.send("stuck")
        await bench.comes_to(sent=1, delivered=2, retried=1, buried=1, dead=1)

    message = await bench.seen(id_)
    assert message.reason == "failed at attempt 2 of 2"
    assert message.errors[-1].error.startswith(f"LockBusy: lock '{bench.queue_name}:stuck' is held by ")
    assert handler.done == []


async def test_a_handler_may_wait(bench: Bench) -> None:
    """002-5 004-5."""
    handler = Guarded(Wait(SOON))
    bench.define(handler.of(bench))
    async with bench.worker():
        async with stuck(bench):
            await bench.queue.send("stuck")
            await eventually(lambda: _is_leased(bench))
        await bench.comes_to(sent=1, delivered=1, acked=1)

    assert handler.done == ["stuck"]


async def test_a_handler_that_is_cut_off_while_it_waits_leaves_the_lock_to_others(
    backend: str, queue_name: str
) -> None:
    handler = Guarded(Wait(PATIENCE))
    async with given_bench(backend, queue_name, "AsyncDuly, async def") as bench:
        bench.define(handler.of(bench))
        async with stuck(bench):
            async with bench.worker(grace=0.1):
                await bench.queue.send("stuck")
                await eventually(lambda: _is_leased(bench))
            await bench.comes_to(sent=1, delivered=1, released=1, ready=1)
        async with stuck(bench):
            pass

    assert handler.done == []


# A lock that is never freed


async def test_a_lock_that_is_never_freed_does_not_hold_up_other_messages(bench: Bench) -> None:
    """002-5. One handler at a time: it would be enough to sleep in it once."""
    handler = Guarded(Defer(0.01))
    bench.define(handler.of(bench), concurrency=1)
    async with stuck(bench):
        id_ = await bench.queue.send("stuck", priority=9)
        await bench.queue.send_many(range(OTHERS))
        async with bench.worker():
            await eventually(lambda: len(handler.done) == OTHERS)
            await eventually(lambda: _defers_reach(bench, id_, 2))

        message = await bench.seen(id_)
        assert message.state in ("ready", "delayed")
        assert (message.failures, message.crashes) == (0, 0)
    assert sorted(handler.done) == list(range(OTHERS))


async def test_with_a_limit_the_message_that_it_blocks_is_dead_in_the_end(bench: Bench) -> None:
    """002-6."""
    received: list[duly.Message] = []
    bench.app.on_dead(received.append)
    handler = Guarded(Defer(0.01, factor=1.5, max=0.05, limit=4))
    bench.define(handler.of(bench), concurrency=2)
    async with stuck(bench):
        id_ = await bench.queue.send("stuck")
        await bench.queue.send_many(range(OTHERS))
        async with bench.worker():
            await bench.comes_to(sent=OTHERS + 1, delivered=OTHERS + 5, deferred=4, acked=OTHERS, buried=1, dead=1)
            await eventually(lambda: len(received) == 1)

    message = await bench.seen(id_)
    assert message.reason == f"deferred 4 times: lock '{bench.queue_name}:stuck' was busy"
    assert (message.defers, message.failures, received[0].id) == (4, 0, id_)


async def test_the_delays_of_a_handler_that_defers_grow(bench: Bench) -> None:
    delays: list[float] = []

    def act(body: Any, d: Any) -> None:
        if d.defers:
            delays.append((d.due_at - due_before[0]).total_seconds())
        due_before[:] = [d.due_at]
        if d.defers < 4:
            raise Defer(0.1, factor=2, max=0.4)

    due_before: list[Any] = []
    bench.define(act)
    await bench.queue.send("body")
    async with bench.worker():
        await bench.comes_to(sent=1, delivered=5, deferred=4, acked=1)

    for delay, least in zip(delays, [0.1, 0.2, 0.4, 0.4], strict=True):
        assert delay >= least
    assert sum(delays) < SOON


# Exclusion


@pytest.mark.parametrize("on_busy", [Wait(PATIENCE), Defer(0.005)], ids=repr)
@pytest.mark.parametrize("through_app", [False, True], ids=["d.lock", "app.lock"])
@pytest.mark.parametrize("flavour", FLAVOURS)
async def test_two_workers_add_up_without_losing_anything(
    backend: str, queue_name: str, flavour: str, through_app: bool, on_busy: Any
) -> None:
    url = f"{backend}{queue_name}" if backend.startswith("memory") else backend
    handler = Guarded(on_busy, through_app=through_app)
    async with given_bench(url, queue_name, flavour) as one, given_bench(url, queue_name, flavour) as other:
        for bench in (one, other):
            bench.define(handler.of(bench), concurrency=4)
        await one.queue.send_many(["total"] * INCREMENTS)
        async with one.worker(), other.worker():
            await eventually(lambda: _is_empty(one), PATIENCE)

    assert handler.total == INCREMENTS
    assert len(handler.fences) == INCREMENTS
    assert handler.fences == sorted(set(handler.fences))


@pytest.mark.slow
def test_two_processes_add_up_without_losing_anything(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    source = module_of(
        queue_name,
        "",
        """
        from pathlib import Path

        @orders.handler(concurrency=4)
        def on_order(body, d):
            with d.lock("total of " + d.queue, ttl=60, on_busy=duly.Wait(60)) as lock:
                total = int(Path("total").read_text())
                note("enter", fence=lock.fence)
                time.sleep(0.002)
                Path("total").write_text(str(total + 1))
                note("leave", fence=lock.fence)
        """,
    )
    (tmp_path / "total").write_text("0")
    url = server("valkey").url
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as one, WorkerProcess(url, tmp_path, source):
        queue = app.queue(queue_name)
        queue.send_many(range(INCREMENTS))
        wait_until(lambda: queue.stats().acked == INCREMENTS)
        notes = one.notes()

    assert (tmp_path / "total").read_text() == str(INCREMENTS)
    assert [note["what"] for note in notes] == ["enter", "leave"] * INCREMENTS
    fences = [note["fence"] for note in notes[::2]]
    assert fences == sorted(set(fences))
    assert [note["fence"] for note in notes[1::2]] == fences


# Once


async def test_a_handler_that_fails_may_try_its_effect_again_and_a_duplicate_may_not(bench: Bench) -> None:
    effects: list[tuple[Any, bool]] = []

    async def act_async(body: Any, d: Any) -> None:
        _act(body, d, await once(d, f"charge {bench.queue_name}", 60))

    def act(body: Any, d: Any) -> None:
        _act(body, d, once(d, f"charge {bench.queue_name}", 60))

    def _act(body: Any, d: Any, may: bool) -> None:
        effects.append((body, may))
        if d.failures == 0 and body == "first":
            raise ConnectionError("the bank did not answer")

    bench.define(act_async if bench.is_async else act, retry=Retry(attempts=3, first=0.01), concurrency=1)
    async with bench.worker():
        await bench.queue.send("first")
        await bench.comes_to(sent=1, delivered=2, retried=1, acked=1)
        await bench.queue.send("duplicate")
        await bench.comes_to(sent=2, delivered=3, retried=1, acked=2)

    assert effects == [("first", True), ("first", True), ("duplicate", False)]


@pytest.mark.slow
def test_an_effect_of_a_worker_that_was_killed_is_not_repeated(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    source = module_of(
        queue_name,
        "lease=3",
        """
        @orders.handler
        def on_order(body, d):
            may = duly.once(d, "charge of " + d.queue, 600)
            note("asked", may=may, crashes=d.crashes)
            if may:
                note("effect")
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    url = server("valkey").url
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as first:
        queue = app.queue(queue_name)
        queue.send("body")
        assert first.wait() == -9
        with WorkerProcess(url, tmp_path, source) as second:
            wait_until(lambda: queue.stats().acked == 1)
            notes = second.notes()

    assert [(note["what"], note.get("may"), note.get("crashes")) for note in notes] == [
        ("asked", True, 0),
        ("effect", None, None),
        ("asked", False, 1),
    ]


async def _defers_reach(bench: Bench, id_: str, count: int) -> bool:
    message = await bench.queue.get(id_)
    return message is not None and message.defers >= count


async def _is_leased(bench: Bench) -> bool:
    return (await bench.queue.stats()).leased == 1


async def _is_empty(bench: Bench) -> bool:
    return (await bench.queue.stats()).live == 0
