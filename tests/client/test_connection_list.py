"""An app in the server's CLIENT LIST: named connections, and none that were unused for long."""

import asyncio
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Final

import pytest
import redis

import duly
import duly._async.connections
import duly._async.pool
import duly._sync.connections
import duly._sync.pool
from tests.client.place import ServerPlace
from tests.waiting import wait_until


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> str:
    """Give this process its own host name, to be found by."""
    host = f"host-{uuid.uuid4().hex}"
    for side in (duly._async.connections, duly._sync.connections):
        monkeypatch.setattr(side, "_HOST", host)
    return host


@pytest.fixture
def client(server: ServerPlace) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def names(client: redis.Redis, host: str) -> list[str]:
    return [each["name"] for each in client.client_list() if host in each["name"]]


def test_connections_have_the_name_of_their_process(
    server: ServerPlace, queue_name: str, client: redis.Redis, host: str
) -> None:
    async def send_and_wait() -> None:
        async with duly.AsyncDuly(server.url) as app:
            await app.queue(queue_name).send("x")
            await app.queue(queue_name).receive(2, wait=0.1)
            assert set(names(client, host)) == {f"duly:client:{host}:{os.getpid()}"}

    with duly.Duly(server.url) as app:
        app.queue(queue_name).send("x")
        assert names(client, host) == [f"duly:client:{host}:{os.getpid()}"]
    asyncio.run(send_and_wait())


def test_a_connection_that_was_cut_has_its_name_again(
    server: ServerPlace, queue_name: str, client: redis.Redis, host: str
) -> None:
    with duly.Duly(server.url) as app:
        app.queue(queue_name).send("x")
        [cut] = [each["id"] for each in client.client_list() if host in each["name"]]
        client.client_kill_filter(_id=cut)
        app.queue(queue_name).send("x")
        assert names(client, host) == [f"duly:client:{host}:{os.getpid()}"]


def test_connections_of_a_worker_have_other_names_than_those_of_its_handlers(
    server: ServerPlace, queue_name: str, client: redis.Redis, host: str
) -> None:
    async def work() -> None:
        app = duly.AsyncDuly(server.url)
        done = asyncio.Event()

        @app.queue(queue_name).handler
        async def handle(body: str) -> None:
            await app.queue(queue_name).stats()
            done.set()

        async with app, duly.Worker(app):
            await app.queue(queue_name).send("x")
            await asyncio.wait_for(done.wait(), 30)
            found = set(names(client, host))
        assert found == {f"duly:{role}:{host}:{os.getpid()}" for role in ("client", "worker")}

    asyncio.run(work())


def test_the_name_of_a_url_comes_first(server: ServerPlace, client: redis.Redis) -> None:
    name = uuid.uuid4().hex
    with duly.Duly(f"{server.url}?client_name={name}") as app:
        app.queues()
        assert names(client, name) == [name]


def test_host_names_are_made_fit() -> None:
    assert re.fullmatch(r"[!-~]+", duly._sync.connections._HOST)


USED: Final = ("+client|id", "+client|unblock", "+client|kill", "+client|list")
"""Redis 6.2 cannot deny a subcommand, so the test denies CLIENT and allows its other subcommands."""


def test_a_user_without_permission_to_set_a_name_is_served(
    server: ServerPlace, queue_name: str, client: redis.Redis, host: str
) -> None:
    user = f"user-{uuid.uuid4().hex}"
    client.acl_setuser(
        user, enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"], commands=["-client", *USED]
    )
    try:
        url = server.url.replace("://", f"://{user}:secret@")

        async def send() -> None:
            async with duly.AsyncDuly(url) as app:
                await app.queue(queue_name).send("b")

        with duly.Duly(url) as app:
            app.queue(queue_name).send("a")
            asyncio.run(send())
            assert [each.body for each in app.queue(queue_name).receive(2)] == ["a", "b"]
        assert names(client, host) == []
    finally:
        client.acl_deluser(user)


def test_connections_that_are_not_used_are_closed(
    server: ServerPlace, queue_name: str, client: redis.Redis, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def many_at_once() -> None:
        async with duly.AsyncDuly(server.url) as app:
            queue = app.queue(queue_name)
            await asyncio.gather(*(queue.stats() for _ in range(10)))
            assert len(names(client, host)) == 10
            streams = {stream.name for stream in app._link.connections._streams}
            with monkeypatch.context() as patched:
                patched.setattr(duly._async.pool, "_CLOSE_AFTER", 0.0)
                for _ in range(10):
                    await queue.stats()
            deadline = time.monotonic() + 30
            while len(names(client, host)) > 1:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            await asyncio.gather(*(queue.stats() for _ in range(10)))
            later = {stream.name for stream in app._link.connections._streams}
            assert streams <= later
            assert len(later) <= 10

    asyncio.run(many_at_once())


def test_connections_of_threads_that_are_not_used_are_closed(
    server: ServerPlace, queue_name: str, client: redis.Redis, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        threads = [threading.Thread(target=queue.receive, args=(1,), kwargs={"wait": 60}) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.blocked() == 4)
        queue.send_many(["x"] * 4)
        for thread in threads:
            thread.join()
        assert len(names(client, host)) >= 5  # those that waited, and one for calls
        monkeypatch.setattr(duly._sync.pool, "_CLOSE_AFTER", 0.0)
        for _ in range(10):
            queue.receive(1, wait=0.01)
        wait_until(lambda: len(names(client, host)) == 2)
