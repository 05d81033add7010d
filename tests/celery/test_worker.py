"""Tasks on a worker with two processes. Its leases last 1.5 s."""

import time

import pytest
from celery.exceptions import TaskRevokedError

from tests.celery.rig import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")]


def test_a_countdown_longer_than_the_lease_runs_once_and_not_early(running: Program) -> None:
    sent = time.time()
    running.module.work.apply_async(["delayed"], countdown=3)
    running.module.work.apply_async(["long", 4])

    running.wait_for("end", "delayed", "long")

    (delayed,) = running.runs("start", "delayed")
    assert delayed.at >= sent + 3
    assert len(running.runs("start", "long")) == 1


def test_a_worker_logs_once_which_settings_were_changed(running: Program) -> None:
    (log,) = running.logs
    assert log.count("Celery app 'program': set task_acks_late=True") == 1


def test_a_process_of_the_pool_runs_tasks_and_sends_others(running: Program) -> None:
    result = running.module.work.delay("in-a-child")
    running.module.send_on.delay("parent", countdown=0.2)

    assert result.get(timeout=60).startswith("in-a-child in ")
    running.wait_for("end", "parent-child")


def test_retries_run_when_they_are_due(running: Program) -> None:
    running.module.try_again.delay("flaky")

    running.wait_for("end", "flaky")

    starts = [run.at for run in running.runs("start", "flaky")]
    assert len(starts) == 3
    assert starts[1] - starts[0] >= 0.2
    assert starts[2] - starts[1] >= 0.2


def test_remote_control_and_inspection_work(running: Program) -> None:
    app = running.module.app

    assert app.control.ping(timeout=60, limit=1) == [{"w0@test": {"ok": "pong"}}]
    inspect = app.control.inspect(["w0@test"], timeout=60)
    assert inspect.stats()["w0@test"]["broker"]["transport"] == "duly"
    assert [queue["name"] for queue in inspect.active_queues()["w0@test"]] == ["celery"]


def test_a_rejected_task_is_dead_and_can_be_redriven(running: Program) -> None:
    tasks = running.module.tasks
    sent = running.module.refuse.delay("refused", False)
    wait_until(tasks.dead, "it is dead")

    (dead,) = tasks.dead()
    assert (dead.id, dead.name, dead.queue) == (sent.id, "tests.celery.program.refuse", "celery")
    assert "refused" in dead.args
    assert tasks.redrive(name="another") == 0
    assert tasks.redrive(task_id=sent.id) == 1

    wait_until(lambda: len(running.runs("start", "refused")) == 2, "it has run again")
    wait_until(tasks.dead, "it is dead again")
    assert tasks.redrive(limit=1) == 1
    wait_until(lambda: len(running.runs("start", "refused")) == 3, "it has run once more")


def test_a_failed_task_is_acked_and_does_not_become_a_dead_letter(running: Program) -> None:
    failed = running.module.fail.delay("failed")

    with pytest.raises(ValueError, match="failed"):
        failed.get(timeout=60)

    wait_until(lambda: failed.id not in str(running.leased()), "it is settled", running.leased)
    assert failed.id not in {task.id for task in running.module.tasks.dead()}


def test_a_task_is_cancelled_before_a_worker_gets_it(running: Program) -> None:
    tasks = running.module.tasks
    result = running.module.work.apply_async(["cancelled"], countdown=3600)
    (scheduled,) = tasks.scheduled()
    assert (scheduled.id, scheduled.due_at is not None) == (result.id, True)

    assert tasks.cancel(result.id) is True
    assert tasks.cancel(result.id) is False

    assert tasks.scheduled() == []
    with pytest.raises(TaskRevokedError):
        result.get(timeout=60)
