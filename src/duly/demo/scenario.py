"""The scenario: processes send and receive, one is killed while it holds messages, and all messages are counted.

It leaves no process and no file behind, even after an interrupt.
"""

import contextlib
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duly
from duly.demo.history import Held, History, read
from duly.demo.ledger import Ledger, disagreements, make_ledger
from duly.demo.plan import ORDERS, QUEUES, REMINDERS, Plan
from duly.demo.process import DemoProcess, Role
from duly.demo.table import Snapshot, View
from duly.embedded import control
from duly.errors import UsageError

SHORTEST: Final = 2.0
_CONSUMERS: Final = {ORDERS: 3, REMINDERS: 2}
_PATIENCE: Final = 20.0
"""Seconds beyond the plan after which the run fails."""


@dataclass(frozen=True)
class Outcome:
    """The result of the demo."""

    ledgers: tuple[Ledger, ...]
    victim: str
    held: int
    """Messages that the killed consumer held."""
    seconds: float
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every guarantee was kept."""
        return not self.problems


@contextlib.contextmanager
def server_for(url: str | None, directory: Path | None) -> Iterator[str]:
    """Yield the URL to use: the given one, or that of an embedded server in a temporary directory."""
    if url is not None and directory is not None:
        raise UsageError("--url and --dir exclude each other: give one")
    if url is not None:
        if url.startswith("memory:"):
            raise UsageError("the demo runs several processes, and memory:// works within one process only")
        yield url
    elif directory is not None:
        yield f"embedded://{directory.absolute()}"
    else:
        home = Path(tempfile.mkdtemp(prefix="duly-demo-"))
        try:
            yield f"embedded://{home}"
        finally:
            with contextlib.suppress(duly.DulyError):  # it stops without users as well; this waits for it
                control.stop(home)
            shutil.rmtree(home, ignore_errors=True)


def run_demo(url: str, seconds: float, view: View, histories: Path | None = None) -> Outcome:
    """Run the scenario and check the ledgers."""
    if not SHORTEST <= seconds <= 60:
        raise UsageError(f"--seconds must be from {SHORTEST:g} to 60, not {seconds:g}")
    with contextlib.ExitStack() as stack:
        if histories is None:
            kept = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-demo-")))
        else:
            kept = _new_directory(histories)
        plan = Plan(url=url, namespace=f"duly-demo-{secrets.token_hex(4)}", histories=str(kept), seconds=seconds)
        scenario = _Scenario(plan, stack.enter_context(plan.open_app()), stack.enter_context(view))
        stack.callback(scenario.clean_up)
        return scenario.run()


def _new_directory(histories: Path) -> Path:
    """Create the directory. It may exist, but without histories of another run, which would be counted as well."""
    try:
        histories.mkdir(parents=True, exist_ok=True)
        has_some = any(histories.glob("*.jsonl"))
    except OSError as error:
        raise UsageError(f"--histories: {str(histories)!r} cannot be used: {error.strerror}") from None
    if has_some:
        raise UsageError(f"--histories: {str(histories)!r} has histories of another run: name a new directory")
    return histories


class _Scenario:
    def __init__(self, plan: Plan, app: duly.Duly, view: View) -> None:
        self._plan = plan
        self._view = view
        self._queues = {name: plan.open_queue(app, name) for name in QUEUES}
        self._processes: list[DemoProcess] = []
        self._news: list[str] = []
        self._problems: list[str] = []
        self._victim = ""
        self._held: list[duly.PendingMessage] = []
        self._began: float | None = None

    @property
    def _elapsed(self) -> float:
        """Seconds since the first message. The start of the processes does not count."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def run(self) -> Outcome:
        """Run the scenario: start all processes, kill one, and wait until all messages are acked."""
        for queue, count in _CONSUMERS.items():
            for number in range(count):
                self._start("consumer", f"{queue}-{number + 1}")
        for number in range(self._plan.producers):
            self._start("producer", f"producer-{number + 1}")
        self._wait_for_the_first_message()
        self._supervise()
        self._stop_all()
        return self._count()

    def clean_up(self) -> None:
        """Leave no process and no queue behind."""
        for process in self._processes:
            process.kill()
        for queue in self._queues.values():
            queue.delete()

    def _start(self, role: Role, name: str) -> None:
        self._processes.append(DemoProcess(role, name, self._plan))

    def _wait_for_the_first_message(self) -> None:
        give_up_at = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up_at and not self._show()[ORDERS].sent:
            time.sleep(0.05)
        self._began = time.monotonic()

    def _supervise(self) -> None:
        while self._elapsed < self._plan.seconds + _PATIENCE:
            stats = self._show()
            is_sending = any(process.role == "producer" and process.is_running for process in self._processes)
            if not is_sending and not any(each.live for each in stats.values()):
                return
            if not self._held and self._elapsed >= self._plan.kill_at:
                self._look_for_victim()
            time.sleep(0.05)
        self._problems.append(f"messages were left after {self._elapsed:.0f} s")

    def _look_for_victim(self) -> None:
        """Watch the consumers of orders briefly, and kill the one that holds the most messages."""
        consumers = [each for each in self._processes if each.role == "consumer" and each.name.startswith(ORDERS)]
        give_up_at = time.monotonic() + 0.5
        while not self._held and time.monotonic() < give_up_at:
            held = Counter(_pid_of(each) for each in self._leases())
            victim = max(consumers, key=lambda consumer: held[consumer.pid])
            if held[victim.pid]:
                self._try_to_kill(victim)
            time.sleep(0.01)

    def _try_to_kill(self, victim: DemoProcess) -> None:
        """Kill a consumer if it still holds messages, and start a replacement.

        A suspended process neither receives nor acks, and commands that it has sent are complete after a moment. So the
        leases that the server lists after the kill are those of the killed process.
        """
        victim.freeze()
        time.sleep(0.05)
        if not self._leases_of(victim):
            victim.resume()
            return
        victim.kill()
        self._victim, self._held = victim.name, self._leases_of(victim)
        victim.ending = f"killed with -9, held {len(self._held)}"
        history = History(self._plan.history_of("story"))
        history.write(Held(process=victim.name, queue=ORDERS, id=each.id, fence=each.fence) for each in self._held)
        history.close()
        replacement = f"{ORDERS}-{_CONSUMERS[ORDERS] + 1}"
        self._start("consumer", replacement)
        killed = f"{victim.name} (pid {victim.pid}) was killed with -9"
        self._news.append(f"{killed} while it held {len(self._held)} messages")
        self._news.append(
            f"{replacement} replaces it; the messages are redelivered after their lease of {self._plan.lease:g} s"
        )

    def _leases_of(self, process: DemoProcess) -> list[duly.PendingMessage]:
        return [each for each in self._leases() if _pid_of(each) == process.pid]

    def _leases(self) -> tuple[duly.PendingMessage, ...]:
        return self._queues[ORDERS].pending(limit=10_000).messages

    def _show(self) -> dict[str, duly.Stats]:
        stats = {name: queue.stats() for name, queue in self._queues.items()}
        for process in self._processes:
            process.tally.update()
        self._view.show(Snapshot(self._elapsed, stats, self._processes, self._news))
        return stats

    def _stop_all(self) -> None:
        for process in self._processes:
            process.request_stop()
        self._problems += [problem for process in self._processes if (problem := process.problem())]
        self._show()

    def _count(self) -> Outcome:
        seconds = self._elapsed
        events = read(sorted(Path(self._plan.histories).glob("*.jsonl")))
        ledgers = tuple(make_ledger(name, events, self._plan.lease) for name in QUEUES)
        if not self._held:
            self._problems.append("no consumer of orders held a message when it was suspended, so none was killed")
        for each in ledgers:
            self._problems += each.problems()
            self._problems += disagreements(each, self._queues[each.queue].audit())
        return Outcome(ledgers, self._victim, len(self._held), seconds, tuple(self._problems))


def _pid_of(message: duly.PendingMessage) -> int:
    """Return the process that holds a message. The name of a consumer contains its number."""
    return int(message.consumer.split(":")[-2])
