"""What is believed of a proxy in front, and what is not."""

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
async def test_the_word_of_the_proxy_itself_counts(headers: list[tuple[str, str]], seen: list[str]) -> None:
    """Whoever asks may write the same header: the proxy adds its own behind that."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=ProxyHeaders(show)), base_url="http://localhost"
    ) as client:
        assert (await client.get("/", headers=headers)).json() == seen


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "is missing"),
        ({"X-Forwarded-For": "unknown\x1b[31m"}, "has no address at its end: 'unknown\\x1b[31m'"),
    ],
    ids=["missing", "unreadable"],
)
async def test_a_proxy_that_does_not_say_who_asks_is_told_of_once(
    headers: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=ProxyHeaders(show)), base_url="http://localhost"
    ) as client:
        await client.get("/", headers={"X-Forwarded-For": "192.0.2.7"})
        assert [each for each in caplog.records if each.name.startswith("duly")] == []
        await client.get("/", headers=headers)
        await client.get("/", headers=headers)
    (record,) = [each for each in caplog.records if each.name.startswith("duly")]
    assert record.message.startswith(f"X-Forwarded-For of a request {said}. All who come so count as one")
