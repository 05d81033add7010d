"""How fast is Celery on Duly, and on its redis transport: drain, latency, and memory while tasks wait?"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import celery_program
from benchmarks.rig import Result, Rig, median, percentile

TASKS = 3_000
SPACED = 200
WAITING = 3_000
ROUNDS = 2
TRANSPORTS = {"Duly": "duly+", "redis transport": ""}
"""Each with the beginning of its broker URL."""

ROOT = Path(__file__).parents[1]


def measure(rig: Rig) -> list[Result]:
    """Measure both transports in turn, with the settings of `duly.celery.setup`."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(min(ROUNDS, rig.rounds)):
        for name, prefix in TRANSPORTS.items():
            for question, value in _once(rig, prefix):
                found.setdefault((question, name), []).append(value)
    rig.raw.flushall()
    return [
        Result(question, median(samples), UNITS[question], None, question == DRAIN, samples, party=name)
        for (question, name), samples in found.items()
    ]


DRAIN = "drain, one process"
IDLE_P50 = "idle latency, p50"
IDLE_P99 = "idle latency, p99"
WORKER = "memory of a worker per task with a countdown"
SERVER = "memory of the server per task with a countdown"
UNITS = {DRAIN: "tasks/s", IDLE_P50: "ms", IDLE_P99: "ms", WORKER: "bytes", SERVER: "bytes"}


def _once(rig: Rig, prefix: str) -> Iterator[tuple[str, float]]:
    rig.raw.flushall()
    tasks, waiting = rig.count(TASKS), rig.count(WAITING)
    with _sending(rig, prefix) as send:
        for _ in range(tasks):
            send(time.time(), tasks, "x" * 58)
        with _worker(rig, prefix) as worker:
            starts = sorted(start for _, start in _starts(rig, tasks))
            yield DRAIN, (tasks - 1) / (starts[-1] - starts[0])
            spaced = rig.count(SPACED)
            for _ in range(spaced):
                send(time.time(), spaced)
                time.sleep(0.02)
            late = [1000 * (start - sent) for sent, start in _starts(rig, spaced)]
            yield IDLE_P50, percentile(late, 0.5)
            yield IDLE_P99, percentile(late, 0.99)
            before, server = _resident(worker), rig.settled_memory()
            for _ in range(waiting):
                send(time.time(), waiting, "x" * 58, countdown=3600)
            time.sleep(5)  # until the worker has received those that it can
            yield WORKER, (_resident(worker) - before) / waiting
            yield SERVER, (rig.settled_memory() - server) / waiting


@contextmanager
def _sending(rig: Rig, prefix: str) -> Iterator[Callable[..., None]]:
    """Connect the app of this process, and return a function that sends a task."""
    celery_program.app.conf.broker_url = prefix + rig.url
    with celery_program.app.connection_for_write() as connection, connection.Producer() as producer:

        def send(*arguments: Any, **options: Any) -> None:
            celery_program.tick.apply_async(arguments, producer=producer, **options)

        yield send


@contextmanager
def _worker(rig: Rig, prefix: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker of one process."""
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.celery_program", "worker", "-P", "solo", "-l", "ERROR"]
    environment = {**os.environ, "BENCH_URL": rig.url, "BENCH_BROKER": prefix + rig.url, "C_FORCE_ROOT": "1"}
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=silent, stderr=silent) as process:
        try:
            yield process
        finally:
            process.kill()


def _starts(rig: Rig, total: int) -> list[tuple[float, float]]:
    """Wait for the records of tasks: when each was sent and started."""
    while rig.raw.llen("starts") < total:
        time.sleep(0.05)
    lines = rig.raw.lrange("starts", 0, -1)
    rig.raw.delete("starts")
    return [(float(line.split()[0]), float(line.split()[1])) for line in lines]


def _resident(process: "subprocess.Popen[bytes]") -> int:
    """Return the memory of a process in bytes."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
