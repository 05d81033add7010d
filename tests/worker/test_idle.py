"""The cost of an idle worker: few calls, and one connection for every 64 queues."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import duly
from tests.conftest import need
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = [pytest.mark.quiet, pytest.mark.slow]

LEASE: Final = 6.0
PERIOD: Final = LEASE / 6
"""Seconds after which an idle worker polls without a wake-up."""

WATCHED_FOR: Final = 6.0
SIZES: Final = (1, 10, 100)
BUNDLE: Final = 64
"""Queues that share a blocking connection and a poll."""

MOST_CONNECTIONS: Final = 8
"""Two that block, one each for claims, settles, heartbeats and renewals, and a few that were needed at some time."""

JOBS: Final = """
async def handle(body, d):
    await asyncio.sleep(body)
    note("done", id=d.id)


for number in range({queues}):
    app.queue(f"queue{{number}}", lease={lease}).handler(handle)
"""


class Subject:
    """A worker of a number of queues, on its own server."""

    def __init__(self, stack: ExitStack, directory: Path, queues: int) -> None:
        self.queues = queues
        self.bundles = -(-queues // BUNDLE)
        self.server = stack.enter_context(Server("valkey"))
        self.client: Any = stack.enter_context(redis.Redis.from_url(self.server.url))
        directory = directory / str(queues)
        directory.mkdir()
        source = JOBS.format(queues=queues, lease=LEASE)
        self.worker = stack.enter_context(WorkerProcess(self.server.url, directory, source))

    def calls(self, command: str) -> int:
        return int(self.client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def connections(self) -> int:
        return len(self.client.client_list()) - 1

    def wait_until_idle(self) -> None:
        wait_until(lambda: self.calls("blpop") > 0)
        time.sleep(PERIOD)  # all queues were polled, and the second round has begun


@contextmanager
def subjects(directory: Path, *sizes: int) -> Iterator[list[Subject]]:
    need("valkey")
    with ExitStack() as stack:
        yield [Subject(stack, directory, size) for size in sizes]


def test_an_idle_worker_makes_one_blocking_call_and_one_poll_per_bundle_and_period(tmp_path: Path) -> None:
    with subjects(tmp_path, *SIZES) as given:
        for subject in given:
            subject.wait_until_idle()
        began = time.monotonic()
        before = [(each.calls("blpop"), each.calls("evalsha"), each.worker.cpu_seconds()) for each in given]
        time.sleep(WATCHED_FOR)
        for subject, (waits_before, looks_before, cpu_before) in zip(given, before, strict=True):
            waits, polls = subject.calls("blpop") - waits_before, subject.calls("evalsha") - looks_before
            elapsed = time.monotonic() - began
            cpu = (subject.worker.cpu_seconds() - cpu_before) / elapsed
            periods = elapsed / PERIOD
            heartbeats = elapsed / 5 + 1 + subject.queues * (elapsed / 60 + 1)  # and each queue may have been tidied
            figures = f"{subject.queues} queues: {waits} waits, {polls} polls in {periods:.1f} periods, {cpu:.1%} CPU"
            assert subject.bundles <= waits <= subject.bundles * (periods + 2), figures
            assert subject.bundles * (periods / 2) <= polls <= subject.bundles * (periods + 1) + heartbeats, figures
            assert cpu < 0.05, figures
        for subject in given:  # each has its blocking calls pending, except for the moment between two
            wait_until(lambda each=subject: each.client.info("clients")["blocked_clients"] == each.bundles)  # type: ignore[misc]
        found = [subject.connections() - subject.bundles for subject in given]
        assert max(found) <= min(found) + 1, found
        assert max(found) <= MOST_CONNECTIONS, found


def test_a_burst_over_a_hundred_queues_takes_few_connections(tmp_path: Path) -> None:
    with subjects(tmp_path, 100) as (subject,):
        subject.wait_until_idle()
        most = 0
        is_over = threading.Event()

        def watch() -> None:
            nonlocal most
            with redis.Redis.from_url(subject.server.url) as client:
                while not is_over.wait(0.01):
                    others = [each for each in client.client_list() if each["name"] != "of-the-test"]
                    most = max(most, len(others))

        with duly.Duly(subject.server.url + "?client_name=of-the-test") as app:
            watching = threading.Thread(target=watch)
            watching.start()
            queues = [app.queue(f"queue{number}") for number in range(100)]
            for _ in range(3):
                for queue in queues:
                    queue.send_many([0.01] * 20)
            wait_until(lambda: all(queue.stats().acked == 60 for queue in queues))
            is_over.set()
            watching.join()
            assert all(queue.audit().ok for queue in queues)
        assert 0 < most - 2 <= MOST_CONNECTIONS, most  # without the two of this test, which have no name
        assert subject.connections() <= MOST_CONNECTIONS
        assert subject.worker.stop() == 0, subject.worker.log()


SHARED: Final = """
async def handle(body, d):
    await asyncio.sleep(body)
    note("done", id=d.id)


for name in ("quick", "slow"):
    app.queue(name, lease=60).handler(handle)
"""


@pytest.mark.parametrize("arguments", [("--concurrency", "4"), ("--queues", "quick:3,slow:1")])
def test_a_worker_that_is_full_waits_in_peace(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Quick messages come first, so that the worker claims ahead. Then slow ones take all slots, and more wait."""
    need("valkey")
    with (
        Server("valkey") as server,
        WorkerProcess(server.url, tmp_path, SHARED, *arguments) as worker,
        duly.Duly(server.url) as app,
    ):
        quick, slow = app.queue("quick"), app.queue("slow")
        for _ in range(5):
            quick.send_many([0] * 1000)
        wait_until(lambda: quick.stats().acked == 5000)
        slow.send_many([600] * 101)  # longer than the test takes
        quick.send_many([600] * 101)
        wait_until(lambda: slow.stats().leased + quick.stats().leased >= 4)
        time.sleep(0.5)
        used = worker.cpu_seconds()
        with redis.Redis.from_url(server.url) as client:
            before = client.info("stats")["total_commands_processed"]
            time.sleep(3)
            commands = client.info("stats")["total_commands_processed"] - before
        assert slow.stats().acked == 0
        assert quick.stats().acked == 5000
        assert worker.cpu_seconds() - used < 0.2 * 3
        assert commands < 300, "it asks although it is full"


def test_delays_far_away_do_not_keep_a_worker_busy(tmp_path: Path) -> None:
    with subjects(tmp_path, 10) as (subject,), duly.Duly(subject.server.url) as app:
        for number in range(10):
            app.queue(f"queue{number}").send_many([duly.Send(0, delay=3600 + each) for each in range(100)])
        subject.wait_until_idle()
        began = time.monotonic()
        claims, cpu = subject.calls("evalsha"), subject.worker.cpu_seconds()
        time.sleep(3 * PERIOD)
        claims, cpu = subject.calls("evalsha") - claims, subject.worker.cpu_seconds() - cpu
        periods = (time.monotonic() - began) / PERIOD
        assert claims < 10 * (periods + 3)
        assert cpu < 0.1 * periods * PERIOD
