"""A lone send is written in the turn of its caller, without a task. Nothing is lost or doubled when that call fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

import duly
from duly._async.begun_call import AsyncBegunCall
from duly._async.wire import AsyncWire
from tests.conftest import StartedServer
from tests.fault.proxy import BlackHole, Cut, Delay, FaultAt, Proxy, Stage
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault


@pytest.fixture
def valkey(server: StartedServer) -> Server:
    return server("valkey")


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


async def test_sends_of_the_turn_of_a_lone_one_share_the_next_call(valkey: Server, queue_name: str) -> None:
    with Proxy(valkey.port) as proxy:
        async with given_connected(proxy.url, queue_name) as queue:
            before = proxy.counts["EVALSHA"]
            await asyncio.gather(*[queue.send(number) for number in range(100)])
            assert proxy.counts["EVALSHA"] - before == 2
            await asyncio.gather(*[queue.send(number) for number in range(100, 200)])
            assert proxy.counts["EVALSHA"] - before == 3  # sends come together, so the first one waits for a turn
            assert await bodies(queue) == ["first", *range(200)]


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


async def test_calls_without_a_permit_leave_connections_to_the_others(
    valkey: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends to many queues at once use as many connections as permits, and calls that need one still get it."""
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
        assert most <= 64
        assert len(pool._free) <= 64
        assert [(await queue.stats()).sent for queue in queues] == [20] * 100
        for queue in queues:
            await queue.delete()
