"""How do 10,000 Celery tasks with countdowns and retries end if one of three workers is killed?

Both transports return the tasks of a dead worker after five seconds, and the countdowns are of up to half a minute.
"""

import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path

from benchmarks.celery_transports import TRANSPORTS
from benchmarks.rig import Result, Rig
from tests.celery import crowd
from tests.celery.conftest import load
from tests.celery.rig import Program

TASKS = 10_000
WORKERS = 3
LEASE = 5.0
COUNTDOWN = 30.0
QUESTIONS = {
    "finished": "10,000 tasks, a worker killed: finished",
    "early": "10,000 tasks, a worker killed: started too early",
    "repeated": "10,000 tasks, a worker killed: started more than once",
    "unexplained": "10,000 tasks, a worker killed: starts that the kill does not explain",
    "seconds": "10,000 tasks, a worker killed: all done after",
}


def measure(rig: Rig) -> list[Result]:
    """Run the same program once on each transport."""
    return [result for name, prefix in TRANSPORTS.items() for result in _once(rig, name, prefix)]


def _once(rig: Rig, name: str, prefix: str) -> list[Result]:
    rig.raw.flushall()
    settings = {"PROGRAM_BROKER": prefix + rig.url, "PROGRAM_LEASE": str(LEASE)}
    with tempfile.TemporaryDirectory() as directory:
        program = Program(rig.url, f"celery-{uuid.uuid4().hex[:12]}", Path(directory), load, **settings)
        try:
            found = asdict(crowd.run(program, rig.count(TASKS), WORKERS, countdown=COUNTDOWN, quiet_for=2 * LEASE))
        finally:
            program.close()
            program.module.app.close()
            program.module.record.close()
    bars = {"finished": rig.count(TASKS), "early": 0, "unexplained": 0} if prefix else {}
    return [
        Result(
            question,
            found[field],
            "s" if field == "seconds" else "tasks",
            bars.get(field),
            higher_is_better=field == "finished",
            samples=[found[field]],
            party=name,
        )
        for field, question in QUESTIONS.items()
    ]
