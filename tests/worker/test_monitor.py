"""`duly worker --only-recover`: a monitor alone gives the messages of dead consumers back, and several do no harm."""

import asyncio
import functools
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import duly
from duly._core.call import Call
from duly.worker.monitor import Monitor
from tests.conftest import StartedServer
from tests.fault.recorded import assert_accounts, assert_drained
from tests.waiting import wait_until
from tests.warm import WarmPopen
from tests.worker.rig import WorkerProcess, eventually, module_of

HOLDS = """
    @orders.handler
    async def on_order(body, d):
        note("begin", id=d.id)
        await asyncio.sleep(3600)
"""
BUSY = """
import asyncio, sys
import duly
from duly.worker.monitor import Monitor

asyncio.run(Monitor(duly.Duly(sys.argv[1]), [sys.argv[2]], period=0.001).run())
"""
"""A monitor that begins the next round at once."""


@contextmanager
def process(directory: Path, arguments: Sequence[str]) -> Iterator[tuple[WarmPopen, Path]]:
    """Run a Python program, with its output in a file. It ends with the test."""
    path = directory / f"monitor-{time.monotonic_ns()}.log"
    with path.open("wb") as log:
        running = WarmPopen([sys.executable, *arguments], cwd=directory, stdout=log, stderr=log)
    try:
        yield running, path
    finally:
        if running.poll() is None:
            running.kill()
        running.wait(60)


@asynccontextmanager
async def monitored(app: duly.AsyncDuly, *names: str) -> AsyncIterator[Monitor]:
    """Run a monitor in this event loop. It begins a round every 20 ms."""
    monitor = Monitor(app, names or None, period=0.02)
    running = asyncio.create_task(monitor.run())
    try:
        yield monitor
    finally:
        monitor.stop()
        await running


@pytest.fixture
async def app(backend: str) -> AsyncIterator[duly.AsyncDuly]:
    async with duly.AsyncDuly(backend) as app:
        yield app


class TestRounds:
    """One monitor, in the process of the test."""

    async def test_a_message_of_a_silent_consumer_is_ready_again(self, app: duly.AsyncDuly, queue_name: str) -> None:
        queue = app.queue(queue_name)
        sent = await queue.send("a", priority=3)
        (delivery,) = await queue.receive(1, wait=5, lease=0.05)

        async with monitored(app, queue_name):
            await shows(queue, ready=1, leased=0, crashed=1)

        message = await queue.get(sent)
        assert message is not None
        assert (message.state, message.crashes, message.priority) == ("ready", 1, 3)
        assert len(await queue.receive(1, wait=0)) == 1
        with pytest.raises(duly.LeaseLost):
            await delivery.ack()

    async def test_a_lease_that_holds_is_left_alone(self, app: duly.AsyncDuly, queue_name: str) -> None:
        queue = app.queue(queue_name)
        await queue.send_many(["a", "b"])
        (held,) = await queue.receive(1, wait=5)
        await queue.receive(1, wait=5, lease=0.05)

        async with monitored(app, queue_name):
            await shows(queue, ready=1, leased=1, crashed=1)

        await held.ack()

    async def test_no_message_becomes_dead_and_no_dead_letter_is_removed(
        self, app: duly.AsyncDuly, queue_name: str
    ) -> None:
        queue = app.queue(queue_name, dead=duly.Keep(), crash_limit=6)
        await queue.send("letter")
        await (await queue.receive(1, wait=5))[0].reject("no")
        await queue.send("poison")

        async with monitored(app, queue_name):
            for crashes in range(1, 7):
                await queue.receive(1, wait=5, lease=0.02)
                await shows(queue, ready=1, crashed=crashes)

        assert (await queue.stats()).dead == 1

    async def test_a_consumer_that_reclaims_applies_the_crash_limit(self, app: duly.AsyncDuly, queue_name: str) -> None:
        queue = app.queue(queue_name, crash_limit=2)
        await queue.send("poison")
        await queue.receive(1, wait=5, lease=0.02)
        async with monitored(app, queue_name):
            await shows(queue, ready=1, crashed=1)
        await queue.receive(1, wait=5, lease=0.02)
        await eventually(lambda: is_expired(queue))

        assert await queue.receive(1, wait=0) == []
        assert (await queue.stats()).dead == 1

    async def test_receive_rejects_a_message_that_was_reclaimed_up_to_the_crash_limit(
        self, app: duly.AsyncDuly, queue_name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = app.queue(queue_name, crash_limit=2)
        id_ = await queue.send("poison", priority=5)
        await queue.send("harmless", priority=5, delay=0.001)
        async with monitored(app, queue_name):
            for crashes in (1, 2):
                (poison,) = await queue.receive(1, wait=5, lease=0.02)
                assert poison.id == id_
                await shows(queue, ready=2, crashed=crashes)

        assert [d.body for d in await queue.receive(wait=5)] == ["harmless"]
        letter = await queue.get(id_)
        assert letter is not None
        assert (letter.state, letter.reason, letter.crashes) == ("dead", "poison", 2)
        assert f"1 message of queue '{queue_name}' has reached the crash limit and is dead: {id_}" in caplog.text
        assert await queue.redrive() == 1
        assert [d.body for d in await queue.receive(wait=5)] == ["poison"]

    async def test_receive_releases_its_messages_if_it_cannot_reject_poison(
        self, app: duly.AsyncDuly, queue_name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = app.queue(queue_name, crash_limit=1)
        await queue.send("poison")
        async with monitored(app, queue_name):
            await queue.receive(1, wait=5, lease=0.02)
            await shows(queue, ready=1, crashed=1)
        await queue.send("harmless")
        run_now = app._link.run_now

        async def refused(call: Call[Any]) -> Any:
            if call.script.name == "reject":
                raise duly.ServerError("the user may not reject")
            return await run_now(call)

        with monkeypatch.context() as patch:
            patch.setattr(app._link, "run_now", refused)
            with pytest.raises(duly.ServerError, match="may not reject"):
                await queue.receive(wait=5)

        await shows(queue, ready=2, leased=0, crashed=1)
        assert [d.body for d in await queue.receive(wait=5)] == ["harmless"]
        await shows(queue, leased=1, dead=1)

    async def test_receive_waits_on_after_it_has_rejected_poison(self, app: duly.AsyncDuly, queue_name: str) -> None:
        queue = app.queue(queue_name, crash_limit=1)
        await queue.send("poison")
        async with monitored(app, queue_name):
            await queue.receive(1, wait=5, lease=0.02)
            await shows(queue, ready=1, crashed=1)

        await queue.send("later", delay=0.3)
        assert [d.body for d in await queue.receive(wait=20)] == ["later"]

    async def test_a_message_of_a_group_is_delivered_again(self, app: duly.AsyncDuly, queue_name: str) -> None:
        topic = app.topic(queue_name)
        group, other = topic.group("archive"), topic.group("other")
        await group.seek("beginning")
        await other.seek("beginning")
        await topic.publish("a")
        for each in (group, other):
            await each.receive(1, wait=5, lease=0.05)

        async with monitored(app, f"{queue_name}/archive"):
            await shows(group, ready=1, crashed=1)

        assert (await other.stats()).crashed == 0
        (again,) = await group.receive(1, wait=5)
        assert (again.body, again.crashes) == ("a", 1)

    async def test_the_name_of_a_topic_means_all_its_groups(self, app: duly.AsyncDuly, queue_name: str) -> None:
        topic = app.topic(queue_name)
        groups = [topic.group("one"), topic.group("two")]
        for group in groups:
            await group.seek("beginning")
        await topic.publish("a")
        for group in groups:
            await group.receive(1, wait=5, lease=0.05)

        async with monitored(app, queue_name):
            for group in groups:
                await shows(group, ready=1, crashed=1)

    async def test_without_names_it_serves_all_queues_and_groups_of_its_namespace(
        self, backend: str, queue_name: str
    ) -> None:
        async with duly.AsyncDuly(backend, namespace=queue_name) as app:
            queue, group = app.queue("orders"), app.topic("events").group("archive")
            await group.seek("beginning")
            await queue.send("a")
            await app.topic("events").publish("b")
            for each in (queue, group):
                assert len(await each.receive(1, wait=5, lease=0.05)) == 1

            async with monitored(app) as monitor:
                await shows(queue, ready=1, crashed=1)
                await shows(group, ready=1, crashed=1)
                vitals = monitor.vitals()

            assert ([each.name for each in vitals.queues], vitals.trouble) == (["events/archive", "orders"], None)
            assert monitor.vitals().trouble == "the monitor is stopping"
            await app.topic("events").delete()
            await queue.delete()

    async def test_schedules_are_fired_and_expired_messages_removed(self, app: duly.AsyncDuly, queue_name: str) -> None:
        queue = app.queue(queue_name)
        await queue.send("old", ttl=0.02)
        await app.schedule(f"{queue_name}-run", queue, "due", every=0.1)
        try:
            async with monitored(app, queue_name):
                await shows(queue, expired=1)
                await eventually(lambda: has_sent(queue, 3))
        finally:
            await app.unschedule(f"{queue_name}-run")

    async def test_a_limit_that_holds_messages_back_stays(self, app: duly.AsyncDuly, queue_name: str) -> None:
        """A consumer at `max_in_flight` waits for the token that an ack leaves while the queue is limited."""
        queue = app.queue(queue_name, max_in_flight=1)
        await queue.send_many(["a", "b"])
        (held,) = await queue.receive(2, wait=5)
        waiting = asyncio.create_task(queue.receive(1, wait=60))
        await eventually(lambda: is_limited(queue))
        async with monitored(app, queue_name) as monitor:
            await asyncio.to_thread(wait_until, lambda: monitor.vitals().queues)
            assert await is_limited(queue)
            await held.ack()
            assert [each.body for each in await waiting] == ["b"]


async def is_limited(queue: duly.AsyncQueue) -> bool:
    return "max_in_flight" in await queue.explain((await queue.list("ready"))[0].id)


async def shows(source: duly.AsyncQueue | duly.AsyncGroup, **expected: int) -> None:
    """Wait until the statistics have these values."""

    async def has_them() -> bool:
        stats = await source.stats()
        return {name: getattr(stats, name) for name in expected} == expected

    await eventually(has_them)


async def has_sent(queue: duly.AsyncQueue, least: int) -> bool:
    return (await queue.stats()).sent >= least


async def is_expired(queue: duly.AsyncQueue) -> bool:
    return (await queue.pending()).messages[0].deadline_in < 0


@pytest.mark.fault
@pytest.mark.slow
class TestProcesses:
    """Monitors as processes, with consumers that are killed."""

    def test_a_monitor_alone_recovers_what_a_killed_worker_held(
        self, server: StartedServer, tmp_path: Path, queue_name: str
    ) -> None:
        url = server("valkey").url
        with duly.Duly(url) as app, ExitStack() as stack:
            queue = app.queue(queue_name)
            ids = queue.send_many(range(3))
            source = module_of(queue_name, "lease=1", HOLDS)
            worker = stack.enter_context(WorkerProcess(url, tmp_path, source))
            wait_until(lambda: len(worker.notes("begin")) == 3)
            worker.kill9()
            command = ["-m", "duly", "worker", "--only-recover", "--url", url, "--queues", queue_name]
            monitor, log = stack.enter_context(process(tmp_path, command))

            wait_until(lambda: queue.stats().ready == 3)

            assert_accounts(queue, sent=3, crashed=3, leased=0, dead=0)
            assert all(f"the lease of message {id_}" in log.read_text() for id_ in ids), log.read_text()
            monitor.terminate()
            assert monitor.wait(60) == 0, log.read_text()

    def test_two_monitors_count_each_lost_lease_once(
        self, server: StartedServer, tmp_path: Path, queue_name: str
    ) -> None:
        url = server("valkey").url
        with duly.Duly(url) as app, ExitStack() as stack:
            queue = app.queue(queue_name)
            for _ in range(2):
                stack.enter_context(process(tmp_path, ["-c", BUSY, url, queue_name]))
            queue.send_many(range(1000))
            taken = 0
            while taken < 1000:
                taken += len(queue.receive(100, wait=60, lease=random.uniform(0.3, 1)))

            wait_until(lambda: queue.stats().leased == 0)

            assert_accounts(queue, sent=1000, delivered=taken, crashed=taken, ready=1000, dead=0)

    def test_a_monitor_killed_at_any_moment_loses_nothing(
        self, server: StartedServer, tmp_path: Path, queue_name: str
    ) -> None:
        url, seed = server("valkey").url, random.randrange(2**32)
        print(f"seed {seed}")  # noqa: T201 - shown when the test fails
        chance = random.Random(seed)
        with duly.Duly(url) as app:
            queue = app.queue(queue_name, crash_limit=10**6)
            ids, acked = set(queue.send_many(range(500))), set[str]()
            for _ in range(15):
                with process(tmp_path, ["-c", BUSY, url, queue_name]) as (monitor, _):
                    until = time.monotonic() + chance.uniform(0.2, 0.8)
                    while time.monotonic() < until:
                        held = queue.receive(40, wait=0, lease=0.05)
                        settled = [each for each in held if chance.random() < 0.02]
                        lost = queue.ack_many(settled)
                        acked |= {each.id for each in settled if each not in lost}
                    monitor.kill()
            assert queue.audit().ok
            assert acked < ids, "nothing was left to lose"
            while acked < ids:
                held = queue.receive(100, wait=60, lease=60)
                assert queue.ack_many(held) == []
                assert acked.isdisjoint(each.id for each in held)
                acked |= {each.id for each in held}
            assert_drained(queue, sent=500, acked=500)


def has_crashed(url: str, name: str, id_: str, crashes: int) -> bool:
    with duly.Duly(url) as app:
        message = app.queue(name).get(id_)
    return message is not None and message.crashes == crashes


@pytest.mark.parametrize("batch", [None, duly.Batch(max=2, wait=0.01)])
async def test_a_message_that_a_monitor_has_reclaimed_up_to_the_crash_limit_is_not_handled_again(
    server: StartedServer, queue_name: str, batch: duly.Batch | None
) -> None:
    """A monitor knows no crash limit. Workers that restart later than the lease ends would crash without end."""
    handled, reported = [], []
    url = server("valkey").url
    async with duly.AsyncDuly(url) as app:
        orders = app.queue(queue_name, lease=0.1, crash_limit=2)

        async def on_order(body: object) -> None:
            handled.append(body)

        register: Any = orders.handler(batch=batch)
        register(on_order)

        @orders.on_dead
        def on_dead(letter: duly.Message) -> None:
            reported.append(letter.id)

        id_ = await orders.send("poison")
        async with monitored(app, queue_name):
            for crashes in (1, 2):
                assert await orders.receive(wait=10)  # by a process that dies
                await asyncio.to_thread(wait_until, functools.partial(has_crashed, url, queue_name, id_, crashes))
            async with duly.Worker(app):
                await eventually(lambda: reported == [id_])
        letter = await orders.get(id_)
        assert handled == []
        assert await orders.redrive() == 1
        async with duly.Worker(app):
            await eventually(lambda: len(handled) == 1)

    assert letter is not None
    assert (letter.state, letter.reason, letter.crashes) == ("dead", "poison", 2)
