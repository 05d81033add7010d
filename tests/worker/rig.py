"""Worker processes for tests: a module of the test's own, run by `duly worker`, that writes down what it does.

The module's source finds `app`, `note` and the imports below ready made:

    with WorkerProcess(server.url, tmp_path, '''
        orders = app.queue("orders", lease=1)

        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
    ''') as worker: ...

`note` appends a line to a file in one write, so that it survives kill -9; `worker.notes()` reads them.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

PATIENCE = 60.0
"""Seconds that anything may take on a busy machine before a test gives up."""

_PRELUDE = '''
import asyncio, json, os, signal, sys, threading, time
import duly

app = duly.Duly(os.environ["DULY_URL"])
_notes = os.open(os.environ["DULY_TEST_NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def note(what, **fields):
    line = {"what": what, "pid": os.getpid(), "at": time.monotonic(), **fields}
    os.write(_notes, json.dumps(line).encode() + b"\\n")

'''


class WorkerProcess:
    """One `duly worker`, ended with the test whatever happens."""

    def __init__(self, url: str, directory: Path, source: str, *arguments: str, name: str = "jobs") -> None:
        self._directory = directory
        (directory / f"{name}.py").write_text(_PRELUDE + textwrap.dedent(source))
        self._notes = directory / "notes.jsonl"
        self.log_path = directory / f"{name}-{time.monotonic_ns()}.log"
        environment = {**os.environ, "DULY_URL": url, "DULY_TEST_NOTES": str(self._notes), "PYTHONUNBUFFERED": "1"}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "duly", "worker", f"{name}:app", "--log-level", "debug", *arguments],
                cwd=directory,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        """Ask it to stop in order, and give its exit status."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout: float = PATIENCE) -> int:
        return self.process.wait(timeout)

    def notes(self, what: str | None = None) -> list[dict[str, Any]]:
        """Read what all workers of this directory wrote down; a last line that is cut is left out."""
        return read_notes(self._notes, what)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for_start(self) -> Self:
        wait_until(lambda: "worker.started" in self.log() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(PATIENCE)


def read_notes(path: Path, what: str | None = None) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    notes = [json.loads(line) for line in lines]
    return [note for note in notes if what is None or note["what"] == what]


def wait_until(is_so: Callable[[], bool], timeout: float = PATIENCE, every: float = 0.02) -> None:
    """Wait for something to become true; fail when it does not."""
    deadline = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(every)


def ids_of(notes: Sequence[dict[str, Any]]) -> list[str]:
    return [note["id"] for note in notes]
