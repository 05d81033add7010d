"""`celery multi` starts and stops workers in the background."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.celery.rig import READY, ROOT, Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """Yield the directory of pid files, and kill workers that still run."""
    yield tmp_path
    for file in tmp_path.glob("*.pid"):
        os.kill(int(file.read_text()), signal.SIGKILL)


def test_workers_of_celery_multi_run_tasks_and_stop_warmly(program: Program, pids: Path) -> None:
    def multi(command: str) -> None:
        files = [f"--pidfile={pids}/%n.pid", f"--logfile={pids}/%n%I.log", f"--workdir={ROOT}"]
        nodes = ["first", "second", "-A", "tests.celery.program", "-c", "1", "-l", "INFO", *files]
        environment = {**os.environ, **program.environment, "PYTHONPATH": str(ROOT)}
        arguments = [sys.executable, "-m", "celery", "multi", command, *nodes]
        subprocess.run(arguments, cwd=ROOT, env=environment, check=True, timeout=100, stdout=subprocess.DEVNULL)

    def consumes(node: str) -> bool:
        log = pids / f"{node}.log"
        return log.exists() and READY in log.read_text()

    multi("start")
    wait_until(lambda: all(map(consumes, ("first", "second"))), "both consume", lambda: list(pids.iterdir()))
    names = [f"task-{number}" for number in range(8)]
    for name in names:
        program.module.work.delay(name, 0.5)
    wait_until(lambda: len({run.worker for run in program.runs("start")}) == 2, "both run tasks", program.runs)
    multi("stopwait")

    assert list(pids.glob("*.pid")) == []
    started = program.runs("start")
    assert {run.name for run in program.runs("end")} == {run.name for run in started}
    program.worker("-P", "solo")
    program.wait_for("end", *names)
    assert len(program.runs("start")) == len(names)
