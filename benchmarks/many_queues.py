"""Workers of many queues, and a sender to them, for the questions about fairness.

`python -m benchmarks.many_queues JOB`, which is JSON, is one worker. `PYTHONPATH` may name another version of Duly.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis

import duly
from benchmarks.rig import percentile

_ROOT: Final = Path(__file__).parents[1]
_HOLD: Final = "hold"
"""A queue whose messages keep a handler until the worker is stopped."""

_START_TIMEOUT: Final = 60.0
_QUIET: Final = 2.0
"""Seconds without another blocking call after which all queues are watched."""

Latencies = dict[int, list[float]]
"""Milliseconds from the call of `send` to the start of the handler, by the number of the queue."""


class WorkerProcess:
    """A worker of a number of queues that records when handlers start."""

    def __init__(self, url: str, queues: int, **job: Any) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._out = Path(self._directory.name) / "out"
        self.began: float = time.monotonic()
        self.started_after: float = 0.0
        """Seconds from the start of the process until it watched all its queues."""
        whole = {"url": url, "queues": queues, "out": str(self._out), **job}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.many_queues", json.dumps(whole)],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.environ.get("DULY_BENCH_SRC", "")},
        )

    def cpu(self) -> float:
        """Seconds of processor time that all threads of the process have used."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def stop(self) -> Latencies:
        """Stop it, and read what it saw."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        found: Latencies = {}
        for queue, latency in json.loads(self._out.read_text()):
            found.setdefault(queue, []).append(latency * 1000)
        return found

    def close(self) -> None:
        """Leave nothing behind."""
        self._process.kill()
        self._process.wait()
        self._directory.cleanup()


@contextmanager
def working(url: str, queues: int, *, processes: int = 1, **job: Any) -> Iterator[list[WorkerProcess]]:
    """Run workers, and wait until all of them are idle."""
    with duly.Duly(url) as app:
        known = len(app.workers())
    workers = [WorkerProcess(url, queues, **job) for _ in range(processes)]
    try:
        with duly.Duly(url) as app:
            _wait_for_workers(app, known + processes)
        watched_at = _wait_until_all_is_watched(url)
        for worker in workers:
            worker.started_after = watched_at - worker.began
        yield workers
    finally:
        for worker in workers:
            worker.close()


def _wait_for_workers(app: duly.Duly, count: int) -> None:
    """Wait until the given number of workers has registered."""
    deadline = time.monotonic() + _START_TIMEOUT
    while len(app.workers()) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count} workers did not start")
        time.sleep(0.05)


def _wait_until_all_is_watched(url: str) -> float:
    """Wait until no blocking call has been added for a while, and return when the last one was.

    A worker begins them after its first claims. Their number is not the same in all versions of Duly.
    """
    client: Any
    with redis.Redis.from_url(url, protocol=2) as client:
        blocked, changed_at = 0, time.monotonic()
        deadline = changed_at + _START_TIMEOUT
        while not blocked or time.monotonic() < changed_at + _QUIET:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the workers do not come to rest: {blocked} calls block")
            time.sleep(0.05)
            now_blocked = int(client.info("clients")["blocked_clients"])
            if now_blocked > blocked:
                blocked, changed_at = now_blocked, time.monotonic()
    return changed_at


def fill(url: str, slots: int) -> None:
    """Keep handlers of the one worker that serves `hold` busy, and wait until they are."""
    with duly.Duly(url) as app:
        app.queue(_HOLD).send_many([{}] * slots)
        while app.queue(_HOLD).stats().leased < slots:
            time.sleep(0.02)
    time.sleep(0.5)


def send(url: str, queues: Sequence[int], rate: float, seconds: float, also: tuple[int, float] | None = None) -> float:
    """Send to queues by chance at a rate, and to one more at another, from this process.

    Return by how many milliseconds 1 % of the sends were late: on a busy machine this adds to the latencies.
    """
    late = asyncio.run(_send(url, queues, rate, seconds, also))
    time.sleep(6.0)  # longer than a wake-up that was lost is made up for
    return percentile(late, 0.99) * 1000


async def _send(
    url: str, queues: Sequence[int], rate: float, seconds: float, also: tuple[int, float] | None
) -> list[float]:
    late: list[float] = []
    async with duly.AsyncDuly(url) as app, asyncio.TaskGroup() as sends:

        async def keep_sending(numbers: Sequence[int], rate: float) -> None:
            begin = time.monotonic()
            for count in range(int(rate * seconds)):
                await asyncio.sleep(max(begin + count / rate - time.monotonic(), 0))
                late.append(time.monotonic() - begin - count / rate)
                queue = app.queue(name_of(random.choice(numbers)))
                sends.create_task(queue.send({"sent": time.time()}))

        sends.create_task(keep_sending(queues, rate))
        if also is not None:
            sends.create_task(keep_sending([also[0]], also[1]))
    return late


def name_of(number: int) -> str:
    """Name a queue, so that names do not sort as numbers do."""
    return f"queue-{number}"


def main(job: dict[str, Any]) -> None:
    """Be a worker."""
    app = duly.Duly(job["url"])
    hits: list[tuple[int, float]] = []
    for number in range(job["queues"]):
        _define(app, number, hits)
    if job.get("holds"):

        @app.queue(_HOLD).handler
        async def hold(_body: dict[str, float]) -> None:
            await asyncio.sleep(3600)

    @app.on_stop
    def write_down() -> None:
        Path(job["out"]).write_text(json.dumps(hits))

    app.run(concurrency=job.get("concurrency"), grace=0.5)


def _define(app: duly.Duly, number: int, hits: list[tuple[int, float]]) -> None:
    @app.queue(name_of(number)).handler
    async def handle(body: dict[str, float]) -> None:
        hits.append((number, time.time() - body["sent"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
