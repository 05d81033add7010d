"""Workers of other frameworks, as processes, whose tasks note in Redis what they do."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import redis

from tests.servers import dying_with_parent
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]


class Run(NamedTuple):
    """A note of a task."""

    what: str
    name: str
    at: float
    pid: int


class Program:
    """A module with tasks on one server, and the workers that a test starts."""

    def __init__(
        self, name: str, source: Path, command: Sequence[str], url: str, namespace: str, directory: Path
    ) -> None:
        self.environment = {"PROGRAM_RECORD": url, "PROGRAM_NAMESPACE": namespace}
        self.namespace = namespace
        self._command = command
        self._directory = directory
        self._workers: list[Worker] = []
        self._record = redis.Redis.from_url(url, decode_responses=True)
        self.module = _loaded(name, source, self.environment)

    def worker(self) -> "Worker":
        """Start a worker. It runs all tasks that are in the queues."""
        worker = Worker(self._command, self.environment, self._directory / f"worker-{len(self._workers)}.log")
        self._workers.append(worker)
        return worker

    def runs(self, what: str | None = None, name: str | None = None) -> list[Run]:
        """Return what the tasks have noted so far."""
        lines: Any = self._record.lrange(f"{self.namespace}:runs", 0, -1)
        found = [Run(words[0], words[1], float(words[2]), int(words[3])) for words in map(str.split, lines)]
        return [run for run in found if what in (None, run.what) and name in (None, run.name)]

    def wait_for(self, what: str, *names: str) -> None:
        """Wait until each of these tasks has noted something."""
        wait_until(
            lambda: set(names) <= {run.name for run in self.runs(what)},
            f"{what} of {names}",
            lambda: [self.runs(), [worker.log for worker in self._workers]],
        )

    def close(self) -> None:
        """Kill the workers that still run."""
        for worker in self._workers:
            worker.kill()
        self._record.close()


class Worker:
    """A worker with its processes."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                dying_with_parent([sys.executable, *command]),
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> int:
        """Stop warmly: running tasks finish."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Kill all processes of the worker."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


def _loaded(name: str, source: Path, environment: Mapping[str, str]) -> Any:
    """Import a program with these variables. Its tasks have the names that the workers know."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        spec = importlib.util.spec_from_file_location(name, source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # taskiq writes into it
        spec.loader.exec_module(module)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return module
