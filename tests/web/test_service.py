"""Serving on a real socket: what is said when, and how it ends while somebody is being served."""

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
    """An app that is served, and what was said of it."""

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
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        self.began.set()
        await self.may_end.wait()
        return JSONResponse("done")


class Heard(logging.Handler):
    """Keeps what was logged."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


def at_root(endpoint: Any) -> Starlette:
    return Starlette(routes=[Route("/", endpoint, methods=["GET", "POST"])])


async def scheme_of(request: Request) -> Response:
    return JSONResponse(request.url.scheme)


async def test_it_answers_once_it_says_that_it_listens_and_names_no_server() -> None:
    async with served(at_root(scheme_of)) as (rig, client):
        answer = await client.get("/", headers={"X-Forwarded-Proto": "https"})

        assert answer.json() == "http"
        assert "server" not in answer.headers
    assert rig.is_left


async def test_a_proxy_is_believed_where_there_is_one() -> None:
    async with served(at_root(scheme_of), behind_proxy=True) as (_, client):
        assert (await client.get("/")).json() == "https"


async def test_a_call_that_runs_may_end_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    async with served(at_root(slow.answer)) as (rig, client):
        call = asyncio.create_task(client.get("/"))
        await asyncio.wait_for(slow.began.wait(), DEADLINE)

        cancel_after = rig.calls.cancel_after

        def end_and_go_on(seconds: float) -> None:
            cancel_after(seconds)
            slow.may_end.set()

        monkeypatch.setattr(rig.calls, "cancel_after", end_and_go_on)
        await rig.stop()

        assert (await call).json() == "done"


async def test_a_call_that_would_not_end_is_cut_with_an_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "GRACE", 0.05)
    slow = Slow()
    async with served(at_root(slow.answer)) as (rig, client):
        call = asyncio.create_task(client.get("/"))
        await asyncio.wait_for(slow.began.wait(), DEADLINE)

        await rig.stop()

        answer = await call
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert answer.json()["detail"] == "the dashboard was stopped: ask again"
        assert rig.is_left
    assert caplog.messages == []


async def test_an_answer_that_has_begun_is_cut_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "GRACE", 0.05)

    async def endless() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    async def stream(request: Request) -> Response:
        return StreamingResponse(endless())

    async with served(at_root(stream)) as (rig, client), client.stream("GET", "/") as answer:
        parts = answer.aiter_raw()
        assert await anext(parts) == b"begun"

        await rig.stop()

        with pytest.raises(httpx.RemoteProtocolError):
            await anext(parts)


async def test_who_waits_for_messages_at_a_stop_leaves_none_leased(
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


async def test_faults_are_told_in_the_log_of_duly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(request: Request) -> Response:
        raise RuntimeError("boom")

    heard: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger("duly"), "handlers", [Heard(heard)])

    async with served(at_root(fail)) as (_, client):
        assert (await client.get("/?token=secret")).status_code == 500

    (record,) = heard
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "secret" not in logging.Formatter().format(record)


async def test_a_failure_to_announce_ends_it_and_leaves(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(at_root(scheme_of))

    def fail() -> None:
        raise duly.errors.DulyError("standard output is full")

    rig.service._on_listening = fail

    with pytest.raises(duly.errors.DulyError, match="is full"):
        await asyncio.wait_for(rig._run, DEADLINE)
    assert rig.is_left
    assert caplog.messages == []
