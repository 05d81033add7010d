"""Due times: messages are never early, workers do not poll for them, and one worker always keeps the next due time.

Most workers here do not poll at all. A message that neither a wake token nor a timer announces is never found, and the
test fails. That replaces measuring how late a message is.
"""

import itertools
import random
import signal
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
from tests.binaries import Kind
from tests.conftest import need
from tests.fault.proxy import Action, Command, Delay, Policy, Proxy, Stage
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LONG: Final = 600.0
"""Seconds that no test waits for."""

ONLY_TOKENS: Final = """
from duly._core import patience

patience._LONGEST_PERIOD = 3600.0  # the worker does not poll
"""

JOBS: Final = """
LEASE = 36_000


async def handle(body, d):
    note("begin", body=body, id=d.id)
    while isinstance(body, str) and body.startswith("until ") and not os.path.exists(body[6:]):
        await asyncio.sleep(0.02)
    note("end", body=body, id=d.id)


for _name in ("orders", "mail"):
    app.queue(_name, lease=LEASE).handler(concurrency=1)(handle)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a server whose clients are counted."""
    need("valkey")
    with Server("valkey") as server:
        yield server


class Floor:
    """A server, its queues and the workers of a test."""

    def __init__(self, server: Server, directory: Path, stack: ExitStack) -> None:
        self.server = server
        self.directory = directory
        self._stack = stack
        self.client: Any = stack.enter_context(redis.Redis.from_url(server.url))
        self.app = stack.enter_context(duly.Duly(server.url))
        self.orders = self.app.queue("orders")
        self.mail = self.app.queue("mail")
        self._workers: list[WorkerProcess] = []

    def start(self, *arguments: str, source: str = ONLY_TOKENS + JOBS, url: str = "") -> WorkerProcess:
        """Start a worker, and wait until it has found nothing and blocks."""
        newest = max(int(each["id"]) for each in self.client.client_list())
        name = f"jobs{len(self._workers)}"
        process = WorkerProcess(url or self.server.url, self.directory, source, *arguments, name=name)
        self._workers.append(self._stack.enter_context(process))
        ended = process.process.poll
        wait_until(lambda: ended() is not None or any(listener > newest for listener in self._listeners()))
        assert ended() is None, process.log()
        return process

    def _listeners(self) -> list[int]:
        return [int(each["id"]) for each in self.client.client_list() if "b" in each["flags"]]

    def notes(self, what: str = "begin") -> list[dict[str, Any]]:
        return self._workers[0].notes(what)

    def bodies(self) -> list[Any]:
        return [note["body"] for note in self.notes()]

    def wait_for(self, *bodies: Any) -> None:
        """Wait until exactly these were started, in this order."""
        wait_until(lambda: len(self.notes()) >= len(bodies))
        assert self.bodies() == list(bodies)


@contextmanager
def floor(server: Server, directory: Path) -> Iterator[Floor]:
    with ExitStack() as stack:
        yield Floor(server, directory, stack)


# --- Never early -------------------------------------------------------------------------------------------


def test_delayed_messages_of_several_queues_are_never_early_and_all_delivered(kind: Kind, tmp_path: Path) -> None:
    source = """
    import redis

    client = redis.Redis.from_url(os.environ["DULY_URL"])
    epoch = __import__("datetime").datetime.fromtimestamp(0, __import__("datetime").UTC)
    one = __import__("datetime").timedelta(microseconds=1)


    def handle(body, d):
        seconds, microseconds = client.time()
        note("begin", body=body, early=(d.due_at - epoch) // one - (seconds * 1_000_000 + microseconds))


    for number in range(5):
        app.queue(f"queue{number}", lease=36_000).handler(concurrency=5)(handle)
    """
    chance = random.Random(4)
    with Server(kind) as server, floor(server, tmp_path) as given:
        given.start(source=ONLY_TOKENS + textwrap.dedent(source))
        expected = set()
        for round_ in range(6):
            for number in range(5):
                bodies = [f"{number}-{round_}-{each}" for each in range(10)]
                expected.update(bodies)
                queue = given.app.queue(f"queue{number}")
                queue.send_many(
                    duly.Send(body, delay=chance.choice([chance.uniform(0, 0.05), chance.uniform(0, 3)]))
                    for body in bodies[:5]
                )
                for body in bodies[5:]:
                    queue.send(body, at=time.time() + chance.uniform(0, 3), priority=chance.randrange(3))
        wait_until(lambda: len(given.notes()) >= len(expected))
        notes = given.notes()
        assert sorted(note["body"] for note in notes) == sorted(expected)
        assert max(note["early"] for note in notes) <= 0


def test_a_retry_and_a_defer_are_never_early(server: Server, tmp_path: Path) -> None:
    source = """
    import redis

    client = redis.Redis.from_url(os.environ["DULY_URL"])
    orders = app.queue("orders", lease=36_000)


    @orders.handler(concurrency=3)
    def handle(body, d):
        seconds, microseconds = client.time()
        now = seconds + microseconds / 1e6
        note("begin", body=body, now=now, deliveries=d.deliveries)
        if d.deliveries < 4:
            raise duly.RetryIn(0.3) if body % 2 else duly.Defer(0.3)
    """
    with floor(server, tmp_path) as given:
        given.start(source=ONLY_TOKENS + textwrap.dedent(source))
        given.orders.send_many(range(10))
        wait_until(lambda: given.orders.stats().acked == 10)
        times: dict[int, list[float]] = {}
        for note in given.notes():
            times.setdefault(note["body"], []).append(note["now"])
        for moments in times.values():
            assert len(moments) == 4
            assert all(later - sooner >= 0.3 for sooner, later in itertools.pairwise(moments))


# --- Wake-ups ----------------------------------------------------------------------------------------------


def test_an_earlier_message_wakes_a_worker_that_sleeps_for_a_later_one(server: Server, tmp_path: Path) -> None:
    with floor(server, tmp_path) as given:
        given.start()
        for delay in (LONG, LONG / 2, 40, 4, 1):
            given.orders.send(f"in {delay:g}", delay=delay)
            time.sleep(0.1)  # it sleeps until this message is due
        given.wait_for("in 1", "in 4")
        assert given.orders.stats().delayed == 3


def test_an_immediate_message_wakes_a_worker_that_sleeps_for_a_later_one(server: Server, tmp_path: Path) -> None:
    with floor(server, tmp_path) as given:
        given.start()
        for number in range(5):
            given.orders.send("later", delay=LONG - number)
            given.mail.send("later", delay=LONG)
            given.orders.send(number)
            given.wait_for(*range(number + 1))


def test_a_message_that_is_brought_forward_wakes_a_worker(server: Server, tmp_path: Path) -> None:
    with floor(server, tmp_path) as given:
        given.start()
        first, second, third = (given.orders.send(name, delay=LONG) for name in ("first", "second", "third"))
        given.orders.promote(first)
        given.wait_for("first")
        given.orders.reschedule(second, delay=0.5)
        given.wait_for("first", "second")
        given.orders.reschedule(third, delay=LONG / 2)
        assert given.orders.cancel(third)


def test_a_paused_queue_delivers_nothing_and_resume_wakes_the_worker(server: Server, tmp_path: Path) -> None:
    with floor(server, tmp_path) as given:
        given.start()
        for round_ in range(3):
            before = given.bodies()
            later = given.orders.send(("due during the pause", round_), delay=LONG)
            given.orders.pause()
            given.orders.send(("now", round_))
            given.orders.reschedule(later, delay=0.3)
            given.mail.send(("of another queue", round_))
            seen = [*before, ["of another queue", round_]]
            given.wait_for(*seen)
            wait_until(lambda: given.orders.stats().delayed == 0)
            time.sleep(0.3)
            assert given.bodies() == seen
            given.orders.resume()
            given.wait_for(*seen, ["now", round_], ["due during the pause", round_])


def test_each_of_many_queues_wakes_one_worker(server: Server, tmp_path: Path) -> None:
    source = """
    async def handle(body):
        note("begin", body=body)


    for number in range(50):
        app.queue(f"queue{number}", lease=36_000).handler(concurrency=1)(handle)
    """
    with floor(server, tmp_path) as given:
        given.start(source=ONLY_TOKENS + textwrap.dedent(source))
        for number in (0, 49, 7, 7, 23):
            seen = given.bodies()
            given.app.queue(f"queue{number}").send(f"to {number}, after {len(seen)}")
            given.wait_for(*seen, f"to {number}, after {len(seen)}")
        for number in range(50):
            given.app.queue(f"queue{number}").send(number, delay=0.5)
        wait_until(lambda: len(given.notes()) == 55)


# --- Two workers -------------------------------------------------------------------------------------------


def test_a_full_worker_passes_the_watch_for_a_due_time_on(server: Server, tmp_path: Path) -> None:
    """The first worker keeps both due times. It takes the earlier message, and the other worker takes the later one."""
    flag = tmp_path / "flag"
    with floor(server, tmp_path) as given:
        first, second = given.start("--queues", "orders"), given.start("--queues", "orders")
        given.orders.send_many([duly.Send(f"until {flag}", delay=1), duly.Send("later", delay=2)])
        wait_until(lambda: len(given.notes()) == 2)
        assert sorted(given.bodies()) == ["later", f"until {flag}"]
        assert {note["pid"] for note in given.notes()} == {first.pid, second.pid}
        flag.touch()
        wait_until(lambda: given.orders.stats().acked == 2)


def test_a_worker_that_another_queue_fills_passes_the_watch_on(server: Server, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with floor(server, tmp_path) as given:
        full = given.start("--queues", "orders,mail", "--concurrency", "1")
        idle = given.start("--queues", "orders")
        given.orders.send("later", delay=3)  # wakes the worker that has blocked for longest
        time.sleep(0.2)
        given.mail.send(f"until {flag}")
        given.wait_for(f"until {flag}", "later")
        assert [note["pid"] for note in given.notes()] == [full.pid, idle.pid]
        flag.touch()
        wait_until(lambda: given.mail.stats().acked == 1)
        given.orders.send("after")
        given.wait_for(f"until {flag}", "later", "after")


def test_a_full_worker_leaves_new_messages_to_the_other(server: Server, tmp_path: Path) -> None:
    """The full worker gets the wake token first. It must pass the token on."""
    flag = tmp_path / "flag"
    with floor(server, tmp_path) as given:
        full = given.start("--queues", "orders,mail", "--concurrency", "1")
        given.mail.send(f"until {flag}")
        given.wait_for(f"until {flag}")
        idle = given.start("--queues", "orders")
        for number in range(5):
            given.orders.send(number)
            wait_until(lambda sent=number + 1: given.orders.stats().acked == sent)  # type: ignore[misc]
        assert {note["pid"] for note in given.notes()[1:]} == {idle.pid}
        assert full.process.poll() is None
        flag.touch()


def test_a_worker_that_leaves_while_it_watches_passes_the_watch_on(server: Server, tmp_path: Path) -> None:
    with floor(server, tmp_path) as given:
        staying = None
        for round_ in range(3):
            leaving = given.start()
            staying = staying or given.start()
            # The first round wakes the worker that leaves. Later rounds wake the other one, which has blocked longer.
            given.orders.send(round_, delay=3)
            given.mail.send(round_, delay=3.3)
            time.sleep(0.3)
            assert leaving.stop() == 0, leaving.log()
            done = 2 * (round_ + 1)
            wait_until(lambda count=done: len(given.notes()) == count)  # type: ignore[misc]
        assert {note["pid"] for note in given.notes()} == {staying.pid if staying else 0}


class SlowClaims(Policy):
    """Delays the replies to claims, from the moment that `is_on`."""

    is_on = False

    def choose(self, command: Command) -> Action | None:
        is_claim = _lua.script("claim").sha.encode() in command.frame
        return Delay(1.5, Stage.EXECUTED) if self.is_on and is_claim else None


def test_a_worker_stopped_during_a_claim_passes_its_token_on(server: Server, tmp_path: Path) -> None:
    policy = SlowClaims()
    with Proxy(server.port, policy) as proxy, floor(server, tmp_path) as given:
        leaving = given.start(url=proxy.url)
        staying = given.start()
        policy.is_on = True
        given.orders.send("later", delay=4)
        wait_until(lambda: policy.fired == 1)  # it has seen the due time, and removed the token
        leaving.send_signal(signal.SIGTERM)
        assert leaving.wait() == 0, leaving.log()
        given.wait_for("later")
        assert given.notes()[0]["pid"] == staying.pid


def test_a_message_sent_while_a_worker_leaves_is_not_left_lying(server: Server, tmp_path: Path) -> None:
    with floor(server, tmp_path) as given:
        staying = None
        for round_ in range(6):
            leaving = given.start()
            staying = staying or given.start()
            leaving.send_signal(signal.SIGTERM)
            for number in range(10):
                time.sleep(0.003 * round_)
                given.orders.send((round_, number))
            assert leaving.wait() == 0, leaving.log()
            wait_until(lambda sent=10 * (round_ + 1): given.orders.stats().acked == sent)  # type: ignore[misc]
        assert given.orders.audit().ok
        assert len(given.notes()) == 60
