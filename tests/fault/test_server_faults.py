"""The server restarts, hangs, fills up, refuses, jumps in time or is written to by strangers: work goes on."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import duly
from tests.binaries import Kind
from tests.clock import ServerClock
from tests.conftest import StartedServer, need
from tests.fault.history import History, Recorder, assert_clean, check
from tests.fault.recorded import RecordedQueue, assert_accounts, assert_drained
from tests.servers import LOOPBACK, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

ALWAYS: Final = {"appendonly": "yes", "appendfsync": "always"}
LEASE: Final = 60.0


@pytest.fixture
def own_server() -> Iterator[Server]:
    """Return a server to ill-treat."""
    need("valkey")
    with Server("valkey") as server:
        yield server


@contextmanager
def client_of(server: Server) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def key(queue: duly.Queue, name: str) -> str:
    return f"duly:{{{queue.name}}}:{name}"


def refusals(client: Any, *codes: str) -> int:
    """Count the errors that the server has answered with."""
    stats = client.info("errorstats")
    return sum(stats.get(f"errorstat_{code}", {"count": 0})["count"] for code in codes)


class Traffic:
    """Two producers and two consumers at work, until `end`; then all that was sent must be through."""

    def __init__(self, app: duly.Duly, queue_name: str) -> None:
        self.queue = app.queue(queue_name)
        self._recorders = [Recorder(name) for name in ("p1", "p2", "c1", "c2")]
        self._is_ending = threading.Event()
        self._sent = [0, 0]
        self._acked = [0, 0]
        self._pool = ThreadPoolExecutor(4)
        self._producing = [self._pool.submit(self._produce, number) for number in (0, 1)]
        self._work = [*self._producing, *(self._pool.submit(self._consume, number) for number in (0, 1))]

    @property
    def moved(self) -> int:
        return sum(self._sent) + sum(self._acked)

    def wait_for_more(self, count: int = 40) -> None:
        """Wait until this many more operations have returned: work goes on."""
        goal = self.moved + count
        wait_until(lambda: self.moved >= goal or any(one.done() for one in self._work))

    def end(self) -> None:
        """Let all that was sent through, and check it."""
        self._is_ending.set()
        for one in self._work:
            one.result(timeout=90)
        self._pool.shutdown()
        assert_clean(check(History.of(*self._recorders), max_attempts=1, left=0))
        assert_drained(self.queue, sent=sum(self._sent), acked=sum(self._sent), crashed=0)

    def _produce(self, number: int) -> None:
        queue = RecordedQueue(self.queue, self._recorders[number], LEASE)
        while not self._is_ending.is_set():
            queue.send(f"{number}-{self._sent[number]}")
            self._sent[number] += 1
            time.sleep(0.001)

    def _consume(self, number: int) -> None:
        queue = RecordedQueue(self.queue, self._recorders[2 + number], LEASE)
        while not all(one.done() for one in self._producing) or sum(self._acked) < sum(self._sent):
            found = queue.receive(10, wait=0.2)
            queue.ack_many(found)
            self._acked[number] += len(found)


@contextmanager
def traffic(app: duly.Duly, queue_name: str) -> Iterator[Traffic]:
    load = Traffic(app, queue_name)
    try:
        load.wait_for_more()
        yield load
        load.wait_for_more()
    finally:
        load.end()


# --- Connections and scripts are taken away ----------------------------------------------------------------


def test_scripts_flushed_in_the_middle_are_sent_again(own_server: Server, queue_name: str) -> None:
    with duly.Duly(own_server.url) as app, client_of(own_server) as client, traffic(app, queue_name) as load:
        for _ in range(20):
            client.script_flush()
            load.wait_for_more(5)


def test_killed_connections_are_opened_again(kind: Kind, queue_name: str) -> None:
    with (
        Server(kind) as server,
        client_of(server) as client,
        duly.Duly(server.url) as app,
        traffic(app, queue_name) as load,
    ):
        for _ in range(20):
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            load.wait_for_more(5)


def test_a_blocked_receive_whose_connection_is_killed_still_gets_the_message(kind: Kind, queue_name: str) -> None:
    with (
        Server(kind) as server,
        client_of(server) as client,
        duly.Duly(server.url) as app,
        ThreadPoolExecutor(1) as pool,
    ):
        queue = app.queue(queue_name)
        for _ in range(3):
            waiting = pool.submit(queue.receive, 1, 60)
            wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            message_id = queue.send("late")
            (delivery,) = waiting.result(timeout=30)
            assert delivery.id == message_id
            delivery.ack()


def test_connections_that_the_server_closes_when_idle_cause_neither_errors_nor_alarm(
    own_server: Server, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with client_of(own_server) as client, duly.Duly(own_server.url) as app:
        queue = app.queue(queue_name)
        client.config_set("timeout", 1)
        message_id = queue.send("before")
        assert queue.receive(1, wait=0)[0].id == message_id
        assert queue.receive(1, wait=0.05) == []  # a waiting connection as well

        wait_until(lambda: len(client.client_list()) == 1)  # the one that asks
        queue.send("after")
        assert len(queue.receive(5, wait=5)) == 1
        assert queue.receive(1, wait=0.05) == []
    assert caplog.text == ""


def test_a_server_with_too_many_clients_is_waited_for(own_server: Server, queue_name: str) -> None:
    with client_of(own_server) as client, ThreadPoolExecutor(1) as pool:
        client.config_set("maxclients", 5)
        others = []
        for _ in range(4):
            others.append(socket.create_connection((LOOPBACK, own_server.port)))
            others[-1].sendall(b"PING\r\n")
            assert others[-1].recv(10) == b"+PONG\r\n"
        with duly.Duly(own_server.url) as app, duly.Duly(own_server.url, patience=0.3) as hasty:
            with pytest.raises(duly.Unavailable, match="max number of clients"):
                hasty.queue(queue_name).send("refused")
            sending = pool.submit(app.queue(queue_name).send, "waits")
            wait_until(lambda: client.info("stats")["rejected_connections"] > 3)
            for one in others:
                one.close()
            assert sending.result(timeout=30)
            assert app.queue(queue_name).stats().sent == 1


# --- The server is away, hangs or is another one ------------------------------------------------------------


def test_a_server_killed_and_restarted_under_load_loses_and_doubles_nothing(kind: Kind, queue_name: str) -> None:
    with Server(kind, ALWAYS) as server, duly.Duly(server.url) as app, traffic(app, queue_name) as load:
        for _ in range(3):
            server.kill9()
            server.start()
            load.wait_for_more()


def test_a_server_that_hangs_for_longer_than_the_reply_timeout_does_each_call_once(
    own_server: Server, queue_name: str
) -> None:
    with duly.Duly(own_server.url) as app, traffic(app, queue_name):
        os.kill(own_server.pid, signal.SIGSTOP)
        time.sleep(7)  # the clients have given up and reconnected; both copies of their calls are in the buffers
        os.kill(own_server.pid, signal.SIGCONT)


def test_a_server_that_is_busy_with_a_script_of_others_is_waited_for(kind: Kind, queue_name: str) -> None:
    spin = "for _ = 1, 150000000 do end return redis.call('SET', KEYS[1], 1)"  # a second, or so
    with Server(kind) as server, client_of(server) as client, duly.Duly(server.url) as app:
        client.config_set("lua-time-limit", 10)
        with traffic(app, queue_name):
            client.eval(spin, 1, "other")
        assert refusals(client, "BUSY") > 0, "no call met a busy server"


def test_a_primary_that_is_a_replica_for_a_while_is_waited_for(kind: Kind, queue_name: str) -> None:
    with (
        Server(kind) as server,
        client_of(server) as client,
        duly.Duly(server.url) as app,
        traffic(app, queue_name),
    ):
        client.replicaof(LOOPBACK, 1)
        wait_until(lambda: refusals(client, "READONLY", "ERR") > 3)  # Redis 6.2 wraps what a script meets
        client.replicaof("NO", "ONE")


def test_a_server_that_loads_its_data_is_waited_for(own_server: Server, queue_name: str) -> None:
    own_server.config |= {**ALWAYS, "key-load-delay": "300"}
    loading: list[str] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.005):
            try:
                with redis.Redis.from_url(own_server.url, retry=Retry(NoBackoff(), 0)) as client:
                    client.ping()
            except redis.exceptions.BusyLoadingError as error:
                loading.append(str(error))
            except redis.exceptions.RedisError:
                pass

    own_server.restart()
    with duly.Duly(own_server.url) as app, client_of(own_server) as client, ThreadPoolExecutor(1) as pool:
        pipeline = client.pipeline(transaction=False)
        for number in range(8000):  # a loading server looks up once in a thousand commands
            pipeline.set(f"other:{number}", number)
        pipeline.execute()
        with traffic(app, queue_name):
            own_server.kill9()
            watching = pool.submit(watch)
            own_server.start()
            is_over.set()
            watching.result()
    assert loading, "no client met a server that was loading"


def test_a_server_that_stays_away_is_named_without_credentials_after_patience_is_over(queue_name: str) -> None:
    with ExitStack() as stack:
        probe = stack.enter_context(socket.socket())  # bound, not listening: no other process can take the port
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
        app = stack.enter_context(duly.Duly(f"redis://app:s3cret@{LOOPBACK}:{port}/0", patience=0.3))
        queue = app.queue(queue_name)
        calls: tuple[Callable[[], object], ...] = (
            lambda: queue.send("x"), lambda: queue.send_many(["x"]), lambda: queue.send("x", durable="fsync"),
            lambda: queue.receive(1, wait=1), queue.stats, lambda: queue.cancel("x"), app.queues,
        )  # fmt: skip
        for call in calls:
            with pytest.raises(duly.Unavailable) as caught:
                call()
            text = str(caught.value)
            assert f"{LOOPBACK}:{port}" in text
            assert "s3cret" not in text + repr(caught.value) + repr(app) + repr(queue)


def test_an_outage_is_one_warning_and_its_end_one_line_of_information_for_all_apps_of_a_process(
    own_server: Server, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "duly")
    own_server.config |= ALWAYS
    own_server.restart()
    with duly.Duly(own_server.url) as app, duly.Duly(own_server.url) as other, ThreadPoolExecutor(2) as pool:
        apps = (app, other)
        for each in apps:
            each.queue(queue_name).send("before")
        for _ in range(2):  # the next outage is logged as well
            own_server.kill9()
            sending = [pool.submit(each.queue(queue_name).send, "meanwhile") for each in apps]
            wait_until(lambda: all(each._link.is_down for each in apps))
            own_server.start()
            assert all(sent.result(timeout=30) for sent in sending)
            assert not any(each._link.is_down for each in apps)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "duly"]
    assert [level for level, _ in lines] == ["WARNING", "INFO"] * 2, lines
    assert f"{own_server.url} does not answer" in lines[0][1]
    assert f"{own_server.url} answers again" in lines[1][1]


def test_an_app_without_an_outage_logs_the_end_of_one(
    own_server: Server, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "duly")
    with duly.Duly(own_server.url) as app, duly.Duly(own_server.url, patience=0.5) as idle:
        app.queue(queue_name).send("before")
        idle.queue(queue_name).send("before")
        own_server.kill9()
        with pytest.raises(duly.Unavailable):
            idle.queue(queue_name).send("meanwhile")
        own_server.start()
        app.queue(queue_name).send("after")  # the other one is not used again
    lines = [record for record in caplog.records if "answer" in record.getMessage()]
    assert [record.levelname for record in lines] == ["WARNING", "INFO"]


# --- The server is full ------------------------------------------------------------------------------------


def test_a_full_server_refuses_sends_is_drained_by_its_consumers_and_takes_sends_again(
    kind: Kind, queue_name: str
) -> None:
    with Server(kind) as server, client_of(server) as client, duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (4 << 20))
        stored: list[str] = []

        def fill() -> None:
            while len(stored) < 10_000:
                stored.append(queue.send(b"x" * 10_000))

        with pytest.raises(duly.QueueFull, match="maxmemory"):
            fill()
        with pytest.raises(duly.QueueFull):
            queue.send_many([b"x" * 10_000] * 10)
        assert queue.stats().ready == len(stored) > 100

        first = queue.receive(7, wait=0)
        assert [each.id for each in first] == stored[:7]
        first[0].retry(0)
        first[1].defer(0)
        first[2].release()
        first[3].recycle(0)
        first[4].extend(60)
        first[5].reject("no good")
        assert queue.cancel(first[6].id, running=True)
        first[4].ack()
        with pytest.raises(duly.QueueFull):
            queue.send_many([b"x" * 10_000] * 100)
        finished = 0
        while found := queue.receive(50, wait=0):
            assert queue.ack_many(found) == []
            finished += len(found)
        assert finished == len(stored) - 3
        assert queue.redrive() == 1
        queue.receive(1, wait=0)[0].ack()

        assert_drained(queue, sent=len(stored), acked=len(stored) - 1, cancelled=1)
        assert queue.send(b"x" * 10_000)


# --- Strangers write into the keys -------------------------------------------------------------------------

GARBAGE: Final = (
    b"", b"x", b"\x00" * 18, b"\xff" * 19, b"\x00" * 19, b"\x00" * 17 + b"\x01\x00", b"\x00" * 17 + b"\x02\x00",
    b"\x00" * 17 + b"\x04\x00", b"\x00" * 17 + b"\x1f\x00", b"\x00" * 17 + b"\x07\x05\x09", b"\xff" * 200,
    b'{"a": 1}' * 20,
    b"\x00" * 17 + b"\x07\x00" + b"\xff" * 40,
)  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: garbage[:22].hex() or "empty")
def test_a_damaged_record_becomes_a_dead_letter_and_the_others_continue(
    server: StartedServer, queue_name: str, garbage: bytes
) -> None:
    upstream = server("valkey")
    with client_of(upstream) as client, duly.Duly(upstream.url) as app:
        queue = app.queue(queue_name, retry=duly.Retry(attempts=1))
        _, damaged, _ = queue.send_many(["before", "damaged", "after"])
        client.hset(key(queue, "msgs"), damaged, garbage)
        bodies = []
        while found := queue.receive(10, wait=0):
            for delivery in found:
                with suppress(duly.CodecError), delivery:  # for the scripts, it may be of another version
                    bodies.append(delivery.body)
        assert bodies == ["before", "after"]
        message = queue.get(damaged)
        assert message is not None
        assert message.state == "dead"
        assert message.reason in {"damaged", "failed"}
        queue.audit(repair=True)
        assert_accounts(queue, dead=1, ready=0, leased=0, acked=2)


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: garbage[:22].hex() or "empty")
def test_a_record_damaged_while_leased_ends_and_is_audited(
    server: StartedServer, queue_name: str, garbage: bytes
) -> None:
    upstream = server("valkey")
    with client_of(upstream) as client, duly.Duly(upstream.url) as app:
        queue = app.queue(queue_name, lease=0.2, retry=duly.Retry(attempts=2, first=0.001))
        ids = queue.send_many(range(5))
        retried, rejected, cancelled, acked, crashed = queue.receive(10, wait=0)
        assert crashed.id == ids[4]
        for message_id in ids:
            client.hset(key(queue, "msgs"), message_id, garbage)
        retried.retry(0)
        rejected.reject("no good")
        assert queue.cancel(cancelled.id, running=True)
        acked.ack()

        def is_over() -> bool:
            for each in queue.receive(10, wait=0.1):
                with pytest.raises(duly.CodecError), each:
                    assert each.body
            return queue.stats().dead == 3

        wait_until(is_over)
        assert {message.reason for message in queue.list("dead")} <= {"damaged", "no good", "failed at attempt 2 of 2"}
        queue.audit(repair=True)
        assert_accounts(queue, dead=3, ready=0, leased=0, acked=1, cancelled=1)


def test_a_message_whose_body_was_removed_becomes_a_dead_letter(server: StartedServer, queue_name: str) -> None:
    upstream = server("valkey")
    with client_of(upstream) as client, duly.Duly(upstream.url) as app:
        queue = app.queue(queue_name)
        first, second = queue.send_many(["first", "second"])
        client.hdel(key(queue, "msgs"), first)
        (delivery,) = queue.receive(10, wait=0)
        assert delivery.id == second
        client.hdel(key(queue, "msgs"), second)
        delivery.retry(0)
        assert queue.receive(10, wait=0.05) == []
        assert {(message.id, message.reason) for message in queue.list("dead")} == {
            (first, "body lost"),
            (second, "body lost"),
        }
        queue.audit(repair=True)
        assert_accounts(queue, dead=2)


@pytest.mark.parametrize("removed", ["waiting0", "leased", "leases"])
def test_an_index_that_was_removed_is_found_and_repaired_by_an_audit(
    server: StartedServer, queue_name: str, removed: str
) -> None:
    upstream = server("valkey")
    with client_of(upstream) as client, duly.Duly(upstream.url) as app:
        queue = app.queue(queue_name, lease=0.3)
        ids = queue.send_many(range(200))
        if removed != "waiting0":
            assert len(queue.receive(200, wait=0)) == 200
        client.delete(key(queue, removed))
        found = queue.audit()
        assert not found.ok
        assert len(found.faults) >= 200
        assert not queue.audit(repair=True).ok
        assert queue.audit().ok
        delivered: set[str] = set()

        def is_over() -> bool:
            taken = queue.receive(200, wait=0.1, lease=60)
            delivered.update(each.id for each in taken)
            queue.ack_many(taken)
            return len(delivered) == 200

        wait_until(is_over)
        assert delivered == set(ids)
        assert_drained(queue, sent=200, acked=200)


def test_a_key_of_a_wrong_type_is_an_error_that_names_the_queue(kind: Kind, queue_name: str) -> None:
    with Server(kind) as server, client_of(server) as client, duly.Duly(server.url) as app:
        calls: dict[str, Callable[[duly.Queue], object]] = {
            "msgs": lambda queue: queue.send("x"),
            "leased": lambda queue: queue.receive(1, wait=0),
            "meta": lambda queue: queue.stats(),
        }
        for name, call in calls.items():
            queue = app.queue(f"{queue_name}-{name}")
            client.set(key(queue, name), "a string")
            with pytest.raises(duly.ServerError, match=queue.name) as caught:
                call(queue)
            assert not isinstance(caught.value, duly.Unavailable)
            assert "WRONGTYPE" in str(caught.value)
        assert app.queue(queue_name).send("another queue goes on")


# --- The server's clock jumps ------------------------------------------------------------------------------


def test_a_server_clock_that_steps_back_an_hour_hides_nothing(
    kind: Kind, queue_name: str, server_clock: ServerClock
) -> None:
    with Server(kind, environment=server_clock.environment()) as server, duly.Duly(server.url) as app:
        queue = app.queue(queue_name, lease=1.0)
        queue.send("before")
        held = queue.receive(1, wait=5)
        server_clock.step(-3600)
        queue.send("after")
        (delivery,) = queue.receive(1, wait=10)
        assert delivery.body == "after"
        assert delivery.fence > held[0].fence
        delivery.ack()
        held[0].ack()
        assert_drained(queue, sent=2, acked=2)


def test_a_server_clock_that_steps_forward_delivers_only_messages_that_are_due_by_it(
    kind: Kind, queue_name: str, server_clock: ServerClock
) -> None:
    with Server(kind, environment=server_clock.environment()) as server, duly.Duly(server.url) as app:
        queue = app.queue(queue_name, lease=30)
        queue.send("held")
        (held,) = queue.receive(1, wait=5)
        queue.send("in an hour", delay=3600)
        queue.send("in two hours", delay=7200)
        assert queue.receive(1, wait=0) == []
        server_clock.step(3700)
        found = queue.receive(10, wait=5)
        assert [(each.body, each.crashes) for each in found] == [("held", 1), ("in an hour", 0)]
        with pytest.raises(duly.LeaseLost):
            held.ack()
        server_clock.step(-3600)
        assert queue.receive(10, wait=0) == []
        queue.ack_many(found)
        assert_accounts(queue, delayed=1, acked=2, crashed=1)
