"""Keys in workers: each key in order and one at a time, in every kind of handler, through failures and kills."""

import asyncio
import random
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

import duly
from duly import Batch, Defer, Reject, Retry, RetryIn, Send
from tests.conftest import StartedServer
from tests.fault.recorded import assert_drained
from tests.waiting import wait_until
from tests.worker.rig import Bench, WorkerProcess, eventually, module_of

RETRY: Final = Retry(attempts=1000, first=0.01, factor=1.0, max=0.05)


class Boom(Exception):
    """The error of a handler that fails."""


class Watch:
    """Records the order in which messages of a key were completed, and whether two of them ran at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._out: set[str] = set()
        self._chance = random.Random(4)
        self.twice: list[str] = []
        self.completed: dict[str, list[int]] = defaultdict(list)

    def begin(self, key: str) -> None:
        with self._lock:
            if key in self._out:
                self.twice.append(key)
            self._out.add(key)

    def end(self, key: str) -> None:
        with self._lock:
            self._out.discard(key)

    def complete(self, key: str, number: int) -> None:
        with self._lock:
            self.completed[key].append(number)

    def fate(self) -> tuple[float, Exception | None]:
        """Choose how long a handler takes, and how it ends."""
        with self._lock:
            seconds = 0.02 if self._chance.random() < 0.03 else 0.0
            fates: list[Exception | None] = [None, Boom("by chance"), RetryIn(0.01), Defer(0.01)]
            return seconds, self._chance.choices(fates, weights=(85, 5, 5, 5))[0]


def one_by_one(watch: Watch, *, is_async: bool) -> Any:
    """Make a handler of single messages."""

    async def act_async(body: Any, d: Any) -> None:
        key, number = body
        seconds, fate = watch.fate()
        watch.begin(key)
        try:
            await asyncio.sleep(seconds)
            if fate is not None:
                raise fate
            watch.complete(key, number)
        finally:
            watch.end(key)

    def act(body: Any, d: Any) -> None:
        key, number = body
        seconds, fate = watch.fate()
        watch.begin(key)
        try:
            time.sleep(seconds)
            if fate is not None:
                raise fate
            watch.complete(key, number)
        finally:
            watch.end(key)

    return act_async if is_async else act


def in_batches(watch: Watch, *, is_async: bool) -> Any:
    """Make a handler of lists, which gives each message its own outcome."""

    def begin(bodies: Any) -> None:
        for key, _ in bodies:
            watch.begin(key)

    def outcomes(bodies: Any) -> list[Any]:
        found = []
        for key, number in bodies:
            _, fate = watch.fate()
            if fate is None:
                watch.complete(key, number)
            found.append(fate)
        for key, _ in bodies:
            watch.end(key)
        return found

    async def act_async(bodies: Any, ds: Any) -> list[Any]:
        begin(bodies)
        await asyncio.sleep(0.005)
        return outcomes(bodies)

    def act(bodies: Any, ds: Any) -> list[Any]:
        begin(bodies)
        time.sleep(0.005)
        return outcomes(bodies)

    return act_async if is_async else act


@pytest.mark.slow
@pytest.mark.parametrize("manner", ["one by one", "in batches"])
async def test_each_key_is_completed_in_the_order_in_which_it_was_sent(bench: Bench, manner: str) -> None:
    """I7."""
    keys, each = [f"key-{n}" for n in range(50)], 40
    watch = Watch()
    if manner == "one by one":
        bench.define(one_by_one(watch, is_async=bench.is_async), concurrency=8, retry=RETRY)
    else:
        act = in_batches(watch, is_async=bench.is_async)
        bench.define(act, body=list[Any], batch=Batch(max=10, wait=0.01), concurrency=8, retry=RETRY)
    await bench.queue.send_many([Send((key, number), key=key) for number in range(each) for key in keys])

    async with bench.worker():
        await eventually(lambda: _is_drained(bench.queue), timeout=90)

    assert watch.twice == []
    assert watch.completed == {key: list(range(each)) for key in keys}
    stats = await bench.queue.stats()
    assert (stats.acked, stats.buried, stats.crashed) == (2000, 0, 0)
    assert min(stats.retried, stats.deferred) > 0
    assert (await bench.queue.audit()).ok


async def _is_drained(queue: duly.AsyncQueue) -> bool:
    return (await queue.stats()).live == 0


async def test_a_dead_message_blocks_its_key_until_it_is_redriven(bench: Bench) -> None:
    completed, is_mended = list[str](), False

    def act(body: Any, d: Any) -> None:
        if body == "a1" and not is_mended:
            raise Reject("no use")
        completed.append(body)

    bench.define(act, concurrency=8, on_dead="block")
    await bench.queue.send_many([Send(f"{key}{number}", key=key) for number in (1, 2, 3) for key in "ab"])

    async with bench.worker():
        await eventually(lambda: len(completed) == 3)
        await eventually(lambda: _has_settled(bench.queue, acked=3, buried=1))
        blocked, stats = list(completed), await bench.queue.stats()
        is_mended = True
        assert await bench.queue.redrive() == 1
        await eventually(lambda: _is_drained(bench.queue))

    assert blocked == ["b1", "b2", "b3"]
    assert (stats.dead, stats.live) == (1, 2)
    assert completed[3:] == ["a1", "a2", "a3"]
    assert (await bench.queue.audit()).ok


async def _has_settled(queue: duly.AsyncQueue, *, acked: int, buried: int) -> bool:
    stats = await queue.stats()
    return (stats.acked, stats.buried) == (acked, buried)


@pytest.mark.slow
async def test_a_key_with_a_long_backlog_starves_no_other(server: StartedServer, queue_name: str) -> None:
    busy, others = 100_000, 20
    done: list[str] = []

    async with duly.AsyncDuly(server("valkey").url) as app:
        queue = app.queue(queue_name)

        @queue.handler(concurrency=10)
        async def on_message(body: str, d: duly.AsyncDelivery) -> None:
            await asyncio.sleep(0.001)
            done.append(body)

        for _ in range(busy // 1000):
            await queue.send_many([Send("busy", key="busy")] * 1000)
        await queue.send_many([Send(f"other {n}", key=f"other {n}") for n in range(others)])

        async with duly.Worker(app, duly.WorkerOptions()):
            await eventually(lambda: len({body for body in done if body != "busy"}) == others, timeout=60)
            stats = await queue.stats()

        assert stats.live > busy * 0.9
        assert (await queue.stats()).acked == len(done)
        await queue.delete()


# --- Kills ---------------------------------------------------------------------------------------------------------

KEYS: Final = 20
EACH: Final = 12
KILLS: Final = 2

KILLED: Final = """
    import random
    from duly import Defer, RetryIn

    @orders.handler(concurrency=8)
    async def on_order(body, d):
        key, number = body
        note("begin", id=d.id, key=key, number=number, fence=d.fence)
        try:
            await asyncio.sleep(random.choice((0.005, 0.01, 0.03)))
            fate = random.random()
            if fate < 0.05:
                raise RetryIn(0.02)
            if fate < 0.1:
                raise Defer(0.02)
            if fate < 0.15:
                raise ValueError("by chance")
            note("complete", id=d.id, key=key, number=number, fence=d.fence)
        finally:
            note("end", id=d.id, key=key, number=number, fence=d.fence)
"""


@pytest.mark.fault
@pytest.mark.slow
def test_kills_do_not_change_the_order_within_a_key(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    """I7 I12."""
    url = server("valkey").url
    options = "lease=4, crash_limit=1000, retry=duly.Retry(attempts=1000, first=0.02, factor=1.0)"
    source = module_of(queue_name, options, KILLED)
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)

        def start() -> WorkerProcess:
            return stack.enter_context(WorkerProcess(url, tmp_path, source))

        workers, killed = [start().wait_for_start() for _ in range(2)], set[int]()
        queue.send_many([Send((f"k{n}", number), key=f"k{n}") for number in range(EACH) for n in range(KEYS)])
        for turn in range(KILLS):
            wait_until(lambda: len(workers[0].notes("complete")) > (turn + 1) * 40)  # noqa: B023
            victim = workers.pop(0)
            victim.kill9()
            killed.add(victim.pid)
            workers.append(start())
        wait_until(lambda: queue.stats().live == 0)
        assert [worker.wait_for_start().stop() for worker in workers] == [0, 0]

        assert_drained(queue, sent=KEYS * EACH, acked=KEYS * EACH, buried=0)
        assert queue.stats().crashed > 0
        assert queue.audit().ok
        notes = workers[0].notes()
        for n in range(KEYS):
            check_key([note for note in notes if note.get("key") == f"k{n}"], killed)


def check_key(notes: list[dict[str, Any]], killed: set[int]) -> None:
    """Check that the messages of one key ran in order, each delivery after the end of the previous one."""
    completed = [note["number"] for note in notes if note["what"] == "complete"]
    # A message whose worker was killed before its ack is handled again, before the next one.
    assert completed == sorted(completed)
    assert set(completed) == set(range(EACH))
    ends = {note["fence"]: note["at"] for note in notes if note["what"] == "end"}
    begins = sorted((note for note in notes if note["what"] == "begin"), key=lambda note: note["fence"])
    for before, after in pairwise(begins):
        if before["fence"] in ends:
            assert after["at"] >= ends[before["fence"]]
        else:
            assert before["pid"] in killed
            assert after["number"] == before["number"]
