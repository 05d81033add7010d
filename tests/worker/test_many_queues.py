"""Many queues of one worker: each is served in turn, and no wake-up is lost.

Workers run in the event loop of the test. Messages are sent with a sync app, so the worker is blocked during that time.
"""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import duly
from duly import _lua
from duly.worker import watcher
from duly.worker.janitor import Janitor
from duly.worker.setup import Setup
from tests.conftest import StartedServer
from tests.fault.proxy import Action, Command, Cut, Delay, Policy, Proxy, Stage
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess, eventually

QUEUES: Final = 10
TAKE: Final = _lua.script("take_tokens").sha.encode()
WAKE: Final = _lua.script("wake").sha.encode()
CLAIM: Final = _lua.script("claim").sha.encode()
OCCUPIED: Final = _lua.script("occupied").sha.encode()


class Scripts(Policy):
    """Counts commands, and applies `action` to one kind of command, at most `times` times."""

    def __init__(self, marks: bytes = b"", action: Action | None = None, times: int = 1) -> None:
        super().__init__()
        self.counts: Counter[bytes] = Counter()
        self._marks, self._action, self._times = marks, action, times

    def choose(self, command: Command) -> Action | None:
        words = [command.name.encode(), *command.args()[:1]]
        self.counts.update(words)
        if self._marks in words and self._times:
            self._times -= 1
            return self._action
        return None


class Floor:
    """Queues, their handlers, and a sync app to send with."""

    def __init__(self, url: str, name: str, queues: int = QUEUES, act: Callable[..., Any] | None = None) -> None:
        self.url = url
        self.app = duly.Duly(url)
        self.handled: list[int] = []
        self.begun: list[int] = []
        self.names = [f"{name}-{number}" for number in range(queues)]
        self._act = act

    def worker(self, url: str = "", *, lease: float = 60, **options: Any) -> duly.Worker:
        """Make a worker of all queues with its own app."""
        app = duly.Duly(url or self.url)
        for number, name in enumerate(self.names):
            app.queue(name, lease=lease).handler(self._handler(number))
        return duly.Worker(app, duly.WorkerOptions(**options))

    def _handler(self, number: int) -> Callable[..., Any]:
        async def handle(body: Any) -> None:
            self.begun.append(number)
            if self._act is not None:
                await self._act(number, body)
            self.handled.append(number)

        return handle

    def send_to_all(self) -> None:
        """Send a message to each queue while the worker is blocked."""
        for name in self.names:
            self.app.queue(name).send("x")

    def tokens(self, names: Iterable[str] = ()) -> int:
        """Count the queues that have a wake token."""
        client: Any
        with redis.Redis.from_url(self.url) as client:
            return sum(client.llen(self.app.queue(name)._keys.key("wake")) for name in names or self.names)


@asynccontextmanager
async def idle(worker: duly.Worker) -> AsyncIterator[duly.Worker]:
    """Run a worker, and continue when it watches all its queues."""
    async with worker:
        await eventually(lambda: watches_all(worker))
        yield worker


def watches_all(worker: duly.Worker) -> bool:
    fetcher = worker._fetcher
    return all(fetcher._watcher._bundle_of[source].waiter.is_watching(source) for source in fetcher._sources)


@pytest.fixture
def url(server: StartedServer) -> str:
    """Return a server that has loaded the script: a fault must hit the call, not the error for an unknown script."""
    url = server("valkey").url
    client: Any
    with redis.Redis.from_url(url) as client:
        client.script_load(_lua.script("take_tokens").text)
    return url


@pytest.fixture
def floor(url: str, queue_name: str) -> Iterator[Floor]:
    floor = Floor(url, queue_name)
    yield floor
    floor.app.close()


@pytest.fixture
def proxied(server: StartedServer) -> Iterator[Callable[[Policy], Proxy]]:
    proxies: list[Proxy] = []

    def start(policy: Policy) -> Proxy:
        proxies.append(Proxy(server("valkey").port, policy).__enter__())
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.__exit__(None, None, None)


@pytest.fixture
def without_safety_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable polling: messages are found by wake-ups only."""
    monkeypatch.setattr(watcher.Bundle, "plan_check", lambda *_: None)


# --- One wake-up serves all


async def test_one_wake_up_takes_all_wake_tokens(floor: Floor, proxied: Callable[[Policy], Proxy]) -> None:
    policy = Scripts()
    async with idle(floor.worker(proxied(policy).url)):
        before = policy.counts[b"BLPOP"]
        floor.send_to_all()
        await eventually(lambda: len(floor.handled) == QUEUES)
        assert policy.counts[b"BLPOP"] - before <= 2, "a block for each token"


async def test_a_worker_takes_no_more_tokens_than_it_has_room_for(
    url: str, queue_name: str, proxied: Callable[[Policy], Proxy]
) -> None:
    may_end = asyncio.Event()
    floor = Floor(url, queue_name, act=lambda *_: may_end.wait())
    policy = Scripts()
    async with idle(floor.worker(proxied(policy).url, concurrency=3)):
        floor.send_to_all()
        await eventually(lambda: len(floor.begun) == 3)
        assert floor.tokens(set(floor.names) - {floor.names[number] for number in floor.begun}) == QUEUES - 3
        assert policy.counts[WAKE] <= 3, "tokens were taken and passed on"  # timers of busy queues are passed on
        async with floor.worker():  # it serves the queues that the full worker passed on
            await eventually(lambda: len(floor.begun) == QUEUES)
            may_end.set()
            await eventually(lambda: len(floor.handled) == QUEUES)
    floor.app.close()


# --- The start


async def test_a_worker_that_starts_polls_its_empty_queues_in_bundles(
    url: str, queue_name: str, proxied: Callable[[Policy], Proxy]
) -> None:
    policy = Scripts()
    floor = Floor(url, queue_name, queues=150)
    async with idle(floor.worker(proxied(policy).url)) as worker:
        bundles = len(worker._fetcher._watcher.bundles)
        assert policy.counts[CLAIM] == 1, "empty queues were claimed from one by one"
        assert bundles <= policy.counts[OCCUPIED] <= 2 * bundles  # the next polls come after half a period
        floor.send_to_all()
        await eventually(lambda: sorted(floor.handled) == list(range(150)))
    floor.app.close()


@pytest.mark.usefixtures("without_safety_looks")
async def test_a_worker_that_starts_finds_all_that_waits(url: str, queue_name: str) -> None:
    floor = Floor(url, queue_name, queues=150)
    for number in (3, 63, 64, 149):
        floor.app.queue(floor.names[number]).send("x")
    floor.app.queue(floor.names[70]).send("x", delay=0.5)
    abandoned = floor.app.queue(floor.names[80], lease=0.5)
    abandoned.send("x")
    assert len(abandoned.receive(1)) == 1
    floor.app.schedule("of-the-start", floor.names[90], "x", every=0.5)
    async with floor.worker():
        await eventually(lambda: {3, 63, 64, 70, 80, 90, 149} <= set(floor.handled))
    floor.app.unschedule("of-the-start")
    floor.app.close()


@pytest.mark.usefixtures("without_safety_looks")
@pytest.mark.parametrize("stage", [Stage.BEFORE, Stage.EXECUTED])
async def test_a_poll_of_a_start_that_is_cut_off_is_repeated(
    floor: Floor, proxied: Callable[[Policy], Proxy], stage: Stage
) -> None:
    policy = Scripts(OCCUPIED, Cut(stage))
    floor.send_to_all()
    async with floor.worker(proxied(policy).url):
        await eventually(lambda: sorted(floor.handled) == list(range(QUEUES)))
    assert policy.fired == 1, "no poll was cut off: this test shows nothing"


@pytest.mark.usefixtures("without_safety_looks")
async def test_queues_are_claimed_from_if_the_poll_of_a_start_fails(floor: Floor, url: str) -> None:
    """One key of one queue has the wrong type, so the server refuses the call for all of them."""
    damaged = 5
    floor.send_to_all()
    client: Any
    with redis.Redis.from_url(url) as client:
        client.delete(key := floor.app.queue(floor.names[damaged])._keys.key("msgs"))
        client.set(key, "a text")
        async with floor.worker():
            await eventually(lambda: sorted(floor.handled) == sorted({*range(QUEUES)} - {damaged}))
        client.delete(key)


# --- Nothing is lost between a token and its claim


@pytest.mark.usefixtures("without_safety_looks")
@pytest.mark.parametrize("marks", [b"BLPOP", TAKE], ids=["BLPOP", "take_tokens"])
async def test_a_reply_with_tokens_that_is_lost_loses_no_wake_up(
    floor: Floor, proxied: Callable[[Policy], Proxy], marks: bytes
) -> None:
    policy = Scripts()
    async with idle(floor.worker(proxied(policy).url)) as worker:
        policy._marks, policy._action = marks, Cut(Stage.EXECUTED)
        if marks == b"BLPOP":  # the pending blocking call began earlier
            floor.app.queue(floor.names[3]).send("x")
            await eventually(lambda: len(floor.handled) == 1 and watches_all(worker))
        floor.send_to_all()
        await eventually(lambda: policy.fired == 1)
        assert policy.faults[0].reply not in (b"*-1\r\n", b"*0\r\n"), "no token was lost: this test shows nothing"
        await eventually(lambda: set(floor.handled) == set(range(QUEUES)))


@pytest.mark.usefixtures("without_safety_looks")
async def test_tokens_taken_by_a_worker_that_stops_are_passed_on(
    floor: Floor, proxied: Callable[[Policy], Proxy]
) -> None:
    policy = Scripts(TAKE, Delay(0.5, Stage.EXECUTED))
    async with idle(floor.worker(proxied(policy).url)) as worker:
        floor.send_to_all()
        await eventually(lambda: policy.fired == 1)
        worker.stop()
    assert len(floor.handled) < QUEUES, "it was too fast: this test shows nothing"
    assert floor.tokens() == QUEUES - len(floor.handled)
    async with floor.worker():
        await eventually(lambda: len(floor.handled) == QUEUES)


@pytest.mark.usefixtures("without_safety_looks")
async def test_a_worker_that_is_cancelled_while_it_takes_tokens_passes_them_on(
    floor: Floor, proxied: Callable[[Policy], Proxy]
) -> None:
    policy = Scripts(TAKE, Delay(0.5, Stage.EXECUTED))
    async with idle(floor.worker(proxied(policy).url)) as worker:
        floor.send_to_all()
        await eventually(lambda: policy.fired == 1)
        assert floor.tokens() < QUEUES - 1, "it has taken no tokens: this test shows nothing"
        worker._fetching.cancel()
    assert floor.tokens() == QUEUES - len(floor.handled)


KILLED: Final = """
for number in range(10):
    @app.queue(f"{name}-{{number}}", lease=60).handler
    async def handle(body):
        note("begin")
"""


async def test_a_worker_killed_between_token_and_claim_leaves_its_messages_to_others(
    floor: Floor, proxied: Callable[[Policy], Proxy], queue_name: str, tmp_path: Path
) -> None:
    """Its wake tokens are lost with it. Other workers find the messages when they poll."""
    policy = Scripts(TAKE, Delay(600, Stage.EXECUTED))
    with WorkerProcess(proxied(policy).url, tmp_path, KILLED.format(name=queue_name)) as killed:
        wait_until(lambda: policy.counts[b"BLPOP"] == 1)
        async with idle(floor.worker(lease=1.5)):
            killed.freeze()
            floor.send_to_all()  # one wake token for each worker, the others stay
            killed.thaw()
            wait_until(lambda: policy.fired == 1)  # the other worker is blocked during that time
            killed.kill9()
            begun = len(killed.notes("begin"))
            assert begun + floor.tokens() < QUEUES - 1, "it has taken no tokens: this test shows nothing"
            await eventually(lambda: len(floor.handled) >= QUEUES - begun)


# --- Turns


@pytest.mark.parametrize("position", [0, 12, 19])
async def test_a_queue_among_busy_ones_is_served_at_any_position(url: str, queue_name: str, position: int) -> None:
    """Ten queues are never empty: each of their messages sends the next one. The position must not matter."""
    waits: list[int] = []
    sent_at: dict[str, int] = {}
    busy = [number for number in range(20) if number != position][:10]

    async def act(number: int, body: Any) -> None:
        if number == position:
            waits.append(len(given.begun) - sent_at[body])
        elif len(waits) < 10:
            await given.app.aio.queue(given.names[number]).send("again")

    given = Floor(url, queue_name, queues=20, act=act)
    async with idle(given.worker()):
        for number in busy:
            given.app.queue(given.names[number]).send_many(["begin"] * 5)
        for count in range(10):
            begun = len(given.begun)
            await eventually(lambda begun=begun: len(given.begun) > begun + 50)  # type: ignore[misc]
            sent_at[str(count)] = len(given.begun)
            await given.app.aio.queue(given.names[position]).send(str(count))
            await eventually(lambda count=count: len(waits) > count)  # type: ignore[misc]
        await eventually(lambda: len(given.handled) == len(given.begun))
    await given.app.aio.aclose()
    given.app.close()
    assert sorted(waits)[len(waits) // 2] < 150, waits


async def test_a_full_worker_with_a_backlog_serves_its_other_queues(url: str, queue_name: str) -> None:
    """One handler at a time, and the first queue is never empty: the worker polls when it has room."""
    given = Floor(url, queue_name, act=lambda *_: asyncio.sleep(0.002))
    backlog = given.app.queue(given.names[0])
    backlog.send_many(["x"] * 1000)
    async with given.worker(concurrency=1):
        await eventually(lambda: len(given.begun) > 20)
        for number in range(1, QUEUES):
            sent_at = len(given.begun)
            await given.app.aio.queue(given.names[number]).send("x")
            await eventually(lambda number=number: number in given.begun)  # type: ignore[misc]
            assert given.begun.index(number) - sent_at < 60, given.begun
        assert backlog.stats().live > 0, "the backlog was over: this test shows nothing"
        while backlog.purge():
            pass
    await given.app.aio.aclose()
    given.app.close()


async def test_queues_beyond_one_bundle_are_served(url: str, queue_name: str) -> None:
    floor = Floor(url, queue_name, queues=150)
    async with idle(floor.worker()) as worker:
        assert len(worker._fetcher._watcher._bundles) == 3
        floor.send_to_all()
        await eventually(lambda: sorted(floor.handled) == list(range(150)))
        floor.send_to_all()
        await eventually(lambda: len(floor.handled) == 300)
    floor.app.close()


# --- Ten thousand queues


def app_of(queues: int) -> duly.AsyncDuly:
    """Make an app in memory with this number of handlers."""
    app = duly.AsyncDuly("memory://")
    for number in range(queues):
        app.queue(f"queue-{number}").handler(_handle)
    return app


async def _handle(body: Any) -> None:
    pass


async def test_many_queues_are_tidied_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty queues per second: 2,400 queues take two minutes, not one."""
    queues, tidied = 2400, Counter[str]()
    async with janitor_of(queues, tidied, monkeypatch) as janitor:
        now = time.monotonic()
        for seconds in range(0, 120, 5):
            await janitor._begin_chores(now + seconds)
            assert max(tidied.values(), default=1) == 1, f"again after {seconds} s"
        for seconds in range(120, 180, 5):
            await janitor._begin_chores(now + seconds)
        assert len(tidied) == queues


async def test_queues_that_all_became_due_in_an_outage_are_tidied_at_this_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round makes a hundred, since heartbeats wait for it. Each queue has its turn, and keeps its new time."""
    queues, tidied = 2400, Counter[str]()
    async with janitor_of(queues, tidied, monkeypatch) as janitor:
        after = time.monotonic() + 10_000
        for number in range(1, 49):  # each queue twice
            await janitor._begin_chores(after + number * 5)
            assert tidied.total() == number * 100
        assert set(tidied.values()) == {2}


@asynccontextmanager
async def janitor_of(queues: int, tidied: Counter[str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Janitor]:
    """Make a janitor that counts its tidies."""
    setup = Setup(app_of(queues), duly.WorkerOptions())
    setup.open()
    janitor = Janitor(setup.runtimes, [], "of-the-test", 1)

    async def tidy(name: str) -> None:
        tidied[name] += 1

    monkeypatch.setattr(janitor, "_tidy", tidy)
    yield janitor
    await setup.close()


async def test_a_worker_that_starts_makes_each_queue_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Counter[str]()
    make = duly.AsyncDuly._queue

    def count(self: duly.AsyncDuly, name: str, *args: Any) -> Any:
        made[name] += 1
        return make(self, name, *args)

    app = app_of(50)
    monkeypatch.setattr(duly.AsyncDuly, "_queue", count)
    async with duly.Worker(app):
        assert made == dict.fromkeys((f"queue-{number}" for number in range(50)), 1)


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """Undo `gc.freeze()` of the process that runs the tests."""
    has_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    gc.unfreeze()
    if has_frozen:
        gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
async def test_the_garbage_collector_does_not_stop_a_worker_of_many_queues() -> None:
    """A full collection visits all objects of all queues."""
    full_collections: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full_collections.append(info["collected"])

    worker = duly.Worker(app_of(3000))
    gc.collect()  # the objects of the app may have made one due, before the worker begins
    gc.callbacks.append(note)
    try:
        running = asyncio.create_task(worker.run())
        await eventually(lambda: gc.get_freeze_count() > 3000)
        assert full_collections == []
    finally:
        gc.callbacks.remove(note)
        worker.stop()
        await running
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


@pytest.mark.usefixtures("nothing_frozen")
async def test_a_worker_leaves_the_objects_frozen_that_the_program_has_frozen() -> None:
    gc.freeze()
    worker = duly.Worker(app_of(1))
    running = asyncio.create_task(worker.run())
    await eventually(lambda: worker.vitals().trouble is None)
    worker.stop()
    await running
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("nothing_frozen")
async def test_a_worker_inside_a_program_freezes_nothing() -> None:
    async with duly.Worker(app_of(1)):
        assert gc.get_freeze_count() == 0


# --- Idle queues


async def test_an_idle_worker_asks_for_all_its_queues_in_one_call(
    url: str, queue_name: str, proxied: Callable[[Policy], Proxy]
) -> None:
    policy = Scripts()
    floor = Floor(url, queue_name, queues=50)
    async with idle(floor.worker(proxied(policy).url, lease=1.5)):
        claims, looks = policy.counts[CLAIM], policy.counts[OCCUPIED]
        await eventually(lambda: policy.counts[OCCUPIED] >= looks + 3)
        assert policy.counts[CLAIM] == claims
    floor.app.close()


async def test_a_message_whose_wake_up_was_lost_is_found(floor: Floor, url: str) -> None:
    """A message of a paused queue leaves no wake token. The test resumes the queue without a script."""
    queue = floor.app.queue(floor.names[4])
    async with idle(floor.worker(lease=1.5)):
        queue.pause()
        queue.send("x")
        with redis.Redis.from_url(url) as client:
            client.hdel(queue._keys.key("meta"), "paused")
        await eventually(lambda: floor.handled == [4])


# --- Messages that are released


async def test_a_queue_that_had_messages_waiting_long_ago_gives_nothing_back_at_once(floor: Floor) -> None:
    """A message that waits for its handler is released after a second. That second restarts with each message."""
    async with idle(floor.worker()) as worker:
        runtime = worker._runtimes[0]
        for count in range(1, 4):
            runtime.excess_since = 0.0  # as if one had waited for a moment, long ago
            floor.app.queue(floor.names[0]).send("x")
            await eventually(lambda count=count: floor.app.queue(floor.names[0]).stats().acked == count)  # type: ignore[misc]
            await eventually(lambda: not runtime.busy)
            floor.app.queue(floor.names[1]).send("x")  # the worker does something else
            await eventually(lambda count=count: floor.app.queue(floor.names[1]).stats().acked == count)  # type: ignore[misc]
            assert runtime.excess_since is None
