"""Fail-overs under load, with real sentinels: the client follows, and every loss or repeat has a cause.

Replication is asynchronous, so a killed primary takes the last moment with it, and a primary that is cut off confirms
writes that are lost. The client counts them. Planned fail-overs lose nothing, but for the plain command.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import duly
from tests.binaries import Kind
from tests.conftest import need
from tests.scale import network
from tests.scale.load import PATIENCE, Load, load
from tests.scale.network import Network
from tests.scale.sentinels import SERVICE, SentinelRig
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

needs_network = pytest.mark.skipif(not network.is_allowed(), reason="network namespaces need the rights of root")


@contextmanager
def loaded(rig: SentinelRig, queue_name: str, **options: Any) -> Iterator[Load]:
    with load(rig.url, [queue_name], kept=f"{queue_name}-kept", **options) as work:
        yield work


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
    with idle_worker(rig, tmp_path) as handles, loaded(rig, queue_name) as work:
        let_be(rig)
        new = rig.fail_over("COORDINATED")
        work.wait_for_more()
        handles("after")  # its blocking call was on the old primary
        outcome = work.end()

    outcome.assert_nothing_lost(**{"fail-over": int(new is not old)})


def test_a_killed_primary_takes_no_more_than_its_last_moment(
    rig: SentinelRig, queue_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = rig.primary
    before = max(epochs_of(rig))
    with idle_worker(rig, tmp_path) as handles, loaded(rig, queue_name) as work:
        killed_at = time.monotonic()
        old.kill9()
        new = rig.wait_for_other_primary(old)
        let_be(rig)
        work.wait_for_more()
        handles("after")
        work.note_rollback(killed_at)
        outcome = work.end()

    outcome.assert_only_rolled_back(**{"fail-over": int(new is not old)})
    assert outcome.lost <= 5, outcome
    switches = {record.getMessage() for record in caplog.records if "the primary is" in record.getMessage()}
    # On a busy machine the sentinels may fail over again. The client changes its primary no more often than they do.
    assert 1 <= len(switches) <= max(epochs_of(rig)) - before, switches


@pytest.mark.long
def test_a_primary_that_hangs_is_replaced_and_comes_back(rig: SentinelRig, queue_name: str) -> None:
    old = rig.primary
    with loaded(rig, queue_name) as work:
        frozen_at = time.monotonic()
        old.freeze()
        try:
            new = rig.wait_for_other_primary(old)
            work.wait_for_more()
        finally:
            old.thaw()
        wait_until(lambda: old.follows == new.node, "the old primary follows")
        work.wait_for_more()
        work.note_rollback(frozen_at)
        outcome = work.end()

    outcome.assert_only_rolled_back(**{"fail-over": int(new is not old)})


@pytest.mark.long
def test_a_fail_over_by_hand_is_followed(queue_name: str) -> None:
    """The sentinels still name the old primary, which is a replica now and names the new one."""
    need("valkey")
    with SentinelRig("valkey", replicas=1) as rig:
        old, (to,) = rig.primary, rig.replicas
        with loaded(rig, queue_name) as work:
            rig.fail_over_by_hand(old, to)
            work.wait_for_more()
            assert rig.is_agreed_on(old), "the sentinels have followed"
            outcome = work.end()

        outcome.assert_nothing_lost(**{"fail-over": int(to.is_primary)})


@pytest.mark.long
def test_a_pause_of_writes_before_a_plain_fail_over_loses_nothing(kind: Kind, queue_name: str) -> None:
    with SentinelRig(kind) as rig:
        old = rig.primary
        with loaded(rig, queue_name) as work:
            old.run("CLIENT", "PAUSE", 15000, "WRITE")
            new = rig.fail_over()
            work.wait_for_more()
            outcome = work.end()

        outcome.assert_nothing_lost(**{"fail-over": int(new is not old)})


@pytest.mark.long
def test_a_plain_fail_over_loses_what_the_client_reports(rig: SentinelRig, queue_name: str) -> None:
    """The old primary confirms writes until the client learns of the new one."""
    old = rig.primary
    with loaded(rig, queue_name) as work:
        began = time.monotonic()
        new = rig.fail_over()
        work.wait_for_more(count=200)
        wait_until(lambda: old.follows == new.node, "the old primary follows")
        work.note_rollback(began)
        outcome = work.end()

    outcome.assert_only_rolled_back(**{"fail-over": int(new is not old), "losses": outcome.kept_lost})


@pytest.mark.long
def test_calls_go_on_while_all_sentinels_are_stopped(rig: SentinelRig, queue_name: str) -> None:
    with loaded(rig, queue_name) as work:
        for each in rig.sentinels:
            each.kill9()
        time.sleep(2.5)
        work.wait_for_more()
        stopped = sum(1 for each in rig.sentinels if not each.is_running)
        rig.sentinels[0].start()
        outcome = work.end()

    outcome.assert_nothing_lost(sentinels=stopped)


def split(rig: SentinelRig, work: Load, *, with_replica: bool) -> bool:
    """Cut the primary off from the sentinels for 7 s, while clients reach both sides. False: it was not split."""
    old = rig.primary
    cut_at = time.monotonic()
    rig.cut(old, *(rig.replicas[:1] if with_replica else []))
    new = rig.wait_for_other_primary(old)
    was_split = old.is_primary
    time.sleep(max(cut_at + 7 - time.monotonic(), 0))
    rig.heal()
    wait_until(lambda: old.follows == new.node, "the old primary follows")
    rig.wait_until_ready()
    work.wait_for_more()
    work.note_rollback(cut_at)
    return was_split


@pytest.mark.long
@needs_network
@pytest.mark.parametrize(
    "config", [{}, {"min-replicas-to-write": "1", "min-replicas-max-lag": "1"}], ids=["plain", "min-replicas"]
)
def test_a_split_brain_loses_what_the_client_reports(queue_name: str, config: dict[str, str]) -> None:
    need("valkey")
    with (
        Network() as net,
        SentinelRig("valkey", network=net, config=config) as rig,
        loaded(rig, queue_name) as work,
    ):
        was_split = split(rig, work, with_replica=False)
        outcome = work.end()

    outcome.assert_only_rolled_back(split=int(was_split), losses=outcome.kept_lost)


@pytest.mark.long
@needs_network
def test_one_of_two_replicas_does_not_make_a_confirmation_safe(queue_name: str) -> None:
    """A replica on the side of the old primary confirms, and the other one becomes the primary."""
    need("valkey")
    with Network() as net, SentinelRig("valkey", network=net) as rig, loaded(rig, queue_name, durable=1) as work:
        was_split = split(rig, work, with_replica=True)
        outcome = work.end()

    outcome.assert_only_rolled_back(split=int(was_split), losses=outcome.kept_lost)


@pytest.mark.long
@needs_network
@pytest.mark.parametrize("replicas", [1, 2])
def test_confirmations_of_all_replicas_survive_split_brains(queue_name: str, replicas: int) -> None:
    """Many senders, so that thousands of sends are confirmed around the cuts."""
    need("valkey")
    with (
        Network() as net,
        SentinelRig("valkey", replicas=replicas, network=net) as rig,
        loaded(rig, queue_name, durable=replicas, senders=16, pause=0.002) as work,
    ):
        splits = 0
        for _ in range(2):
            work.wait_for_more(queue_name, count=2000)
            splits += split(rig, work, with_replica=replicas > 1)
        outcome = work.end()

    outcome.assert_confirmed_survive(splits=int(splits == 2), refused=outcome.unconfirmed)
    assert outcome.confirmed > 4000
