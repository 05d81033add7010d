"""Over HTTP: delete, audit, repair, doctor, schedules, results and streams of statistics."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import redis.asyncio as redis

import duly
from duly.web import create_app
from tests.conftest import StartedServer
from tests.web.conftest import poll_limit_of

API = "/api/v1"


class TestDelete:
    """DELETE of a queue or group."""

    async def test_a_queue_is_deleted_if_its_name_is_confirmed(
        self, site_app: duly.AsyncDuly, client: httpx.AsyncClient
    ) -> None:
        await site_app.queue("orders").send(1)

        refused = await client.delete(f"{API}/queues/orders", params={"confirm": "order"})
        assert (refused.status_code, "confirm must be 'orders'" in refused.json()["detail"]) == (422, True)
        assert (await client.delete(f"{API}/queues/orders")).status_code == 400
        assert await site_app.queues() == ["orders"]

        assert (await client.delete(f"{API}/queues/orders", params={"confirm": "orders"})).status_code == 204
        assert await site_app.queues() == []
        assert (await client.delete(f"{API}/queues/none", params={"confirm": "none"})).status_code == 404

    async def test_a_group_is_deleted_by_its_label(self, site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
        events = site_app.topic("events")
        await events.group("archive").receive(1, wait=0)
        path = f"{API}/topics/events/groups/archive"

        assert (await client.delete(path, params={"confirm": "archive"})).status_code == 422
        assert (await client.delete(path, params={"confirm": "events/archive"})).status_code == 204
        assert await events.groups() == []


class TestAudit:
    """The audit, and the repair."""

    async def test_a_sound_queue(self, site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
        await site_app.queue("orders").send_many([1, 2])
        found = (await client.get(f"{API}/queues/orders/audit")).json()
        assert (found["ok"], found["difference"], found["faults"]) == (True, 0, [])
        assert (found["repaired"], found["stats"]["ready"]) == (False, 2)

    async def test_a_damaged_queue_is_repaired(
        self, server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
    ) -> None:
        queue = server_app.queue("orders")
        await queue.send_many([1, 2])
        async with redis.Redis.from_url(server("valkey").url) as other:
            await other.hset(queue._keys.key("meta").decode(), "sent", 5)

        found = (await server_client.get(f"{API}/queues/orders/audit")).json()
        assert (found["ok"], found["difference"]) == (False, 3)
        repaired = (await server_client.post(f"{API}/queues/orders/audit")).json()
        assert repaired["repaired"]
        assert (await server_client.get(f"{API}/queues/orders/audit")).json()["ok"]


async def test_the_doctor_examines_the_server(server_app: duly.AsyncDuly, server_client: httpx.AsyncClient) -> None:
    report = (await server_client.get(f"{API}/doctor")).json()
    findings = {each["name"]: each for each in report["findings"]}
    assert findings["eviction"]["verdict"] == "ok"
    assert set(findings["eviction"]) == {"name", "verdict", "found", "why", "fix"}


class TestSchedules:
    """Schedules are created, replaced, paused and removed."""

    async def test_a_schedule_from_its_creation_to_its_end(
        self, site_app: duly.AsyncDuly, client: httpx.AsyncClient
    ) -> None:
        given = {"queue": "reports", "body": {"n": 1}, "cron": "0 3 * * *", "tz": "Asia/Shanghai", "priority": 3}
        path = f"{API}/schedules/daily"

        assert (await client.put(path, json=given)).json() == {"new": True}
        assert (await client.put(path, json=given)).json() == {"new": False}
        (found,) = await site_app.schedules()
        assert (found.queue, found.cron, found.tz, found.body) == ("reports", "0 3 * * *", "Asia/Shanghai", {"n": 1})

        assert (await client.post(f"{path}/pause")).status_code == 204
        assert [each.paused for each in await site_app.schedules()] == [True]
        assert (await client.post(f"{path}/resume")).status_code == 204
        assert [each.paused for each in await site_app.schedules()] == [False]
        assert (await client.delete(path)).status_code == 204
        assert await site_app.schedules() == []

    @pytest.mark.parametrize(("method", "suffix"), [("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")])
    async def test_an_unknown_schedule_is_not_found(self, client: httpx.AsyncClient, method: str, suffix: str) -> None:
        answer = await client.request(method, f"{API}/schedules/none{suffix}")
        assert (answer.status_code, answer.json()["detail"]) == (404, "there is no schedule 'none'")

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ({"queue": "q", "every": 60}, "a message needs a body"),
            ({"queue": "q", "body": 1}, "cron"),
            ({"queue": "q", "body": 1, "every": 60, "cron": "* * * * *"}, "cron"),
            ({"queue": "q", "body": 1, "cron": "61 * * * *"}, "61"),
        ],
    )
    async def test_a_bad_schedule_is_refused(
        self, site_app: duly.AsyncDuly, client: httpx.AsyncClient, given: Any, problem: str
    ) -> None:
        answer = await client.put(f"{API}/schedules/bad", json=given)
        assert (answer.status_code, problem in answer.json()["detail"]) == (422, True), answer.text
        assert await site_app.schedules() == []


class TestResults:
    """Results of handlers, with a wait."""

    async def test_the_result_of_a_finished_message(self, site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
        queue = site_app.queue("sums", done=duly.Keep(count=10))
        id_ = await queue.send(1)
        path = f"{API}/queues/sums/results/{id_}"
        assert (await client.get(path)).status_code == 204

        (delivery,) = await queue.receive(1, wait=0)
        await delivery.ack(result={"sum": 3})
        assert (await client.get(path)).json() == {"id": id_, "result": {"sum": 3}}

    async def test_a_wait_ends_with_the_handler(self, site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
        queue = site_app.queue("sums", done=duly.Keep(count=10))
        id_ = await queue.send(1)
        waiting = asyncio.create_task(client.get(f"{API}/queues/sums/results/{id_}", params={"wait": 20}))
        (delivery,) = await queue.receive(1, wait=0)
        await delivery.ack(result="done")
        assert (await waiting).json()["result"] == "done"

    async def test_a_failed_message_and_an_unknown_one(
        self, site_app: duly.AsyncDuly, client: httpx.AsyncClient
    ) -> None:
        queue = site_app.queue("sums", done=duly.Keep(count=10))
        id_ = await queue.send(1)
        (delivery,) = await queue.receive(1, wait=0)
        await delivery.reject("no such account")
        failed = await client.get(f"{API}/queues/sums/results/{id_}")
        assert (failed.status_code, "no such account" in failed.json()["detail"]) == (409, True)
        assert (await client.get(f"{API}/queues/sums/results/none")).status_code == 404


@asynccontextmanager
async def opened(app: duly.AsyncDuly, path: str, query: bytes = b"") -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """Open a stream as an ASGI server does, give its events, and disconnect."""
    parts: asyncio.Queue[bytes] = asyncio.Queue()
    left = asyncio.Event()
    incoming: list[dict[str, Any]] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"", "more_body": False},
    ]

    async def receive() -> dict[str, Any]:
        if len(incoming) == 1:
            await left.wait()
            return incoming[0]
        return incoming.pop()

    async def send(message: Any) -> None:
        await parts.put(message.get("body", b""))

    async def events() -> AsyncIterator[tuple[str, Any]]:
        while True:
            lines = dict(line.split(": ", 1) for line in (await parts.get()).decode().split("\n") if ": " in line)
            if "event" in lines:
                yield lines["event"], json.loads(lines["data"])

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query, "root_path": "",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    serving = asyncio.create_task(create_app(app)(scope, receive, send))
    try:
        yield events()
    finally:
        left.set()
        await asyncio.wait_for(serving, 30)


class TestStreams:
    """Server-sent events."""

    async def test_events_follow_the_statistics(self, site_app: duly.AsyncDuly) -> None:
        await site_app.queue("orders").send(1)
        async with opened(site_app, f"{API}/queues/orders/events", b"interval=1") as events:
            assert (await anext(events))[1]["stats"]["ready"] == 1
            await site_app.queue("orders").send(2)
            name, shown = await anext(events)
            assert (name, shown["name"], shown["stats"]["ready"]) == ("stats", "orders", 2)

    async def test_all_queues_are_in_one_stream(self, site_app: duly.AsyncDuly) -> None:
        for name in ("a", "b"):
            await site_app.queue(name).send(1)
        async with opened(site_app, f"{API}/events") as events:
            _, shown = await anext(events)
            assert [each["name"] for each in shown["queues"]] == ["a", "b"]

    async def test_an_error_is_an_event(self, site_app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise duly.Unavailable("the server does not answer")

        monkeypatch.setattr("duly.web.api.events.read_queues", fail)
        async with opened(site_app, f"{API}/events") as events:
            assert await anext(events) == (
                "problem",
                {"title": "The server is unavailable", "status": 503, "detail": "the server does not answer"},
            )

    async def test_streams_are_limited_like_long_polls(self, client: httpx.AsyncClient) -> None:
        poll_limit_of(client).limit = 0
        answer = await client.get(f"{API}/events")
        assert (answer.status_code, "0 calls are waiting already" in answer.json()["detail"]) == (429, True)


async def test_a_schedule_is_run_now_in_addition_to_its_runs(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    message: duly.Send[object] = duly.Send({"kind": "daily"}, headers={"team": "a"})
    await site_app.schedule("report", site_app.queue("jobs"), message, every=3600)
    await site_app.pause_schedule("report")
    answer = await client.post("/api/v1/schedules/report/run")
    assert answer.status_code == 200
    found = await site_app.queue("jobs").get(answer.json()["id"])
    assert found is not None
    assert (found.body, found.state) == ({"kind": "daily"}, "ready")
    assert found.headers["team"] == "a"
    assert found.headers["duly-schedule"] == "report"
    [schedule] = await site_app.schedules()
    assert schedule.paused
    missing = await client.post("/api/v1/schedules/none/run")
    assert missing.status_code == 404
