"""I12, enumerated: every command of a scenario is cut at every stage, and its client or its process goes on or dies."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import redis

import duly
from tests.conftest import need
from tests.fault.history import History, Recorder, assert_clean, check, redeliveries
from tests.fault.proxy import CutAt, Fault, Policy, Proxy, Stage
from tests.fault.recorded import RecordedQueue, assert_accounts, assert_drained
from tests.servers import Server
from tests.waiting import wait_until
from tests.warm import WarmPopen

pytestmark = pytest.mark.fault

ALL_BUT_ONE: Final = 1 << 30
CUTS: Final = (
    (Stage.BEFORE, 0), (Stage.MID_FRAME, 1), (Stage.MID_FRAME, ALL_BUT_ONE), (Stage.EXECUTED, 0), (Stage.REPLIED, 0),
)  # fmt: skip
LEASE: Final = 5.0
"""Seconds: none of those who live may lose one, however slow the machine."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Server]:
    """Return a server whose script cache may be emptied."""
    need("valkey")
    with Server("valkey") as server:
        yield server


# --- The connection is cut ---------------------------------------------------------------------------------


def live_through_everything(url: str, queue_name: str) -> None:
    with duly.Duly(url) as app:
        queue = app.queue(queue_name)
        first = queue.send("first")
        second = queue.send("second", delay=0.02)
        third = queue.send("third", delay=600)
        time.sleep(0.03)
        taken = queue.receive(1, wait=5)
        taken[0].extend(60)
        taken[0].retry(0)
        taken = queue.receive(10, wait=5)
        assert {each.id for each in taken} == {first, second}
        taken[0].release()
        assert queue.ack_many(taken[1:]) == []
        taken = queue.receive(1, wait=5)
        taken[0].defer(0)
        taken = queue.receive(1, wait=5)
        taken[0].recycle(0)
        taken = queue.receive(1, wait=5)
        taken[0].ack()
        assert queue.cancel(third)


def live_through_everything_in_a_loop(url: str, queue_name: str) -> None:
    async def live() -> None:
        async with duly.AsyncDuly(url) as app:
            queue = app.queue(queue_name)
            first = await queue.send("first")
            second = await queue.send("second", delay=0.02)
            third = await queue.send("third", delay=600)
            await asyncio.sleep(0.03)
            taken = await queue.receive(1, wait=5)
            await taken[0].extend(60)
            await taken[0].retry(0)
            taken = await queue.receive(10, wait=5)
            assert {each.id for each in taken} == {first, second}
            await taken[0].release()
            assert await queue.ack_many(taken[1:]) == []
            taken = await queue.receive(1, wait=5)
            await taken[0].defer(0)
            taken = await queue.receive(1, wait=5)
            await taken[0].recycle(0)
            taken = await queue.receive(1, wait=5)
            await taken[0].ack()
            assert await queue.cancel(third)

    asyncio.run(live())


def run_once(server: Server, live: Callable[[str, str], None], queue_name: str, policy: Policy) -> None:
    """Live through it with an empty script cache, so that both ways of a script to the server are met."""
    with redis.Redis.from_url(server.url) as client:
        client.script_flush()
    with Proxy(server.port, policy) as proxy:
        live(proxy.url, queue_name)
    with duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        assert_drained(
            queue, sent=3, delivered=6, acked=2, cancelled=1, retried=1, released=1, deferred=1, recycled=1,
            crashed=0, buried=0,
        )  # fmt: skip
        queue.delete()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("live", [live_through_everything, live_through_everything_in_a_loop])
def test_a_connection_cut_at_any_command_and_stage_leaves_every_effect_exactly_once(
    upstream: Server, live: Callable[[str, str], None], queue_name: str
) -> None:
    uncut = Policy()
    run_once(upstream, live, queue_name, uncut)
    assert uncut.seen > 25

    for k, (stage, after_bytes) in itertools.product(range(1, uncut.seen + 1), CUTS):
        policy = CutAt(k, stage, after_bytes=after_bytes)
        try:
            run_once(upstream, live, f"{queue_name}-{k}", policy)
        except BaseException as error:
            error.add_note(f"cut {stage.value} at command {k}, {after_bytes} bytes: {policy.faults}")
            raise
        assert policy.fired == 1, (k, stage)


# --- The process is killed ---------------------------------------------------------------------------------

CONSUMER: Final = """
import sys, time
from pathlib import Path
import duly
from tests.fault.history import Recorder
from tests.fault.recorded import RecordedQueue

url, name, path, lease, rest = sys.argv[1:]
with duly.Duly(url) as app:
    queue = RecordedQueue(app.queue(name), Recorder("consumer", Path(path)), float(lease))
    queue.send("from the consumer", id="own", delay=0.001)
    for verb, *args in (("extend", float(lease)), ("retry", 0), ("release",), ("defer", 0), ("recycle", 0), ("ack",)):
        if verb != "retry":
            (delivery,) = queue.receive(1, wait=10)
        queue.settle(verb, delivery, *args)
    queue.ack_many(queue.receive(2, wait=10))
    queue.cancel("later")
    time.sleep(float(rest))
"""
"""It rests before its end, so that a kill at its last reply reaches it in time."""
SENT: Final = ("a", "b")


class Consumer:
    """A process that consumes through its own proxy, and dies of the proxy's fault."""

    def __init__(self, server: Server, queue_name: str, directory: Path, policy: Policy) -> None:
        self.paths = [directory / f"{queue_name}-{part}.jsonl" for part in ("test", "consumer")]
        self.name = queue_name
        self.recorder = Recorder("test", self.paths[0])
        self._started = threading.Event()
        with duly.Duly(server.url) as app:
            queue = RecordedQueue(app.queue(queue_name), self.recorder, LEASE)
            for message_id in SENT:
                queue.send(f"body of {message_id}", id=message_id)
            queue.send("body of later", id="later", delay=600)
        self._proxy = Proxy(server.port, policy)
        rest = 60 if isinstance(policy, CutAt) else 0
        arguments = [self._proxy.url, queue_name, str(self.paths[1]), str(LEASE), str(rest)]
        command = [sys.executable, "-c", CONSUMER, *arguments]
        root = Path(__file__).parents[2]
        self._process = WarmPopen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._started.set()

    def kill(self, fault: Fault) -> None:
        """Kill the process. The fault waits until the kill is on its way."""
        assert self._started.wait(30)
        os.kill(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait for the end of the process, and return its status."""
        _, errors = self._process.communicate(timeout=60)
        assert not errors, errors.decode()
        self._proxy.close()
        if self._process.returncode == -signal.SIGKILL:
            self.recorder.record("kill", "ok", process="consumer")
        return self._process.returncode

    def drain(self, app: duly.Duly) -> History:
        """Receive the remaining messages, and return the whole history."""
        queue = app.queue(self.name)
        recorded = RecordedQueue(queue, self.recorder, LEASE)

        def is_over() -> bool:
            recorded.ack_many(recorded.receive(10, wait=0.2))
            stats = queue.stats()
            return stats.ready + stats.leased == 0

        wait_until(is_over)
        if queue.get("later") is not None:
            recorded.cancel("later")
        self.recorder.close()
        return History.read(*(path for path in self.paths if path.exists()))


def killed_at(k: int, stage: Stage) -> tuple[CutAt, Callable[[Consumer], None]]:
    """Make a fault that kills a consumer which exists only later."""
    born: list[Consumer] = []
    is_born = threading.Event()

    def kill(fault: Fault) -> None:
        assert is_born.wait(30)
        born[0].kill(fault)

    def bear(consumer: Consumer) -> None:
        born.append(consumer)
        is_born.set()

    return CutAt(k, stage, on_fire=kill), bear


@pytest.mark.timeout(300)
def test_a_consumer_killed_at_any_command_and_stage_loses_nothing_and_its_messages_are_redelivered(
    upstream: Server, queue_name: str, tmp_path: Path
) -> None:
    # The first consumer loads the scripts. So all later ones send as many commands as `whole`.
    assert Consumer(upstream, f"{queue_name}-first", tmp_path, Policy()).end() == 0
    uncut = Policy()
    whole = Consumer(upstream, queue_name, tmp_path, uncut)
    assert whole.end() == 0
    with duly.Duly(upstream.url) as app:
        assert_clean(check(whole.drain(app), left=0))
        assert_drained(app.queue(queue_name), crashed=0)

    points = [(k, stage) for k in range(1, uncut.seen + 1) for stage in (Stage.BEFORE, Stage.EXECUTED, Stage.REPLIED)]
    dead: list[tuple[Fault, Consumer]] = []
    for some in (points[first : first + 4] for first in range(0, len(points), 4)):
        consumers = []
        for k, stage in some:
            policy, bear = killed_at(k, stage)
            consumers.append((policy, Consumer(upstream, f"{queue_name}-{k}-{stage.value}", tmp_path, policy)))
            bear(consumers[-1][1])
        for policy, consumer in consumers:
            assert consumer.end() == -signal.SIGKILL
            assert policy.fired == 1
            dead.append((policy.faults[0], consumer))

    again = 0
    with duly.Duly(upstream.url) as app:
        for fault, consumer in dead:
            history = consumer.drain(app)
            try:
                assert_clean(check(history, left=0, max_attempts=8))
                stats = assert_accounts(app.queue(consumer.name), dead=0, ready=0, delayed=0, leased=0)
            except AssertionError as error:
                error.add_note(f"killed {fault.action.stage.value} at {fault.command.name} {fault.command.number}")
                raise
            again += stats.crashed
            assert stats.crashed <= 2
            assert {cause for _, _, cause in redeliveries(history)} <= {
                "holder killed", "retry", "defer", "release", "recycle",
                "retry, outcome unknown", "defer, outcome unknown", "release, outcome unknown",
                "recycle, outcome unknown",
            }  # fmt: skip
    assert again, "no kill hit a holder"
