"""Wake-ups get lost, swallowed or late: a message is found all the same."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest
import redis

import duly
from duly import _lua
from tests.binaries import Kind
from tests.clock import ServerClock
from tests.conftest import need
from tests.fault.proxy import Command, Delay, FaultAt, LoseReplies, Proxy, Stage
from tests.fault.recorded import assert_drained
from tests.servers import Server
from tests.waiting import wait_until
from tests.warm import WarmPopen

pytestmark = pytest.mark.fault

CONSUMER: Final = """
import sys
import duly
with duly.Duly(sys.argv[1]) as app:
    for delivery in app.queue(sys.argv[2], lease=60).receive(1, wait=300):
        delivery.ack()
        print(delivery.body, flush=True)
"""


@contextmanager
def consumer_process(url: str, queue_name: str) -> Iterator[WarmPopen]:
    """Run a process that waits for one message."""
    with WarmPopen([sys.executable, "-c", CONSUMER, url, queue_name], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def blocked(client: Any) -> int:
    return int(client.info("clients")["blocked_clients"])


def test_a_stopped_consumer_swallows_one_wake_up_at_most_and_another_gets_the_message(
    kind: Kind, queue_name: str
) -> None:
    with (
        Server(kind) as server,
        redis.Redis.from_url(server.url) as client,
        consumer_process(server.url, queue_name) as stopped,
        duly.Duly(server.url) as app,
        ThreadPoolExecutor(1) as pool,
    ):
        queue = app.queue(queue_name, lease=3)
        wait_until(lambda: blocked(client) == 1)
        os.kill(stopped.pid, signal.SIGSTOP)
        waiting = pool.submit(queue.receive, 1, 60)
        wait_until(lambda: blocked(client) == 2)

        first = queue.send("first")  # its token goes to the one that has waited longest
        (delivery,) = waiting.result(timeout=30)
        assert delivery.id == first
        assert blocked(client) == 0, "the stopped consumer was not given the token"
        delivery.ack()

        for number in range(5):  # it takes no more of them
            waiting = pool.submit(queue.receive, 1, 60)
            wait_until(lambda: blocked(client) == 1)
            assert queue.send(number)
            (delivery,) = waiting.result(timeout=30)
            assert delivery.body == number
            delivery.ack()

        os.kill(stopped.pid, signal.SIGCONT)
        queue.send("last")
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "last\n"
        assert stopped.wait(timeout=30) == 0
        assert_drained(queue, sent=7, acked=7, crashed=0)


async def test_a_consumer_cancelled_while_blocked_passes_its_wake_up_on(queue_name: str) -> None:
    need("valkey")
    woken: list[Command] = []
    sha = _lua.script("wake").sha.encode()

    class HoldToken(FaultAt):
        def choose(self, command: Command) -> Any:
            if command.name in {"EVALSHA", "EVAL"} and sha in command.args():
                woken.append(command)
            return self.action if command.name == "BLPOP" else None

    with Server("valkey") as server, redis.Redis.from_url(server.url) as client:
        policy = HoldToken(1, Delay(60, Stage.EXECUTED))
        with Proxy(server.port, policy) as proxy:
            async with duly.AsyncDuly(proxy.url) as app, duly.AsyncDuly(server.url) as other:
                cancelled = asyncio.create_task(app.queue(queue_name).receive(1, wait=60))
                await asyncio.to_thread(wait_until, lambda: blocked(client) == 1)
                waiting = asyncio.create_task(other.queue(queue_name).receive(1, wait=60))
                await asyncio.to_thread(wait_until, lambda: blocked(client) == 2)

                message_id = await other.queue(queue_name).send("x")
                await asyncio.to_thread(wait_until, lambda: policy.fired == 1)  # the token is on its way to the first
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
                (delivery,) = await asyncio.wait_for(waiting, 30)
                assert delivery.id == message_id
                await delivery.ack()
                await asyncio.to_thread(wait_until, lambda: woken)


def test_wake_ups_that_get_lost_on_the_way_delay_messages_but_lose_none(queue_name: str) -> None:
    need("valkey")
    policy = LoseReplies(0.7, 9, only={"BLPOP"})
    with (
        Server("valkey") as server,
        redis.Redis.from_url(server.url) as client,
        Proxy(server.port, policy) as proxy,
        duly.Duly(proxy.url) as app,
        ThreadPoolExecutor(1) as pool,
    ):
        queue = app.queue(queue_name, lease=2)
        for number in range(20):
            waiting = pool.submit(queue.receive, 1, 60)
            wait_until(lambda: blocked(client) == 1)
            queue.send(number)
            (delivery,) = waiting.result(timeout=30)
            assert delivery.body == number
            delivery.ack()
        assert policy.fired > 5
        assert_drained(queue, sent=20, acked=20, crashed=0)


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_receive_returns_on_time_when_the_server_clock_steps_while_it_is_blocked(
    kind: Kind, queue_name: str, server_clock: ServerClock, step: int
) -> None:
    with (
        Server(kind, environment=server_clock.environment()) as server,
        redis.Redis.from_url(server.url) as client,
        duly.Duly(server.url) as app,
        ThreadPoolExecutor(2) as pool,
    ):
        queue = app.queue(queue_name)
        queue.send("at another time", delay=10_000)
        waiting = [pool.submit(queue.receive, 1, 2), pool.submit(queue.receive, 1, 60)]
        wait_until(lambda: blocked(client) == 2 or waiting[0].done())
        server_clock.step(step)
        assert waiting[0].result(timeout=30) == []  # the server's own time-out would end it in an hour
        assert not waiting[1].done()
        queue.send("now")
        (delivery,) = waiting[1].result(timeout=30)
        assert delivery.body == "now"


async def test_an_async_receive_returns_on_time_when_the_server_clock_steps_back(
    queue_name: str, server_clock: ServerClock
) -> None:
    need("valkey")
    with (
        Server("valkey", environment=server_clock.environment()) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        async with duly.AsyncDuly(server.url) as app:
            waiting = asyncio.create_task(app.queue(queue_name).receive(1, wait=2))
            await asyncio.to_thread(wait_until, lambda: blocked(client) == 1 or waiting.done())
            server_clock.step(-3600)
            assert await asyncio.wait_for(waiting, 30) == []


def test_a_message_that_falls_due_is_found_by_a_blocked_consumer_through_a_slow_and_lossy_link(queue_name: str) -> None:
    need("valkey")

    class SlowAndLossy(LoseReplies):
        def choose(self, command: Command) -> Any:
            return super().choose(command) or Delay(0.02)

    policy = SlowAndLossy(0.2, 4, only={"BLPOP", "EVALSHA"})
    with (
        Server("valkey") as server,
        Proxy(server.port, policy) as proxy,
        duly.Duly(proxy.url) as app,
        ThreadPoolExecutor(1) as pool,
    ):
        queue = app.queue(queue_name, lease=2)

        def consume() -> list[str]:
            found: list[str] = []
            while len(found) < 20:
                taken = queue.receive(3, wait=30)
                assert taken
                found += [each.id for each in taken]
                assert queue.ack_many(taken) == []
            return found

        consuming = pool.submit(consume)
        wait_until(lambda: proxy.counts["BLPOP"] > 0)
        due = [queue.send(number, delay=0.1 * number) for number in range(20)]
        assert consuming.result(timeout=60) == due
        assert any(fault.command.name == "BLPOP" for fault in policy.faults)
        assert_drained(queue, sent=20, acked=20, crashed=0)
