"""`celery multi` starts and stops workers in the background."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.celery.rig import ROOT, Program

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

    multi("start")
    names = [f"task-{number}" for number in range(8)]
    for name in names:
        program.module.work.delay(name, 0.5)
    program.wait_for("start", "task-0", "task-1")
    multi("stopwait")

    assert list(pids.glob("*.pid")) == []
    started = program.runs("start")
    assert {run.name for run in program.runs("end")} == {run.name for run in started}
    assert len({run.worker for run in started}) == 2
    program.worker("-P", "solo")
    program.wait_for("end", *names)
    assert len(program.runs("start")) == len(names)
