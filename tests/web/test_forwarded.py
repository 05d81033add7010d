"""What is believed of a proxy in front, and what is not."""

from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from duly.web.forwarded import Forwarded


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
        ([("X-Forwarded-For", "not an address")], ["https", "127.0.0.1"]),
    ],
    ids=["nothing", "http", "no-scheme", "client", "ipv6", "a-list", "twice", "no-address"],
)
async def test_the_word_of_the_proxy_itself_counts(headers: list[tuple[str, str]], seen: list[str]) -> None:
    """Whoever asks may write the same header: the proxy adds its own behind that."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=Forwarded(show)), base_url="http://localhost"
    ) as client:
        assert (await client.get("/", headers=headers)).json() == seen
