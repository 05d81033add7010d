"""Ctrl-C and SIGTERM at each call to the server, while its request or reply is in transit.

The promise: nothing stays leased that was not printed, nothing is acked that was not, and stored messages are reported.
"""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

import duly
from tests.cli.shell import DEADLINE, Shell
from tests.conftest import StartedServer
from tests.fault.proxy import SCRIPT_COMMANDS, Command, Delay, Fault, Policy, Proxy, Stage

NEVER = 100
HELD = 0.3
"""Seconds that a request or reply is delayed while the signal arrives."""


class StopAt(Policy):
    """Signals a process when its k-th script or reply is in transit, or when it begins to wait."""

    def __init__(self, k: int, stage: Stage, how: signal.Signals) -> None:
        super().__init__(only=SCRIPT_COMMANDS | {"BLPOP"})
        self.pid: Future[int] = Future()
        self.k = k
        self.stage = stage
        self.how = how

    def choose(self, command: Command) -> Delay | None:
        if self.fired:
            return None
        if command.name == "BLPOP":
            return Delay(HELD)
        return Delay(HELD, self.stage) if self.seen == self.k else None

    def react(self, fault: Fault) -> None:
        os.kill(self.pid.result(DEADLINE), self.how)

    @property
    def was_last(self) -> bool:
        """Whether the command made fewer than k calls."""
        return not self.faults or self.faults[0].command.name == "BLPOP"


@dataclass(frozen=True)
class Stopped:
    """A command that was stopped at its k-th call, or ended before it."""

    k: int
    stage: Stage
    was_stopped: bool
    status: int
    out: str
    err: str


@dataclass
class Sweep:
    """Runs a command repeatedly and stops it at its first call, its second call, and so on, until it ends before."""

    shell: Shell
    port: int
    how: signal.Signals = signal.SIGINT

    def run(self, *words: str, stdin: str = "") -> Iterator[Stopped]:
        for stage in (Stage.BEFORE, Stage.EXECUTED):
            for k in range(1, NEVER):
                policy = StopAt(k, stage, self.how)
                status, out, err = self.run_once(policy, *words, stdin=stdin)
                assert "Traceback" not in err
                yield Stopped(k, stage, bool(policy.fired), status, out, err)
                if policy.was_last:
                    break
            assert k > 1, "it made no calls"

    def run_once(self, policy: StopAt, *words: str, stdin: str = "") -> tuple[int, str, str]:
        with Proxy(self.port, policy) as proxy:
            command = self.shell.start_bare(*words, "--namespace", self.shell.namespace, DULY_URL=proxy.url)
            with command as process:
                policy.pid.set_result(process.pid)
                out, err = process.communicate(stdin.encode(), timeout=DEADLINE)
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
def sweep(shell: Shell, server: StartedServer) -> Sweep:
    return Sweep(shell, server("valkey").port)


def ids_in(out: str, options: tuple[str, ...]) -> list[str]:
    if "--json" in options:
        return [each["id"] for each in json.loads(out)["messages"]] if out else []
    return [line.split()[0] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("source", "options", "how", "ends"),
    [
        ("q", ("--wait", "10m"), signal.SIGINT, {130}),
        ("events/archive", ("--json", "--limit", "2"), signal.SIGTERM, {143}),
        ("q", ("--follow", "--limit", "40"), signal.SIGTERM, {143, 0}),  # 143: it had not begun
        ("q", ("--limit", "2"), signal.SIGHUP, {-signal.SIGHUP}),
    ],
    ids=["queue", "group", "follow", "terminal closed"],
)
def test_received_messages_are_printed_and_acked_or_released(
    sweep: Sweep, app: duly.Duly, source: str, options: tuple[str, ...], how: signal.Signals, ends: set[int]
) -> None:
    group = app.topic("events").group("archive")
    group.create()
    inbox: Any = app.queue("q") if source == "q" else group
    for number in range(60):
        app.queue("q").send(number)
        app.topic("events").publish(number)
    sweep.how, acked = how, 0

    for ran in sweep.run("receive", source, *options):
        acked += len(ids_in(ran.out, options))

        stats = inbox.stats()
        assert (stats.leased, stats.acked, stats.crashed) == (0, acked, 0), ran
        assert ran.status in (ends if ran.was_stopped else {0}), ran
    assert acked > 0


def test_a_wait_ends_at_once(sweep: Sweep, app: duly.Duly) -> None:
    app.queue("q").pause()  # creates the queue

    status, out, _ = sweep.run_once(StopAt(NEVER, Stage.BEFORE, signal.SIGINT), "receive", "q", "--wait", "10m")

    assert (status, out) == (130, "")


def test_a_sent_message_is_always_printed(sweep: Sweep, app: duly.Duly) -> None:
    queue = app.queue("q")
    told: list[str] = []

    for ran in sweep.run("send", "q", "x"):
        told += ran.out.split()

        assert {each.id for each in queue.list("ready")} == set(told), ran
        assert ran.status == (130 if ran.was_stopped else 0), ran
    assert told


def test_a_published_entry_is_always_printed(sweep: Sweep, app: duly.Duly) -> None:
    topic = app.topic("events")
    topic.publish("to begin with")
    sweep.how = signal.SIGTERM
    told = [each.id for each in topic.read()]

    for ran in sweep.run("topic", "publish", "events", "x"):
        told += ran.out.split()

        assert [each.id for each in topic.read()] == told, ran
        assert ran.status == (143 if ran.was_stopped else 0), ran
    assert len(told) > 1


def test_a_stored_schedule_is_always_printed(sweep: Sweep, app: duly.Duly) -> None:
    app.queue("q").send("to begin with")
    was_stored = False

    for ran in sweep.run("schedule", "add", "daily", "q", "x", "--every", "1d"):
        was_stored = app.unschedule("daily")

        assert ran.out.startswith("daily sends to q; next 20") == was_stored, ran
        assert ran.status == (130 if ran.was_stopped else 0), ran
    assert was_stored


@pytest.mark.parametrize(
    ("how", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, -signal.SIGHUP)],
    ids=["SIGTERM", "terminal closed"],
)
def test_lines_that_are_sent_are_counted(sweep: Sweep, app: duly.Duly, how: signal.Signals, status: int) -> None:
    queue = app.queue("q")
    queue.send("to begin with")
    sweep.how = how
    before = 1

    for ran in sweep.run("send", "q", "--lines", stdin="1\n\n2\n3\n"):
        sent, before = queue.stats().sent - before, queue.stats().sent
        if not ran.was_stopped:
            assert (sent, ran.status, ran.out) == (3, 0, "3 sent to q\n")
        elif sent:
            note = "duly: 3 were sent to q before it was stopped: all up to line 4\n"
            assert (sent, ran.status, ran.err) == (3, status, note)
        else:
            assert (ran.status, ran.err) == (status, ""), ran
    assert before > 4
