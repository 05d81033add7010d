"""Lines of docs/mission.md that no other test holds and that need a real server, processes or a stopwatch."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, Final

import pytest
from msgspec import structs

import duly
from duly._core import codec, ops
from duly._core.call import Call
from tests.binaries import Kind
from tests.clock import ServerClock
from tests.conftest import need
from tests.fault.proxy import CutAt, Fault, Proxy, Stage
from tests.fault.recorded import assert_accounts, assert_drained
from tests.fault.test_server_faults import ALWAYS, client_of, key, traffic
from tests.lua.harness import NOW, SECOND, STREAM, Queue, Wire
from tests.lua.test_headers import CALLS, KEYS
from tests.lua.test_repeats import WRITING
from tests.servers import Server
from tests.waiting import wait_until
from tests.warm import WarmPopen

pytestmark = pytest.mark.fault

FEW: Final = 50
MANY: Final = 100_000
TRIES: Final = 3
"""How often something is measured before it is called slow: what else the machine does must not decide."""
A_SCAN_OF_MANY: Final = 10_000
"""Microseconds. A script that goes through MANY entries takes three times as long, one that does not a tenth of it."""


@contextmanager
def still_queue(kind: Kind, clock: ServerClock, name: str) -> Iterator[Queue]:
    """Return a queue for calls of scripts, on a dedicated server whose clock stands at NOW."""
    clock.freeze(NOW)
    with Server(kind, environment=clock.environment()) as server, Wire(server) as wire:
        yield Queue(wire, name, crash_limit=99)


def sent_in_bulk(queue: Queue, count: int, prefix: str, **options: Any) -> None:
    one = queue.outgoing("", **options)
    for first in range(0, count, 1000):
        queue.send_all([structs.replace(one, id=f"{prefix}{n:06d}") for n in range(first, min(first + 1000, count))])


def held_in_bulk(queue: Queue, count: int, prefix: str) -> None:
    sent_in_bulk(queue, count, prefix)
    for _ in range(0, count, 1000):
        queue.claim(1000, lease=1_000_000)


def time_of(queue: Queue, call: Call[Any]) -> int:
    """Run a call, and return how many microseconds it took. The server's own figures stand still with its clock."""
    queue.sequence += 1
    spelled = queue.wire.spelled(call, STREAM, queue.sequence)
    began = time.perf_counter_ns()
    queue.wire.run(*spelled)
    return (time.perf_counter_ns() - began) // 1000


def blocked_receive(
    queue: duly.Queue, client: Any, pool: ThreadPoolExecutor
) -> "Future[tuple[list[duly.Delivery], float]]":
    """Let a thread wait for a message; it gives what it got, and when."""
    waiting = pool.submit(lambda: (queue.receive(1, wait=60), time.monotonic()))
    wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
    return waiting


# --- Recovery ----------------------------------------------------------------------------------------------


def test_leases_of_different_lengths_are_taken_back_by_deadline(
    kind: Kind, queue_name: str, server_clock: ServerClock
) -> None:
    """000-5."""
    with still_queue(kind, server_clock, queue_name) as queue:
        for lease in (30, 10, 50, 20, 40):
            queue.hold(f"of {lease} s", lease=lease)

        server_clock.freeze(NOW + 35 * SECOND)
        first = [row.id for row in queue.claim(limit=1, lease=100).reclaimed]
        server_clock.freeze(NOW + 60 * SECOND)
        second = [row.id for row in queue.claim(limit=1, lease=100).reclaimed]

        assert (first, second) == (["of 10 s", "of 20 s", "of 30 s"], ["of 40 s", "of 50 s"])


@pytest.mark.measure
def test_a_lease_that_ran_out_is_found_among_100_000_as_fast_as_among_50(
    kind: Kind, queue_name: str, server_clock: ServerClock
) -> None:
    """000-5."""
    times: dict[int, list[int]] = {FEW: [], MANY: []}
    for count, found in times.items():
        with still_queue(kind, server_clock, queue_name) as queue:
            held_in_bulk(queue, count, "held")
            queue.hold("out", lease=1)
            for run in range(1, 6):
                server_clock.freeze(NOW + run * 10 * SECOND)
                found.append(time_of(queue, queue.claim_call(limit=1, lease=1)))
            assert queue.dump().stats["crashed"] == 5

    assert min(times[MANY]) - min(times[FEW]) < A_SCAN_OF_MANY, times


RECOVERER: Final = """
import sys, time, duly
duly.Duly(sys.argv[1]).queue(sys.argv[2], lease=0.2).receive(2, wait=0)
time.sleep(60)  # it ends only by the kill, which may come after its last reply
"""


def killed_while_it_recovers(server: Server, queue_name: str, stage: Stage) -> None:
    """Run a process that takes leases back, and kill it in the middle of that."""
    processes: list[subprocess.Popen[bytes]] = []
    is_started = threading.Event()

    def kill(fault: Fault) -> None:
        assert is_started.wait(30)
        os.kill(processes[0].pid, signal.SIGKILL)

    policy = CutAt(1, stage, only={"EVALSHA"}, on_fire=kill)
    with Proxy(server.port, policy) as proxy:
        processes.append(WarmPopen([sys.executable, "-c", RECOVERER, proxy.url, queue_name]))
        is_started.set()
        assert processes[0].wait(60) == -signal.SIGKILL
    assert policy.fired == 1
    assert not policy.faults[0].was_refused


@pytest.mark.parametrize("stage", Stage)
def test_a_kill_of_the_consumer_that_ends_leases_loses_nothing(queue_name: str, stage: Stage) -> None:
    """000-4 000-6."""
    need("valkey")
    with Server("valkey") as server, duly.Duly(server.url) as app:
        queue = app.queue(queue_name, lease=0.2)
        ids = set(queue.send_many(range(5)))
        assert len(queue.receive(5, wait=0)) == 5
        wait_until(lambda: queue.pending().messages[-1].deadline_in < 0)

        killed_while_it_recovers(server, queue_name, stage)

        again: set[str] = set()
        while again != ids:
            found = queue.receive(5, wait=30, lease=60)
            again |= {delivery.id for delivery in found}
            assert queue.ack_many(found) == []
        assert_drained(queue, sent=5, acked=5)


def test_consumers_that_clean_up_at_once_end_each_message_once_and_no_live_one(kind: Kind, queue_name: str) -> None:
    """003-14: leases that ran out and messages past their ttl."""
    with Server(kind) as server, ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        queues = [stack.enter_context(duly.Duly(server.url)).queue(queue_name, lease=60) for _ in range(8)]
        ids = queues[0].send_many(range(300))
        assert len(queues[0].receive(200, wait=0, lease=0.05)) == 200
        queues[0].send_many([duly.Send(n, ttl=0.05, priority=n % 3) for n in range(500)])
        time.sleep(0.1)

        def consume(queue: duly.Queue) -> list[str]:
            return [delivery.id for _ in range(60) for delivery in queue.receive(3, wait=0)]

        delivered = Counter(id_ for some in pool.map(consume, queues) for id_ in some)

        assert delivered == Counter(ids)
        assert_accounts(queues[0], crashed=200, expired=500, leased=300, dead=0)


def test_counts_that_were_removed_are_counted_again(kind: Kind, queue_name: str, server_clock: ServerClock) -> None:
    """003-13: a missing counter is not an error."""
    with still_queue(kind, server_clock, queue_name) as queue:
        (settle,) = queue.hold("a", lease=10)
        for run in range(1, 4):
            queue.call(ops.retry(queue.keys, [(settle, 0, "boom", "")]))
            queue.claim(lease=10)
            queue.wire.run("DEL", queue.keys.key("counts"))
            server_clock.freeze(NOW + run * 60 * SECOND)
            settle = ops.Settle("a", queue.claim(lease=10).fence, 0)
            assert queue.dump().counts == {"a": codec.Counts(crashes=1)}


# --- Waiting -----------------------------------------------------------------------------------------------


def test_an_idle_receive_blocks_once_per_period_and_claims_once_after_it(kind: Kind, queue_name: str) -> None:
    """002-1: with a lease of 1.5 s a period is a quarter of a second."""
    with Server(kind) as server, Proxy(server.port) as proxy, duly.Duly(proxy.url) as app:
        queue = app.queue(queue_name, lease=1.5)
        assert queue.receive(1, wait=0.3) == []  # scripts and connections are there
        before, began = Counter(proxy.counts), time.thread_time()

        assert queue.receive(1, wait=2) == []

        asked = Counter(proxy.counts) - before
        assert time.thread_time() - began < 0.05
        assert set(asked) == {"BLPOP", "EVALSHA"}
        assert asked["BLPOP"] <= 9
        assert asked["EVALSHA"] <= asked["BLPOP"] + 1


@pytest.mark.measure
def test_a_blocked_consumer_has_a_message_within_5_milliseconds(kind: Kind, queue_name: str) -> None:
    """002-1."""
    runs: list[list[float]] = []
    with (
        Server(kind) as server, client_of(server) as client, duly.Duly(server.url) as app, ThreadPoolExecutor(1) as pool
    ):  # fmt: skip
        queue = app.queue(queue_name)

        def delay() -> float:
            waiting = blocked_receive(queue, client, pool)
            began = time.monotonic()
            queue.send("x")
            (delivery,), received_at = waiting.result(timeout=30)
            delivery.ack()
            return received_at - began

        while not runs or (len(runs) < TRIES and median(runs[-1]) >= 0.005):
            runs.append([delay() for _ in range(30)])

    assert median(runs[-1]) < 0.005, runs


@pytest.mark.measure
def test_a_message_is_delivered_when_it_is_due_and_not_at_a_tick(kind: Kind, queue_name: str) -> None:
    """003-20: with a tick of a second half of them would be late by half a second."""
    runs: list[list[float]] = []
    with Server(kind) as server, duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        while not runs or (len(runs) < TRIES and median(runs[-1]) >= 0.05):
            queue.send_many([duly.Send(n, delay=0.2 + 0.093 * n) for n in range(20)])
            taken = [queue.receive(1, wait=30)[0] for _ in range(20)]
            runs.append([delivery.fence / 1e6 - delivery.due_at.timestamp() for delivery in taken])

    assert min(late for run in runs for late in run) >= 0
    assert median(runs[-1]) < 0.05, runs


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_delayed_message_that_falls_due_after_a_restart_is_received_by_the_next_consumer_at_once(
    kind: Kind, queue_name: str, server_clock: ServerClock, is_killed: bool
) -> None:
    """004-13."""
    with Server(kind, ALWAYS, server_clock.environment()) as server:
        with duly.Duly(server.url) as producer:
            producer.queue(queue_name).send("later", delay=3600)
        (server.kill9 if is_killed else server.stop)()
        server.start()
        server_clock.step(3601)

        with duly.Duly(server.url) as consumer:
            assert [delivery.body for delivery in consumer.queue(queue_name).receive(wait=0)] == ["later"]


def test_a_delayed_message_falls_due_after_a_restart_while_only_a_consumer_runs(
    kind: Kind, queue_name: str, server_clock: ServerClock
) -> None:
    """004-13."""
    with (
        Server(kind, ALWAYS, server_clock.environment()) as server, client_of(server) as client,
        duly.Duly(server.url) as app, ThreadPoolExecutor(1) as pool,
    ):  # fmt: skip
        with duly.Duly(server.url) as producer:
            producer.queue(queue_name).send("later", delay=3600)
        waiting = blocked_receive(app.queue(queue_name, lease=3), client, pool)

        server.kill9()
        server.start()
        server_clock.step(3601)

        (delivery,), _ = waiting.result(timeout=30)
        assert delivery.body == "later"


# --- Bounds ------------------------------------------------------------------------------------------------


def times_of_every_script(queue: Queue, count: int) -> dict[str, int]:
    """Run each script on a queue of this many delayed, leased and dead messages, and return the best of three times."""
    held_in_bulk(queue, count, "held")
    sent_in_bulk(queue, count, "delayed", delay=86400, ttl=60)
    queue.bury(*(f"dead{n}" for n in range(1000)))
    times: dict[str, int] = {}

    def measure(name: str, call: Call[Any]) -> None:
        times[name] = min(time_of(queue, call), times.get(name, 1 << 60))

    for _ in range(3):
        for prepare in (prepare for name, prepares in WRITING.items() if name != "delete" for prepare in prepares):
            measure(prepare.__name__, prepare(queue))
            for id_ in ("a", "b", "c", "own"):
                queue.call(ops.cancel(queue.keys, id_, running=True))
            queue.call(ops.purge(queue.keys, "done", 10))
            queue.call(ops.resume(queue.keys))
        for number, call in enumerate(call for call in CALLS if call.script.keys[0] != "call"):
            measure(f"{call.script.name} {number}", call)
    for _ in range(TRIES):
        measure("delete", ops.delete(queue.keys))
        if times["delete"] < A_SCAN_OF_MANY:
            break
        held_in_bulk(queue, count, "held")
    return times


@pytest.mark.measure
@pytest.mark.parametrize("kind", ["valkey"])  # the scripts are the same everywhere, and filling a queue takes its time
def test_no_script_takes_longer_on_a_queue_of_200_000(kind: Kind, server_clock: ServerClock) -> None:
    """I11."""
    times = []
    for count in (FEW, MANY):
        with still_queue(kind, server_clock, KEYS.name) as queue:
            times.append(times_of_every_script(queue, count))
    few, many = times

    assert {name: (few[name], many[name]) for name in few if many[name] - few[name] > A_SCAN_OF_MANY} == {}


# --- Audit -------------------------------------------------------------------------------------------------

DAMAGES: Final[dict[str, tuple[str, ...]]] = {
    "a body is gone": ("HDEL", "msgs", "waits"),
    "a record is damaged": ("HSET", "msgs", "waits", "short"),
    "a waiting message has no place": ("ZREM", "waiting0", "waits"),
    "a message is in two places": ("ZADD", "dead", "1", "waits"),
    "a message waits under a wrong priority": ("RENAME", "waiting0", "waiting5"),
    "a leased message has no place": ("ZREM", "leased", "held"),
    "a message is leased without a lease row": ("HDEL", "leases", "held"),
    "a place has no message": ("ZADD", "waiting0", "1", "ghost"),
    "a row has no message": ("HSET", "counts", "ghost", "x"),
    "a body is in the way": ("HSET", "msgs", "ghost", "x" * 40),
    "a count is wrong": ("HINCRBY", "meta", "sent", "5"),
    "bytes are wrong": ("HINCRBY", "meta", "bytes", "-5"),
}


KEYS_OF_A_QUEUE: Final = {"msgs", "waiting0", "waiting5", "leased", "leases", "dead", "counts", "meta"}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_audit_finds_and_repairs_damage_by_hand(kind: Kind, queue_name: str, damage: tuple[str, ...]) -> None:
    """new-1 003-22."""
    with Server(kind) as server, client_of(server) as client, duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        queue.send("body", id="held")
        assert queue.receive(1, wait=0)
        queue.send("body", id="waits")
        assert_accounts(queue)
        client.execute_command(*(key(queue, word) if word in KEYS_OF_A_QUEUE else word for word in damage))

        found = queue.audit()
        for _ in range(2):  # bytes can be counted only when everything is in its place
            queue.audit(repair=True)

        assert bool(found.faults) != (damage == DAMAGES["a count is wrong"])
        assert found.difference or found.faults
        assert_accounts(queue)
        places = Counter(message.id for state in ("ready", "leased", "dead") for message in queue.list(state))
        assert places.items() - {("ghost", 1)} == {("held", 1), ("waits", 1)}


def test_an_audit_of_a_queue_in_use_raises_no_alarm(kind: Kind, queue_name: str) -> None:
    """new-1: it is online."""
    with Server(kind) as server, duly.Duly(server.url) as app, traffic(app, queue_name) as load:
        for _ in range(20):
            audit = app.queue(queue_name).audit()
            assert audit.ok, audit
            load.wait_for_more(10)
