"""Many tasks with countdowns and retries: each finishes, none is early, and none repeats without a cause."""

from pathlib import Path

import pytest

from tests.celery import crowd
from tests.celery.conftest import opened
from tests.celery.rig import Program
from tests.servers import Server

pytestmark = [pytest.mark.fault, pytest.mark.slow]


def check(found: crowd.Outcome) -> None:
    assert (found.finished, found.early, found.unexplained) == (found.tasks, 0, 0), found


def test_tasks_finish_once_and_not_early_while_a_worker_is_killed(program: Program) -> None:
    check(crowd.run(program, 60, workers=2, countdown=6, quiet_for=2))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_10000_tasks_finish_once_and_not_early_on_three_workers(tmp_path: Path) -> None:
    with Server("valkey") as server:
        for program in opened(lambda _: server, tmp_path, PROGRAM_LEASE="5"):
            check(crowd.run(program, 10_000, workers=3, countdown=30, quiet_for=8))
