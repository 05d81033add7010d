"""Real Celery workers, as processes."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duly
from tests.servers import dying_with_parent
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
READY = "ready."


class Run(NamedTuple):
    """A note of a task."""

    what: str
    name: str
    at: float
    pid: int
    worker: int
    """The pid of the parent of the process, which is the worker if it has a pool."""
    due: float


def _run_of(line: str) -> Run:
    what, name, at, pid, worker, due = line.split()
    return Run(what, name, float(at), int(pid), int(worker), float(due))


class Program:
    """The tasks of `program.py` on one server, and the workers that a test starts."""

    def __init__(
        self, url: str, namespace: str, directory: Path, load: Callable[[Mapping[str, str]], Any], **settings: str
    ) -> None:
        """Take variables of the program as settings."""
        self.environment = {
            "PROGRAM_BROKER": f"duly+{url}",
            "PROGRAM_RECORD": url,
            "PROGRAM_NAMESPACE": namespace,
            "C_FORCE_ROOT": "1",
            **settings,
        }
        self.namespace = namespace
        self._directory = directory
        self._workers: list[Worker] = []
        self._duly = duly.Duly(url, namespace=namespace)
        self._queue = self._duly.queue("celery")
        self.module = load(self.environment)

    def worker(self, *arguments: str, ready: bool = True, **environment: str) -> "Worker":
        """Start a worker, and wait until it consumes."""
        number = len(self._workers)
        worker = Worker(
            ["-n", f"w{number}@test", *arguments],
            {**self.environment, **environment},
            self._directory / f"worker-{number}.log",
        )
        self._workers.append(worker)
        if ready:
            worker.wait_until_ready()
        return worker

    def cut_off(self) -> None:
        """Begin a task, end its worker by a cold shutdown, and start another worker."""
        worker = self.worker("-c", "1")
        self.module.work.delay("cut", 600)
        self.wait_for("start", "cut")
        os.kill(worker.process.pid, signal.SIGQUIT)
        worker.process.wait(60)
        self.worker("-P", "solo")

    def runs(self, what: str | None = None, name: str | None = None) -> list[Run]:
        """Return what the tasks have noted so far."""
        lines = self.module.record.lrange(f"{self.namespace}:runs", 0, -1)
        found = [_run_of(line) for line in lines]
        return [run for run in found if what in (None, run.what) and name in (None, run.name)]

    def wait_for(self, what: str, *names: str) -> None:
        """Wait until each of these tasks has noted something."""
        wait_until(
            lambda: set(names) <= {run.name for run in self.runs(what)},
            f"{what} of {names}",
            lambda: [self.runs(), self.logs],
        )

    @property
    def logs(self) -> list[str]:
        """The log of each worker so far."""
        return [worker.log for worker in self._workers]

    def leased(self) -> list[bytes | None]:
        """Return the messages that workers have."""
        return [message.raw for message in self._queue.list("leased")]

    def queues(self) -> list[str]:
        """Return the names of all queues on the server."""
        return self._duly.queues()

    def lasting_keys(self) -> set[str]:
        """Return the keys on the server that do not expire."""
        found = self.module.record.scan_iter(f"{self.namespace}:*", count=1000)
        return {key for key in found if self.module.record.ttl(key) == -1}

    def close(self) -> None:
        """Kill the workers that still run."""
        self._duly.close()
        for worker in self._workers:
            worker.kill()


class Worker:
    """A worker process with its pool."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "celery", "-A", "tests.celery.program", "worker", "-l", "INFO", *arguments]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                dying_with_parent(command),
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_until_ready(self) -> None:
        wait_until(
            lambda: READY in self.log or self.process.poll() is not None, "the worker is ready", lambda: self.log
        )
        assert self.process.poll() is None, self.log

    def stop(self) -> int:
        """Stop warmly: running tasks finish."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Kill the worker and its pool."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
