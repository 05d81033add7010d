"""Eviction that is switched on under a running app is logged, and nothing that is under way is refused."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
import redis

import duly
from duly._async import pool as async_pool
from duly._sync import pool
from duly.worker import janitor
from tests.conftest import need
from tests.servers import Server

pytestmark = pytest.mark.fault


@pytest.fixture
def server() -> Iterator[Server]:
    need("valkey")
    with Server("valkey", {"maxmemory": "100mb"}) as server:
        yield server


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


def test_a_new_connection_checks_again(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "_CHECK_EVICTION_EVERY", 0.0)
    with duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        queue = app.queue(queue_name)
        queue.send("x")
        (delivery,) = queue.receive(1, wait=0)
        client.config_set("maxmemory-policy", "allkeys-lru")
        for _ in range(2):
            client.client_kill_filter(_type="normal", skipme=True)
            delivery.extend(30)
        assert len(errors(caplog)) == 1
        assert "CONFIG SET maxmemory-policy noeviction" in errors(caplog)[0]
        delivery.ack()
        client.config_set("maxmemory-policy", "noeviction")
        client.client_kill_filter(_type="normal", skipme=True)
        assert queue.stats().acked == 1
        assert "no longer evicts keys" in caplog.text


def test_an_app_that_accepts_eviction_logs_nothing(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "_CHECK_EVICTION_EVERY", 0.0)
    with duly.Duly(server.url, allow_eviction=True) as app, redis.Redis.from_url(server.url) as client:
        app.queue(queue_name).stats()
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.client_kill_filter(_type="normal", skipme=True)
        app.queue(queue_name).stats()
        assert errors(caplog) == []


async def test_a_worker_checks_again(
    server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(janitor, "_HEARTBEAT_EVERY", 0.05)
    monkeypatch.setattr(janitor, "_CHECK_EVERY", 0.1)
    assert async_pool._CHECK_EVICTION_EVERY == 60  # so the check is the worker's
    async with duly.AsyncDuly(server.url) as app:
        queue = app.queue(queue_name)

        @queue.handler
        async def on_message(body: str) -> None: ...

        async def send_and_wait(acked: int) -> None:
            await queue.send("x")
            while (await queue.stats()).acked < acked:  # noqa: ASYNC110 - it asks a server
                await asyncio.sleep(0.02)

        async with duly.Worker(app):
            await send_and_wait(1)
            with redis.Redis.from_url(server.url) as client:
                client.config_set("maxmemory-policy", "allkeys-lru")
            for _ in range(600):
                if errors(caplog):
                    break
                await asyncio.sleep(0.05)
            assert "may evict keys" in errors(caplog)[0]
            await send_and_wait(2)
