"""The parties of a contest, and their processes. The questions about workers use them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.peers.catalog import PEERS, adapter_of
from benchmarks.peers.environments import python_of
from benchmarks.peers.recorder import SIZE, WARM_UP

_ROOT: Final = Path(__file__).parents[2]
WARM_UPS: Final = 20


class PartyFailed(Exception):
    """A process of a party ended too early, or did not end. The error has its last output."""


@dataclass(frozen=True)
class Hit:
    """A handler has started."""

    moment: float
    number: int
    stamp: float


@dataclass(frozen=True)
class Record:
    """The handler starts of a worker, and its CPU time."""

    hits: list[Hit]
    cpu_us: float | None
    """Processor time of the worker's process per message."""

    def rate(self) -> float:
        """Messages per second, from the start of the first handler to the start of the last."""
        moments = [hit.moment for hit in self.hits]
        return (len(moments) - 1) / (max(moments) - min(moments))


@dataclass(frozen=True)
class Party:
    """Duly or a peer, with its settings, against one server."""

    name: str
    url: str
    messages: int
    adapter: str = "duly"
    python: str = sys.executable
    has_delays: bool = True
    has_companion: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def given(self, **options: Any) -> Self:
        """Return the same party with more options."""
        return replace(self, options={**self.options, **options})

    def fill(self, messages: int, size: int = SIZE) -> float:
        """Send messages, many per call, and return how long it took."""
        with self._process(role="fill", messages=messages, size=size) as process:
            return float(process.result(120)["seconds"])

    def send(self, messages: int, size: int = SIZE) -> float:
        """Send messages one after another, and return how long it took."""
        with self._process(role="send", messages=messages, size=size) as process:
            return float(process.result(120)["seconds"])

    @contextmanager
    def working(self, **job: Any) -> Iterator["Process"]:
        """Run a worker."""
        with self._process(role="work", **job) as process:
            yield process

    def drain(self, messages: int) -> Record:
        """Let a worker handle the messages that were sent before."""
        with self.working(messages=messages) as worker:
            record = worker.record(120)
            time.sleep(0.3)  # for the last acks
        return record

    def trickle(self, messages: int, gap: float) -> Record:
        """Send one message after another to an idle worker."""
        return self._beside_worker("trickle", "monotonic", messages, 30 + messages * (gap + 0.1), gap=gap)

    def paced(self, messages: int, rate: float) -> Record:
        """Send messages at a rate, while a worker handles them."""
        return self._beside_worker("pace", "monotonic", messages, 60 + 2 * messages / rate, rate=rate)

    def delayed(self, messages: int, *, due_in: float, spread: float, is_mixed: bool = False) -> Record:
        """Send messages that fall due while a worker waits. Mixed: not in the order in which they fall due."""
        with ExitStack() as stack:
            if self.has_companion:
                stack.enter_context(self._process(role="companion"))
            times: dict[str, Any] = {"due_in": due_in, "spread": spread, "is_mixed": is_mixed}
            return self._beside_worker("delay", "wall", messages, 60 + due_in + spread, **times)

    def _beside_worker(self, role: str, clock: str, messages: int, timeout: float, **job: Any) -> Record:
        with self.working(messages=messages, warm_ups=WARM_UPS, clock=clock) as worker:
            common = {"messages": messages, "warm_ups": WARM_UPS, "clock": clock, "seen": f"{worker.out}.seen"}
            with self._process(role=role, **common, **job) as producer:
                producer.result(timeout, beside=worker)
                return worker.record(timeout)

    @contextmanager
    def _process(self, **job: Any) -> Iterator["Process"]:
        with tempfile.TemporaryDirectory() as directory:
            whole = {
                "adapter": self.adapter, "url": self.url, "options": dict(self.options), "out": f"{directory}/out",
                "clock": "monotonic", "messages": 0, "warm_ups": 0, "size": SIZE, **job,
            }  # fmt: skip
            process = Process(self, whole, Path(directory))
            try:
                yield process
            finally:
                process.kill()


class Process:
    """One process of a party, in a separate session."""

    def __init__(self, party: Party, job: dict[str, Any], directory: Path) -> None:
        self.out = Path(job["out"])
        self._name = f"{party.name}, {job['role']}"
        self._messages = job["messages"]
        self._log = directory / "log"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if party.adapter == "duly" and "DULY_BENCH_SRC" in os.environ:  # another version of Duly
            environment["PYTHONPATH"] = os.environ["DULY_BENCH_SRC"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [party.python, "-W", "ignore", "-m", "benchmarks.peers.party", json.dumps(job)],
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def record(self, timeout: float) -> Record:
        """Wait for the record of a worker, and check that it has each expected message once."""
        found = self.result(timeout)
        hits = [Hit(*row) for row in found["hits"] if row[1] < WARM_UP]
        missing = self._messages - len({hit.number for hit in hits})
        if missing or len(hits) != self._messages:
            raise PartyFailed(f"{self._name}: {missing} of {self._messages} did not come, {len(hits)} handlers started")
        return Record(hits, found["cpu_us"])

    def result(self, timeout: float, beside: "Process | None" = None) -> dict[str, Any]:
        """Wait for the output of the process. `beside` must stay alive during that time."""
        deadline = time.monotonic() + timeout
        while not self.out.exists():
            for process in (self, beside):
                if process is not None and process.has_ended and not self.out.exists():
                    raise PartyFailed(f"{process.last_words()} (it has ended)")
            if time.monotonic() > deadline:
                words = [process.last_words() for process in (self, beside) if process is not None]
                raise PartyFailed(f"{'; '.join(words)} (not done after {timeout:.0f} s)")
            time.sleep(0.01)
        found: dict[str, Any] = json.loads(self.out.read_text())
        return found

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End the process, and all that it has started, at once."""
        if not self.has_ended:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def cpu(self) -> float:
        """Seconds of processor time that all threads of the process have used."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def last_words(self) -> str:
        """Return the name of the process and its last output."""
        return f"{self._name}: {self._log.read_text(errors='replace').strip()[-1500:] or 'not a word'}"


def duly_party(url: str, handler: str = "async", *, messages: int = 100_000, **options: Any) -> Party:
    """Name Duly with one kind of handler."""
    return Party(f"duly {handler}", url, messages, options={"handler": handler, **options})


def peer_party(name: str, url: str) -> Party:
    """Name a peer."""
    peer = PEERS[name]
    return Party(
        name,
        url,
        peer.messages,
        adapter_of(name),
        python_of(name),
        has_delays=peer.has_delays,
        has_companion=peer.has_companion,
        options=peer.options,
    )
