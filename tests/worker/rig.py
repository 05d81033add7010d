"""Worker processes for tests: `duly worker` runs a module of the test, which records its actions.

The source of the module can use `app`, `note` and the imports below:

    with WorkerProcess(server.url, tmp_path, '''
        orders = app.queue("orders", lease=1)

        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt)
    ''') as worker: ...

`note` appends a line to a file in one write, so that it survives kill -9. `worker.notes()` reads the lines.
"""

import asyncio
import inspect
import json
import os
import re
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

import duly
from tests.waiting import PATIENCE, pause_after, wait_until
from tests.warm import WarmPopen

_PRELUDE = """
import asyncio, json, os, signal, sys, threading, time
import duly

app = duly.Duly(os.environ["DULY_URL"])
_notes = os.open(os.environ["DULY_TEST_NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def note(what, **fields):
    line = {"what": what, "pid": os.getpid(), "at": time.monotonic(), **fields}
    os.write(_notes, json.dumps(line).encode() + b"\\n")

"""


class WorkerProcess:
    """One `duly worker`. It always ends with the test."""

    def __init__(
        self,
        url: str,
        directory: Path,
        source: str,
        *arguments: str,
        name: str = "jobs",
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._directory = directory
        draft = directory / f"{name}.draft"
        draft.write_text(_PRELUDE + textwrap.dedent(source))
        draft.replace(directory / f"{name}.py")  # another worker may be importing it at this moment
        self._notes = directory / "notes.jsonl"
        self.log_path = directory / f"{name}-{time.monotonic_ns()}.log"
        settings = {"DULY_URL": url, "DULY_TEST_NOTES": str(self._notes), "PYTHONUNBUFFERED": "1"}
        with self.log_path.open("wb") as log:
            self.process = WarmPopen(
                [sys.executable, "-m", "duly", "worker", f"{name}:app", "--log-level", "debug", *arguments],
                cwd=directory,
                env={**environment, **settings},
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

    def freeze(self) -> None:
        """Stop it as a debugger would, and wait until it stands."""
        self.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def thaw(self) -> None:
        self.send_signal(signal.SIGCONT)

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

    def cpu_seconds(self) -> float:
        """Return how much processor time it has used, its threads included."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

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


def ids_of(notes: Sequence[dict[str, Any]]) -> list[str]:
    return [note["id"] for note in notes]


# Workers in the process of the test

FLAVOURS: Final = ("Duly, def", "AsyncDuly, async def")
"""The kind of the app, and of the handlers."""

ALL_FLAVOURS: Final = (*FLAVOURS, "Duly, async def", "AsyncDuly, def")

SOON: Final = 20.0
"""Seconds that an event without a delay may take."""

Act = Callable[[Any, Any], Any]
"""The function that a handler calls with body and delivery."""


class Bench:
    """An app with a queue, and handlers of one kind, sync or async. `queue` is used with `await`."""

    def __init__(self, app: duly.Duly | duly.AsyncDuly, queue_name: str, flavour: str) -> None:
        self.app = app
        self.is_async = flavour.endswith("async def")
        self.aio = app if isinstance(app, duly.AsyncDuly) else app.aio
        self.queue_name = queue_name
        self.queue = self.aio.queue(queue_name)

    def define(self, act: Callable[..., Any], *, body: Any = None, queue: str = "", **options: Any) -> None:
        """Make `act(body, d)` the handler. An awaitable that it returns is awaited. `body` is the annotation."""
        names = ("concurrency", "batch", "timeout")
        handling = {name: options.pop(name) for name in names if name in options}
        defined: Any = self.app.queue(queue or self.queue_name, **options)
        defined.handler(**handling)(self.coloured(act, body))

    def coloured(self, act: Callable[..., Any], body: Any = None) -> Callable[..., Any]:
        """Make a function of `(body, d)` a `def` or an `async def`."""

        def on_message(body, d):  # type: ignore[no-untyped-def]
            return act(body, d)

        async def on_message_async(body, d):  # type: ignore[no-untyped-def]
            await asyncio.sleep(0)
            result = act(body, d)
            return await result if inspect.iscoroutine(result) else result

        handler = on_message_async if self.is_async else on_message
        if body is not None:
            handler.__annotations__["body"] = body
        return handler

    def worker(self, **options: Any) -> duly.Worker:
        return duly.Worker(self.app, duly.WorkerOptions(**options))

    async def comes_to(self, **expected: int) -> None:
        """Wait until the queue counts exactly this, and prove its accounts."""
        await comes_to(self.queue, **expected)

    async def seen(self, id_: str) -> duly.Message:
        message = await self.queue.get(id_)
        assert message is not None
        return message


@asynccontextmanager
async def given_bench(backend: str, queue_name: str, flavour: str) -> AsyncIterator[Bench]:
    if flavour.startswith("AsyncDuly"):
        async with duly.AsyncDuly(backend) as app:
            yield Bench(app, queue_name, flavour)
    else:
        with duly.Duly(backend) as sync_app:
            bench = Bench(sync_app, queue_name, flavour)
            yield bench
            await bench.aio.aclose()


async def counted(queue: duly.AsyncQueue) -> dict[str, Any]:
    """Return the counts that are not zero, without those that change with time."""
    moving: tuple[str, ...] = (
        "oldest_age",
        "lateness",
        "next_due_in",
        "bytes",
        "dead_bytes",
        "dead_why_bytes",
        "done_bytes",
        "done_why_bytes",
        "corrected",
    )
    moving += ("lateness_times", "handling_times")
    return {name: value for name, value in asdict(await queue.stats()).items() if value and name not in moving}


async def comes_to(queue: duly.AsyncQueue, **expected: int) -> None:
    """Wait until the queue counts exactly this, and prove its accounts."""
    began = time.monotonic()
    while (found := await counted(queue)) != expected:
        waited = time.monotonic() - began
        assert waited < SOON, f"{found} did not become {expected}"
        await asyncio.sleep(pause_after(waited))
    audit = await queue.audit()
    assert audit.ok, audit


async def eventually(is_so: Callable[[], Any], timeout: float = SOON) -> None:
    """Wait until a condition is true, while a worker runs in this event loop. Fail at the timeout."""
    began = time.monotonic()
    while True:
        found = is_so()
        if await found if inspect.isawaitable(found) else found:
            return
        waited = time.monotonic() - began
        assert waited < timeout, "it did not happen in time"
        await asyncio.sleep(pause_after(waited))


def module_of(queue_name: str, options: str, source: str, queue: str = "orders") -> str:
    """Return the source of a module that has a queue: `orders = app.queue(queue_name, <options>)`."""
    return f"{queue} = app.queue({queue_name!r}, {options})\n{textwrap.dedent(source)}"


def holder_pids(log: str) -> list[int]:
    """Return the processes that held the leases that ran out, one for each lease, from the log of a worker."""
    return [int(pid) for pid in re.findall(r" ran out .* held by [^ ]*:(\d+):\w+: ", log)]


def returning(value: Any) -> Act:
    """Make a handler that returns this."""
    return lambda body, d: value


def raising(error: BaseException) -> Act:
    """Make a handler that raises this."""

    def act(body: Any, d: Any) -> None:
        raise error

    return act


def delay_of(message: duly.Message) -> float:
    """Return the delay of a message after its last failure."""
    assert message.due_at is not None
    return (message.due_at - message.errors[-1].at).total_seconds()
