"""Serving on a real socket: start, stop, and running calls at a stop."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import duly
from duly.web import service
from duly.web.binding import Binding
from duly.web.service import Service

DEADLINE = 20.0


class Rig:
    """A served app, and a record of its callbacks."""

    def __init__(self, app: Any, **options: Any) -> None:
        where = Binding(host="127.0.0.1", port=0, **options)
        self._listener = where.listen()
        self.url = where.url(self._listener)
        self.listens = asyncio.Event()
        self.is_left = False
        self.service = Service(app, where, on_listening=self.listens.set, at_end=self._leave)
        self.calls = self.service._calls
        self._run = asyncio.create_task(self.service.serve([self._listener]))

    async def _leave(self) -> None:
        self.is_left = True

    async def stop(self) -> None:
        self.service.stop()
        await asyncio.wait_for(self._run, DEADLINE)


@asynccontextmanager
async def served(app: Any, **options: Any) -> AsyncIterator[tuple[Rig, httpx.AsyncClient]]:
    rig = Rig(app, **options)
    await asyncio.wait_for(rig.listens.wait(), DEADLINE)
    async with httpx.AsyncClient(base_url=rig.url, timeout=DEADLINE, trust_env=False) as client:
        try:
            yield rig, client
        finally:
            await rig.stop()


class Slow:
    """Responds when the test lets it."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

    async def respond(self, request: Request) -> Response:
        self.began.set()
        await self.may_end.wait()
        return JSONResponse("done")


class RecordHandler(logging.Handler):
    """Keeps log records."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


def at_root(endpoint: Any) -> Starlette:
    return Starlette(routes=[Route("/", endpoint, methods=["GET", "POST"])])


async def scheme_of(request: Request) -> Response:
    return JSONResponse(request.url.scheme)


async def test_it_answers_after_it_reports_listening_and_does_not_name_the_server() -> None:
    async with served(at_root(scheme_of)) as (rig, client):
        response = await client.get("/", headers={"X-Forwarded-Proto": "https"})

        assert response.json() == "http"
        assert "server" not in response.headers
    assert rig.is_left


async def test_proxy_headers_are_used_behind_a_proxy() -> None:
    async with served(at_root(scheme_of), behind_proxy=True) as (_, client):
        assert (await client.get("/")).json() == "https"


async def test_a_running_call_may_finish_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    async with served(at_root(slow.respond)) as (rig, client):
        call = asyncio.create_task(client.get("/"))
        await asyncio.wait_for(slow.began.wait(), DEADLINE)

        cancel_after = rig.calls.cancel_after

        def end_and_go_on(seconds: float) -> None:
            cancel_after(seconds)
            slow.may_end.set()

        monkeypatch.setattr(rig.calls, "cancel_after", end_and_go_on)
        await rig.stop()

        assert (await call).json() == "done"


async def test_a_call_that_does_not_end_is_cancelled_with_a_response(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "GRACE", 0.05)
    slow = Slow()
    async with served(at_root(slow.respond)) as (rig, client):
        call = asyncio.create_task(client.get("/"))
        await asyncio.wait_for(slow.began.wait(), DEADLINE)

        await rig.stop()

        response = await call
        assert (response.status_code, response.headers["content-type"]) == (503, "application/problem+json")
        assert response.json()["detail"] == "the dashboard was stopped: send the request again"
        assert rig.is_left
    assert caplog.messages == []


async def test_a_started_response_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "GRACE", 0.05)

    async def endless() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    async def stream(request: Request) -> Response:
        return StreamingResponse(endless())

    async with served(at_root(stream)) as (rig, client), client.stream("GET", "/") as response:
        parts = response.aiter_raw()
        assert await anext(parts) == b"begun"

        await rig.stop()

        with pytest.raises(httpx.RemoteProtocolError):
            await anext(parts)


async def test_a_waiting_receive_leaves_nothing_leased_at_a_stop(
    server_app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "GRACE", 0.05)
    queue = server_app.queue("q")
    waits = asyncio.Event()

    async def receive(request: Request) -> Response:
        waits.set()
        return JSONResponse([each.id for each in await queue.receive(10, 20)])

    async with served(at_root(receive)) as (rig, client):
        call = asyncio.create_task(client.post("/"))
        await asyncio.wait_for(waits.wait(), DEADLINE)

        await rig.stop()
        assert (await call).status_code == 503

        await queue.send("hello")
        stats = await queue.stats()
        assert (stats.ready, stats.leased) == (1, 0)


async def test_internal_errors_are_in_the_log_of_duly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(request: Request) -> Response:
        raise RuntimeError("boom")

    records: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger("duly"), "handlers", [RecordHandler(records)])

    async with served(at_root(fail)) as (_, client):
        assert (await client.get("/?token=secret")).status_code == 500

    (record,) = records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "secret" not in logging.Formatter().format(record)


async def test_a_failing_on_listening_stops_the_service(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(at_root(scheme_of))

    def fail() -> None:
        raise duly.errors.DulyError("standard output is full")

    rig.service._on_listening = fail

    with pytest.raises(duly.errors.DulyError, match="is full"):
        await asyncio.wait_for(rig._run, DEADLINE)
    assert rig.is_left
    assert caplog.messages == []
