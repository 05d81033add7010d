"""The claim that an idle worker sends behind its blocking call: one trip, and what becomes of it when things fail.

Leases are longer than any test unless the test is about their end. A message that a lost claim had leased, and that was
not found by a repeated call, would not be delivered again, and the test fails.
"""

import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import duly
from duly import _lua
from tests.conftest import need
from tests.fault.proxy import Action, BlackHole, Command, Cut, Policy, Proxy, Stage
from tests.fault.recorded import assert_drained
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LONG: Final = 36_000
"""Seconds of a lease that does not end during a test."""

JOBS: Final = """
from duly._core import patience
from duly.worker import blocking_call
from duly.worker.idle_claims import IdleClaims

send = IdleClaims.send


def noted_send(self):
    is_sent = send(self)
    if is_sent:
        note("pending")
    return is_sent


IdleClaims.send = noted_send
blocking_call._OVERDUE_AFTER = 1.0
patience._LONGEST_PERIOD = {period}
orders = app.queue("orders", lease={lease})


@orders.handler(concurrency={concurrency})
async def handle(body, d):
    note("begin", body=body, attempt=d.attempt, deliveries=d.deliveries)
    while isinstance(body, str) and body.startswith("until ") and not os.path.exists(body[6:]):
        await asyncio.sleep(0.02)
"""


def jobs(lease: float = LONG, period: float = 3600.0, concurrency: int = 5, more: str = "") -> str:
    """Return the module of a worker that polls seldom enough to be no help."""
    return JOBS.format(lease=lease, period=period, concurrency=concurrency) + textwrap.dedent(more)


class Floor:
    """A server, its only queue, and workers."""

    def __init__(self, server: Server, directory: Path, stack: ExitStack) -> None:
        self.server = server
        self.directory = directory
        self._stack = stack
        self.client: Any = stack.enter_context(redis.Redis.from_url(server.url))
        self.orders = stack.enter_context(duly.Duly(server.url)).queue("orders")

    def start(self, source: str = "", url: str = "") -> WorkerProcess:
        """Start a worker, and wait until its claim is pending."""
        worker = self._stack.enter_context(WorkerProcess(url or self.server.url, self.directory, source or jobs()))
        self.wait_until_idle(worker, 1)
        return worker

    def wait_until_idle(self, worker: WorkerProcess, times: int) -> None:
        """Wait until a worker has sent a number of claims behind blocking calls."""
        wait_until(lambda: sent_behind(worker) >= times or worker.process.poll() is not None, describe=worker.log)
        assert worker.process.poll() is None, worker.log()

    def wait_for(self, worker: WorkerProcess, *bodies: Any) -> None:
        wait_until(lambda: len(worker.notes("begin")) >= len(bodies), describe=worker.log)
        assert [note["body"] for note in worker.notes("begin")] == list(bodies)


@contextmanager
def floor(directory: Path) -> Iterator[Floor]:
    need("valkey")
    with Server("valkey") as server, ExitStack() as stack:
        yield Floor(server, directory, stack)


def sent_behind(worker: WorkerProcess) -> int:
    """Count the claims that a worker has sent behind blocking calls."""
    return sum(note["pid"] == worker.pid for note in worker.notes("pending"))


def is_claim_behind(command: Command) -> bool:
    return _lua.script("claim").sha.encode() in command.frame and b"\r\nbehind\r\n" in command.frame


class FaultBehind(Policy):
    """Does something to the first claim behind a blocking call. The proxy decides when the claim is sent."""

    def __init__(self, action: Action) -> None:
        super().__init__()
        self.action = action

    def choose(self, command: Command) -> Action | None:
        return self.action if not self.fired and is_claim_behind(command) else None


# --- One trip ----------------------------------------------------------------------------------------------


def test_a_message_costs_an_idle_worker_a_wait_a_claim_and_an_ack(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        worker = given.start()

        def calls(name: str) -> int:
            found = given.client.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})  # a wait counts when it ends
            return int(found["calls"])

        before = calls("blpop"), calls("evalsha")
        for number in range(20):
            given.orders.send(number)
            given.wait_until_idle(worker, number + 2)
        given.wait_for(worker, *range(20))
        waits, scripts = calls("blpop") - before[0], calls("evalsha") - before[1]
        assert waits == 20
        assert 60 <= scripts <= 63  # a send, a claim and an ack each, and perhaps a heartbeat and two of tidying
        assert_drained(given.orders, sent=20, acked=20, crashed=0)


def test_a_burst_is_claimed_as_a_whole_by_the_claim_that_follows(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        worker = given.start(jobs(concurrency=100))
        given.orders.send_many(range(100))
        wait_until(lambda: given.orders.stats().acked == 100, describe=worker.log)
        assert sorted(note["body"] for note in worker.notes("begin")) == list(range(100))


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_full_worker_has_no_claim_pending(tmp_path: Path, concurrency: int) -> None:
    """The claim takes the message that fills the worker. All later ones go to the other consumer."""
    flag = tmp_path / "flag"
    with floor(tmp_path) as given:
        worker = given.start(jobs(concurrency=concurrency))
        for number in range(concurrency):
            given.orders.send(f"until {flag}", headers={"number": str(number)})
            wait_until(lambda held=number + 1: given.orders.stats().leased == held)  # type: ignore[misc]
        wait_until(lambda: len(worker.notes("begin")) == concurrency)
        assert sent_behind(worker) == 1
        for number in range(3):
            given.orders.send(number)
            (delivery,) = given.orders.receive(1, wait=30)
            assert delivery.body == number
            delivery.ack()
        flag.touch()
        given.wait_until_idle(worker, 2)
        assert_drained(given.orders, sent=concurrency + 3, acked=concurrency + 3, crashed=0)


def test_a_delayed_message_is_neither_early_nor_forgotten_behind_a_pending_claim(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        worker = given.start()
        given.orders.send("in a second", delay=1)
        given.orders.send("now")
        given.wait_for(worker, "now", "in a second")
        before = sent_behind(worker)
        given.orders.send("in a week", delay=7 * 86_400)
        given.wait_until_idle(worker, before + 1)
        given.orders.send("at once")
        given.wait_for(worker, "now", "in a second", "at once")


def test_an_expired_lease_of_another_consumer_is_found_although_the_claim_behind_ends_none(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        given.orders.send("held")
        (held,) = given.orders.receive(1, lease=2)
        worker = given.start(jobs(lease=4, period=0.5))
        given.wait_for(worker, "held")
        assert worker.notes("begin")[0]["attempt"] == 2
        with pytest.raises(duly.LeaseLost):
            held.ack()


# --- Cut connections ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action", [Cut(Stage.BEFORE), Cut(Stage.MID_FRAME), Cut(Stage.EXECUTED)], ids=["before", "mid-frame", "executed"]
)
def test_a_message_is_delivered_at_once_if_the_connection_breaks_around_its_claim(
    tmp_path: Path, action: Action
) -> None:
    """A claim that ran is found by the repeated call. It is one delivery, and no crash."""
    with floor(tmp_path) as given:
        policy = FaultBehind(action)
        with Proxy(given.server.port, policy) as proxy:
            worker = WorkerProcess(proxy.url, tmp_path, jobs())
            with worker:
                given.wait_until_idle(worker, 1)
                for number in range(3):
                    given.orders.send(number)
                    given.wait_for(worker, *range(number + 1))
                assert policy.fired == 1
                assert [note["deliveries"] for note in worker.notes("begin")] == [1, 1, 1]
                wait_until(lambda: given.orders.stats().acked == 3)
                assert_drained(given.orders, sent=3, acked=3, crashed=0)
                assert worker.stop() == 0, worker.log()


def test_a_connection_that_the_server_closes_takes_no_message_with_it(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        worker = given.start()
        for number in range(5):
            (blocked,) = [each["id"] for each in given.client.client_list() if "b" in each["flags"]]
            given.client.execute_command("CLIENT", "KILL", "ID", blocked)
            given.orders.send(number)
            given.wait_for(worker, *range(number + 1))
            wait_until(lambda done=number + 1: given.orders.stats().acked == done)  # type: ignore[misc]
            wait_until(lambda: given.client.info("clients")["blocked_clients"] == 1, describe=worker.log)
        assert_drained(given.orders, sent=5, acked=5, crashed=0)


def test_a_claim_whose_reply_never_arrives_is_repeated_when_it_is_overdue(tmp_path: Path) -> None:
    """The connection is half open: the server has leased the message, and the worker hears nothing."""
    with floor(tmp_path) as given:
        policy = FaultBehind(BlackHole(Stage.EXECUTED))
        with Proxy(given.server.port, policy) as proxy, WorkerProcess(proxy.url, tmp_path, jobs(period=3)) as worker:
            given.wait_until_idle(worker, 1)
            given.orders.send("x")
            given.wait_for(worker, "x")
            assert policy.fired == 1
            assert worker.notes("begin")[0]["deliveries"] == 1
            wait_until(lambda: given.orders.stats().acked == 1)
            assert_drained(given.orders, sent=1, acked=1, crashed=0)


# --- Workers that stop -------------------------------------------------------------------------------------


def test_a_worker_that_stops_withdraws_its_claim(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        leaving, staying = given.start(), given.start()
        assert leaving.stop() == 0, leaving.log()
        for number in range(3):
            given.orders.send(number)
            given.wait_for(staying, *range(number + 1))
        assert {note["pid"] for note in staying.notes("begin")} == {staying.pid}
        assert staying.stop() == 0, staying.log()
        given.orders.send("later")
        assert given.orders.stats().ready == 1


def test_a_worker_that_stops_releases_the_message_of_a_claim_whose_reply_it_has_not_read(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        policy = FaultBehind(BlackHole(Stage.EXECUTED))
        with Proxy(given.server.port, policy) as proxy, WorkerProcess(proxy.url, tmp_path, jobs()) as leaving:
            given.wait_until_idle(leaving, 1)
            given.orders.send("x")
            wait_until(lambda: policy.fired == 1 and given.orders.stats().leased == 1)
            assert leaving.stop() == 0, leaving.log()
            (delivery,) = given.orders.receive(1, wait=30)
            assert (delivery.body, delivery.attempt) == ("x", 1)
            delivery.ack()
            assert leaving.notes("begin") == []
            assert_drained(given.orders, sent=1, acked=1, crashed=0)


def test_a_killed_worker_takes_no_message_with_it(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        killed, staying = given.start(), given.start()
        killed.kill9()
        wait_until(lambda: given.client.info("clients")["blocked_clients"] == 1)
        given.orders.send("x")
        given.wait_for(staying, "x")
        assert_drained(given.orders, sent=1, acked=1, crashed=0)


# --- Workers that do not run -------------------------------------------------------------------------------


def test_a_frozen_worker_keeps_one_message_for_a_lease_and_does_not_handle_it_later(tmp_path: Path) -> None:
    with floor(tmp_path) as given:
        frozen = given.start(jobs(lease=3))  # its blocking call does not end before the messages are sent
        frozen.freeze()
        staying = given.start(jobs(lease=3, period=0.25))
        ids = given.orders.send_many(range(10))
        wait_until(lambda: len(staying.notes("begin")) == 10, describe=staying.log)
        begun = staying.notes("begin")
        assert sorted(note["body"] for note in begun) == list(range(10))
        assert {note["pid"] for note in begun} == {staying.pid}
        assert [note["attempt"] for note in begun] == [1] * 9 + [2]  # the one that it kept is the last
        assert len(ids) == 10
        wait_until(lambda: given.orders.stats().acked == 10)
        before = sent_behind(frozen)
        frozen.thaw()
        given.wait_until_idle(frozen, before + 1)
        given.orders.send("after")
        wait_until(lambda: given.orders.stats().acked == 11)
        assert len(staying.notes("begin")) == 11
        assert frozen.stop() == 0, frozen.log()


BLOCKED_LOOP: Final = """

def block():
    if os.path.exists("block"):
        note("blocked")
        while os.path.exists("block"):
            time.sleep(0.01)
        note("unblocked")
        return
    asyncio.get_running_loop().call_later(0.01, block)


@app.on_start
async def watch():
    asyncio.get_running_loop().call_later(0.01, block)
"""


def test_a_worker_whose_event_loop_is_blocked_for_longer_than_a_lease_does_not_handle_a_lost_message(
    tmp_path: Path,
) -> None:
    """Its renewer runs, but cannot renew a lease whose claim was not read yet."""
    with floor(tmp_path) as given:
        blocked = given.start(jobs(lease=2, period=0.25, more=BLOCKED_LOOP))
        (tmp_path / "block").touch()
        wait_until(lambda: blocked.notes("blocked"))
        given.orders.send("x")
        wait_until(lambda: given.orders.stats().leased == 1)
        (delivery,) = given.orders.receive(1, wait=60)
        assert (delivery.body, delivery.attempt) == ("x", 2)
        before = sent_behind(blocked)
        (tmp_path / "block").unlink()
        wait_until(lambda: blocked.notes("unblocked"))
        given.wait_until_idle(blocked, before + 1)
        assert blocked.notes("begin") == []
        delivery.ack()
        given.orders.send("y")
        given.wait_for(blocked, "y")
        assert_drained(given.orders, sent=2, acked=2, crashed=1)


def test_a_server_that_hangs_lets_holders_renew_before_their_messages_are_taken(tmp_path: Path) -> None:
    """The pending claim is the first call after the hang. It must not end the lease of a consumer that lives."""
    flag = tmp_path / "flag"
    with floor(tmp_path) as given:
        holder = given.start(jobs(lease=3, period=0.5, concurrency=1))
        given.orders.send(f"until {flag}")
        given.wait_for(holder, f"until {flag}")
        given.start(jobs(lease=3, period=0.5, concurrency=1))
        given.server.freeze()
        time.sleep(4)  # the lease has ended, and so has the blocking call before the claim
        given.server.thaw()
        flag.touch()
        wait_until(lambda: given.orders.stats().acked == 1)
        assert_drained(given.orders, sent=1, acked=1, crashed=0)
