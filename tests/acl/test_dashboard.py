"""A dashboard whose user on the server may only look: it shows everything, and the server refuses the rest."""

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
from tests.web.conftest import client_of


@pytest.fixture
def url(new_user: NewUser) -> str:
    return new_user("observer")


@pytest.fixture
async def dashboard(new_user: NewUser, url: str, queue_name: str) -> AsyncIterator[httpx.AsyncClient]:
    """Show a queue, a group and a schedule with the eyes of an observer."""
    async with duly.AsyncDuly(new_user("consumer")) as app:
        await app.queue(queue_name).send("body", id="one")
        await app.topic(queue_name).publish("entry")
        await app.topic(queue_name).group("archive").receive(limit=1)
        await app.schedule(queue_name, queue_name, "tick", every=3600)
    async with duly.AsyncDuly(url) as app, client_of(create_app(app)) as client:
        yield client


def named(path: str, queue_name: str) -> str:
    return path.format(queue=queue_name, topic=queue_name, group="archive", id="one")


async def test_everything_can_be_looked_at(
    dashboard: httpx.AsyncClient, root: "redis.Redis", url: str, queue_name: str
) -> None:
    pages = ["/", "/topics", "/workers", "/schedules", "/healthz", "/queues/{queue}", "/queues/{queue}/messages/one"]
    calls = [f"/api/v1{path}" for each in OPERATIONS if each.method == "GET" for path in paths_of(each)]
    of_queues = [path for path in (*pages, *calls) if not ("{group}" in path and "{id}" in path)]
    for path in [*of_queues, "/topics/{topic}/groups/archive"]:
        query = "?state=ready" if path.endswith("/messages") else ""
        answer = await dashboard.get(named(path, queue_name) + query)
        assert answer.status_code == 200, (path, answer.text)

    assert "duly_up 1.0" in (await dashboard.get("/metrics")).text
    assert refusals(root, url) == []


async def test_a_change_is_refused_by_the_server_and_said_so(dashboard: httpx.AsyncClient, queue_name: str) -> None:
    refused = await dashboard.post(f"/api/v1/queues/{queue_name}/pause")

    assert refused.status_code == 502
    assert "pause" in refused.json()["detail"]
    assert "right" in refused.json()["detail"]
