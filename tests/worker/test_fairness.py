"""Fairness: workers share a backlog, queues share a worker, and no worker claims more than it can handle."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import duly
from tests.conftest import need
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = [pytest.mark.quiet, pytest.mark.slow]


@pytest.fixture
def own_server() -> Iterator[Server]:
    need("valkey")
    with Server("valkey") as server:
        yield server


# --- Two workers -------------------------------------------------------------------------------------------

SLOTS: Final = 5

SLOW: Final = """
orders = app.queue("orders", lease=30)


@orders.handler(concurrency=5)
async def on_order(seconds, d):
    note("begin", id=d.id, claimed=d.fence / 1e6, began=time.time())
    await asyncio.sleep(seconds)
    note("end", id=d.id, ended=time.time())
"""


@contextmanager
def two_workers(server: Server, directory: Path, source: str) -> Iterator[tuple[WorkerProcess, WorkerProcess]]:
    with (
        WorkerProcess(server.url, directory, source) as one,
        WorkerProcess(server.url, directory, source) as other,
    ):
        one.wait_for_start()
        other.wait_for_start()
        yield one, other


class Run:
    """One message in a worker: the times of its claim, and of the start and the end of its handler."""

    def __init__(self, begin: dict[str, Any], end: dict[str, Any]) -> None:
        self.pid = begin["pid"]
        self.claimed, self.began, self.ended = begin["claimed"], begin["began"], end["ended"]


def runs_of(worker: WorkerProcess) -> list[Run]:
    ends = {note["id"]: note for note in worker.notes("end")}
    return [Run(note, ends[note["id"]]) for note in worker.notes("begin")]


def kept_from_others(runs: list[Run], slots: int) -> list[Run]:
    """Find messages that a worker took with all its slots in use, while the other had one free all the time.

    A tenth of a second is ignored. A message that was claimed for a free slot and started late does not count: the
    machine was busy.
    """

    def was_full(run: Run) -> bool:
        own = [each for each in runs if each.pid == run.pid and each is not run and each.began <= run.began]
        return len([each for each in own if each.ended > run.claimed + 0.05]) >= slots

    def has_room(pid: int, since: float, until: float) -> bool:
        others = [run for run in runs if run.pid != pid and run.claimed < until and run.ended > since]
        return len(others) < slots

    waited = [run for run in runs if run.began - run.claimed > 0.1 and was_full(run)]
    return [run for run in waited if has_room(run.pid, run.claimed + 0.05, run.began - 0.05)]


@pytest.mark.parametrize(
    ("durations", "forgiven"),
    [
        pytest.param([0.3] * 40, 0, id="alike"),
        pytest.param([0.3 + number % 7 * 0.03 for number in range(40)], 0, id="a little different"),
        # Several quick messages in a row make the worker claim ahead. The slow ones that it claims then have to wait.
        pytest.param(random.Random(7).choices([0.001, 0.01, 0.6], k=40), 8, id="very different"),
    ],
)
def test_two_workers_share_a_backlog_and_neither_hoards(
    own_server: Server, tmp_path: Path, durations: list[float], forgiven: int
) -> None:
    with duly.Duly(own_server.url) as app, two_workers(own_server, tmp_path, SLOW) as (one, other):
        orders = app.queue("orders")
        total = 0
        for count in (40, 8, 12, 16, 8):  # a worker that claims too many leaves the other idle
            orders.send_many(durations[:count])
            total += count
            wait_until(lambda expected=total: orders.stats().acked == expected)  # type: ignore[misc]
        runs = runs_of(one)
        assert len(runs) == total
        kept = kept_from_others(runs, SLOTS)
        waits = [round(run.began - run.claimed, 3) for run in kept]
        assert len(kept) <= forgiven, f"{len(kept)} of {total} were not started while a worker had room, for {waits} s"
        shares = Counter(run.pid for run in runs)
        assert min(shares[one.pid], shares[other.pid]) > total // 4, shares


def test_slow_handlers_hold_no_more_than_they_run(own_server: Server, tmp_path: Path) -> None:
    with duly.Duly(own_server.url) as app, two_workers(own_server, tmp_path, SLOW) as (one, _):
        orders = app.queue("orders")
        orders.send_many([0.3] * 40)
        most: Counter[str] = Counter()
        while orders.stats().acked < 40:
            held = orders.pending().messages
            ended = {note["id"] for note in one.notes("end")}  # on a busy machine, their acks are still under way
            most |= Counter(row.consumer for row in held if row.id not in ended)
            time.sleep(0.01)
        assert len(most) == 2
        assert max(most.values()) <= SLOTS, most


# --- Messages claimed ahead --------------------------------------------------------------------------------

QUICK_THEN_SLOW: Final = """
orders = app.queue("orders", lease=3.5)


@orders.handler(concurrency=20)
async def on_order(seconds, d):
    note("begin", id=d.id, waited=time.time() - d.fence / 1e6, attempt=d.attempt)
    if seconds:
        await asyncio.sleep(seconds)
"""


def test_messages_claimed_ahead_stay_leased_until_they_start(own_server: Server, tmp_path: Path) -> None:
    """Quick messages make the worker claim ahead. Then slow ones make the claimed messages wait, longer than a lease.

    The worker may release messages that wait too long, but must not lose them: no crash is counted.
    """
    with duly.Duly(own_server.url) as app:
        orders = app.queue("orders")
        bodies = [0.0] * 3000 + [4.5] * 20 + [0.0] * 300
        for first_ in range(0, len(bodies), 1000):
            orders.send_many(bodies[first_ : first_ + 1000])
        with WorkerProcess(own_server.url, tmp_path, QUICK_THEN_SLOW) as worker:
            released = 0
            while (stats := orders.stats()).acked < len(bodies):
                if stats.acked > 3000:  # another consumer would find leases that ran out
                    for delivery in orders.receive(1, wait=0):
                        assert delivery.crashes == 0, worker.log()
                        delivery.release()
                        released += 1
                time.sleep(0.02)
            notes = worker.notes("begin")
            has_waited = stats.released > released or max(note["waited"] for note in notes) > 3.5
            assert has_waited, "nothing was claimed ahead: this test shows nothing"
            assert stats.crashed == 0
            assert len(notes) == len({note["id"] for note in notes}) == len(bodies)
            assert {note["attempt"] for note in notes} == {1}
            assert worker.stop() == 0, worker.log()
            assert "lost" not in worker.log()


def test_no_lease_is_called_lost_that_was_settled(own_server: Server, tmp_path: Path) -> None:
    """Leases are renewed constantly, while acks of the same messages are in progress."""
    source = """
    orders = app.queue("orders", lease=0.3)


    @orders.handler(concurrency=100)
    async def on_order(body, d):
        await asyncio.sleep(0.001)
    """
    with duly.Duly(own_server.url) as app:
        orders = app.queue("orders")
        for _ in range(30):
            orders.send_many([0] * 1000)
        with WorkerProcess(own_server.url, tmp_path, source) as worker:
            wait_until(lambda: orders.stats().acked == 30_000)
            crashed = orders.stats().crashed
            assert worker.stop() == 0, worker.log()
            assert worker.log().count("lost") <= crashed, worker.log()


# --- Queues of one worker ----------------------------------------------------------------------------------

TWO_QUEUES: Final = """
running = most = 0


async def handle(body, d):
    global running, most
    running += 1
    if running > most:
        most = running
        note("most", count=most)
    note("begin", queue=d.queue, running=running)
    await asyncio.sleep(body)
    running -= 1


for name in ("high", "low"):
    app.queue(name, lease=30).handler(handle)
"""


def first(worker: WorkerProcess, count: int, after: int = 0) -> Counter[str]:
    """Count the queues of the first messages that were started."""
    return Counter(note["queue"] for note in worker.notes("begin")[after : after + count])


def begin_of(worker: WorkerProcess, queue: duly.Queue, after: int) -> int:
    """Return the position of the first message of a queue after a given position, or the end."""
    names = [note["queue"] for note in worker.notes("begin")]
    return names.index(queue.name, after) if queue.name in names[after:] else len(names)


@pytest.mark.parametrize("concurrency", [1, 4, 20])
@pytest.mark.parametrize("seconds", [0.0, 0.005])
def test_weights_divide_a_worker_while_both_queues_have_a_backlog(
    own_server: Server, tmp_path: Path, concurrency: int, seconds: float
) -> None:
    with duly.Duly(own_server.url) as app:
        high, low = app.queue("high"), app.queue("low")
        high.send_many([seconds] * 300)
        low.send_many([seconds] * 300)
        arguments = ("--queues", "high:3,low:1", "--concurrency", str(concurrency))
        with WorkerProcess(own_server.url, tmp_path, TWO_QUEUES, *arguments) as worker:
            wait_until(lambda: high.stats().acked + low.stats().acked == 600)
            begun = first(worker, 200)
            assert 200 * 0.6 <= begun["high"] <= 200 * 0.9, begun
            assert max(note["count"] for note in worker.notes("most")) <= concurrency
            # One queue is empty, so the other has all slots.
            last = worker.notes("begin")[-100:-20]
            assert {note["queue"] for note in last} == {"low"}
            if seconds:
                assert max(note["running"] for note in last) == concurrency


def test_a_queue_that_was_empty_has_saved_no_turns_up(own_server: Server, tmp_path: Path) -> None:
    with (
        duly.Duly(own_server.url) as app,
        WorkerProcess(own_server.url, tmp_path, TWO_QUEUES, "--queues", "high:3,low:1", "--concurrency", "2") as worker,
    ):
        high, low = app.queue("high"), app.queue("low")
        for idle, busy in [(low, high), (high, low)]:
            before = len(worker.notes("begin"))
            busy.send_many([0.001] * 600 + [0.005] * 3000)  # it has enough to do for some seconds
            wait_until(lambda: len(worker.notes("begin")) >= before + 600)  # noqa: B023
            idle.send_many([0.005] * 300)
            wait_until(lambda: sum(first(worker, 170, after=begin_of(worker, idle, before)).values()) == 170)  # noqa: B023
            begun = first(worker, 150, after=begin_of(worker, idle, before))
            assert begun[busy.name] >= 150 // 8, (begun, f"{idle.name} was idle")
            assert begun[idle.name] >= 150 // 8, (begun, f"{idle.name} was idle")
            for queue in (busy, idle):
                while queue.purge():
                    pass
            wait_until(lambda: high.stats().live + low.stats().live == 0)


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [((), 0.1), (("--concurrency", "4"), 0.02), (("--queues", "low,high", "--concurrency", "1"), 0.02)],
)
def test_a_large_backlog_does_not_starve_another_queue(
    own_server: Server, tmp_path: Path, arguments: tuple[str, ...], seconds: float
) -> None:
    with duly.Duly(own_server.url) as app:
        large, small = app.queue("high"), app.queue("low")
        for _ in range(8):
            large.send_many([seconds] * 1000)  # for longer than the test takes
        with WorkerProcess(own_server.url, tmp_path, TWO_QUEUES, *arguments) as worker:
            wait_until(lambda: len(worker.notes("begin")) > 50)
            small.send_many([0.001] * 50)
            before = len(worker.notes("begin"))
            wait_until(lambda: small.stats().acked == 50)
            order = [note["queue"] for note in worker.notes("begin")]
            last_small = max(position for position, name in enumerate(order) if name == "low")
            # Messages that were claimed earlier come first.
            assert last_small - before < 1500, f"{last_small - before} others went first"
            is_over = order[:last_small].count("high") == 8000
            assert not is_over, "the backlog was over before: this test shows nothing"


def test_concurrency_of_the_worker_limits_its_handlers(own_server: Server, tmp_path: Path) -> None:
    """Over all queues, even if quick handlers make the worker claim ahead."""
    source = TWO_QUEUES.replace('("high", "low")', '("high", "low", "a", "b", "c")')
    with duly.Duly(own_server.url) as app:
        queues = [app.queue(name) for name in ("high", "low", "a", "b", "c")]
        for queue in queues:
            queue.send_many([0.001] * 1000)
        with WorkerProcess(own_server.url, tmp_path, source, "--concurrency", "4") as worker:
            wait_until(lambda: all(queue.stats().acked == 1000 for queue in queues))
            assert max(note["count"] for note in worker.notes("most")) == 4
