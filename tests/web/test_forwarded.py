"""Which X-Forwarded headers are trusted behind a proxy."""

from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from duly.web.service import ProxyHeaders


async def show(scope: Any, receive: Any, send: Any) -> None:
    request = Request(scope)
    assert request.client is not None
    await JSONResponse([request.url.scheme, request.client.host])(scope, receive, send)


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ([], ["https", "127.0.0.1"]),
        ([("X-Forwarded-Proto", "http")], ["http", "127.0.0.1"]),
        ([("X-Forwarded-Proto", "gopher")], ["https", "127.0.0.1"]),
        ([("X-Forwarded-For", "192.0.2.7")], ["https", "192.0.2.7"]),
        ([("X-Forwarded-For", "2001:db8::7")], ["https", "2001:db8::7"]),
        ([("X-Forwarded-For", "198.51.100.1, 192.0.2.7")], ["https", "192.0.2.7"]),
        ([("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "192.0.2.7")], ["https", "192.0.2.7"]),
        ([("X-Forwarded-For", "192.0.2.7:1234")], ["https", "192.0.2.7"]),
        ([("X-Forwarded-For", "198.51.100.1, [2001:db8::7]:1234")], ["https", "2001:db8::7"]),
        ([("X-Forwarded-For", "[2001:db8::7]")], ["https", "2001:db8::7"]),
        ([("X-Forwarded-For", "fe80::7%\x1b[31m")], ["https", "fe80::7"]),
        ([("X-Forwarded-For", "not an address")], ["https", "127.0.0.1"]),
        ([("X-Forwarded-For", "[")], ["https", "127.0.0.1"]),
    ],
    ids=["nothing", "http", "no-scheme", "client", "ipv6", "a-list", "twice", "port", "ipv6-port", "brackets", "zone",
         "no-address", "bracket"],
)  # fmt: skip
async def test_the_headers_of_the_nearest_proxy_are_used(headers: list[tuple[str, str]], seen: list[str]) -> None:
    """A client may send the same header. The proxy appends its value."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=ProxyHeaders(show)), base_url="http://localhost"
    ) as client:
        assert (await client.get("/", headers=headers)).json() == seen


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({}, "is missing"),
        ({"X-Forwarded-For": "unknown\x1b[31m"}, "does not end with an address: 'unknown\\x1b[31m'"),
    ],
    ids=["missing", "unreadable"],
)
async def test_a_missing_client_address_is_logged_once(
    headers: dict[str, str], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=ProxyHeaders(show)), base_url="http://localhost"
    ) as client:
        await client.get("/", headers={"X-Forwarded-For": "192.0.2.7"})
        assert [each for each in caplog.records if each.name.startswith("duly")] == []
        await client.get("/", headers=headers)
        await client.get("/", headers=headers)
    (record,) = [each for each in caplog.records if each.name.startswith("duly")]
    assert record.message.startswith(
        f"X-Forwarded-For of a request {problem}. Such clients share one limit for wrong tokens"
    )
