"""The timeout of a `def` handler: its message fails in time, and the process is replaced if it has a parent."""

import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import duly
from duly import Batch, Retry
from tests.cli.test_worker_command import Command
from tests.conftest import StartedServer
from tests.waiting import wait_until
from tests.worker.rig import Bench, eventually, given_bench


@pytest.fixture
async def bench(queue_name: str) -> AsyncIterator[Bench]:
    async with given_bench("memory://", queue_name, "Duly, def") as found:
        yield found


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """Set at the end, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_message_fails_when_its_handler_exceeds_the_timeout(bench: Bench, go_on: threading.Event) -> None:
    bench.define(lambda body, d: go_on.wait(60), timeout=0.05, retry=Retry(first=60))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    (failure,) = (await bench.seen(id_)).errors
    assert failure.error == "TimeoutError: the handler took longer than its timeout of 0.05 s"


async def test_another_thread_takes_the_place_until_the_handler_returns(
    bench: Bench, go_on: threading.Event, queue_name: str
) -> None:
    def act(body: Any, d: Any) -> None:
        if body == "hangs":
            go_on.wait(60)

    def threads() -> int:
        return sum(thread.name.startswith(f"duly-{queue_name}-") for thread in threading.enumerate())

    bench.define(act, timeout=0.05, concurrency=1, retry=Retry(first=60))
    async with bench.worker():
        await bench.queue.send("hangs")
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)
        await bench.queue.send_many(["a", "b"])
        await bench.comes_to(sent=3, delivered=3, retried=1, delayed=1, acked=2)
        assert threads() == 2

        go_on.set()
        await eventually(lambda: threads() == 1)
        await bench.queue.send("c")
        await bench.comes_to(sent=4, delivered=4, retried=1, delayed=1, acked=3)


async def test_a_handler_that_returns_in_time_is_acked(bench: Bench) -> None:
    bench.define(lambda body, d: None, timeout=60)
    await bench.queue.send_many(range(50))

    async with bench.worker():
        await bench.comes_to(sent=50, delivered=50, acked=50)


async def test_a_batch_fails_as_a_whole(bench: Bench, go_on: threading.Event) -> None:
    bench.define(lambda body, d: go_on.wait(60), batch=Batch(max=2, wait=0), timeout=0.05, retry=Retry(attempts=1))
    await bench.queue.send_many(["a", "b"])

    async with bench.worker():
        await bench.comes_to(sent=2, delivered=2, buried=2, dead=2)


async def test_hooks_run_once_with_the_timeout(bench: Bench, go_on: threading.Event) -> None:
    seen: list[Any] = []
    bench.app.on_error(lambda d, error: seen.append(type(error)))
    bench.app.after(lambda d, outcome: seen.append(outcome))
    bench.define(lambda body, d: go_on.wait(60), timeout=0.05, retry=Retry(first=60))
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)
        go_on.set()
        await eventually(lambda: len(seen) >= 2)

    assert seen == [TimeoutError, "retry"]


MODULE = """
import os, time
from pathlib import Path
import duly

app = duly.Duly(os.environ["URL"])
queue = app.queue(os.environ["QUEUE"], lease=30, retry=duly.Retry(first=0.1))

def note(text):
    with open("noted", "a") as file:
        file.write(f"{text}\\n")

@queue.handler(timeout=1)
def hang_once(body, d: duly.Delivery):
    note(f"{body} {d.attempt} {os.getpid()}")
    if d.attempt == 1:
        time.sleep(600)

@app.queue(os.environ["QUEUE"] + "-long").handler
def finish(body):
    note(body)
    while not Path("finish").exists():
        time.sleep(0.01)
    note("ended")
"""


@pytest.mark.fault
@pytest.mark.slow
def test_a_child_with_a_handler_that_hangs_is_replaced(tmp_path: Path, server: StartedServer, queue_name: str) -> None:
    """The other message of the process is finished within the grace, and no crash is counted."""
    url = server("valkey").url
    (tmp_path / "shop.py").write_text(MODULE)
    command = Command(tmp_path, url, queue_name, "shop:app", "--processes", "1", "--grace", "60")
    with duly.Duly(url) as app:
        hanging, long = app.queue(queue_name), app.queue(f"{queue_name}-long")
        long.send("long")
        command.wait_until(lambda: command.noted == ["long"], "the long handler runs")
        hanging.send("hangs")
        command.wait_log("handler.timed_out")
        command.wait_log("worker.stopping")
        (tmp_path / "finish").touch()
        command.wait_until(lambda: hanging.stats().acked == 1, "the message is retried in another process")

        stats = hanging.stats()
        assert (stats.crashed, stats.retried, stats.delivered) == (0, 1, 2)
        assert len({line.split()[-1] for line in command.noted if line.startswith("hangs")}) == 2
        stats = long.stats()
        assert (stats.crashed, stats.delivered, stats.acked) == (0, 1, 1)
        assert command.noted.count("ended") == 1
    command.process.send_signal(signal.SIGTERM)
    assert command.process.wait(60) == 0
    wait_until(lambda: command.pids() == [], "all processes are gone")


@pytest.mark.fault
@pytest.mark.slow
def test_a_child_with_a_handler_that_hangs_releases_the_rest_after_its_grace(
    tmp_path: Path, server: StartedServer, queue_name: str
) -> None:
    """Another handler of the process runs for longer than the grace: its message is released, and no crash counted."""
    url = server("valkey").url
    (tmp_path / "shop.py").write_text(MODULE)
    command = Command(tmp_path, url, queue_name, "shop:app", "--processes", "1", "--grace", "2")
    with duly.Duly(url) as app:
        hanging, long = app.queue(queue_name), app.queue(f"{queue_name}-long")
        long.send("long")
        command.wait_until(lambda: command.noted == ["long"], "the long handler runs")
        hanging.send("hangs")
        command.wait_until(lambda: command.noted.count("long") == 2, "the long message is in another process")
        (tmp_path / "finish").touch()
        command.wait_until(lambda: hanging.stats().acked == long.stats().acked == 1, "both are handled")

        assert (hanging.stats().crashed, hanging.stats().retried) == (0, 1)
        stats = long.stats()
        assert (stats.crashed, stats.released, stats.retried, stats.delivered) == (0, 1, 0, 2)
        assert command.noted.count("ended") == 1
    command.process.send_signal(signal.SIGTERM)
    assert command.process.wait(60) == 0
    wait_until(lambda: command.pids() == [], "all processes are gone")
