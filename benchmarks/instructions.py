"""Compares instruction counts with stored ones: of the hot scripts on the server, and of the worker's loop.

    python -m benchmarks.instructions             # fails if a count has risen
    python -m benchmarks.instructions --accept    # stores the counts of this version

Counts depend much less than times on the other load of the machine. But a long call also counts the server's timers,
so a busy machine adds up to a tenth to single calls.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis

import duly
from benchmarks.callgrind import Counted, NoCallgrind, counted
from benchmarks.peers.brokers import HOST, free_port, running
from benchmarks.rig import BODY
from duly._core import ops
from duly.embedded.binary import find_binary

STORED: Final = Path(__file__).with_name("instructions.json")
TOLERANCE: Final = 0.05
"""Two counts of the same code differ by up to 2 percent."""

ROUNDS: Final = 3
CALLS: Final = 30
BATCH: Final = 100
WORKER_MESSAGES: Final = 2_000
WORKER_ROUNDS: Final = 6
"""Timers that run at the same time add to a count, so only the smallest of several counts can be compared."""
PATIENCE: Final = 120.0


# --- The server -------------------------------------------------------------------------------------------------


def of_scripts() -> dict[str, int]:
    """Count a call of each hot script."""
    with _server() as (server, url), duly.Duly(url) as app:
        return _of_queue(server, app) | _of_topic(server, app)


@contextmanager
def _server() -> Iterator[tuple[Counted, str]]:
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        options = {"port": str(port), "bind": HOST, "save": "", "appendonly": "no", "hz": "1", "dir": directory}
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        with counted([str(find_binary()), *arguments]) as server:
            client = redis.Redis(HOST, port)
            _wait_until(lambda: _answers(client))
            client.close()
            yield server, f"redis://{HOST}:{port}/0"


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


class _Scripts:
    """Calls of a queue's scripts, many of each, from a state that is the same in every round."""

    def __init__(self, server: Counted, app: duly.Duly) -> None:
        self._server = server
        self._app = app
        self._queue = app.queue("instructions")
        self._held: list[list[duly.Delivery]] = []
        self.counts: dict[str, int] = {}

    def count(self, name: str, call: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> None:
        """Take the smallest count of some rounds."""
        counts = []
        for number in range(ROUNDS + 1):
            prepare()
            found = self._server.count(lambda: [call() for _ in range(CALLS)]) // CALLS
            if number:  # the first round loads the script
                counts.append(found)
            self._empty()
        self.counts[name] = min(counts)

    def count_all(self) -> None:
        """Count each script with one message and with many."""
        self.count("send 1", lambda: self._queue.send(BODY))
        self.count("send 1 with a key", lambda: self._queue.send(BODY, key="account"))
        self.count("claim of nothing", lambda: self._queue.receive(1, wait=0))
        for size in (1, BATCH):
            self._count_life_of(size)

    def _count_life_of(self, size: int) -> None:
        def send() -> None:
            self._queue.send_many([BODY] * size)

        def claim() -> None:
            self._held.append(self._queue.receive(size, wait=0))

        def fill() -> None:
            for _ in range(CALLS):
                send()

        def fill_and_claim() -> None:
            fill()
            for _ in range(CALLS):
                claim()

        self.count(f"send_many {size}", send)
        self.count(f"claim {size}", claim, fill)
        self.count(f"ack {size}", lambda: self._queue.ack_many(self._held.pop()), fill_and_claim)

    def _empty(self) -> None:
        """Release leased messages, and remove all messages."""
        for deliveries in self._held:
            self._app._link.run(ops.release(self._queue._keys, deliveries))
        self._held.clear()
        self._queue.purge()


def _of_queue(server: Counted, app: duly.Duly) -> dict[str, int]:
    scripts = _Scripts(server, app)
    scripts.count_all()
    return scripts.counts


def _of_topic(server: Counted, app: duly.Duly) -> dict[str, int]:
    topic = app.topic("instructions")
    topic.publish(BODY)
    counts = [server.count(lambda: [topic.publish(BODY) for _ in range(CALLS)]) // CALLS for _ in range(ROUNDS)]
    return {"publish 1": min(counts)}


# --- The worker -------------------------------------------------------------------------------------------------


def of_worker() -> dict[str, int]:
    """Count what a worker executes for a message in batches, the engine in memory included, with an empty handler."""
    command = [sys.executable, "-m", "benchmarks.worker_loop", str(WORKER_MESSAGES)]
    settings = {
        "cwd": Path(__file__).parents[1], "env": {**os.environ, "PYTHONHASHSEED": "0"},
        "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True,
    }  # fmt: skip
    counts = []
    with counted(command, **settings) as worker:

        def go_on() -> None:
            worker.process.stdin.write("\n")
            worker.process.stdin.flush()
            if not worker.process.stdout.readline():
                raise NoCallgrind("the worker has ended")

        for number in range(WORKER_ROUNDS + 1):
            go_on()  # it fills the queue
            found = worker.count(go_on) // WORKER_MESSAGES
            if number:  # the first round imports
                counts.append(found)
    return {"worker, a message": min(counts)}


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise NoCallgrind(f"nothing happened in {PATIENCE:g} s")
        time.sleep(0.2)


# --- The comparison ---------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """Name the versions that the counts depend on."""
    with running("valkey") as broker, redis.Redis(HOST, broker.port) as client:
        server = client.info("server")["valkey_version"]
    return {"server": f"Valkey {server}", "python": platform.python_version(), "machine": platform.machine()}


def compare(stored: dict[str, int], found: dict[str, int]) -> list[str]:
    """Print all counts, and return the names of those that have risen, or that are not stored."""
    risen = []
    for name, count in found.items():
        before = stored.get(name)
        change = "" if before is None else f"{count / before - 1:+.1%}"
        is_worse = before is None or count > before * (1 + TOLERANCE)
        verdict = "NEW " if before is None else "ROSE" if is_worse else "ok  "
        print(f"{verdict} {name:24} {count:>12,} instructions {change}", flush=True)
        if is_worse:
            risen.append(name)
    return risen


def main(args: Sequence[str]) -> int:
    """Count, and compare or store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--accept", action="store_true", help="store the counts of this version")
    wanted = parser.parse_args(args)
    here = versions()
    kept: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {"counts": {}, **here}
    found = of_scripts() | of_worker()
    risen = compare(kept["counts"], found)
    if wanted.accept:
        STORED.write_text(json.dumps({**here, "counts": found}, indent=1) + "\n")
        print(f"stored in {STORED.name}")
        return 0
    if differences := [f"{name} {kept[name]}, now {here[name]}" for name in here if kept[name] != here[name]]:
        print(f"The stored counts are of {'; '.join(differences)}. Run `make bench-accept` at a good commit.")
        return 1
    if risen:
        print("A rise that is worth its price is accepted with `make bench-accept`; its commit states the reason.")
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
