"""Connections without a request, with half of one, with garbage, or without a reader are aborted and make room."""

import asyncio
import logging
import resource
import socket
import ssl
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from duly.web import http_connection, service
from tests.web.test_service import DEADLINE, RecordHandler, Rig, Slow, at_root, scheme_of, served
from tests.worker.rig import eventually

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nxxxx"

Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(url: str, sent: bytes = b"") -> Connected:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))
    writer.write(sent)
    return reader, writer


async def read_to_its_end(connected: Connected) -> bytes:
    """Read until the other side closes."""
    reader, writer = connected
    try:
        return await asyncio.wait_for(reader.read(), DEADLINE)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def answer_of(connected: Connected) -> bytes:
    """Read one response with the content "http"."""
    return await asyncio.wait_for(connected[0].readuntil(b'"http"'), DEADLINE)


LARGE = b"x" * 30_000_000
"""More than the kernel buffers for a stalled reader."""


async def large(request: Request) -> Response:
    return Response(LARGE)


async def ask_and_read_nothing(rig: Rig, sent: bytes = GET) -> socket.socket:
    """Send a request and wait until the response is stalled."""
    asked = socket.socket()
    asked.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    asked.connect(("127.0.0.1", int(rig.url.rstrip("/").rpartition(":")[2])))
    asked.sendall(sent)
    await eventually(lambda: any(each.unread_since for each in connected_to(rig)), DEADLINE)
    return asked


def connected_to(rig: Rig) -> set[Any]:
    return set(rig.service.server_state.connections)


@pytest.mark.parametrize(
    "sent",
    [GET, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), GET * 3],
    ids=["kept", "closing", "more asked"],
)
async def test_a_connection_that_does_not_read_its_response_is_aborted(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "STALL_SECONDS", 0.05)
    async with served(at_root(large)) as (rig, _):
        rig.service.config.timeout_keep_alive = 600
        with await ask_and_read_nothing(rig, sent):
            await eventually(lambda: not connected_to(rig), DEADLINE)


async def test_a_slow_reader_is_not_aborted() -> None:
    async with served(at_root(large)) as (rig, _):
        with await ask_and_read_nothing(rig) as asked:
            (connection,) = connected_to(rig)
            left = connection.transport.get_write_buffer_size()

            connection._watch_reader(left + 1)
            assert not connection.is_aborted
            connection._watch_reader(left)
            assert connection.is_aborted
            asked.close()


async def test_a_small_unread_rest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "STALL_SECONDS", 0.05)

    async def small(request: Request) -> Response:
        (connection,) = connected_to(rig)
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return Response(LARGE[:60_000], headers={"Connection": "close"})

    async with served(at_root(small)) as (rig, _):
        with await ask_and_read_nothing(rig):
            await eventually(lambda: not connected_to(rig), DEADLINE)


async def test_a_read_response_leaves_no_timer() -> None:
    async with served(at_root(large)) as (rig, _):
        reader, writer = await connect(rig.url, GET)
        await eventually(lambda: any(each.unread_since for each in connected_to(rig)), DEADLINE)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE)
        await asyncio.wait_for(reader.readexactly(len(LARGE)), DEADLINE)
        (connection,) = connected_to(rig)
        assert (connection.unread_since, connection._stall_timer) == (None, None)
        writer.close()


async def test_a_stalled_connection_is_aborted_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MAX_CONNECTIONS", 1)
    async with served(at_root(large)) as (rig, _):
        with await ask_and_read_nothing(rig):
            newcomer = await connect(rig.url, GET)
            assert (await asyncio.wait_for(newcomer[0].readline(), DEADLINE)).startswith(b"HTTP/1.1 200 ")
            newcomer[1].close()


async def test_a_stalled_connection_is_aborted_silently_at_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "GRACE", 0.05)
    records: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger("duly"), "handlers", [RecordHandler(records)])
    async with served(at_root(large)) as (rig, _):
        with await ask_and_read_nothing(rig, GET * 3):
            await rig.stop()
    assert [each.getMessage() for each in records] == []


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: local"], ids=["nothing", "half a head"])
async def test_a_connection_without_a_request_head_is_aborted(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_SECONDS", 0.05)
    async with served(at_root(scheme_of)) as (rig, _):
        assert await read_to_its_end(await connect(rig.url, sent)) == b""


@pytest.mark.parametrize(
    ("first", "more"), [(GET, b"GET / HT"), (POST, b"x")], ids=["half of another head", "content that is not read"]
)
async def test_an_idle_connection_is_aborted_after_a_response(
    first: bytes, more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(at_root(scheme_of)) as (rig, _):
        connected = await connect(rig.url, first)
        await answer_of(connected)
        monkeypatch.setattr(http_connection, "HEAD_SECONDS", 0.05)
        connected[1].write(more)
        assert await read_to_its_end(connected) == b""


async def test_a_connection_that_is_being_served_has_no_timer() -> None:
    slow = Slow()
    async with served(at_root(slow.respond)) as (rig, _):
        connected = await connect(rig.url, GET)
        await asyncio.wait_for(slow.began.wait(), DEADLINE)
        (connection,) = rig.service.server_state.connections
        assert isinstance(connection, http_connection.Connection)
        assert (connection.head_awaited_since, connection._head_timer) == (None, None)
        slow.may_end.set()
        connected[1].close()


async def test_the_connection_that_is_idle_longest_is_aborted_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MAX_CONNECTIONS", 2)
    async with served(at_root(scheme_of)) as (rig, _):
        rig.service.config.timeout_keep_alive = 600
        first = await connect(rig.url, GET)
        await answer_of(first)
        second = await connect(rig.url, GET)
        await answer_of(second)
        first[1].write(GET)
        await answer_of(first)

        third = await connect(rig.url, GET)

        assert (await answer_of(third)).startswith(b"HTTP/1.1 200 ")
        assert await read_to_its_end(second) == b""
        first[1].write(GET)
        await answer_of(first)
        for _, writer in (first, third):
            writer.close()


async def test_while_all_connections_are_served_new_ones_are_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MAX_CONNECTIONS", 1)
    slow = Slow()
    async with served(at_root(slow.respond)) as (rig, _):
        first = await connect(rig.url, GET)
        await asyncio.wait_for(slow.began.wait(), DEADLINE)
        assert await read_to_its_end(await connect(rig.url, GET)) == b""
        slow.may_end.set()
        assert await asyncio.wait_for(first[0].readuntil(b'"done"'), DEADLINE)
        first[1].close()


async def test_an_unfinished_tls_handshake_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HANDSHAKE_SECONDS", 0.05)
    rig = Rig(at_root(scheme_of))
    rig.service.config.load()
    rig.service.config.ssl = ssl.SSLContext(
        ssl.PROTOCOL_TLS_SERVER
    )  # the handshake does not get as far as the certificate
    await asyncio.wait_for(rig.listens.wait(), DEADLINE)
    assert await read_to_its_end(await connect(rig.url)) == b""
    await rig.stop()


@pytest.mark.parametrize(
    ("files", "most"), [(256, 128), (65536, 1000), (resource.RLIM_INFINITY, 1000)], ids=["few", "many", "any"]
)
def test_connections_use_at_most_half_of_the_open_files(files: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert http_connection.max_connections() == most


@pytest.mark.parametrize(
    "sent",
    [
        GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"),
        GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"),
        b"no request\r\n\r\n",
    ],
    ids=["websocket", "other", "nonsense"],
)
async def test_invalid_requests_of_unknown_clients_are_not_logged(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger("duly"), "handlers", [RecordHandler(records)])
    async with served(at_root(scheme_of)) as (rig, _):
        assert (await read_to_its_end(await connect(rig.url, sent))).startswith(b"HTTP/1.1 ")
    assert records == []


async def test_requests_are_parsed_by_h11() -> None:
    async with served(at_root(scheme_of)) as (rig, _):
        assert rig.service.config.http_protocol_class is http_connection.Connection
