"""One dashboard in several event loops: a sync app is not bound to any of them."""

import asyncio
from typing import Any

import pytest

import duly
from duly.web import create_app, names
from duly.web.cache import Cached
from tests.web.conftest import client_of


def test_a_dashboard_of_a_sync_app_works_in_consecutive_event_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    find = duly.AsyncDuly.queues

    async def slow(self: duly.AsyncDuly) -> Any:
        await asyncio.sleep(0)  # so that other callers arrive in the meantime
        return await find(self)

    monkeypatch.setattr(duly.AsyncDuly, "queues", slow)
    monkeypatch.setattr(names, "_TTL", 0.0)
    with duly.Duly("memory://") as app:
        app.queue("orders").send(1)
        site = create_app(app)

        async def request() -> set[int]:
            async with client_of(site) as client:
                paths = ["/api/v1/queues", "/api/v1/topics", "/", "/metrics"] * 3
                responses = await asyncio.gather(*(client.get(path) for path in paths))
                return {response.status_code for response in responses}

        assert [asyncio.run(request()) for _ in range(3)] == [{200}] * 3


def test_a_caller_does_not_wait_for_a_fetch_of_another_event_loop() -> None:
    other = asyncio.new_event_loop()
    held = asyncio.Event()

    async def look() -> str:
        if asyncio.get_running_loop() is other:
            await held.wait()
            return "there"
        return "here"

    shared = Cached(look)
    looking = other.create_task(shared.get())
    for _ in range(3):
        other.run_until_complete(asyncio.sleep(0))
    assert asyncio.run(shared.get()) == "here"
    held.set()
    assert other.run_until_complete(looking) == "there"
    other.close()
    assert asyncio.run(shared.get()) == "here"
    assert len(shared._by_loop) == 1
