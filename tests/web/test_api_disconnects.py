"""Clients that disconnect while they wait leave nothing leased. On real sockets and a real server."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.routing import Mount

import duly
from duly.web import create_app
from duly.web.site import PollLimit
from tests.web.conftest import poll_limit_of

DEADLINE = 15.0


@pytest.fixture
def site(server_app: duly.AsyncDuly) -> Starlette:
    """Yield the dashboard of `server_app`."""
    return create_app(server_app)


@pytest.fixture
def poll_limit(site: Starlette) -> PollLimit:
    """Return the poll limit of `site`."""
    found: PollLimit = site.state.site.poll_limit
    return found


@contextlib.asynccontextmanager
async def _served(site: Any) -> AsyncIterator[int]:
    """Serve an app on a local port."""
    config = uvicorn.Config(
        site, host="127.0.0.1", port=0, lifespan="off", ws="none", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await _until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


@pytest.fixture
async def port(site: Starlette) -> AsyncIterator[int]:
    """Serve `site`."""
    async with _served(site) as found:
        yield found


async def _ask(port: int, path: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request and keep the connection open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
    return reader, writer


async def _until(is_so: Callable[[], Any]) -> None:
    """Wait until a condition holds. The deadline is shorter than the wait of a receive."""
    async with asyncio.timeout(DEADLINE):
        while True:
            found = is_so()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.01)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("inbox", ["/queues/orders", "/topics/events/groups/archive"])
async def test_nothing_is_leased_to_a_disconnected_client(
    server_app: duly.AsyncDuly, port: int, poll_limit: PollLimit, inbox: str
) -> None:
    orders, archive = server_app.queue("orders"), server_app.topic("events").group("archive")
    await archive.create()
    _, writer = await _ask(port, f"{inbox}/receive", b'{"wait": 20}')
    await _until(lambda: poll_limit.waiting == 1)
    await _hang_up(writer)
    await _until(lambda: poll_limit.waiting == 0)
    await orders.send(1)
    await server_app.topic("events").publish(1)
    for each in (orders, archive):
        assert (await each.stats()).leased == 0
        (delivery,) = await each.receive(1, wait=0)
        assert (delivery.attempt, delivery.deliveries) == (1, 1)


def _cancelled(monkeypatch: pytest.MonkeyPatch, method: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Return events for the start and the cancellation of a method of queues."""
    begun, cancelled, original = asyncio.Event(), asyncio.Event(), getattr(duly.AsyncQueue, method)

    async def watched(self: duly.AsyncQueue, *args: Any) -> Any:
        begun.set()
        try:
            return await original(self, *args)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    monkeypatch.setattr(duly.AsyncQueue, method, watched)
    return begun, cancelled


@pytest.mark.parametrize(("method", "body"), [("receive", b'{"wait": 20}'), ("redrive", b'{"rate": "1/h"}')])
async def test_work_is_cancelled_when_its_client_disconnects(
    server_app: duly.AsyncDuly, port: int, monkeypatch: pytest.MonkeyPatch, method: str, body: bytes
) -> None:
    orders = server_app.queue("orders")
    await orders.send_many(range(3))
    for delivery in await orders.receive(3, wait=0):
        await delivery.reject("no")
    await orders.pause()
    begun, cancelled = _cancelled(monkeypatch, method)
    _, writer = await _ask(port, f"/queues/orders/{method}", body)
    async with asyncio.timeout(DEADLINE):
        await begun.wait()
        await _hang_up(writer)
        await cancelled.wait()


def _held_up(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let a receive return its claim only after it is cancelled, when that is too late."""
    claimed, receive = asyncio.Event(), duly.AsyncQueue.receive

    async def held_up(self: duly.AsyncQueue, *args: Any) -> Any:
        found = await receive(self, *args)
        claimed.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return found

    monkeypatch.setattr(duly.AsyncQueue, "receive", held_up)
    return claimed


@pytest.mark.parametrize("times", [1, 20])
async def test_a_message_claimed_during_a_disconnect_is_released(
    server_app: duly.AsyncDuly, port: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, claimed = server_app.queue("orders"), _held_up(monkeypatch)
    await orders.send_many(range(times))
    _, writer = await _ask(port, "/queues/orders/receive", b'{"wait": 20, "limit": 100, "lease": 3600}')
    async with asyncio.timeout(DEADLINE):
        await claimed.wait()
    assert (await orders.stats()).leased == times
    await _hang_up(writer)
    await _until(lambda: _is_none_leased(orders))
    stats = await orders.stats()
    assert (stats.ready, stats.released, stats.crashed) == (times, times, 0)


async def _pass_on(request: Request, call_next: Any) -> Any:
    return await call_next(request)


@pytest.mark.parametrize("layers", [0, 5])
async def test_a_client_that_disconnects_just_before_a_claim_gets_no_messages(
    server_app: duly.AsyncDuly, site: Starlette, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    """A disconnect passes through the middleware around an app."""
    claimed, may_come, receive = asyncio.Event(), asyncio.Event(), duly.AsyncQueue.receive

    async def held_up(self: duly.AsyncQueue, *args: Any) -> Any:
        found = await receive(self, *args)
        claimed.set()
        await may_come.wait()
        return found

    monkeypatch.setattr(duly.AsyncQueue, "receive", held_up)
    orders, around = server_app.queue("orders"), [Middleware(BaseHTTPMiddleware, dispatch=_pass_on)] * layers
    await orders.send(1)
    async with _served(Starlette(routes=[Mount("/", site)], middleware=around)) as port:
        _, writer = await _ask(port, "/queues/orders/receive", b'{"wait": 20, "lease": 3600}')
        async with asyncio.timeout(DEADLINE):
            await claimed.wait()
        writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        may_come.set()  # without a turn of the loop in between
        await _until(lambda: _is_none_leased(orders))
        await _hang_up(writer)
    stats = await orders.stats()
    assert (stats.ready, stats.released) == (1, 1)


async def _is_none_leased(orders: duly.AsyncQueue) -> bool:
    return (await orders.stats()).leased == 0


async def test_a_connected_client_gets_its_messages(
    server_app: duly.AsyncDuly, port: int, poll_limit: PollLimit
) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        waiting = asyncio.create_task(client.post("/api/v1/queues/orders/receive", json={"wait": 20}, timeout=60))
        await _until(lambda: poll_limit.waiting)
        id_ = await server_app.queue("orders").send({"order": 1})
        (message,) = (await waiting).json()["messages"]
        assert message["id"] == id_
        acked = await client.post("/api/v1/queues/orders/ack", json={"receipt": message["receipt"]})
        assert acked.json() == {"settled": [id_], "lost": []}
    assert (await server_app.queue("orders").stats()).acked == 1


async def test_an_incomplete_request_is_not_an_internal_error(
    site_app: duly.AsyncDuly, caplog: pytest.LogCaptureFixture
) -> None:
    coming = iter([{"type": "http.request", "body": b'{"body": 1}', "more_body": True}, {"type": "http.disconnect"}])
    messages = list[Any]()

    async def receive() -> Any:
        return next(coming)

    async def send(message: Any) -> None:
        messages.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"100")]
    path = "/api/v1/queues/orders/messages"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    await create_app(site_app)({**scope, "query_string": b"", "http_version": "1.1"}, receive, send)
    assert messages[0]["status"] == 408
    assert caplog.records == []
    assert await site_app.queues() == []


async def test_messages_of_a_cancelled_request_are_released(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ASGI server may cancel a call when it stops, or after its own timeout."""
    orders = site_app.queue("orders")
    claimed = _held_up(monkeypatch)
    await orders.send_many([1, 2])
    call = asyncio.create_task(client.post("/api/v1/queues/orders/receive", json={"wait": 20}))
    async with asyncio.timeout(DEADLINE):
        await claimed.wait()
    assert (await orders.stats()).leased == 2
    call.cancel()
    await asyncio.wait({call})
    await _until(lambda: _is_none_leased(orders))
    assert (await orders.stats()).released == 2
    assert poll_limit_of(client).waiting == 0
