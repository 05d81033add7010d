"""The server of a worker restarts, hangs, refuses or fills up: the worker recovers, loses nothing, and never spins."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pytest
import redis

import duly
from tests.binaries import Kind
from tests.conftest import need
from tests.fault.proxy import BlackHole, FaultAt, Proxy, Stage
from tests.servers import LOOPBACK, Server
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = pytest.mark.fault

ALWAYS: Final = {"appendonly": "yes", "appendfsync": "always"}

ENDURING: Final = 120.0
"""Seconds that the producer of a test retries: longer than any outage here."""

MOST_CONNECTS: Final = 30.0
"""Connections per second that a worker may try to open while its server is unavailable."""
MOST_CPU: Final = 0.3
SHORTEST_MEASUREMENT: Final = 2.0
"""Seconds below which the share of a processor is not significant. It is counted in hundredths of a second, and
noticing an outage costs a few of them once."""

JOBS: Final = """
app = duly.Duly(os.environ["DULY_URL"], patience={patience})
orders = app.queue("orders", lease={lease}, crash_limit=10)


@orders.handler(concurrency=20)
async def on_order(seconds, d):
    await asyncio.sleep(seconds)
    note("done", id=d.id, attempt=d.attempt)
"""

ONLY_TOKENS: Final = """
from duly._core import patience

patience._LONGEST_PERIOD = 3600.0  # the worker does not poll: a message that does not wake it is never found
"""


def jobs(*, lease: float = 60, patience: float = 20) -> str:
    return JOBS.format(lease=lease, patience=patience)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """Return a server for faults. It loses no data itself."""
    need("valkey")
    with Server("valkey", ALWAYS) as server:
        yield server


@contextmanager
def client_of(server: Server) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def refusals(client: Any, *codes: str) -> int:
    """Count the errors that the server has returned."""
    stats = client.info("errorstats")
    return sum(stats.get(f"errorstat_{code}", {"count": 0})["count"] for code in codes)


LONG_JOBS: Final = """
@app.queue("orders", lease=1.5).handler(concurrency=10)
async def on_order(seconds, d):
    note("begin", id=d.id, attempt=d.attempt, crashes=d.crashes)
    await asyncio.sleep(seconds)
    note("done", id=d.id)
"""


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ("killed", 3),
        ("frozen", 3),  # replies come before the timeout: the client does not know of an outage
        pytest.param("frozen", 7, marks=pytest.mark.long),
    ],
)
def test_after_an_outage_leases_are_renewed_before_anything_is_claimed(
    own_server: Server, tmp_path: Path, fault: str, seconds: float
) -> None:
    """The outage is longer than a lease. Both workers have free slots, and short jobs that make them claim."""
    with (
        WorkerProcess(own_server.url, tmp_path, LONG_JOBS, name="one") as one,
        WorkerProcess(own_server.url, tmp_path, LONG_JOBS, name="two") as two,
        duly.Duly(own_server.url, patience=ENDURING) as app,
    ):
        one.wait_for_start()
        two.wait_for_start()
        queue = app.queue("orders")
        long_jobs = [queue.send(seconds + 6.5) for _ in range(12)]
        wait_until(lambda: len(one.notes("begin")) == 12)
        assert len({note["pid"] for note in one.notes("begin")}) == 2, "one worker has all messages"
        with sending(queue, 0.01) as short_jobs:
            wait_until(lambda: len(one.notes("done")) > 20)
            time.sleep(1.5)  # a whole lease: by now both workers have renewed theirs, and have a connection for it
            if fault == "killed":
                own_server.kill9()
            else:
                own_server.freeze()
            time.sleep(seconds)
            assert not {note["id"] for note in one.notes("done")}.intersection(long_jobs), "the outage came too late"
            if fault == "killed":
                own_server.start()
            else:
                own_server.thaw()
            handled = len(one.notes("done"))
            wait_until(lambda: len(one.notes("done")) > handled + 20, "work goes on", one.log)
        sent = {*long_jobs, *short_jobs}
        wait_until(lambda: queue.stats().acked == len(sent), "all are handled", one.log)

        begun = one.notes("begin")
        assert (len(begun), {note["id"] for note in begun}) == (len(sent), sent)
        # A claim that was repeated may return a short job after its lease: it has not begun, and is delivered again.
        assert [note for note in begun if note["id"] in long_jobs and note["crashes"]] == []


@contextmanager
def sending(queue: Any, body: float) -> Iterator[list[str]]:
    """Send messages in another thread. The list has their ids."""
    sent: list[str] = []
    is_over = threading.Event()

    def send() -> None:
        while not is_over.wait(0.005):
            sent.append(queue.send(body))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()


class Load:
    """A producer and a worker under load, until `end`. Then all messages must have been handled."""

    def __init__(self, server: Server, worker: WorkerProcess) -> None:
        self._app = duly.Duly(server.url, patience=ENDURING)
        self.queue = self._app.queue("orders")
        self._worker = worker
        self._sent: list[str] = []
        self._sending = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def done(self) -> int:
        return len(self._worker.notes("done"))

    def wait_for_more(self, count: int = 40) -> None:
        """Wait until this number of further messages is handled."""
        goal = self.done() + count
        wait_until(lambda: self.done() >= goal or self._worker.process.poll() is not None)
        assert self._worker.process.poll() is None, self._worker.log()

    def send(self, *seconds: float) -> None:
        with self._sending:
            self._sent += self.queue.send_many(seconds)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Send nothing during this time, so that only the worker uses the server. It holds messages."""
        self.send(*[0.05] * 400)
        self.wait_for_more(20)
        with self._sending:
            yield

    def end(self, *, is_once: bool = True) -> None:
        """Wait until all messages are handled, and check them. `is_once`: each was handled once.

        A worker whose handlers wait for the server releases messages that it has claimed ahead. These are redelivered.
        """
        self._is_over.set()
        self._thread.join()
        sent = len(self._sent)
        try:
            wait_until(lambda: self.queue.stats().acked >= sent)
        except AssertionError:
            raise AssertionError(f"{sent} were sent: {self.queue.stats()}\n{self._worker.log()}") from None
        audit = self.queue.audit()
        assert audit.ok, audit
        stats = audit.stats
        assert (stats.sent, stats.acked, stats.leased, stats.ready, stats.dead) == (sent, sent, 0, 0, 0), stats
        handled = [note["id"] for note in self._worker.notes("done")]
        assert set(handled) == set(self._sent)
        if is_once:
            delivered = stats.delivered - stats.released
            assert (delivered, stats.crashed, len(handled)) == (sent, 0, sent), (stats, self._worker.log())
        self._app.close()

    def _produce(self) -> None:
        while not self._is_over.is_set():
            with self._sending:
                self._sent.append(self.queue.send(0.002))
            time.sleep(0.005)


@contextmanager
def loaded(server: Server, directory: Path, source: str = "", *, is_once: bool = True) -> Iterator[Load]:
    """Run a worker under load. At the end nothing is lost, and the worker ends in order."""
    with WorkerProcess(server.url, directory, source or jobs()) as worker:
        worker.wait_for_start()
        load = Load(server, worker)
        load.wait_for_more()
        yield load
        load.wait_for_more()
        load.end(is_once=is_once)
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)


def assert_calm(worker: WorkerProcess) -> None:
    """Fail if the log has an uncaught error, or a call that was given up."""
    log = worker.log()
    for sign in ("Traceback", "never retrieved", "never awaited", "worker.broken", "claim.failed", "settle.failed"):
        assert sign not in log, log


def assert_outages(worker: WorkerProcess, count: int) -> None:
    """Fail unless the log has this number of outages, with one line for the start and one for the end of each."""
    outages = [line for line in worker.log().splitlines() if "does not answer" in line or "answers again" in line]
    assert len(outages) == 2 * count, worker.log()
    for down, up in zip(outages[::2], outages[1::2], strict=True):
        assert "does not answer" in down, outages
        assert "answers again" in up, outages


class ClosingListener:
    """Listens on the port of an unavailable server, closes every connection, and counts them."""

    def __init__(self, port: int) -> None:
        self.calls = 0
        self._listener = socket.create_server((LOOPBACK, port), backlog=100)
        self._listener.settimeout(0.1)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._listener.close()

    def _answer(self) -> None:
        while not self._is_over.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.calls += 1
            connection.close()


@contextmanager
def little_cpu(worker: WorkerProcess) -> Iterator[None]:
    """Fail if the worker is busy during the block. The block must last long enough for a measurement."""
    used, began = worker.cpu_seconds(), time.monotonic()
    yield
    elapsed = time.monotonic() - began
    assert elapsed >= SHORTEST_MEASUREMENT, f"{elapsed:.2f} s are too short to measure a share"
    share = (worker.cpu_seconds() - used) / elapsed
    assert share < MOST_CPU, f"{share:.0%} of a processor"


@contextmanager
def hung_up_on(server: Server) -> Iterator[None]:
    """Close every connection to an unavailable server. The worker must not connect too often."""
    with ClosingListener(server.port) as listener:
        began = time.monotonic()
        yield
        rate = listener.calls / (time.monotonic() - began)
    assert 0 < rate < MOST_CONNECTS, f"{rate:.0f} connections a second"


# --- Connections and scripts disappear ---------------------------------------------------------------------


def test_killed_connections_are_replaced(kind: Kind, tmp_path: Path) -> None:
    with Server(kind) as server, client_of(server) as client, loaded(server, tmp_path) as load:
        for _ in range(8):
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            load.wait_for_more(5)


def test_flushed_scripts_are_sent_again(own_server: Server, tmp_path: Path) -> None:
    with client_of(own_server) as client, loaded(own_server, tmp_path) as load:
        for _ in range(10):
            client.script_flush()
            load.wait_for_more(5)


def test_an_idle_worker_whose_connections_are_cut_is_still_woken(own_server: Server, tmp_path: Path) -> None:
    with (
        client_of(own_server) as client,
        duly.Duly(own_server.url) as app,
        WorkerProcess(own_server.url, tmp_path, ONLY_TOKENS + jobs(lease=36_000)) as worker,
    ):
        queue = app.queue("orders")
        for round_ in range(5):
            wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            queue.send(0)
            wait_until(lambda sent=round_ + 1: queue.stats().acked == sent)  # type: ignore[misc]
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
        own_server.restart()
        queue.send(0)
        wait_until(lambda: queue.stats().acked == 6)
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)


def test_connections_that_the_server_closes_when_idle_are_not_an_outage(own_server: Server, tmp_path: Path) -> None:
    with (
        client_of(own_server) as client,
        duly.Duly(own_server.url) as app,
        WorkerProcess(own_server.url, tmp_path, jobs(lease=30)) as worker,
    ):
        client.config_set("timeout", 1)
        queue = app.queue("orders")
        for round_ in range(3):
            queue.send(0)
            wait_until(lambda sent=round_ + 1: queue.stats().acked == sent)  # type: ignore[misc]
            # The remaining connections: the one of this test, and the blocking one of the worker.
            wait_until(lambda: len(client.client_list()) == 2)
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)
        assert_outages(worker, 0)


def test_a_server_with_too_many_clients_is_waited_for(own_server: Server, tmp_path: Path) -> None:
    with (
        client_of(own_server) as client,
        WorkerProcess(own_server.url, tmp_path, jobs()) as worker,
        duly.Duly(own_server.url) as app,
        ExitStack() as others,
    ):
        worker.wait_for_start()
        queue = app.queue("orders")
        queue.send(0)
        wait_until(lambda: queue.stats().acked == 1)
        queue.send_many([0.01] * 300)
        worker.freeze()
        client.config_set("maxclients", 8)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for _ in range(7):
            other = others.enter_context(socket.create_connection((LOOPBACK, own_server.port)))
            other.sendall(b"PING\r\n")
            assert other.recv(10) == b"+PONG\r\n"
        refused = client.info("stats")["rejected_connections"]
        worker.thaw()
        with little_cpu(worker):
            wait_until(lambda: client.info("stats")["rejected_connections"] > refused + 10)
            time.sleep(SHORTEST_MEASUREMENT)
        others.close()
        wait_until(lambda: queue.stats().acked == 301)
        assert queue.audit().ok
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)
        assert_outages(worker, 1)


# --- The server is unavailable, hangs or is another one ----------------------------------------------------


def test_a_server_killed_and_restarted_under_load(kind: Kind, tmp_path: Path) -> None:
    with Server(kind, ALWAYS) as server, loaded(server, tmp_path) as load:
        for _ in range(3):
            server.kill9()
            server.start()
            load.wait_for_more()


def test_servers_that_are_away_or_hang_for_long_are_waited_for_in_peace(own_server: Server, tmp_path: Path) -> None:
    """Two servers and two workers at once, to save time: one server has ended, the other hangs."""
    (tmp_path / "other").mkdir()
    with (
        Server("valkey", ALWAYS) as other,
        client_of(other) as client,
        WorkerProcess(own_server.url, tmp_path, jobs()) as left,
        WorkerProcess(other.url, tmp_path / "other", jobs()) as hung,
    ):
        loads = [Load(server, worker.wait_for_start()) for server, worker in ((own_server, left), (other, hung))]
        connects = client.info("stats")["total_connections_received"]
        with loads[0].at_rest(), loads[1].at_rest(), little_cpu(left), little_cpu(hung):
            own_server.kill9()
            os.kill(other.pid, signal.SIGSTOP)
            time.sleep(5)  # no process listens
            with hung_up_on(own_server):
                time.sleep(14)
            own_server.start()
            os.kill(other.pid, signal.SIGCONT)
        connects = client.info("stats")["total_connections_received"] - connects
        assert 0 < connects < 19 * MOST_CONNECTS
        for load, worker in zip(loads, (left, hung), strict=True):
            load.wait_for_more()
            load.end()
            assert worker.stop() == 0, worker.log()
            assert_calm(worker)
            assert_outages(worker, 1)


def test_failed_renewals_during_an_outage_are_logged_once(own_server: Server, tmp_path: Path) -> None:
    """With little patience, and messages held all the time: renewals fail repeatedly."""
    with WorkerProcess(own_server.url, tmp_path, jobs(lease=2, patience=1)) as worker:
        worker.wait_for_start()
        load = Load(own_server, worker)
        load.send(10)
        with load.at_rest(), little_cpu(worker):
            own_server.kill9()
            time.sleep(3)
            with hung_up_on(own_server):
                time.sleep(5)
            own_server.start()
        load.wait_for_more()
        load.end(is_once=False)
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)
        assert_outages(worker, 1)
        assert worker.log().count("renewal.failed") <= 1, worker.log()


def test_a_claim_that_a_hanging_server_executes_late_strands_no_message(own_server: Server, tmp_path: Path) -> None:
    """The server hangs for longer than the patience of a call, while a claim is in progress."""
    with (
        WorkerProcess(own_server.url, tmp_path, jobs(lease=6, patience=1)) as worker,
        duly.Duly(own_server.url, patience=ENDURING) as app,
    ):
        worker.wait_for_start()
        queue = app.queue("orders")
        queue.send_many([duly.Send(0, delay=3)] * 50)
        time.sleep(0.5)
        assert worker.notes("done") == []
        os.kill(own_server.pid, signal.SIGSTOP)
        time.sleep(15)  # it claims when they are due, fails twice, and gives up
        os.kill(own_server.pid, signal.SIGCONT)
        wait_until(lambda: queue.stats().acked == 50)
        stats = queue.stats()
        assert (stats.delivered, stats.crashed) == (50, 0), worker.log()
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)


def test_a_blocking_call_on_a_silent_connection_is_repeated(own_server: Server, tmp_path: Path) -> None:
    with Proxy(own_server.port) as proxy, WorkerProcess(proxy.url, tmp_path, jobs(lease=3)) as worker:
        wait_until(lambda: proxy.counts["BLPOP"] > 2)
        proxy.policy = FaultAt(1, BlackHole(Stage.EXECUTED), only={"BLPOP"})
        wait_until(lambda: proxy.policy.fired == 1)
        before = proxy.counts["BLPOP"]
        with little_cpu(worker):
            wait_until(lambda: proxy.counts["BLPOP"] > before + 2)
            time.sleep(SHORTEST_MEASUREMENT)
        with duly.Duly(own_server.url) as app:
            queue = app.queue("orders")
            queue.send(0)
            wait_until(lambda: queue.stats().acked == 1)
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)


def test_a_server_that_is_busy_with_a_script_of_others_is_waited_for(kind: Kind, tmp_path: Path) -> None:
    spin = "for _ = 1, 200000000 do end return redis.call('SET', KEYS[1], 1)"  # a second or two
    with Server(kind) as server, client_of(server) as client, loaded(server, tmp_path):
        client.config_set("lua-time-limit", 10)
        client.eval(spin, 1, "other")
        assert refusals(client, "BUSY") > 0, "no call met a busy server"


def test_a_primary_that_is_a_replica_for_a_while_is_waited_for(kind: Kind, tmp_path: Path) -> None:
    with Server(kind) as server, client_of(server) as client, WorkerProcess(server.url, tmp_path, jobs()) as worker:
        worker.wait_for_start()
        load = Load(server, worker)
        with load.at_rest(), little_cpu(worker):
            client.replicaof(LOOPBACK, 1)
            refused = refusals(client, "READONLY", "ERR")  # Redis 6.2 wraps errors of scripts
            wait_until(lambda: refusals(client, "READONLY", "ERR") > refused + 6)
            time.sleep(SHORTEST_MEASUREMENT)
            client.replicaof("NO", "ONE")
        load.wait_for_more()
        load.end()
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)
        assert_outages(worker, 1)


def test_a_worker_may_be_started_before_its_server(own_server: Server, tmp_path: Path) -> None:
    own_server.kill9()
    with WorkerProcess(own_server.url, tmp_path, jobs()) as worker:
        worker.wait_for_start()
        wait_until(lambda: "does not answer" in worker.log())
        own_server.start()
        load = Load(own_server, worker)
        load.wait_for_more()
        load.end()
        assert worker.stop() == 0, worker.log()
        assert_calm(worker)
        assert_outages(worker, 1)


# --- The server is full ------------------------------------------------------------------------------------


def test_a_full_server_is_drained_with_any_outcome(kind: Kind, tmp_path: Path) -> None:
    source = """
    orders = app.queue("orders", retry=duly.Retry(first=0.01))

    @orders.handler(concurrency=10)
    async def on_order(number: bytes, d):
        verb = ("ack", "retry", "defer", "recycle", "reject")[len(number) % 5]
        note("done", id=d.id, verb=verb)
        if verb == "retry" and d.attempt < 2:
            return False
        if verb == "defer" and not d.defers:
            raise duly.Defer(0.01)
        if verb == "recycle" and "again" not in seen:
            seen.add("again")
            return duly.Recycle(0.01)
        if verb == "reject":
            raise duly.Reject("no good")

    seen = set()
    """
    with Server(kind) as server, client_of(server) as client, duly.Duly(server.url) as app:
        queue = app.queue("orders")
        bodies = [b"x" * (10_000 + number) for number in range(200)]
        queue.send_many(bodies)
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 100_000)
        with pytest.raises(duly.QueueFull):
            queue.send(bodies[0])
        with WorkerProcess(server.url, tmp_path, source) as worker:
            is_over: Callable[[], bool] = lambda: queue.stats().acked + queue.stats().dead == len(bodies)  # noqa: E731
            wait_until(is_over)
            stats = queue.stats()
            assert (stats.dead, stats.retried, stats.deferred, stats.recycled) == (40, 40, 40, 1)
            assert queue.audit().ok
            wait_until(lambda: len(app.workers()) == 1)
            assert queue.purge("dead") == 40
            assert queue.send(bodies[0])
            assert worker.stop() == 0, worker.log()
            assert_calm(worker)
            assert "janitor.failed" not in worker.log()


DECLARING: Final = """
orders = app.queue("orders")
ticks = app.queue("ticks")
events = app.topic("events")
archive = events.group("archive")
archive.create()
app.schedule("known", ticks, {"n": 1}, every=3600)
app.schedule("changed", ticks, {"n": 1}, every=%(every)d)


sums = app.queue("sums", done=duly.Keep(count=1000))


@app.task(queue=sums)
def add(one, other):
    return one + other


@orders.handler(concurrency=4)
def on_order(body: bytes, d):
    with d.lock(f"stock:{d.id}"):
        if duly.once(d, f"effect:{d.id}", ttl=60):
            note("effect", id=d.id)


@ticks.handler
def on_tick(body):
    pass


@archive.handler
def on_event(body, d):
    note("event", id=d.id)
"""
"""The calls of a program at its import, before it can drain the server."""


def test_a_worker_with_schedules_topics_tasks_and_results_starts_on_a_full_server(kind: Kind, tmp_path: Path) -> None:
    with Server(kind) as server, client_of(server) as client, duly.Duly(server.url) as app:
        with WorkerProcess(server.url, tmp_path, DECLARING % {"every": 3600}) as worker:
            worker.wait_for_start()
            assert worker.stop() == 0, worker.log()
        orders, events = app.queue("orders"), app.topic("events")
        ids = orders.send_many([b"x" * 10_000 for _ in range(100)])
        add = app.task(name="add", queue=app.queue("sums", done=duly.Keep(count=1000)))(lambda one, other: one + other)
        asked = add.send(1, 2)
        events.publish_many([{"n": number} for number in range(100)])
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 100_000)
        with pytest.raises(duly.QueueFull):
            orders.send(b"one more")
        released = DECLARING % {"every": 1800} + 'app.schedule("new", ticks, {"n": 2}, every=1800)\n'
        with WorkerProcess(server.url, tmp_path, released, name="next") as worker:
            worker.wait_for_start()
            wait_until(lambda: orders.stats().acked == len(ids))
            wait_until(lambda: len(worker.notes("event")) == 100)
            assert {each["id"] for each in worker.notes("effect")} == set(ids)
            assert {each.name for each in app.schedules()} == {"known", "changed", "new"}
            wait_until(lambda: len(app.workers()) == 1)
            assert add.result(asked, wait=60) == 3
            client.config_set("maxmemory", 0)
            assert worker.stop() == 0, worker.log()
            assert_calm(worker)
