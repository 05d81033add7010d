"""Workers that are killed: nothing is lost, each lease that ran out is counted, and only poison becomes dead."""

import itertools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import duly
from tests.clock import ServerClock
from tests.conftest import StartedServer, need
from tests.fault.recorded import assert_accounts, assert_drained
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess, holder_pids, module_of, read_notes

pytestmark = [pytest.mark.fault, pytest.mark.slow]

KILLS: Final = 25
"""For each kind of handler."""
WORKERS: Final = 3
BACKLOG: Final = 200

HANDLERS: Final = {
    "async": """
        @orders.handler(concurrency=10)
        async def on_order(body, d):
            note("begin", id=d.id, crashes=d.crashes, failures=d.failures, fence=d.fence)
            await asyncio.sleep(body)
    """,
    "def": """
        @orders.handler(concurrency=10)
        def on_order(body, d):
            note("begin", id=d.id, crashes=d.crashes, failures=d.failures, fence=d.fence)
            time.sleep(body)
    """,
}


@contextmanager
def seeded() -> Iterator[random.Random]:
    """Return a random generator, and print its seed."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    yield random.Random(seed)


def by_id(begins: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group the starts of handlers by message, in the order of their deliveries."""
    found = defaultdict(list)
    for begin in sorted(begins, key=lambda begin: begin["fence"]):
        found[begin["id"]].append(begin)
    return found


@pytest.mark.parametrize("manner", HANDLERS)
def test_kills_at_random_moments_lose_nothing(
    manner: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=5, crash_limit=1000", HANDLERS[manner])
    with seeded() as chance, duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)

        def start() -> WorkerProcess:
            return stack.enter_context(WorkerProcess(url, tmp_path, source))

        sent: list[str] = []
        workers, killed = [start() for _ in range(WORKERS)], list[WorkerProcess]()
        for _ in range(KILLS):
            missing = BACKLOG - queue.stats().ready
            sent += queue.send_many([chance.uniform(0, 0.1) for _ in range(missing)])
            victim = workers.pop(chance.randrange(WORKERS)).wait_for_start()
            time.sleep(chance.uniform(0, 0.2))
            victim.kill9()
            killed.append(victim)
            workers.append(start())
        wait_until(lambda: queue.stats().live == 0)
        assert [worker.wait_for_start().stop() for worker in workers] == [0] * WORKERS

        begins = by_id(workers[0].notes("begin"))
        final = {id_: those[-1] for id_, those in begins.items()}
        stats = queue.stats()
        assert_drained(queue, sent=len(sent), acked=len(sent), retried=0, released=0, buried=0)
        assert set(final) == set(sent)
        # Each lease ended in an ack, or counted once as a crash of its message.
        assert stats.crashed > KILLS
        assert stats.delivered == stats.acked + stats.crashed
        assert sum(last["crashes"] for last in final.values()) == stats.crashed
        assert all(last["failures"] == 0 for last in final.values())
        # Every process that lost a lease had been killed.
        dead = {victim.pid for victim in killed}
        assert {pid for worker in (*killed, *workers) for pid in holder_pids(worker.log())} <= dead
        assert {begin["pid"] for those in begins.values() for begin in those[:-1]} <= dead
        assert all(len(those) - 1 <= those[-1]["crashes"] <= KILLS for those in begins.values())


# --- Poison ------------------------------------------------------------------------------------------------

MESSAGES: Final = 20
POISONED: Final = {
    "async": """
        async def on_order(body, d):
            note("begin", id=d.id, crashes=d.crashes, fence=d.fence)
            await asyncio.sleep(0.02)
            if body == "poison":
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(0.05)
    """,
    "def": """
        def on_order(body, d):
            note("begin", id=d.id, crashes=d.crashes, fence=d.fence)
            time.sleep(0.02)
            if body == "poison":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)
    """,
}

Start = Callable[[], WorkerProcess]


def run_again_and_again(start: Start, is_over: Callable[[], bool], bury: Callable[[], None]) -> int:
    """Restart a worker each time it has died, and stop it when all messages are done. Return the number of deaths."""
    for deaths in itertools.count():
        with start() as worker:
            wait_until(lambda: is_over() or worker.process.poll() is not None)
            if worker.process.poll() is None:
                assert worker.wait_for_start().stop() == 0, worker.log()
                return deaths
            assert worker.process.returncode == -9, worker.log()
            bury()
    raise AssertionError


class Poisoned(NamedTuple):
    """A run of twenty messages. Some of them kill their process."""

    manner: str
    concurrency: int
    crash_limit: int = 2
    places: Sequence[int] = (7,)
    """The positions of these messages."""
    processes: int | None = None
    """Processes under a parent that restarts them. None: the test restarts the worker."""

    @property
    def lease(self) -> float:
        """Seconds. The test moves the clock past the leases of a worker that died, so this may be long."""
        return 600 if self.processes is None else 2

    def run(self, url: str, clock: ServerClock, directory: Path, queue_name: str) -> int:
        """Run it, and check which messages are dead at the end. Return the number of workers that died."""
        directory.mkdir()
        source = f"@orders.handler(concurrency={self.concurrency})" + POISONED[self.manner].replace("\n        ", "\n")
        module = module_of(queue_name, f"lease={self.lease}, crash_limit={self.crash_limit}", source)
        arguments = [] if self.processes is None else ["--processes", str(self.processes)]
        with duly.Duly(url) as app:
            queue = app.queue(queue_name)
            ids = queue.send_many(["poison" if n in self.places else "food" for n in range(MESSAGES)])
            deaths = run_again_and_again(
                lambda: WorkerProcess(url, directory, module, *arguments),
                lambda: queue.stats().live == 0,
                lambda: clock.step(self.lease + 1),
            )
            self._check(queue, ids, by_id(read_notes(directory / "notes.jsonl", "begin")))
        return deaths

    def _check(self, queue: duly.Queue, ids: Sequence[str], begins: Mapping[str, list[dict[str, Any]]]) -> None:
        poisons, limit = {ids[n] for n in self.places}, self.crash_limit
        dead = {(each.id, each.reason, each.crashes) for each in queue.list("dead")}
        assert dead == {(id_, "poison", limit) for id_ in poisons}
        stats = assert_accounts(queue, sent=MESSAGES, acked=MESSAGES - len(poisons), dead=len(poisons), leased=0)
        innocent = [those[-1]["crashes"] for id_, those in begins.items() if id_ not in poisons]
        assert len(innocent) == MESSAGES - len(poisons)
        assert max(innocent) < limit
        assert sum(innocent) + limit * len(poisons) == stats.crashed


def run_all(runs: Sequence[Poisoned], directory: Path, queue_name: str) -> list[int]:
    """Run several at a time, each with its own server and clock."""
    need("valkey")
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        results = []
        for n, run in enumerate(runs):
            clock = stack.enter_context(ServerClock())
            server = stack.enter_context(Server("valkey", environment=clock.environment()))
            results.append(pool.submit(run.run, server.url, clock, directory / str(n), f"{queue_name}-{n}"))
        return [result.result() for result in results]


@pytest.mark.parametrize("manner", POISONED)
def test_of_twenty_only_the_poison_dies(manner: str, tmp_path: Path, queue_name: str) -> None:
    runs = [Poisoned(manner, concurrency) for concurrency in (1, 5, 20, 100)]

    assert run_all(runs, tmp_path, queue_name) == [2, 2, 2, 2]


def test_of_twenty_only_the_poison_dies_under_a_parent(tmp_path: Path, queue_name: str) -> None:
    runs = [Poisoned(manner, concurrency, processes=1) for manner in POISONED for concurrency in (1, 20)]
    runs.append(Poisoned("async", 10, crash_limit=3, processes=2))

    assert run_all(runs, tmp_path, queue_name) == [0] * 5  # the parent never dies


def test_a_crash_limit_of_three(tmp_path: Path, queue_name: str) -> None:
    runs = [Poisoned(manner, 20, crash_limit=3) for manner in POISONED]

    assert run_all(runs, tmp_path, queue_name) == [3, 3]


@pytest.mark.parametrize("crash_limit", [2, 3])
def test_two_poisons(crash_limit: int, tmp_path: Path, queue_name: str) -> None:
    runs = [Poisoned(manner, 10, crash_limit, places=(3, 5)) for manner in POISONED]

    for deaths in run_all(runs, tmp_path, queue_name):
        assert crash_limit < deaths <= 2 * crash_limit  # each became dead by its own last crash
