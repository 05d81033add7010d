"""Fail-overs under load, with real sentinels: the client follows, and every loss or repeat has a cause.

A sync and an async app are at work at once. Replication is asynchronous, so a killed primary takes the last moment with
it: only messages of this moment may be lost, delivered again, or lose their lease. Planned fail-overs lose nothing.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

import duly
from tests.binaries import Kind
from tests.conftest import need
from tests.scale import network
from tests.scale.network import Network
from tests.scale.sentinels import SERVICE, SentinelRig
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = pytest.mark.fault

LEASE: Final = 15.0
DELAY: Final = 0.5
"""Seconds of delay of every tenth message."""
TAIL: Final = 0.2
"""Seconds before a kill in which a confirmed call may not have reached a replica."""
PATIENCE: Final = 60.0


@dataclass
class Passage:
    """The times of one message."""

    due: float
    confirmed: float = 0.0
    claims: list[float] = field(default_factory=list)
    acks: list[float] = field(default_factory=list)
    lost_leases: int = 0
    crashes: int = 0


class Load:
    """Two senders and two consumers, sync and async, until `end`."""

    def __init__(self, url: str, queue_name: str, **options: Any) -> None:
        self._url, self._name, self._options = url, queue_name, options
        self.passages: dict[str, Passage] = {}
        self.unconfirmed = 0
        self._is_ending = threading.Event()
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(4)
        app = self._app = duly.Duly(url, patience=PATIENCE)
        self._sending = [
            self._pool.submit(self._send, app),
            self._pool.submit(lambda: asyncio.run(self._send_async())),
        ]
        self._receiving = [
            self._pool.submit(self._receive, app),
            self._pool.submit(lambda: asyncio.run(self._receive_async())),
        ]

    # Work

    def _begin(self, who: str, number: int) -> tuple[str, float]:
        delay = DELAY if number % 10 == 0 else 0
        self.passages[f"{who}{number}"] = Passage(time.time() + delay)
        return f"{who}{number}", delay

    def _send(self, app: duly.Duly) -> None:
        queue, number = app.queue(self._name), 0
        while not self._is_ending.wait(0.002):
            number += 1
            body, delay = self._begin("sync-", number)
            try:
                queue.send(body, delay=delay, **self._options)
                self.passages[body].confirmed = time.monotonic()
            except duly.NotDurable:
                self.unconfirmed += 1

    async def _send_async(self) -> None:
        async with duly.AsyncDuly(self._url, patience=PATIENCE) as app:
            queue, number = app.queue(self._name), 0
            while not self._is_ending.is_set():
                number += 1
                body, delay = self._begin("async-", number)
                try:
                    await queue.send(body, delay=delay, **self._options)
                    self.passages[body].confirmed = time.monotonic()
                except duly.NotDurable:
                    self.unconfirmed += 1
                await asyncio.sleep(0.002)

    def _receive(self, app: duly.Duly) -> None:
        queue = app.queue(self._name)
        while not self._is_over.is_set():
            found = queue.receive(10, wait=0.2, lease=LEASE)
            self._note_claimed(found)
            self._note_acked(found, queue.ack_many(found) if found else [])

    async def _receive_async(self) -> None:
        async with duly.AsyncDuly(self._url, patience=PATIENCE) as app:
            queue = app.queue(self._name)
            while not self._is_over.is_set():
                found = await queue.receive(10, wait=0.2, lease=LEASE)
                self._note_claimed(found)
                self._note_acked(found, await queue.ack_many(found) if found else [])

    def _note_claimed(self, found: list[Any]) -> None:
        now = time.time()
        for each in found:
            passage = self.passages[each.body]
            assert now >= passage.due - 0.001, f"{each.body} was {passage.due - now:.3f} s early"
            passage.claims.append(time.monotonic())
            passage.crashes = each.crashes

    def _note_acked(self, found: list[Any], lost: list[Any]) -> None:
        now = time.monotonic()
        lost_ids = {getattr(each, "id", each) for each in lost}
        for each in found:
            if each.id in lost_ids:
                self.passages[each.body].lost_leases += 1
            else:
                self.passages[each.body].acks.append(now)

    # Views

    @property
    def confirmed(self) -> int:
        return sum(1 for each in list(self.passages.values()) if each.confirmed)

    @property
    def acked(self) -> int:
        return sum(1 for each in list(self.passages.values()) if each.acks)

    def wait_for_more(self, count: int = 50) -> None:
        """Wait until both senders and consumers have gone on."""
        views: tuple[Callable[[], int], ...] = (lambda: self.confirmed, lambda: self.acked)
        for view in views:
            goal = view() + count
            wait_until(lambda: view() >= goal or self._has_failed(), "the load goes on")  # noqa: B023
        assert not self._has_failed()

    def _has_failed(self) -> bool:
        return any(each.done() and each.exception() for each in (*self._sending, *self._receiving))

    def end(self) -> None:
        """Let everything through that still comes, and check the accounts."""
        self._is_ending.set()
        try:
            for each in self._sending:
                each.result(PATIENCE)
            queue = self._app.queue(self._name)

            def is_empty() -> bool:
                stats = queue.stats()
                return stats.ready + stats.leased + stats.delayed == 0

            wait_until(lambda: is_empty() or self._has_failed(), "the queue is empty", queue.stats)
        finally:
            self._is_over.set()
        for each in self._receiving:
            each.result(PATIENCE)
        assert queue.audit().ok
        self._app.close()
        self._pool.shutdown()

    def lost(self) -> list[Passage]:
        """Return the messages that were confirmed and not delivered."""
        return [each for each in self.passages.values() if each.confirmed and not each.claims]

    def repeated(self) -> list[Passage]:
        return [each for each in self.passages.values() if len(each.claims) > 1]


@contextmanager
def load(url: str, queue_name: str, **options: Any) -> Iterator[Load]:
    work = Load(url, queue_name, **options)
    try:
        work.wait_for_more()
        yield work
        work.wait_for_more()
    finally:
        work.end()


def assert_nothing_lost(work: Load) -> None:
    assert work.confirmed > 100
    assert work.lost() == []
    assert work.repeated() == []
    assert not any(each.lost_leases or each.crashes for each in work.passages.values())


def assert_only_the_tail(work: Load, killed_at: float, back_at: float) -> None:
    """Fail unless each loss and each repeat comes from calls that the replica had not received."""

    def was_in_the_tail(moment: float) -> bool:
        return killed_at - TAIL < moment < back_at

    assert [each for each in work.lost() if not was_in_the_tail(each.confirmed)] == []
    for each in work.repeated():
        ended = each.acks[0] if each.acks else each.claims[0]
        assert was_in_the_tail(ended) or was_in_the_tail(each.claims[0]), each
    assert len(work.lost()) <= 5, Counter(round(killed_at - each.confirmed, 3) for each in work.lost())


def let_be(rig: SentinelRig) -> None:
    """Have the sentinels start no fail-over because a busy machine kept a node from answering."""
    for each in rig.sentinels:
        each.run("SENTINEL", "SET", SERVICE, "down-after-milliseconds", 30_000)


@pytest.fixture
def rig() -> Iterator[SentinelRig]:
    need("valkey")
    with SentinelRig("valkey") as rig:
        yield rig


def epochs_of(rig: SentinelRig) -> list[int]:
    return [said.epoch for each in rig.sentinels if each.is_running and (said := each.announcement)]


@contextmanager
def idle_worker(rig: SentinelRig, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Run a worker that waits for messages. The block gets a function that sends one and waits for its handler."""
    source = """
        @app.queue("jobs", lease=30).handler
        async def on_job(body, d):
            note("handled", body=body, attempt=d.attempt)
    """
    with WorkerProcess(rig.url, tmp_path, source) as worker, duly.Duly(rig.url, patience=PATIENCE) as app:
        worker.wait_for_start()

        def handles(body: str) -> None:
            app.queue("jobs").send(body)
            wait_until(
                lambda: [note for note in worker.notes("handled") if note["body"] == body],
                f"the worker handles {body!r}",
                worker.log,
            )

        handles("before")
        yield handles
        assert [note["attempt"] for note in worker.notes("handled")] == [1] * len(worker.notes("handled"))
        assert worker.stop() == 0, worker.log()


def test_a_coordinated_fail_over_loses_nothing(rig: SentinelRig, queue_name: str, tmp_path: Path) -> None:
    old = rig.primary
    with idle_worker(rig, tmp_path) as handles, load(rig.url, queue_name) as work:
        let_be(rig)
        new = rig.fail_over("COORDINATED")
        assert new is not old
        work.wait_for_more()
        handles("after")  # its blocking call was on the old primary

    assert_nothing_lost(work)


def test_a_killed_primary_takes_no_more_than_its_last_moment(
    rig: SentinelRig, queue_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = rig.primary
    before = max(epochs_of(rig))
    with idle_worker(rig, tmp_path) as handles, load(rig.url, queue_name) as work:
        killed_at = time.monotonic()
        old.kill9()
        rig.wait_for_other_primary(old)
        let_be(rig)
        work.wait_for_more()
        back_at = time.monotonic()
        handles("after")

    assert_only_the_tail(work, killed_at, back_at)
    switches = {record.getMessage() for record in caplog.records if "the primary is" in record.getMessage()}
    # On a busy machine the sentinels may fail over again. The client changes its primary no more often than they do.
    assert 1 <= len(switches) <= max(epochs_of(rig)) - before, switches


def test_a_fail_over_by_hand_is_followed(queue_name: str) -> None:
    """The sentinels still name the old primary, which is a replica now and names the new one."""
    need("valkey")
    with SentinelRig("valkey", replicas=1) as rig:
        old, (to,) = rig.primary, rig.replicas
        with load(rig.url, queue_name) as work:
            rig.fail_over_by_hand(old, to)
            work.wait_for_more()
            assert rig.is_agreed_on(old), "the sentinels have followed"

        assert_nothing_lost(work)


@pytest.mark.long
def test_a_pause_of_writes_before_a_plain_fail_over_loses_nothing(kind: Kind, queue_name: str) -> None:
    with SentinelRig(kind) as rig:
        old = rig.primary
        with load(rig.url, queue_name) as work:
            old.run("CLIENT", "PAUSE", 15000, "WRITE")
            assert rig.fail_over() is not old

        assert_nothing_lost(work)


@pytest.mark.long
def test_calls_go_on_while_all_sentinels_are_stopped(rig: SentinelRig, queue_name: str) -> None:
    with load(rig.url, queue_name) as work:
        for each in rig.sentinels:
            each.kill9()
        time.sleep(2.5)
        work.wait_for_more()
        rig.sentinels[0].start()

    assert_nothing_lost(work)


@pytest.mark.long
@pytest.mark.skipif(not network.is_allowed(), reason="network namespaces need the rights of root")
@pytest.mark.parametrize("durable", [None, 2])
def test_a_split_brain_loses_nothing_that_all_replicas_had(
    queue_name: str, durable: int | None, record_property: Callable[[str, object], None]
) -> None:
    """The client reaches both sides, and one replica is on the side of the old primary."""
    options = {} if durable is None else {"durable": durable}
    with Network() as net, SentinelRig("valkey", network=net) as rig:
        old = rig.primary
        with load(rig.url, queue_name, **options) as work:
            work.wait_for_more(1000)
            cut_at = time.monotonic()
            rig.cut(old, rig.replicas[0])
            new = rig.wait_for_other_primary(old)
            assert old.is_primary, "the brain was not split"
            time.sleep(3)  # the clients ask the sentinels each second
            back_at = time.monotonic()
            if durable is None:  # otherwise the new primary has too few replicas
                work.wait_for_more()
            rig.heal()
            wait_until(lambda: old.follows == new.node, "the old primary follows")

    lost = work.lost()
    for name, value in (("confirmed", work.confirmed), ("lost", len(lost)), ("not durable", work.unconfirmed)):
        record_property(name, value)
    assert [each for each in lost if not cut_at - TAIL < each.confirmed < back_at] == []
    if durable is None:
        assert lost, "the split brain had no effect"
    else:
        assert work.unconfirmed, "no send was refused"
        assert lost == []
