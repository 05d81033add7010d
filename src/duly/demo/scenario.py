"""The story: processes send and receive, one is killed while it holds messages, and at the end all is counted.

Whatever happens, also an interrupt, no process and no file of it stays behind.
"""

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duly
from duly.demo.history import Held, History, read
from duly.demo.ledger import Accounts, disagreements, draw_up
from duly.demo.plan import ORDERS, QUEUES, REMINDERS, Plan
from duly.demo.process import Part, Role
from duly.demo.table import Look, View
from duly.embedded import control
from duly.errors import UsageError

SHORTEST: Final = 2.0
_CONSUMERS: Final = {ORDERS: 3, REMINDERS: 2}
_VICTIM: Final = f"{ORDERS}-2"
_PATIENCE: Final = 20.0
"""Seconds beyond the plan after which the run has failed."""


@dataclass(frozen=True)
class Outcome:
    """What the demonstration showed."""

    accounts: tuple[Accounts, ...]
    victim: str
    held: int
    """Messages that the killed consumer had in its hands."""
    seconds: float
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not self.problems


@contextlib.contextmanager
def server_for(url: str | None, directory: Path | None) -> Iterator[str]:
    """Give the URL to use: the one named, or an embedded server in a directory that is gone afterwards."""
    if url is not None and directory is not None:
        raise UsageError("--url and --dir exclude each other: give one")
    if url is not None:
        if url.startswith("memory:"):
            raise UsageError("the demonstration runs in several processes, and memory:// is inside of one")
        yield url
    elif directory is not None:
        yield f"embedded://{directory.absolute()}"
    else:
        home = Path(tempfile.mkdtemp(prefix="duly-demo-"))
        try:
            yield f"embedded://{home}"
        finally:
            with contextlib.suppress(duly.DulyError):  # it stops by itself, too; here we wait until it has
                control.stop(home)
            shutil.rmtree(home, ignore_errors=True)


def tell(url: str, seconds: float, view: View, histories: Path | None = None) -> Outcome:
    """Run the whole story and draw up the accounts."""
    if not SHORTEST <= seconds <= 60:
        raise UsageError(f"--seconds must be from {SHORTEST:g} to 60, not {seconds:g}")
    with contextlib.ExitStack() as stack:
        if histories is None:
            kept = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duly-demo-")))
        else:
            kept = _fresh(histories)
        plan = Plan(url=url, namespace=f"duly-demo-{secrets.token_hex(4)}", histories=str(kept), seconds=seconds)
        story = _Story(plan, stack.enter_context(plan.open_app()), stack.enter_context(view))
        stack.callback(story.clean_up)
        return story.run()


def _fresh(histories: Path) -> Path:
    """Make the directory, unless it is there. Histories of another run in it would be counted as of this one."""
    try:
        histories.mkdir(parents=True, exist_ok=True)
        has_some = any(histories.glob("*.jsonl"))
    except OSError as error:
        raise UsageError(f"--histories: {str(histories)!r} cannot be used: {error.strerror}") from None
    if has_some:
        raise UsageError(f"--histories: {str(histories)!r} has those of another run: name a new directory")
    return histories


class _Story:
    def __init__(self, plan: Plan, app: duly.Duly, view: View) -> None:
        self._plan = plan
        self._view = view
        self._queues = {name: plan.open_queue(app, name) for name in QUEUES}
        self._parts: list[Part] = []
        self._news: list[str] = []
        self._problems: list[str] = []
        self._held: list[duly.PendingMessage] = []
        self._began: float | None = None

    @property
    def _elapsed(self) -> float:
        """Seconds since the first message: how long the processes take to start says nothing."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def run(self) -> Outcome:
        """Play the three acts: all at work, one killed, all finished."""
        for queue, count in _CONSUMERS.items():
            for number in range(count):
                self._start("consumer", f"{queue}-{number + 1}")
        for number in range(self._plan.producers):
            self._start("producer", f"producer-{number + 1}")
        self._wait_for_the_first_message()
        self._play()
        self._dismiss_all()
        return self._count()

    def clean_up(self) -> None:
        """Leave no process and no queue behind."""
        for part in self._parts:
            part.kill()
        for queue in self._queues.values():
            queue.delete()

    def _start(self, role: Role, name: str) -> None:
        self._parts.append(Part(role, name, self._plan))

    def _wait_for_the_first_message(self) -> None:
        give_up_at = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up_at and not self._show()[ORDERS].sent:
            time.sleep(0.05)
        self._began = time.monotonic()

    def _play(self) -> None:
        while self._elapsed < self._plan.seconds + _PATIENCE:
            stats = self._show()
            is_sending = any(part.role == "producer" and part.is_running for part in self._parts)
            if not is_sending and not any(each.live for each in stats.values()):
                return
            if not self._held and self._elapsed >= self._plan.kill_at:
                self._lie_in_wait()
            time.sleep(0.05)
        self._problems.append(f"messages were left after {self._elapsed:.0f} s")

    def _lie_in_wait(self) -> None:
        """Watch the victim for a moment, and strike when it holds messages."""
        victim = next(part for part in self._parts if part.name == _VICTIM)
        give_up_at = time.monotonic() + 0.5
        while not self._held and time.monotonic() < give_up_at:
            if self._leases_of(victim):
                self._try_to_kill(victim)
            time.sleep(0.01)

    def _try_to_kill(self, victim: Part) -> None:
        """Kill the victim if it still holds messages, and put another in its place.

        Frozen, it can neither take nor finish anything; what it had asked of the server is done in a moment.
        So the leases that the server lists after the kill are those that died with it.
        """
        victim.freeze()
        time.sleep(0.05)
        if not self._leases_of(victim):
            victim.thaw()
            return
        victim.kill()
        self._held = self._leases_of(victim)
        victim.fate = f"killed with -9, held {len(self._held)}"
        history = History(self._plan.history_of("story"))
        history.write(Held(process=_VICTIM, queue=ORDERS, id=each.id, fence=each.fence) for each in self._held)
        history.close()
        replacement = f"{ORDERS}-{_CONSUMERS[ORDERS] + 1}"
        self._start("consumer", replacement)
        self._news.append(f"{_VICTIM} (pid {victim.pid}) was killed with -9 while it held {len(self._held)} messages")
        self._news.append(
            f"{replacement} takes its place; the messages come back after {self._plan.lease:g} s, their lease"
        )

    def _leases_of(self, part: Part) -> list[duly.PendingMessage]:
        pending = self._queues[ORDERS].pending(limit=10_000)
        return [each for each in pending.messages if each.consumer.split(":")[-2] == str(part.pid)]

    def _show(self) -> dict[str, duly.Stats]:
        stats = {name: queue.stats() for name, queue in self._queues.items()}
        for part in self._parts:
            part.tally.update()
        self._view.show(Look(self._elapsed, stats, self._parts, self._news))
        return stats

    def _dismiss_all(self) -> None:
        for part in self._parts:
            part.dismiss()
        self._problems += [problem for part in self._parts if (problem := part.problem())]
        self._show()

    def _count(self) -> Outcome:
        seconds = self._elapsed
        events = read(sorted(Path(self._plan.histories).glob("*.jsonl")))
        accounts = tuple(draw_up(name, events, self._plan.lease) for name in QUEUES)
        if not self._held:
            self._problems.append(f"{_VICTIM} was never caught with a message, so the kill proves nothing")
        for each in accounts:
            self._problems += each.problems()
            self._problems += disagreements(each, self._queues[each.queue].audit())
        return Outcome(accounts, _VICTIM, len(self._held), seconds, tuple(self._problems))
