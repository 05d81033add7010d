"""With `keep_failed`, a task that has failed for good is a dead letter. The delivery limit is 3."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from celery import Celery
from celery.exceptions import TimeLimitExceeded
from celery.worker import state
from celery.worker.request import Request

from duly.celery._requests import KeptRequest
from tests.celery.conftest import opened
from tests.celery.rig import Program
from tests.conftest import StartedServer
from tests.waiting import wait_until

FAILING = {"fail": 1, "fail_each_time": 3, "overrun": 1}
"""Tasks of the program, and how often each runs: one raises, one retries twice, and one exceeds its time limit."""


@pytest.fixture
def keeping(server: StartedServer, tmp_path: Path) -> Iterator[Program]:
    yield from opened(server, tmp_path, PROGRAM_KEEP_FAILED="yes")


def fail_in(program: Program) -> None:
    """Send tasks that fail, and wait until they are dead."""
    for name in FAILING:
        getattr(program.module, name).delay(name)
    wait_until_dead(program)


def wait_until_dead(program: Program) -> None:
    wait_until(lambda: set(FAILING) <= set(dead_in(program)), "all are dead", lambda: [program.runs(), program.logs])


def dead_in(program: Program) -> list[str]:
    return sorted(task.name.rpartition(".")[2] for task in program.module.tasks.dead())


def runs_of(program: Program) -> Counter[str]:
    return Counter(run.name for run in program.runs("start"))


@pytest.mark.slow
def test_a_task_that_has_failed_for_good_is_dead_and_can_be_redriven(keeping: Program) -> None:
    worker = keeping.worker("-c", "2")
    keeping.module.try_again.delay("succeeds")
    keeping.module.ignore.delay("ignored")
    keeping.module.app.send_task("unknown")

    fail_in(keeping)

    keeping.wait_for("end", "succeeds")
    wait_until(lambda: keeping.leased() == [], "all are settled", keeping.leased)
    assert dead_in(keeping) == sorted([*FAILING, "unknown"])
    assert runs_of(keeping) == {**FAILING, "succeeds": 3, "ignored": 1}
    assert keeping.module.tasks.redrive(name="tests.celery.program.fail_each_time") == 1
    wait_until_dead(keeping)
    assert runs_of(keeping)["fail_each_time"] == 4
    assert " CRITICAL/" not in worker.log
    assert " WARNING/" not in worker.log


@pytest.mark.slow
@pytest.mark.long
def test_a_task_that_exceeds_its_time_limit_in_a_greenlet_is_dead(keeping: Program) -> None:
    keeping.worker("-P", "gevent", "-c", "3")

    fail_in(keeping)

    assert keeping.leased() == []
    assert runs_of(keeping) == FAILING


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.fault
def test_a_task_that_a_cold_shutdown_ends_runs_again(keeping: Program) -> None:
    keeping.cut_off()

    wait_until(lambda: runs_of(keeping) == {"cut": 2}, "it has begun again", keeping.runs)
    assert dead_in(keeping) == []


@pytest.fixture
def rejected() -> list[bool]:
    """Whether each message that was rejected returns to its queue."""
    return []


@pytest.fixture
def over_time(rejected: list[bool]) -> KeptRequest:
    """Return a task that exceeds its time limit. No broker is there."""
    app = Celery("shop", broker="memory://", set_as_current=False)

    @app.task(name="close", shared=False, acks_late=True, acks_on_failure_or_timeout=False, ignore_result=True)
    def close() -> None: ...

    headers = {"id": "1", "task": "close"}
    message = Mock(headers=headers, payload=((), {}, {}), delivery_info={}, properties={})

    def reject(_logger: Any, _errors: Any, requeue: bool) -> None:
        rejected.append(requeue)

    return KeptRequest(message, app=app, task=close, on_reject=reject)


@pytest.mark.parametrize("stops", [None, True])
def test_a_time_limit_rejects_the_message_unless_the_worker_is_stopped_cold(
    over_time: KeptRequest, rejected: list[bool], monkeypatch: pytest.MonkeyPatch, stops: bool | None
) -> None:
    monkeypatch.setattr(state, "should_terminate", stops)

    over_time.on_failure(Mock(exception=TimeLimitExceeded(1), exc_info=None, traceback=""))
    over_time.on_timeout(False, 1)

    assert rejected == [bool(stops)]


def test_a_time_limit_of_a_greenlet_rejects_the_message(over_time: KeptRequest, rejected: list[bool]) -> None:
    over_time.on_timeout(False, 1)

    assert rejected == [False]


def test_a_time_limit_rejects_the_message_if_celery_settles_nothing(
    over_time: KeptRequest, rejected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Celery 5.5 and 5.6 do with gevent."""
    monkeypatch.setattr(Request, "on_timeout", lambda *_: None)

    over_time.on_timeout(False, 1)

    assert rejected == [False]


def test_a_soft_time_limit_settles_nothing(over_time: KeptRequest, rejected: list[bool]) -> None:
    over_time.on_timeout(True, 1)
    over_time.reject(requeue=True)

    assert rejected == [True]
