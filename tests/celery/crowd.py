"""Many tasks with countdowns and retries over several workers, one of which is killed. Counts what becomes of them."""

import time
from collections import Counter
from dataclasses import dataclass

from tests.celery.rig import Program, Run

_PAUSE = 0.5
"""Seconds between two checks, which read all runs so far."""


@dataclass(frozen=True)
class Outcome:
    """The number of tasks, and how they ended."""

    tasks: int
    finished: int
    early: int
    """Starts before the task was due."""
    runs: int
    repeated: int
    """Attempts that were started more than once. An attempt is a task, or a retry of it."""
    unexplained: int
    """Starts of these that no killed worker explains."""
    seconds: float


def run(
    program: Program, tasks: int, workers: int, *, countdown: float, quiet_for: float, limit: float = 300
) -> Outcome:
    """Send tasks, kill a worker and start another, and wait until all tasks have finished and nothing runs any more.

    The countdowns are of up to `countdown` seconds. Nothing has run for `quiet_for` seconds at the end.
    """
    running = [program.worker("-c", "2") for _ in range(workers)]
    began = time.monotonic()
    _send(program, tasks, countdown)
    stop_at = time.monotonic() + limit
    while len(_finished(program)) < tasks / 4 and time.monotonic() < stop_at:
        time.sleep(_PAUSE)
    running[0].kill()
    program.worker("-c", "2", ready=False)
    while len(_finished(program)) < tasks and time.monotonic() < stop_at:
        time.sleep(_PAUSE)
    seconds = time.monotonic() - began
    before = -1
    while before != (now := len(program.runs("start"))) and time.monotonic() < stop_at + limit:
        before = now
        time.sleep(quiet_for)
    return _judged(program.runs("start"), len(_finished(program)), tasks, {running[0].process.pid}, seconds)


def _send(program: Program, tasks: int, longest: float) -> None:
    """Send a third of the tasks for now, a third with a countdown, and a third that retry twice."""
    task = program.module.one_of_many
    names = [f"{('plain', 'later', 'retried')[number % 3]}-{number}" for number in range(tasks)]
    for number, name in enumerate(names):
        countdown = longest * number / tasks if name.startswith("later") else None
        retries = 2 if name.startswith("retried") else 0
        task.apply_async([name, retries, time.time() + (countdown or 0)], countdown=countdown)


def _finished(program: Program) -> set[str]:
    return {run.name.partition(".")[0] for run in program.runs("end")}


def _judged(starts: list[Run], finished: int, tasks: int, killed: set[int], seconds: float) -> Outcome:
    counts = Counter(run.name for run in starts)
    interrupted = Counter(run.name for run in starts if run.worker in killed)

    def unexplained(attempt: str) -> int:
        """A run of a killed worker may run again, and so may the retry that it has sent."""
        name, _, number = attempt.partition(".")
        before = counts[f"{name}.{int(number) - 1}"]
        return max(counts[attempt] - 1 - interrupted[attempt] - max(before - 1, 0), 0)

    return Outcome(
        tasks=tasks,
        finished=finished,
        early=sum(run.at < run.due for run in starts),
        runs=len(starts),
        repeated=sum(count > 1 for count in counts.values()),
        unexplained=sum(map(unexplained, counts)),
        seconds=round(seconds, 1),
    )
