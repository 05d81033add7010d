"""Workers that are killed, stopped or refuse their tasks. Leases last 1.5 s, and the delivery limit is 3."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.celery.conftest import opened
from tests.celery.rig import Program
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow]


def test_tasks_of_a_killed_worker_run_again_after_the_lease(program: Program) -> None:
    first = program.worker("-c", "1", "--prefetch-multiplier", "2")
    program.module.work.delay("interrupted", 600)
    program.wait_for("start", "interrupted")
    program.module.work.delay("fetched")
    wait_until(lambda: "fetched" in str(program.leased()), "the first worker has both", program.leased)
    other = program.worker("-c", "2", ready=False)

    first.kill()
    other.wait_until_ready()

    program.wait_for("end", "fetched")
    wait_until(lambda: len(program.runs("start", "interrupted")) == 2, "it has begun again", program.runs)


def test_a_warm_shutdown_loses_nothing(program: Program) -> None:
    worker = program.worker("-c", "2")
    names = [f"task-{number}" for number in range(8)]
    for name in names:
        program.module.work.delay(name, 0.5)
    program.wait_for("start", "task-0")

    assert worker.stop() == 0

    started = program.runs("start")
    assert {run.name for run in program.runs("end")} == {run.name for run in started}
    assert len(started) < len(names)
    program.worker("-P", "solo")
    program.wait_for("end", *names)
    assert len(program.runs("start")) == len(names)


@pytest.mark.long
def test_a_cold_shutdown_returns_tasks_at_once(program: Program) -> None:
    program.cut_off()

    wait_until(lambda: len(program.runs("start", "cut")) == 2, "it has begun again", program.runs)


@pytest.mark.long
def test_a_task_that_kills_its_process_is_dead_after_the_delivery_limit(program: Program) -> None:
    program.worker("-c", "1")
    program.module.die.delay("poison")

    wait_until(program.module.tasks.dead, "it is dead", program.runs)

    assert len(program.runs("start", "poison")) == 4
    assert "delivery_limit is 3" in program.module.tasks.dead()[0].reason


@pytest.mark.long
def test_a_task_that_is_requeued_too_often_is_dead(program: Program) -> None:
    program.worker("-P", "solo")
    program.module.refuse.delay("again", True)

    wait_until(program.module.tasks.dead, "it is dead", program.runs)

    assert len(program.runs("start", "again")) == 4


@pytest.mark.long
def test_a_worker_that_was_paused_settles_nothing_that_another_one_has(program: Program) -> None:
    first = program.worker("-P", "solo")
    program.module.work.delay("paused", 3)
    program.wait_for("start", "paused")
    os.kill(first.process.pid, signal.SIGSTOP)
    program.worker("-P", "solo")

    wait_until(lambda: len(program.runs("start", "paused")) == 2, "the other worker has it", program.runs)
    os.kill(first.process.pid, signal.SIGCONT)

    wait_until(lambda: len(program.runs("end", "paused")) == 2, "both have ended", program.runs)
    wait_until(lambda: "lease" in first.log, "the first worker has lost its lease", lambda: first.log)


@pytest.mark.long
def test_priorities_order_tasks_that_wait(program: Program) -> None:
    for priority in (0, 9, 5):
        program.module.work.apply_async([f"p{priority}"], priority=priority)

    program.worker("-P", "solo")

    program.wait_for("end", "p0", "p5", "p9")
    assert [run.name for run in program.runs("end")] == ["p9", "p5", "p0"]


@pytest.mark.long
def test_an_expired_task_does_not_run(program: Program) -> None:
    program.module.work.apply_async(["expired"], expires=0.5)
    program.module.work.apply_async(["fresh"], expires=600)
    time.sleep(1)

    program.worker("-P", "solo")

    program.wait_for("end", "fresh")
    assert program.runs(name="expired") == []


@pytest.mark.long
@pytest.mark.parametrize("pool", ["gevent", "threads"])
def test_a_pool_of_greenlets_or_threads_runs_tasks_side_by_side(program: Program, pool: str) -> None:
    program.worker("-P", pool, "-c", "10")
    for number in range(10):
        program.module.work.delay(f"green-{number}", 3)

    program.wait_for("end", *(f"green-{number}" for number in range(10)))

    starts = program.runs("start")
    assert len(starts) == 10
    assert max(run.at for run in starts) < min(run.at for run in program.runs("end"))
    assert program.module.app.control.ping(timeout=60, limit=1)


@pytest.mark.long
def test_a_worker_consumes_again_after_the_server_was_away(tmp_path: Path) -> None:
    server = Server("valkey", {"appendonly": "yes", "appendfsync": "always"})
    try:
        for program in opened(lambda _: server, tmp_path):
            worker = program.worker("-P", "solo")
            program.module.work.apply_async(["stored"], countdown=1)
            server.kill9()
            time.sleep(2)
            server.start()

            program.module.work.delay("after")

            program.wait_for("end", "stored", "after")
            assert len(program.runs("start")) == 2
            assert program.module.app.control.ping(timeout=60, limit=1) == [{"w0@test": {"ok": "pong"}}]
            assert worker.process.poll() is None
    finally:
        server.close()


@pytest.mark.long
def test_a_task_whose_retry_cannot_be_sent_runs_again_or_is_a_dead_letter(tmp_path: Path) -> None:
    with Server("valkey", {"appendonly": "yes", "appendfsync": "always"}) as server:
        for program in opened(lambda _: server, tmp_path, PROGRAM_PATIENCE="0.5"):
            lose_a_retry(server, program, tmp_path / "told")
            wait_until_it_is_dead_or_runs_again(program)
            program.module.tasks.redrive()
            program.wait_for("end", "unlucky")


def wait_until_it_is_dead_or_runs_again(program: Program) -> None:
    """Celery rejects the task. If it restarts the connection before that, the lease of the task expires."""
    wait_until(lambda: program.module.tasks.dead() or len(program.runs("start")) == 2, "one of both", program.runs)


def lose_a_retry(server: Server, program: Program, told: Path) -> None:
    """Kill the server while a task runs, let the task retry, and start the server when Celery has given that up."""
    worker = program.worker("-P", "solo")
    program.module.retry_when_told.delay("unlucky", str(told))
    program.wait_for("start", "unlucky")
    server.kill9()
    told.touch()
    wait_until(
        lambda: "is settled later" in worker.log or "after their lease" in worker.log,
        "Celery has given the retry up",
        lambda: worker.log,
    )
    server.start()


@pytest.mark.long
def test_workers_that_were_killed_leave_no_queues_for_broadcasts(program: Program) -> None:
    """Remote control, events, gossip and `Broadcast` take as many keys for three workers as for one."""
    module, kept = program.module, list[set[str]]()
    for number in range(3):
        worker = program.worker("-P", "solo", "-E", PROGRAM_BROADCAST="everyone")
        module.tell("everyone", f"heard-{number}")
        program.wait_for("end", f"heard-{number}")
        assert module.app.control.ping(timeout=60, limit=1)
        worker.kill()
        module.tell("everyone", f"missed-{number}")
        kept.append(program.lasting_keys())

    assert program.queues() == []
    assert any("everyone" in key for key in kept[0])
    assert kept[0] == kept[1] == kept[2]
    assert {run.name for run in program.runs("start")} == {"heard-0", "heard-1", "heard-2"}
