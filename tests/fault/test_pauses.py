"""A server that pauses writes (CLIENT PAUSE, a planned fail-over) while consumers wait: it lives, and so do the tokens.

CLIENT UNBLOCK of a client whose BLPOP is held back aborts Redis 6.2 and 7.0. Valkey 9.1 answers 0.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import redis

import duly
from duly._async.link import AsyncLink
from duly._core import address
from duly._core.keys import QueueKeys
from tests.binaries import Kind
from tests.conftest import need
from tests.fault.proxy import Action, Command, Policy, Proxy
from tests.fault.recorded import assert_drained
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

PAUSE: Final = 0.6
"""Longer than the waits here, so that they end while the server holds the blocking call back."""


class PauseBeforeWaits(Policy):
    """Pauses writes at the moment a blocking call is on its way, so that the server holds it back."""

    def __init__(self, client: Any) -> None:
        super().__init__(only={"BLPOP"})
        self._client = client
        self.pauses = 0

    def choose(self, command: Command) -> Action | None:
        if self.seen == 1:
            self._client.client_pause(round(PAUSE * 1000), all=False)
            self.pauses += 1
        return None


@contextmanager
def pausing(kind: Kind) -> Iterator[tuple[Server, Proxy, PauseBeforeWaits]]:
    with Server(kind) as server, redis.Redis.from_url(server.url) as client:
        policy = PauseBeforeWaits(client)
        with Proxy(server.port, policy) as proxy:
            yield server, proxy, policy


def assert_lives(server: Server) -> None:
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
    assert "crash" not in (server.directory / "server.log").read_text(errors="replace").lower()


def test_a_receive_that_ends_during_a_pause_leaves_the_server_alive(kind: Kind, queue_name: str) -> None:
    with pausing(kind) as (server, proxy, policy), duly.Duly(proxy.url) as app:
        queue = app.queue(queue_name)
        while not policy.pauses:  # a receive may end before it has blocked: the machine is busy
            assert queue.receive(1, wait=0.05) == []
        assert_lives(server)
        queue.send("after")
        (delivery,) = queue.receive(1, wait=30)
        delivery.ack()
        assert_drained(queue, sent=1, acked=1, crashed=0)


async def test_an_async_receive_that_ends_during_a_pause_leaves_the_server_alive(queue_name: str) -> None:
    need("redis7")
    with pausing("redis7") as (server, proxy, policy):
        async with duly.AsyncDuly(proxy.url) as app:
            queue = app.queue(queue_name)
            while not policy.pauses:
                assert await queue.receive(1, wait=0.05) == []
            assert_lives(server)
            await queue.send("after")
            (delivery,) = await queue.receive(1, wait=30)
            await delivery.ack()


async def test_a_block_that_is_ended_during_a_pause_keeps_its_connection_and_its_token(queue_name: str) -> None:
    """The seam that workers use: they end a block that has to name more queues."""
    need("redis7")
    keys = QueueKeys("duly", queue_name)
    with Server("redis7") as server, redis.Redis.from_url(server.url) as client:
        link = AsyncLink(address.parse(server.url), patience=5, allow_eviction=False)
        pool = await link.connections.serving_pool()
        wire = await pool.take_waiting()
        client.client_pause(round(PAUSE * 1000), all=False)
        await wire.begin([b"BLPOP", keys.key("wake"), 30])
        await asyncio.to_thread(wait_until, lambda: client.info("clients")["blocked_clients"] == 1)
        await pool.unblock(wire)
        assert await wire.finish() is None
        assert_lives(server)

        client.rpush(keys.key("wake"), "1")
        await wire.begin([b"BLPOP", keys.key("wake"), 30])
        assert await wire.finish() == [keys.key("wake"), b"1"]
        await wire.close()
        await link.aclose()
