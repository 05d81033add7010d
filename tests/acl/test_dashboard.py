"""A dashboard whose user on the server is an observer: it shows everything, and the server refuses changes."""

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest
import redis

import duly
from duly.web import create_app
from duly.web.api import paths_of
from duly.web.api.catalog import OPERATIONS
from tests.acl.conftest import NewUser
from tests.acl.test_worker import refusals
from tests.waiting import PATIENCE
from tests.web.conftest import client_of


@pytest.fixture
def url(new_user: NewUser) -> str:
    return new_user("observer")


@pytest.fixture
async def dashboard(new_user: NewUser, url: str, queue_name: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a dashboard of a queue, a group and a schedule, as an observer."""
    async with duly.AsyncDuly(new_user("consumer")) as app:
        await app.queue(queue_name).send("body", id="one")
        await app.topic(queue_name).publish("entry")
        await app.topic(queue_name).group("archive").receive(limit=1)
        await app.schedule(queue_name, queue_name, "tick", every=3600)
    async with duly.AsyncDuly(url) as app, client_of(create_app(app)) as client:
        yield client


def named(path: str, queue_name: str) -> str:
    return path.format(queue=queue_name, topic=queue_name, group="archive", id="one")


async def wait_for_metric(dashboard: httpx.AsyncClient, line: str) -> None:
    """Scrape until the line is there: one that meets a slow server reports it as down."""
    deadline = time.monotonic() + PATIENCE
    while line not in (metrics := (await dashboard.get("/metrics")).text):
        assert time.monotonic() < deadline, metrics
        await asyncio.sleep(0.1)


async def test_an_observer_can_open_every_page(
    dashboard: httpx.AsyncClient, root: "redis.Redis", url: str, queue_name: str
) -> None:
    pages = ["/", "/topics", "/workers", "/schedules", "/healthz", "/queues/{queue}", "/queues/{queue}/messages/one"]
    # A stream has no end, and the doctor tries what a user may do.
    left_out = ("stream", "stream_all", "examine")
    reads = [each for each in OPERATIONS if each.method == "GET" and each.name not in left_out]
    calls = [f"/api/v1{path}" for each in reads for path in paths_of(each)]
    of_queues = [path for path in (*pages, *calls) if not ("{group}" in path and "{id}" in path)]
    for path in [*of_queues, "/topics/{topic}/groups/archive"]:
        query = "?state=ready" if path.endswith("/messages") else ""
        answer = await dashboard.get(named(path, queue_name) + query)
        expected = 204 if "/results/" in path else 200  # the message is not finished
        assert answer.status_code == expected, (path, answer.text)

    await wait_for_metric(dashboard, "duly_up 1.0")
    assert refusals(root, url) == []


async def test_a_change_is_refused_by_the_server_and_reported(dashboard: httpx.AsyncClient, queue_name: str) -> None:
    refused = await dashboard.post(f"/api/v1/queues/{queue_name}/pause")

    assert refused.status_code == 502
    assert "pause" in refused.json()["detail"]
    assert "lacks a permission" in refused.json()["detail"]
