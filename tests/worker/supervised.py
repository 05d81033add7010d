"""A supervisor in its own process, with children that behave as a test requires. All processes end with the test."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.waiting import wait_until
from tests.warm import WarmPopen

DEADLINE = 30.0

PARENT = """
import sys
from pathlib import Path
from duly.worker import logs
from duly.worker.supervisor import Supervisor
from duly.worker.reloader import Reloader
logs.configure("json", "info")
kind, processes, grace, margin, *command = sys.argv[1:]
if kind == "reload":
    sys.exit(Reloader(command, int(processes), float(grace)).run())
sys.exit(Supervisor(command, int(processes), float(grace), float(margin)).run())
"""

CHILD = '''
"""The nth start behaves as the nth of the comma-separated manners. Further starts behave as the last one."""
import os, signal, subprocess, sys, time
from pathlib import Path

place, manners, grace = Path(sys.argv[1]), sys.argv[2].split(","), float(sys.argv[3])

def record(*words):
    with (place / "records").open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

def count_starts():
    for number in range(1000):
        try:
            os.close(os.open(place / f"start-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return number

def listen(*functions):
    """Call one function per signal, in this order."""
    left = list(functions)
    def hear(number, frame):
        record("heard", signal.Signals(number).name, os.getpid())
        left.pop(0)()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hear)

number = count_starts()
manner = manners[min(number, len(manners) - 1)]
status = 0
if manner in ("crash", "misuse"):
    os._exit({"crash": 1, "misuse": 2}[manner])
if manner == "slow":  # to start: it handles no signals until a signal is pending, or its parent has ended
    parent = os.getppid()
    record("starting", os.getpid())
    while not signal.sigpending() and os.getppid() == parent:
        time.sleep(0.01)
listen(lambda: os._exit(0))
if manner == "failing":
    listen(lambda: os._exit(1))
if manner == "busy":
    listen(lambda: None, lambda: os._exit(1))
if manner == "stubborn":
    listen(*[lambda: None] * 1000)
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(place)])
    record("grandchild", grandchild.pid)
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
from duly.worker import parent_pipe
parent_pipe.follow_parent(grace)
record("ready", os.getpid())
while True:
    time.sleep(600)
'''


class Supervised:
    """A running supervisor, with the output of it and its children so far."""

    def __init__(self, place: Path, command: list[str]) -> None:
        self._place = place
        with (place / "log").open("wb") as log:
            self.process = WarmPopen(command, cwd=place, stderr=log, stdin=subprocess.DEVNULL)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log events of the parent: their fields, with the name of the event."""
        lines = (self._place / "log").read_text().split("\n")[:-1]
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [{"event": each["event"], **each["fields"]} for each in found]

    def named(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]

    @property
    def records(self) -> list[str]:
        """The output of the children, one line each."""
        with suppress(FileNotFoundError):
            return (self._place / "records").read_text().split("\n")[:-1]
        return []

    def pids(self, word: str = "ready") -> list[int]:
        return [int(line.split()[-1]) for line in self.records if line.startswith(word)]

    def wait_ready(self, count: int) -> list[int]:
        """Wait until this number of children has been ready, and return their pids."""
        wait_until(lambda: len(self.pids()) >= count, f"{count} children are ready", self.describe)
        return self.pids()

    def wait_event(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        wait_until(lambda: len(self.named(name)) >= count, f"{count} events {name}", self.describe)
        return self.named(name)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_status(self) -> int:
        """Wait for the parent's end and return its exit status."""
        return self.process.wait(timeout=DEADLINE)

    def wait_gone(self, *pids: int) -> None:
        wait_until(lambda: not any(map(is_running, pids)), f"processes {pids} are gone", self.describe)

    def describe(self) -> str:
        return "\n".join([(self._place / "log").read_text(), *self.records])

    def started(self) -> list[int]:
        return [each["pid"] for each in self.named("process.started")]


def is_running(pid: int) -> bool:
    """Return whether a process is running. A process that has ended and is not collected yet is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@contextmanager
def supervised(
    place: Path, manners: str, processes: int = 1, *, kind: str = "plain", grace: float = 20.0, margin: float = 10.0
) -> Iterator[Supervised]:
    """Run a supervisor whose children behave in these ways, and end all remaining processes."""
    (place / "child-script").write_text(CHILD)
    child = [sys.executable, str(place / "child-script"), str(place), manners, str(grace)]
    parent = [sys.executable, "-c", PARENT, kind, str(processes), str(grace), str(margin), *child]
    running = Supervised(place, parent)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        for pid in {*running.started(), *running.pids(), *running.pids("grandchild")}:
            end_if_ours(pid, place)


def end_if_ours(pid: int, place: Path) -> None:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        if str(place) in command:
            os.kill(pid, signal.SIGKILL)
