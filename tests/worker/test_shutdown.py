"""Workers that are stopped: nothing is lost, no attempt is spent, and the exit status shows a cut-off."""

import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

import duly
from tests.conftest import StartedServer
from tests.fault.recorded import assert_accounts, assert_drained
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess, ids_of, module_of

pytestmark = [pytest.mark.fault, pytest.mark.slow]

STOPS: Final = 25
"""For each kind of handler."""
BACKLOG: Final = 200
GRACE: Final = 30
FOREVER: Final = 600
MANNERS: Final = ("async", "def")

HANDLERS: Final = {
    "async": """
        @orders.handler(concurrency=10)
        async def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt, failures=d.failures, crashes=d.crashes)
            await asyncio.sleep(body)
            note("end", id=d.id)
    """,
    "def": """
        @orders.handler(concurrency=10)
        def on_order(body, d):
            note("begin", id=d.id, attempt=d.attempt, failures=d.failures, crashes=d.crashes)
            time.sleep(body)
            note("end", id=d.id)
    """,
}


def held_by(queue: duly.Queue, pid: int) -> int:
    """Count the leases of a process."""
    holders = queue.pending().consumers
    return sum(count for consumer, count in holders.items() if int(consumer.split(":")[1]) == pid)


def assert_untouched(queue: duly.Queue, id_: str, **expected: Any) -> None:
    """Fail unless a message is waiting and no attempt was spent."""
    message = queue.get(id_)
    assert message is not None
    assert (message.state, message.attempt, message.failures, message.crashes) == ("ready", 1, 0, 0)
    assert {name: getattr(message, name) for name in expected} == expected


@pytest.mark.parametrize("manner", MANNERS)
def test_stops_at_random_moments_spend_nothing(
    manner: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", HANDLERS[manner])
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)

        def start() -> WorkerProcess:
            return stack.enter_context(WorkerProcess(url, tmp_path, source, "--grace", str(GRACE)))

        sent: list[str] = []
        worker, successor = start(), start()
        for _ in range(STOPS):
            sent += queue.send_many([chance.uniform(0, 0.1) for _ in range(BACKLOG - queue.stats().ready)])
            worker.wait_for_start()
            time.sleep(chance.uniform(0, 0.5))
            worker.send_signal(chance.choice([signal.SIGTERM, signal.SIGINT]))
            assert worker.wait(GRACE) == 0, worker.log()
            assert held_by(queue, worker.pid) == 0
            worker, successor = successor, start()
        wait_until(lambda: queue.stats().live == 0)
        assert [each.wait_for_start().stop() for each in (worker, successor)] == [0, 0]

        begins, ends = worker.notes("begin"), worker.notes("end")
        # Messages that were not started were released, and the others were finished, so none was started twice.
        assert Counter(ids_of(begins)) == Counter(sent)
        assert Counter(ids_of(ends)) == Counter(sent)
        assert all((each["attempt"], each["failures"], each["crashes"]) == (1, 0, 0) for each in begins)
        assert_drained(queue, sent=len(sent), acked=len(sent), retried=0, crashed=0, buried=0, deferred=0)
        stats = queue.stats()
        assert stats.delivered == stats.acked + stats.released


def test_stops_while_it_starts_lose_nothing(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    """A worker that does not serve yet has no messages, and a signal ends it."""
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", HANDLERS["async"])
    with duly.Duly(url) as app, ExitStack() as stack:
        queue = app.queue(queue_name)
        sent = queue.send_many([0.01] * 50)
        workers = []
        for _ in range(10):
            workers.append(worker := stack.enter_context(WorkerProcess(url, tmp_path, source)))
            time.sleep(random.uniform(0, 1))
            worker.send_signal(signal.SIGTERM)
            status = worker.wait(GRACE)
            has_begun = bool([begin for begin in worker.notes("begin") if begin["pid"] == worker.pid])
            assert status == 0 or (status == -signal.SIGTERM and not has_begun), worker.log()
            assert held_by(queue, worker.pid) == 0
        last = stack.enter_context(WorkerProcess(url, tmp_path, source))
        wait_until(lambda: queue.stats().live == 0)
        assert last.wait_for_start().stop() == 0

        assert Counter(ids_of(last.notes("end"))) == Counter(sent)
        assert_drained(queue, sent=50, acked=50, retried=0, crashed=0)


# --- One message at a time, step by step -------------------------------------------------------------------

GATED: Final = {
    "async": """
        @orders.handler(concurrency=2)
        async def on_order(body, d):
            note("begin", id=d.id)
            try:
                while body == "slow" and not os.path.exists("open"):
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                note("cancelled", id=d.id)
                raise
            note("end", id=d.id)
    """,
    "def": """
        @orders.handler(concurrency=2)
        def on_order(body, d):
            note("begin", id=d.id)
            while body == "slow" and not os.path.exists("open"):
                time.sleep(0.01)
            note("end", id=d.id)
    """,
}
"""Slow messages wait for a file with the name `open`."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("manner", MANNERS)
def test_running_handlers_finish_within_the_grace(
    manner: str, number: signal.Signals, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", GATED[manner])
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source) as worker:
        queue = app.queue(queue_name)
        running = queue.send("slow")
        wait_until(lambda: ids_of(worker.notes("begin")) == [running])
        worker.send_signal(number)
        wait_until(lambda: "worker.stopping" in worker.log())
        late = queue.send("fast")
        (tmp_path / "open").touch()

        assert worker.wait() == 0, worker.log()
        assert ids_of(worker.notes("end")) == [running]
        assert_untouched(queue, late, deliveries=0)
        assert_accounts(queue, acked=1, ready=1, leased=0, released=0, retried=0, crashed=0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("manner", MANNERS)
def test_messages_of_handlers_that_outlast_the_grace_are_released(
    manner: str, number: signal.Signals, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", GATED[manner])
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source, "--grace", "0.5") as worker:
        queue = app.queue(queue_name)
        running = queue.send("slow")
        wait_until(lambda: ids_of(worker.notes("begin")) == [running])
        worker.send_signal(number)

        assert worker.wait() == 1, worker.log()
        assert worker.notes("end") == []
        assert ids_of(worker.notes("cancelled")) == ([running] if manner == "async" else [])
        assert_untouched(queue, running, releases=1)
        assert_accounts(queue, acked=0, ready=1, leased=0, released=1, retried=0, crashed=0)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("manner", MANNERS)
def test_a_second_signal_releases_running_messages_at_once(
    manner: str, second: signal.Signals, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", GATED[manner])
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source, "--grace", str(FOREVER)) as worker:
        queue = app.queue(queue_name)
        running = queue.send_many(["slow"] * 3)
        wait_until(lambda: len(worker.notes("begin")) == 2)
        worker.send_signal(signal.SIGTERM)
        wait_until(lambda: "worker.stopping" in worker.log())
        worker.send_signal(second)

        assert worker.wait() == 1, worker.log()
        assert worker.notes("end") == []
        for id_ in running:
            assert_untouched(queue, id_)
        assert_accounts(queue, acked=0, ready=3, leased=0, released=2, retried=0, crashed=0)


def test_a_hung_handler_stops_neither_the_others_nor_the_shutdown(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", GATED["def"])
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source, "--grace", "0.5") as worker:
        queue = app.queue(queue_name)
        hung = queue.send("slow")
        wait_until(lambda: ids_of(worker.notes("begin")) == [hung])
        others = queue.send_many(["fast"] * 100)
        wait_until(lambda: queue.stats().acked == 100)

        assert worker.stop() == 1, worker.log()
        assert sorted(ids_of(worker.notes("end"))) == sorted(others)
        assert_untouched(queue, hung, releases=1)
        assert_accounts(queue, acked=100, ready=1, leased=0, released=1, retried=0, crashed=0)


STUBBORN: Final = {
    "does not let itself be cancelled": """
        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id)
            while True:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    note("cancelled", id=d.id)
    """,
    "waits for a thread": """
        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id)
            await asyncio.to_thread(time.sleep, 600)
    """,
    "left a task behind that does not let itself be cancelled": """
        async def linger():
            while True:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    pass

        @orders.handler
        async def on_order(body, d):
            global left
            left = asyncio.create_task(linger())
            note("begin", id=d.id)
            await asyncio.sleep(600)
    """,
    "cleans up with an error": """
        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id)
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                raise RuntimeError("the connection was closed")
    """,
    "cleans up for long": """
        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id)
            try:
                await asyncio.sleep(600)
            finally:
                await asyncio.sleep(600)
    """,
    "has a task that fails when it is cancelled": """
        async def part():
            try:
                await asyncio.sleep(600)
            finally:
                raise OSError("closed")

        @orders.handler
        async def on_order(body, d):
            note("begin", id=d.id)
            async with asyncio.TaskGroup() as group:
                group.create_task(part())
    """,
    "catches everything in a thread": """
        @orders.handler
        def on_order(body, d):
            note("begin", id=d.id)
            while True:
                try:
                    time.sleep(600)
                except BaseException:
                    pass
    """,
}


@pytest.mark.parametrize(("handler", "signals"), [*((handler, 1) for handler in STUBBORN), (next(iter(STUBBORN)), 2)])
def test_a_stubborn_handler_loses_its_message_and_does_not_keep_the_process(
    handler: str, signals: int, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    """Nothing was wrong with the message: no attempt is spent."""
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", STUBBORN[handler])
    grace = "0.5" if signals == 1 else str(FOREVER)
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source, "--grace", grace) as worker:
        queue = app.queue(queue_name)
        id_ = queue.send(None)
        wait_until(lambda: ids_of(worker.notes("begin")) == [id_])
        worker.send_signal(signal.SIGTERM)
        if signals == 2:
            wait_until(lambda: "worker.stopping" in worker.log())
            worker.send_signal(signal.SIGTERM)

        assert worker.wait() == 1, worker.log()
        assert_untouched(queue, id_, releases=1)
        assert_accounts(queue, acked=0, ready=1, leased=0, released=1, retried=0, crashed=0)


# --- Messages claimed ahead --------------------------------------------------------------------------------

AHEAD: Final = {
    "async": """
        @orders.handler(concurrency=1)
        async def on_order(body, d):
            if body == "slow":
                note("gate", id=d.id)
                while not os.path.exists("open"):
                    await asyncio.sleep(0.01)
            note("end", id=d.id)
    """,
    "def": """
        @orders.handler(concurrency=1)
        def on_order(body, d):
            if body == "slow":
                note("gate", id=d.id)
                while not os.path.exists("open"):
                    time.sleep(0.01)
            note("end", id=d.id)
    """,
}


@pytest.mark.parametrize("manner", MANNERS)
def test_messages_claimed_ahead_are_released_at_once(
    manner: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    """Other workers can claim it while a handler is still running here."""
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", AHEAD[manner])
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source, "--grace", str(FOREVER)) as worker:
        queue = app.queue(queue_name)
        ids = queue.send_many(["fast"] * 1000 + ["slow"] + ["fast"] * 1000)
        wait_until(lambda: ids_of(worker.notes("gate")) == [ids[1000]])
        wait_until(lambda: held_by(queue, worker.pid) > 1)
        worker.send_signal(signal.SIGTERM)
        wait_until(lambda: held_by(queue, worker.pid) == 1)
        waiting = [message for id_ in ids[1001:] if (message := queue.get(id_)) is not None]
        (tmp_path / "open").touch()

        assert worker.wait() == 0, worker.log()
        assert ids_of(worker.notes("end")) == ids[:1001]
        assert [each.id for each in waiting] == ids[1001:]
        assert {(each.state, each.attempt) for each in waiting} == {("ready", 1)}
        stats = assert_accounts(queue, acked=1001, ready=1000, leased=0, retried=0, crashed=0)
        assert stats.released == sum(each.releases for each in waiting) > 0


# --- Supervised --------------------------------------------------------------------------------------------


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_parent_ends_with_all_its_children(
    number: signal.Signals, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=5", HANDLERS["async"])
    with duly.Duly(url) as app, WorkerProcess(url, tmp_path, source, "--processes", "3") as parent:
        queue = app.queue(queue_name)
        sent = queue.send_many([0.05] * 10_000)  # for longer than the last of them takes to start
        wait_until(lambda: len({begin["pid"] for begin in parent.notes("begin")}) == 3)
        parent.send_signal(number)

        assert parent.wait() == 0, parent.log()
        children = {begin["pid"] for begin in parent.notes("begin")}
        assert parent.pid not in children
        assert not any(map(is_running, children))
        begun = ids_of(parent.notes("begin"))
        assert sorted(begun) == sorted(ids_of(parent.notes("end")))
        assert len(set(begun)) == len(begun) < len(sent)
        ready = len(sent) - len(begun)
        assert_accounts(queue, sent=len(sent), acked=len(begun), ready=ready, leased=0, retried=0, crashed=0)
