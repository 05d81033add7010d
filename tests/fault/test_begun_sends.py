"""A lone send is written in the turn of its caller, without a task. Nothing is lost or doubled when that call fails."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

import duly
from duly._async import outbox
from duly._async.begun_call import AsyncBegunCall
from duly._async.link import AsyncLink
from duly._async.wire import AsyncWire
from duly._core import outages
from tests.conftest import StartedServer
from tests.fault.proxy import (
    SCRIPT_COMMANDS,
    Action,
    BlackHole,
    Command,
    Cut,
    Delay,
    FaultAt,
    Policy,
    Proxy,
    Stage,
)
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault


@pytest.fixture
def valkey(server: StartedServer) -> Server:
    return server("valkey")


class Silent(Policy):
    """No script call gets a reply."""

    def choose(self, command: Command) -> Action | None:
        return BlackHole(Stage.EXECUTED) if command.name in SCRIPT_COMMANDS else None


class Cutting(Policy):
    """Every script call cuts its connection."""

    def choose(self, command: Command) -> Action | None:
        return Cut(Stage.BEFORE) if command.name in SCRIPT_COMMANDS else None


@asynccontextmanager
async def given_connected(url: str, queue_name: str) -> AsyncIterator[duly.AsyncQueue[Any]]:
    """Connect, so that the next send finds a connection that is free."""
    async with duly.AsyncDuly(url) as app:
        queue = app.queue(queue_name)
        await queue.send("first")
        yield queue


async def bodies(queue: duly.AsyncQueue[Any]) -> list[Any]:
    """Take everything, and check that the queue agrees."""
    found = await queue.receive(1000, wait=0)
    audit = await queue.audit()
    assert audit.ok
    assert audit.stats.sent == len(found)
    return [delivery.body for delivery in found]


async def test_a_lone_send_is_written_before_the_event_loop_turns(valkey: Server, queue_name: str) -> None:
    async with given_connected(valkey.url, queue_name) as queue:
        sending = queue.send("second")
        reading: Any = sending.send(None)  # the first step, as a task would take it

        with redis.Redis(port=valkey.port) as client:  # the event loop stands still
            wait_until(lambda: client.hlen(f"duly:{{{queue_name}}}:msgs") == 2)
        await asyncio.wait({reading})
        with pytest.raises(StopIteration):
            sending.send(None)


@pytest.mark.parametrize("stage", Stage, ids=lambda stage: stage.value)
async def test_a_lone_send_is_stored_once_if_its_connection_is_cut(
    valkey: Server, queue_name: str, stage: Stage
) -> None:
    with Proxy(valkey.port) as proxy:
        async with given_connected(proxy.url, queue_name) as queue:
            proxy.policy = policy = FaultAt(1, Cut(stage))
            await queue.send("second")
            await queue.send("third")
            assert policy.fired == 1
            assert await bodies(queue) == ["first", "second", "third"]


async def test_a_lone_send_is_stored_once_if_its_reply_never_arrives(
    valkey: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncWire.send, "__defaults__", (0.2,))
    with Proxy(valkey.port) as proxy:
        async with given_connected(proxy.url, queue_name) as queue:
            proxy.policy = policy = FaultAt(1, BlackHole(Stage.EXECUTED))
            await queue.send("second")
            assert policy.fired == 1
            assert await bodies(queue) == ["first", "second"]


async def test_a_lone_send_loads_a_script_that_the_server_has_lost(valkey: Server, queue_name: str) -> None:
    async with given_connected(valkey.url, queue_name) as queue:
        with redis.Redis(port=valkey.port) as client:
            client.script_flush()
        await queue.send("second")
        assert await bodies(queue) == ["first", "second"]


async def test_a_lone_send_that_the_server_refuses_is_not_repeated(queue_name: str) -> None:
    """A full server would get twice the calls."""
    with Server("valkey") as own, Proxy(own.port) as proxy, redis.Redis(port=own.port) as client:
        async with given_connected(proxy.url, queue_name) as queue:
            client.config_set("maxmemory", "1mb")
            before = proxy.counts["EVALSHA"]
            with pytest.raises(duly.QueueFull, match="was refused and nothing was written"):
                await queue.send("second")
            assert proxy.counts["EVALSHA"] - before == 1
            client.config_set("maxmemory", 0)
            await queue.send("third")
            assert await bodies(queue) == ["first", "third"]


async def test_sends_of_the_turn_of_a_lone_one_share_the_next_call(valkey: Server, queue_name: str) -> None:
    with Proxy(valkey.port) as proxy:
        async with given_connected(proxy.url, queue_name) as queue:
            before = proxy.counts["EVALSHA"]
            await asyncio.gather(*[queue.send(number) for number in range(100)])
            assert proxy.counts["EVALSHA"] - before == 2
            await asyncio.gather(*[queue.send(number) for number in range(100, 149)])
            assert proxy.counts["EVALSHA"] - before == 3  # sends come together, so the first one waits for a turn
            assert await bodies(queue) == ["first", *range(149)]


@asynccontextmanager
async def given_joint(url: str, queue_name: str) -> AsyncIterator[duly.AsyncQueue[Any]]:
    """Send together, so that the next sends are expected to come together as well."""
    async with given_connected(url, queue_name) as queue:
        await asyncio.gather(*[queue.send("joint") for _ in range(3)])
        assert await bodies(queue) == ["first", "joint", "joint", "joint"]
        await queue.delete()
        yield queue


@pytest.mark.parametrize(("sends", "calls"), [(49, 1), (50, 1), (51, 2), (100, 2), (1000, 3)])
async def test_many_sends_at_once_become_two_calls_at_a_time_on_one_connection(
    valkey: Server, queue_name: str, sends: int, calls: int
) -> None:
    with Proxy(valkey.port) as proxy:
        async with given_joint(proxy.url, queue_name) as queue:
            pool = queue._app._link.connections.only_pool
            assert pool is not None
            before, permits = proxy.counts["EVALSHA"], pool.gate._value
            sending = [asyncio.create_task(queue.send(number)) for number in range(sends)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert (len(pool._used), permits - pool.gate._value) == (1, 1)
            await asyncio.gather(*sending)
            assert proxy.counts["EVALSHA"] - before == calls
            assert (len(pool._used), pool.gate._value) == (0, permits)
            assert await bodies(queue) == list(range(sends))


@pytest.mark.parametrize("stage", Stage, ids=lambda stage: stage.value)
@pytest.mark.parametrize("number", [1, 2], ids=["first", "second"])
async def test_two_calls_on_a_connection_that_is_cut_are_stored_once_and_in_order(
    valkey: Server, queue_name: str, number: int, stage: Stage
) -> None:
    with Proxy(valkey.port) as proxy:
        async with given_joint(proxy.url, queue_name) as queue:
            proxy.policy = policy = FaultAt(number, Cut(stage))
            await asyncio.gather(*[queue.send(number) for number in range(120)])
            assert policy.fired == 1
            await queue.send("last")
            assert await bodies(queue) == [*range(120), "last"]


async def test_two_calls_of_a_script_that_the_server_has_lost_are_stored_in_order(
    valkey: Server, queue_name: str
) -> None:
    async with given_joint(valkey.url, queue_name) as queue:
        with redis.Redis(port=valkey.port) as client:
            client.script_flush()
        await asyncio.gather(*[queue.send(number) for number in range(100)])
        assert await bodies(queue) == list(range(100))


async def test_fewer_than_fifty_wait_for_the_reply_to_the_call_before_them(valkey: Server, queue_name: str) -> None:
    async with given_joint(valkey.url, queue_name) as queue:
        sending = [asyncio.create_task(queue.send(number)) for number in range(99)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        calls = queue._outbox._calls
        assert (calls._calls, len(calls._collected)) == (1, 49)
        await asyncio.gather(*sending)
        assert await bodies(queue) == list(range(99))


async def test_a_call_of_another_script_waits_for_the_reply_to_the_call_before_it(
    valkey: Server, queue_name: str
) -> None:
    """The server may know only the second script, and would carry it out first."""
    async with given_joint(valkey.url, queue_name) as queue:
        with redis.Redis(port=valkey.port) as client:
            client.script_flush()
        await asyncio.gather(*[queue.send("checked", ttl=100) for _ in range(3)])
        await queue.purge()
        plain = [queue.send(number) for number in range(50)]
        await asyncio.gather(*plain, *[queue.send(number, ttl=100) for number in range(50, 100)])
        assert [each.body for each in await queue.receive(1000, wait=0)] == list(range(100))


async def test_the_second_of_two_calls_does_not_begin_its_patience_after_the_first_one(
    valkey: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, given_up = list[float](), list[float]()
    repeat = AsyncLink.repeat

    async def note(link: AsyncLink, begun: AsyncBegunCall[Any], failing_since: float) -> Any:
        failed.append(failing_since)
        try:
            return await repeat(link, begun, failing_since)
        finally:
            given_up.append(time.monotonic())

    monkeypatch.setattr(AsyncLink, "repeat", note)
    with Proxy(valkey.port) as proxy:
        async with given_joint(proxy.url, queue_name) as queue:
            queue._app._link.patience = 0.5
            proxy.policy = Cutting()
            sends = [queue.send(number) for number in range(100)]
            found = await asyncio.gather(*sends, return_exceptions=True)
            proxy.policy = Policy()
    assert {type(each) for each in found} == {duly.Unavailable}
    assert len(failed) == 2
    assert failed[1] < given_up[0]


def test_a_late_reply_in_another_event_loop_does_not_stop_later_sends(valkey: Server, queue_name: str) -> None:
    with Proxy(valkey.port) as proxy:
        app = duly.AsyncDuly(proxy.url)
        queue = app.queue(queue_name)
        first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
        first.run_until_complete(queue.send("first"))
        proxy.policy = FaultAt(1, Delay(0.3, Stage.EXECUTED))
        with pytest.raises(TimeoutError):
            first.run_until_complete(asyncio.wait_for(queue.send("late"), 0.05))
        second.run_until_complete(queue.send("second"))
        first.run_until_complete(asyncio.sleep(0.5))  # the reply arrives
        second.run_until_complete(asyncio.wait_for(queue.send("third"), 30))
        assert second.run_until_complete(bodies(queue)) == ["first", "late", "second", "third"]
        second.run_until_complete(app.aclose())
    first.run_until_complete(asyncio.sleep(0.1))  # it notices that the proxy has closed its connection
    first.close()
    second.close()


async def test_two_calls_that_the_server_refuses_raise_in_each_send(valkey: Server, queue_name: str) -> None:
    async with given_joint(valkey.url, queue_name) as queue:
        with redis.Redis(port=valkey.port) as client:
            client.set(f"duly:{{{queue_name}}}:msgs", "of another program")
            found = await asyncio.gather(*[queue.send(number) for number in range(100)], return_exceptions=True)
            assert [type(error) for error in found] == [duly.ServerError] * 100
            client.delete(f"duly:{{{queue_name}}}:msgs")
        await asyncio.gather(*[queue.send(number) for number in range(100)])
        assert await bodies(queue) == list(range(100))


async def test_sends_of_two_calls_may_be_cancelled(valkey: Server, queue_name: str) -> None:
    with Proxy(valkey.port) as proxy:
        async with given_joint(proxy.url, queue_name) as queue:
            proxy.policy = FaultAt(1, Delay(0.1, Stage.EXECUTED))
            sending = [asyncio.create_task(queue.send(number)) for number in range(110)]
            await asyncio.sleep(0)
            for task in sending[::2]:
                task.cancel()
            found = await asyncio.gather(*sending, return_exceptions=True)
            assert [isinstance(each, str) for each in found] == [False, True] * 55
            await queue.send("last")
            assert await bodies(queue) == [*range(110), "last"]


async def test_a_call_that_cannot_be_written_behind_another_one_keeps_the_connection(
    valkey: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with given_joint(valkey.url, queue_name) as queue:
        pool = queue._app._link.connections.only_pool
        assert pool is not None
        permits, write, writes = pool.gate._value, AsyncWire.send, 0

        def fail_second(*args: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes == 2:
                raise ValueError("it cannot be written")
            return write(*args)

        with monkeypatch.context() as patch:
            patch.setattr(AsyncWire, "send", fail_second)
            found = await asyncio.gather(*[queue.send(number) for number in range(100)], return_exceptions=True)
        assert [isinstance(each, ValueError) for each in found] == [False] * 50 + [True] * 50
        assert (len(pool._used), len(pool._free), pool.gate._value) == (0, 1, permits)
        await asyncio.gather(*[queue.send(number) for number in range(100)])
        assert await bodies(queue) == [*range(50), *range(100)]


@pytest.mark.parametrize("cut", [True, False], ids=["its connection is cut", "the reply is late"])
async def test_a_cancelled_send_holds_up_no_other(valkey: Server, queue_name: str, *, cut: bool) -> None:
    """Its call goes on, and so do the sends that wait for the next call."""
    with Proxy(valkey.port) as proxy:
        async with given_connected(proxy.url, queue_name) as queue:
            proxy.policy = FaultAt(1, Cut(Stage.EXECUTED) if cut else Delay(0.1, Stage.EXECUTED))
            alone = asyncio.create_task(queue.send("cancelled"))
            await asyncio.sleep(0)
            others = [asyncio.create_task(queue.send(number)) for number in range(3)]
            await asyncio.sleep(0)
            alone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await alone
            await asyncio.gather(*others)
            assert await bodies(queue) == ["first", "cancelled", 0, 1, 2]


async def test_a_lone_send_that_the_server_refuses_raises_and_holds_up_no_other(
    valkey: Server, queue_name: str
) -> None:
    async with given_connected(valkey.url, queue_name) as queue:
        key = f"duly:{{{queue_name}}}:msgs"
        with redis.Redis(port=valkey.port) as client:
            client.rename(key, f"{key}:kept")
            client.set(key, "of another program")
            with pytest.raises(duly.ServerError, match="WRONGTYPE"):
                await queue.send("refused")
            client.rename(f"{key}:kept", key)
        await queue.send("second")
        assert await bodies(queue) == ["first", "second"]


async def test_sends_to_many_queues_at_once_share_the_permits_with_other_calls(
    valkey: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app opens up to 32 connections for calls: sends that are written at once take permits as well."""
    async with duly.AsyncDuly(valkey.url) as app:
        queues = [app.queue(f"{queue_name}-{number}") for number in range(100)]
        pool = app._link.connections.only_pool
        assert pool is not None
        most, begun = 0, 0
        begin = AsyncBegunCall.__init__

        def noted(self: Any, *args: Any) -> None:
            nonlocal most, begun
            begin(self, *args)
            most, begun = max(most, len(pool._used)), begun + 1

        monkeypatch.setattr(AsyncBegunCall, "__init__", noted)
        for _ in range(20):
            await asyncio.gather(*[queue.send("x") for queue in queues], *[queue.stats() for queue in queues])
        assert begun
        assert most <= 32
        assert len(pool._free) <= 32
        assert not pool.gate.locked()
        assert [(await queue.stats()).sent for queue in queues] == [20] * 100
        for queue in queues:
            await queue.delete()


@pytest.mark.parametrize("lone", [True, False], ids=["after a lone send", "after joint sends"])
async def test_a_close_waits_for_the_sends_that_began_before_it(valkey: Server, queue_name: str, *, lone: bool) -> None:
    """They take several calls, one after another."""
    async with duly.AsyncDuly(valkey.url) as app:
        queue = app.queue(queue_name)
        await asyncio.gather(*[queue.send("before") for _ in range(1 if lone else 5)])
        sends = [asyncio.create_task(queue.send(number)) for number in range(2500)]
        await asyncio.sleep(0)
    assert len(set(await asyncio.gather(*sends))) == 2500


async def test_a_close_waits_for_a_send_that_waits_for_others(valkey: Server, queue_name: str) -> None:
    async with duly.AsyncDuly(valkey.url) as app:
        queue = app.queue(queue_name)
        await asyncio.gather(*[queue.send("before") for _ in range(5)])
        send = asyncio.create_task(queue.send("last"))
        await asyncio.sleep(0)
    assert await send


async def test_a_lone_send_that_fails_has_spent_a_part_of_its_patience(
    valkey: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The try that was written at once is the first one: patience and the log count it."""
    caplog.set_level(logging.INFO, "duly")
    monkeypatch.setattr(AsyncWire.send, "__defaults__", (0.2,))
    monkeypatch.setattr(AsyncWire.ask, "__defaults__", (0.2,))
    with Proxy(valkey.port) as proxy:
        async with duly.AsyncDuly(proxy.url, patience=0.1) as app:
            queue = app.queue(queue_name)
            await queue.send("first")
            proxy.policy = policy = Silent()
            with pytest.raises(duly.Unavailable, match="may or may not have been carried out"):
                await queue.send("second")
            assert policy.fired == 2
            proxy.policy = Policy()
            await queue.send("third")
            assert [found.partition(proxy.url)[2].partition(",")[0] for found in caplog.messages] == [
                " does not answer",
                " answers again",
            ]


async def test_calls_that_cannot_be_made_fail_one_after_another(
    valkey: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with given_connected(valkey.url, queue_name) as queue:
        pool = queue._app._link.connections.only_pool
        assert pool is not None

        def fail(*_: object) -> None:
            raise ValueError("it cannot be written")

        with monkeypatch.context() as patch:
            patch.setattr(outbox, "MAX_BATCH", 1)
            patch.setattr(AsyncWire, "send", fail)
            found = await asyncio.gather(*[queue.send(number) for number in range(2000)], return_exceptions=True)
        assert [str(error) for error in found] == ["it cannot be written"] * 2000
        assert not pool._used
        await asyncio.gather(*[queue.send(number) for number in range(100)])
        assert await bodies(queue) == ["first", *range(100)]


async def test_another_server_that_does_not_answer_leaves_lone_sends_alone(
    valkey: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(outages.unanswered, "redis://of-another-app", object())
    async with given_connected(valkey.url, queue_name) as queue:
        monkeypatch.delattr(type(queue._app._link), "run_now")
        assert await queue.send("second")
