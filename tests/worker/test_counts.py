"""Exact counts: round trips and commands of a message. A call too many is found here, before a benchmark shows it.

A count changes only with the code, so a change of a figure in this file is a change of cost: its commit explains it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

BATCH: Final = 100


@dataclass(frozen=True)
class Cost:
    """The requests and commands of one act, counted by the server."""

    trips: int
    """Requests that the server read, each from one write of a client."""
    commands: int
    """Commands, those of scripts included."""


class Counter:
    """Counts on a server that nothing else uses."""

    def __init__(self, server: Server) -> None:
        self.url = server.url
        self._client: Any = redis.Redis.from_url(server.url)

    def calls(self, *names: str) -> int:
        """Count commands by name; without names all, but those of the counter."""
        stats = {
            name.removeprefix("cmdstat_"): each["calls"] for name, each in self._client.info("commandstats").items()
        }
        stats.pop("info", None)
        return sum(stats.get(name, 0) for name in names) if names else sum(stats.values())

    def cost(self, act: Callable[[], object]) -> Cost:
        reads, commands = self._client.info("stats")["total_reads_processed"], self.calls()
        act()
        now = self.calls()
        return Cost(self._client.info("stats")["total_reads_processed"] - reads - 3, now - commands)  # 3 are its own

    def blocked(self) -> int:
        return int(self._client.info("clients")["blocked_clients"])

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def counter() -> Iterator[Counter]:
    need("valkey")
    with Server("valkey") as server:
        counter = Counter(server)
        yield counter
        counter.close()


@pytest.fixture
def queue(counter: Counter) -> Iterator[duly.Queue]:
    """Give a queue whose scripts are loaded, and that has been used."""
    with duly.Duly(counter.url) as app:
        queue = app.queue("counts")
        for key in (None, "account"):
            queue.send("warm", key=key)
            queue.receive(1, wait=0)[0].ack()
        yield queue


def test_the_counter_does_not_count_itself(counter: Counter) -> None:
    assert counter.cost(lambda: None) == Cost(trips=0, commands=0)


def test_a_single_message_takes_a_trip_for_each_of_send_receive_and_ack(counter: Counter, queue: duly.Queue) -> None:
    held: list[duly.Delivery[Any]] = []

    assert counter.cost(lambda: queue.send("x")) == Cost(trips=1, commands=9)
    assert counter.cost(lambda: held.extend(queue.receive(1, wait=0))) == Cost(trips=1, commands=15)
    assert counter.cost(held.pop().ack) == Cost(trips=1, commands=15)
    assert counter.cost(lambda: queue.receive(1, wait=0)) == Cost(trips=1, commands=13)


def test_a_hundred_messages_take_no_more_trips_and_commands_than_one(counter: Counter, queue: duly.Queue) -> None:
    held: list[duly.Delivery[Any]] = []

    assert counter.cost(lambda: queue.send_many(["x"] * BATCH)) == Cost(trips=1, commands=9)
    assert counter.cost(lambda: held.extend(queue.receive(BATCH, wait=0))) == Cost(trips=1, commands=15)
    assert counter.cost(lambda: queue.ack_many(held)) == Cost(trips=1, commands=15)


def test_a_key_adds_no_trip(counter: Counter, queue: duly.Queue) -> None:
    held: list[duly.Delivery[Any]] = []

    assert counter.cost(lambda: queue.send("x", key="account")).trips == 1
    assert counter.cost(lambda: held.extend(queue.receive(1, wait=0))).trips == 1
    assert counter.cost(held.pop().ack).trips == 1


def test_a_hundred_concurrent_sends_share_two_calls(counter: Counter) -> None:
    """The first send after a lone one is written at once, and the other 99 share the next call."""

    async def cost() -> list[Cost]:
        async with duly.AsyncDuly(counter.url) as app:
            queue = app.queue("counts")
            await queue.send("warm")
            found = []
            for _ in range(3):
                before = counter.calls("evalsha"), counter.calls()
                await asyncio.gather(*[queue.send("x") for _ in range(BATCH)])
                found.append(Cost(counter.calls("evalsha") - before[0], counter.calls() - before[1]))
            return found

    assert asyncio.run(cost()) == [Cost(trips=2, commands=16)] * 3


JOBS: Final = """
@app.queue("counts", lease=600).handler
async def handle(body, d):
    note("done", id=d.id)
"""

ROUNDS: Final = 4
"""Of each count the smallest is taken: a heartbeat may fall into a round."""


class Subject:
    """An idle worker of one queue whose polls are minutes apart."""

    def __init__(self, counter: Counter, worker: WorkerProcess, queue: duly.Queue) -> None:
        self._counter = counter
        self._worker = worker
        self._queue = queue

    def calls(self, messages: int) -> tuple[int, int]:
        """Send in one call, and return the smallest numbers of script calls and of blocking calls of the worker."""
        found = [self._once(messages) for _ in range(ROUNDS)]
        return min(each[0] for each in found), min(each[1] for each in found)

    def _once(self, messages: int) -> tuple[int, int]:
        wait_until(lambda: self._counter.blocked() == 1)
        self._wait_until_quiet()
        done, scripts, blocks = len(self._worker.notes()), self._scripts(), self._counter.calls("blpop")
        self._queue.send_many(["x"] * messages)
        wait_until(lambda: len(self._worker.notes()) == done + messages)
        self._wait_until_quiet()
        return self._scripts() - scripts - 1, self._counter.calls("blpop") - blocks  # without the one that sends

    def _scripts(self) -> int:
        return self._counter.calls("evalsha", "eval")

    def _wait_until_quiet(self) -> None:
        """Wait until no script has been called for a while."""
        before = -1
        while before != (now := self._scripts()):
            before = now
            time.sleep(0.3)


@pytest.fixture
def subject(counter: Counter, tmp_path: Path) -> Iterator[Subject]:
    with WorkerProcess(counter.url, tmp_path, JOBS) as worker, duly.Duly(counter.url) as app:
        subject = Subject(counter, worker, app.queue("counts"))
        subject.calls(1)
        yield subject


def test_a_worker_claims_and_acks_a_message_with_two_calls_and_blocks_once(subject: Subject) -> None:
    assert subject.calls(1) == (2, 1)


def test_a_worker_claims_and_acks_a_hundred_messages_with_few_calls(subject: Subject) -> None:
    calls, blocks = subject.calls(BATCH)

    assert blocks == 1
    # The claim behind the block takes one message, the next one the rest, and another one finds nothing. How many acks
    # share a call depends on the pace of the handlers.
    assert 4 <= calls <= 12
