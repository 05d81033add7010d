"""Checks of requests before they are served, and headers of every response."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Message

import duly
from duly.errors import UsageError
from duly.web import create_app, hosts
from duly.web.access import Access
from duly.web.guards import CONTENT_SECURITY_POLICY, Guards
from duly.web.hosts import AllowedHosts, Host
from duly.web.names import Names
from duly.web.request_limits import RequestLimits
from duly.web.site import Site
from tests.web.asgi_client import AsgiClient, Headers
from tests.web.conftest import TOKENS

MESSAGE_BYTES: Final = 3000
MOST: Final = MESSAGE_BYTES * 4 // 3 + 65_536
ADMIN: Final = ("Authorization", "Bearer a-token-for-admins")
WRONG: Final = [("Authorization", f"Bearer a-wrong-token-{number}") for number in range(10)]
CHANGES: Final = ("POST", "PUT", "PATCH", "DELETE", "QUERY")
ORIGIN: Final = ("Origin", "http://localhost")


async def behind(request: Request) -> Response:
    """Return the role and the content of the request."""
    if request.url.path.endswith("/fault"):
        raise ZeroDivisionError("secret of the inside")
    if request.url.path.endswith("/unread"):
        return PlainTextResponse("not read")
    content = await request.body()
    return JSONResponse({"role": request.state.role, "bytes": len(content)}, headers={"Cache-Control": "max-age=9"})


def guarded_app(tokens: Any = None, names: Any = None, **limits: Any) -> Starlette:
    """Create guards around a minimal app."""
    app = duly.AsyncDuly("memory://", max_message_bytes=MESSAGE_BYTES)
    site = Site(app, Access(tokens), Names(app))
    request_limits = dataclasses.replace(RequestLimits.for_message_size(MESSAGE_BYTES), **limits)
    methods = ["GET", "HEAD", "OPTIONS", *CHANGES]
    routes = [Route("/{rest:path}", behind, methods=methods)]
    return Starlette(routes=routes, middleware=[Middleware(Guards, site=site, hosts=names, limits=request_limits)])


def session(token: str = "a-token-for-operators") -> tuple[str, str]:
    return ("Cookie", f"theme=dark; duly_session={Access(TOKENS).new_session(token)}; other=1")


# Authentication


async def test_without_tokens_every_client_is_an_admin() -> None:
    response = await AsgiClient(guarded_app()).request()
    assert response.json["role"] == "admin"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_token_is_sent_as_bearer(scheme: str) -> None:
    response = await AsgiClient(guarded_app(TOKENS)).request(
        headers=[("Authorization", f"{scheme} a-token-for-viewers")]
    )
    assert response.json["role"] == "viewer"


async def test_a_request_without_credentials_has_no_role() -> None:
    response = await AsgiClient(guarded_app(TOKENS)).request()
    assert response.json["role"] is None


async def test_a_session_cookie_grants_its_role() -> None:
    response = await AsgiClient(guarded_app(TOKENS)).request(headers=[session()])
    assert response.json["role"] == "operator"


async def test_a_split_cookie_header_of_http2_is_read() -> None:
    name, value = session()
    response = await AsgiClient(guarded_app(TOKENS)).request(headers=[("Cookie", "a=b"), (name, value.split("; ")[1])])
    assert response.json["role"] == "operator"


@pytest.mark.parametrize("token", ["a-token-for-viewers", "a-wrong-token", ""])
async def test_a_token_takes_precedence_over_the_cookie_even_if_it_is_wrong(token: str) -> None:
    response = await AsgiClient(guarded_app(TOKENS)).request(headers=[session(), ("Authorization", f"Bearer {token}")])
    assert response.json["role"] == TOKENS.get(token)


async def test_basic_authentication_of_a_proxy_does_not_hide_the_cookie() -> None:
    response = await AsgiClient(guarded_app(TOKENS)).request(
        headers=[session(), ("Authorization", "Basic dXNlcjpwYXNz")]
    )
    assert response.json["role"] == "operator"


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "duly_session"])
async def test_a_token_in_the_query_string_is_neither_accepted_nor_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asgi_client = AsgiClient(create_app(duly.AsyncDuly("memory://"), tokens=TOKENS))
    for path in ("/api/v1/queues", "/metrics", "/"):
        response = await asgi_client.request(path=path, query=f"{name}=a-token-for-admins")
        assert response.status in {303, 401}
    assert "a-token-for-admins" not in caplog.text


@pytest.mark.parametrize("name", ["Authorization", "Host", "Origin", "Sec-Fetch-Site", "Content-Length"])
async def test_repeated_security_headers_are_rejected(name: str) -> None:
    value = {"Host": "localhost", "Authorization": ADMIN[1], "Origin": ORIGIN[1]}.get(name, "0")
    response = await AsgiClient(guarded_app(TOKENS)).request("POST", headers=[(name, value), (name, value)])
    assert response.status == 400
    assert response.value("content-type") == "application/problem+json"


async def test_after_ten_wrong_tokens_an_address_has_to_wait() -> None:
    app = guarded_app(TOKENS)
    for wrong in WRONG:
        assert (await AsgiClient(app).request(headers=[wrong])).json["role"] is None
    locked = await AsgiClient(app).request(headers=[ADMIN])
    assert locked.status == 429
    assert 0 < int(locked.value("retry-after")) <= 60
    assert (await AsgiClient(app, address="192.0.2.2").request(headers=[ADMIN])).json["role"] == "admin"
    assert (await AsgiClient(app).request()).status == 200, "who brings no token guesses nothing"


async def test_a_client_without_an_address_is_counted() -> None:
    app = guarded_app(TOKENS)
    for wrong in WRONG:
        await AsgiClient(app, address=None).request(headers=[wrong])
    assert (await AsgiClient(app, address=None).request(headers=[WRONG[0]])).status == 429


# Host names

LOOPBACK = [
    *("localhost", "LOCALHOST:8787", "localhost.", "a.localhost", "127.0.0.1", "127.255.0.9:1"),
    *("[::1]", "[::1]:8787", "[0:0:0:0:0:0:0:1]"),
]
ELSEWHERE = [
    *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "testserver", "notlocalhost"),
    *("192.168.0.1", "0.0.0.0", "128.0.0.1", "127.1", "2130706433", "[::]", "[2001:db8::1]"),
]
BROKEN = [
    *("", " ", "a b", "localhost:x", "localhost:99999", "localhost:1:2", "user@localhost", "localhost/", "local\\host"),
    *("[::1", "::1", "[::1%eth0]", "[localhost]", "localhost,evil.example", "löcalhost", ".localhost", "-x", "a\x00"),
    *("localhost#", "localhost?x", "%6cocalhost"),
]


@pytest.mark.parametrize("host", LOOPBACK)
async def test_without_tokens_local_host_names_are_accepted(host: str) -> None:
    assert (await AsgiClient(guarded_app(), host).request()).status == 200


@pytest.mark.parametrize("host", ELSEWHERE)
async def test_without_tokens_other_host_names_are_rejected(host: str) -> None:
    response = await AsgiClient(guarded_app(), host).request()
    assert (response.status, response.value("content-type")) == (421, "application/problem+json")
    assert "--allow-host" in response.json["detail"]


@pytest.mark.parametrize("host", [*LOOPBACK, *ELSEWHERE])
async def test_with_tokens_any_host_name_is_accepted(host: str) -> None:
    assert (await AsgiClient(guarded_app(TOKENS), host).request()).status == 200


@pytest.mark.parametrize("host", BROKEN, ids=ascii)
@pytest.mark.parametrize("tokens", [None, TOKENS], ids=["open", "tokens"])
async def test_an_invalid_host_header_is_rejected(host: str, tokens: Any) -> None:
    assert (await AsgiClient(guarded_app(tokens), host).request()).status == 400


async def test_a_request_without_a_host_is_rejected() -> None:
    app = guarded_app(TOKENS)
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "http_version": "1.0"}
    await app(scope, receive, send)
    assert sent[0]["status"] == 400


@pytest.mark.parametrize("tokens", [None, TOKENS], ids=["open", "tokens"])
@pytest.mark.parametrize(
    ("host", "status"),
    [("q.example", 200), ("Q.Example.:9", 200), ("r.example:8443", 200), ("r.example", 421), ("r.example:1", 421),
     ("[2001:DB8::0:1]:5", 200), ("[2001:db8::2]:80", 200), ("[2001:db8::2]", 421), ("localhost", 421),
     ("x.q.example", 421)],
)  # fmt: skip
async def test_configured_host_names_are_the_only_ones_accepted(tokens: Any, host: str, status: int) -> None:
    given = ["q.example", "R.example:8443", "2001:db8::1", "[2001:db8::2]:80"]
    assert (await AsgiClient(guarded_app(tokens, given), host).request()).status == status


@pytest.mark.parametrize("given", [["*"], ["http://q.example"], ["q.example/"], [""], [7], ["[::x]"]], ids=str)
def test_an_invalid_allowed_host_is_rejected_at_once(given: Any) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        AllowedHosts(given, allow_any=True)


def test_a_single_host_may_be_given_as_a_text() -> None:
    assert hosts.checked_hosts("q.example") == {Host("q.example", None)}


# Origins


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [[("Sec-Fetch-Site", "cross-site")], [("Sec-Fetch-Site", "same-site")], [("Sec-Fetch-Site", "")],
     [("Origin", "http://evil.example")], [("Origin", "null")], [("Origin", "https://localhost")],
     [("Origin", "http://localhost:8787")], [("Origin", "http://localhost.evil.example")], [("Origin", "localhost")],
     [("Origin", "http://localhost/")], [("Origin", "http://evil@localhost")], [("Origin", "")],
     [("Sec-Fetch-Site", "same-origin"), ("Origin", "http://evil.example")],
     [("Sec-Fetch-Site", "cross-site"), ORIGIN]],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("who", ["open", "bearer", "cookie"])
async def test_a_change_from_another_site_is_rejected(method: str, headers: Headers, who: str) -> None:
    brought = {"open": [], "bearer": [ADMIN], "cookie": [session()]}[who]
    response = await AsgiClient(guarded_app(None if who == "open" else TOKENS)).request(
        method, headers=[*brought, *headers]
    )
    assert (response.status, response.value("content-type")) == (403, "application/problem+json")


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize(
    "headers", [[("Sec-Fetch-Site", "same-origin")], [("Sec-Fetch-Site", "none")], [ORIGIN]], ids=str
)
@pytest.mark.parametrize("who", ["open", "bearer", "cookie"])
async def test_a_change_from_own_pages_is_accepted(method: str, headers: Headers, who: str) -> None:
    brought = {"open": [], "bearer": [ADMIN], "cookie": [session()]}[who]
    response = await AsgiClient(guarded_app(None if who == "open" else TOKENS)).request(
        method, headers=[*brought, *headers]
    )
    assert response.status == 200


async def test_a_change_with_a_cookie_needs_an_origin_and_one_with_a_token_does_not() -> None:
    assert (await AsgiClient(guarded_app()).request("POST")).status == 200
    assert (await AsgiClient(guarded_app(TOKENS)).request("POST", headers=[ADMIN])).status == 200
    assert (await AsgiClient(guarded_app(TOKENS)).request("POST", headers=[session()])).status == 403
    # The client was not authenticated by the cookie.
    assert (await AsgiClient(guarded_app(TOKENS)).request("POST", headers=[session(), ADMIN])).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_reads_from_other_sites_are_served_but_not_readable_there(method: str) -> None:
    headers = [("Sec-Fetch-Site", "cross-site"), ("Origin", "http://evil.example")]
    response = await AsgiClient(guarded_app()).request(method, headers=headers)
    assert response.status == 200
    assert not [name for name, _ in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [("http", "q.example", "http://q.example:80"), ("http", "q.example:80", "http://q.example"),
     ("https", "q.example:443", "https://Q.EXAMPLE"), ("https", "q.example:8443", "https://q.example:8443"),
     ("http", "[::1]:8787", "http://[0::1]:8787")],
)  # fmt: skip
async def test_origins_are_compared_in_normalized_form(scheme: str, host: str, origin: str) -> None:
    response = await AsgiClient(guarded_app(TOKENS), host, scheme=scheme).request(
        "POST", headers=[session(), ("Origin", origin)]
    )
    assert response.status == 200


async def test_an_origin_error_names_the_headers_that_a_proxy_must_forward() -> None:
    asgi_client = AsgiClient(guarded_app(TOKENS), "q.example", scheme="http")
    response = await asgi_client.request("POST", headers=[session(), ("Origin", "https://q.example")])
    assert response.status == 403
    assert "X-Forwarded-Proto" in response.json["detail"]


# Limits


async def test_content_up_to_the_limit_is_accepted() -> None:
    content = [b"x" * (MOST - 9), b"", b"x" * 9]
    response = await AsgiClient(guarded_app()).request("POST", headers=[("Content-Length", str(MOST))], content=content)
    assert response.json["bytes"] == MOST


LENGTHS = {"a byte more": str(MOST + 1), "18 digits": "9" * 18, "5000 digits": "9" * 5000}


@pytest.mark.parametrize("length", list(LENGTHS.values()), ids=list(LENGTHS))
async def test_content_with_a_larger_declared_size_is_discarded(length: str) -> None:
    response = await AsgiClient(guarded_app()).request("POST", headers=[("Content-Length", length)], content=[b"x"] * 5)
    assert (response.status, response.unread) == (413, 0)
    assert response.value("connection") == "close"
    assert str(MOST) in response.json["detail"]


HEADS = {"chunked": [("Transfer-Encoding", "chunked")], "a lie": [("Content-Length", "5")]}


@pytest.mark.parametrize("headers", list(HEADS.values()), ids=list(HEADS))
async def test_content_that_exceeds_the_limit_is_discarded(headers: Headers) -> None:
    content = [b"x" * MOST, b"x", b"y", b"z"]
    response = await AsgiClient(guarded_app()).request("POST", headers=headers, content=content)
    assert (response.status, response.unread) == (413, 0)
    assert response.value("connection") == "close"


@pytest.mark.parametrize("headers", [[("Content-Length", str(MOST + 1))], *HEADS.values()], ids=["said", *HEADS])
async def test_discarding_is_limited_in_size(headers: Headers) -> None:
    content = [b"x" * (MOST + 1), b"y", b"z", b"z"]
    response = await AsgiClient(guarded_app(unread_bytes=MOST + 1)).request("POST", headers=headers, content=content)
    assert (response.status, response.unread) == (413, 2)
    assert response.value("connection") == "close"


@pytest.mark.parametrize("limit", ["unread_seconds", "idle_seconds"])
async def test_discarding_is_limited_in_time(limit: str) -> None:
    asgi_client = AsgiClient(guarded_app(**{limit: 0.0}))
    headers = [("Content-Length", str(MOST + 1))]
    response = await asgi_client.request("POST", headers=headers, content=[b"x"], stays_open=True)
    assert response.status == 413
    assert response.value("connection") == "close"


async def test_unused_content_is_not_requested_by_100_continue() -> None:
    headers = [("Content-Length", str(MOST + 1)), ("Expect", "100-continue")]
    response = await AsgiClient(guarded_app()).request("POST", headers=headers, content=[b"x"] * 5)
    assert (response.status, response.unread) == (413, 5)


async def test_http2_responses_have_no_connection_header() -> None:
    asgi_client = AsgiClient(guarded_app(), http_version="2")
    response = await asgi_client.request("POST", headers=[("Content-Length", str(MOST + 1))])
    assert (response.status, response.values("connection")) == (413, [])


@pytest.mark.parametrize("length", ["x", "-1", "+1", "1 1", "", "٣"], ids=ascii)
async def test_an_invalid_content_length_is_rejected(length: str) -> None:
    value = length.encode().decode("latin-1")
    assert (await AsgiClient(guarded_app()).request("POST", headers=[("Content-Length", value)])).status == 400


async def test_content_length_with_transfer_encoding_is_rejected() -> None:
    headers = [("Content-Length", "1"), ("Transfer-Encoding", "chunked")]
    response = await AsgiClient(guarded_app()).request("POST", headers=headers, content=[b"x"])
    assert (response.status, response.value("connection")) == (400, "close")


LENGTH = ("Content-Length", "2")
CHUNKED = ("Transfer-Encoding", "chunked")
UNREAD: dict[str, tuple[list[tuple[str, str]], list[bytes], bool, list[str]]] = {
    "none": ([], [b""], False, []),
    "empty": ([("Content-Length", "0")], [b""], False, []),
    "there": ([LENGTH], [b"x", b"y"], False, []),
    "on its way": ([LENGTH], [b"x"], True, ["close"]),
    "chunks on their way": ([CHUNKED], [b"x"], True, ["close"]),
    "more than is taken": ([CHUNKED], [b"x" * 100, b"y", b"z"], False, ["close"]),
    "held back": ([LENGTH, ("Expect", "100-continue")], [b"xy"], False, ["close"]),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("headers", "content", "stays_open", "connection"), list(UNREAD.values()), ids=list(UNREAD))
async def test_unread_content_does_not_block_the_connection(
    method: str, headers: Headers, content: list[bytes], stays_open: bool, connection: list[str]
) -> None:
    asgi_client = AsgiClient(guarded_app(unread_bytes=99, idle_seconds=0))
    response = await asgi_client.request(method, "/unread", headers, content, stays_open=stays_open)
    assert (response.content, response.values("connection")) == (b"not read", connection)


async def test_content_that_does_not_arrive_times_out() -> None:
    asgi_client = AsgiClient(guarded_app(body_seconds=0))
    response = await asgi_client.request("POST", content=[b"x"], stays_open=True)
    assert response.status == 408
    assert response.value("connection") == "close"


async def test_a_slow_response_after_complete_content_is_allowed() -> None:
    app = duly.AsyncDuly("memory://")

    async def slow(request: Request) -> Response:
        await request.body()
        leaving = asyncio.ensure_future(request.receive())
        for _ in range(20):  # enough turns of the loop for an expired limit to take effect
            await asyncio.sleep(0)
        is_cut = leaving.done()
        leaving.cancel()
        return JSONResponse({"is_cut": is_cut})

    inner = Starlette(routes=[Route("/", slow, methods=["POST"])])
    guards = Guards(inner, Site(app, Access(None), Names(app)), limits=RequestLimits(100, body_seconds=0))
    response = await AsgiClient(guards).request("POST", content=[b"x"])
    assert response.json == {"is_cut": False}


async def test_too_large_headers_are_rejected() -> None:
    head = [("X-Filler", "x" * 1000)] * 32
    assert (await AsgiClient(guarded_app()).request(headers=head)).status == 200
    assert (await AsgiClient(guarded_app()).request(headers=[*head, *head[:1]])).status == 431


async def test_a_too_long_url_is_rejected() -> None:
    path = "/" + "x" * 4095
    assert (await AsgiClient(guarded_app()).request(path=path, query="y" * 4096)).status == 200
    assert (await AsgiClient(guarded_app()).request(path=path, query="y" * 4097)).status == 414


# Responses

ANSWERS = {
    "200": ("GET", "/", []),
    "400": ("GET", "/", [("Host", "a b")]),
    "403": ("POST", "/", [("Origin", "null")]),
    "421": ("GET", "/", [("Host", "evil.example")]),
    "413": ("POST", "/", [("Content-Length", str(MOST + 1))]),
    "static": ("GET", "/static/x.css", []),
}


@pytest.mark.parametrize(("method", "path", "headers"), list(ANSWERS.values()), ids=list(ANSWERS))
async def test_every_response_has_the_security_headers(method: str, path: str, headers: Headers) -> None:
    response = await AsgiClient(guarded_app()).request(method, path, headers)
    assert_safe(response.headers)
    assert response.value("cache-control") == ("max-age=9" if "static" in path else "no-store")


def assert_safe(headers: list[tuple[str, str]]) -> None:
    assert [value for name, value in headers if name == "content-security-policy"] == [CONTENT_SECURITY_POLICY]
    expected = {
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    assert expected.items() <= dict(headers).items()
    assert not [name for name, _ in headers if name.startswith("access-control") or name == "server"]


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline() -> None:
    policy = dict(each.split(" ", 1) for each in CONTENT_SECURITY_POLICY.split("; "))
    assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
    assert set(policy.values()) == {"'self'"}


async def test_an_internal_error_has_the_same_headers_and_no_details() -> None:
    response = await AsgiClient(guarded_app()).request(path="/fault")
    assert response.status == 500
    assert_safe(response.headers)
    assert b"secret" not in response.content


@pytest.mark.parametrize("path", ["/", "/api/v1/queues"])
async def test_an_internal_error_is_logged_once_on_one_line(
    path: str, site_app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(names: Names) -> list[str]:
        raise ZeroDivisionError

    monkeypatch.setattr(Names, "queues", fail)
    assert (await AsgiClient(create_app(site_app)).request(path=path)).status == 500
    assert [each.message for each in caplog.records] == [f"GET {path!r} failed"]


async def test_a_response_that_fails_half_way_is_cut_by_the_server() -> None:
    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    app = duly.AsyncDuly("memory://")
    with pytest.raises(ZeroDivisionError):
        await AsgiClient(Guards(half, Site(app, Access(None), Names(app)))).request()


async def test_pages_have_the_security_headers(site_app: duly.AsyncDuly) -> None:
    asgi_client = AsgiClient(create_app(site_app, tokens=TOKENS))
    for path in ("/", "/login", "/nothing", "/api/v1/queues", "/api/v1/nothing", "/metrics", "/healthz"):
        for headers in ([], [ADMIN]):
            assert_safe((await asgi_client.request(path=path, headers=headers)).headers)


# Other connection types, and mounting


async def test_a_websocket_is_closed() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await guarded_app()({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_lifespan_events_pass_through() -> None:
    coming: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return coming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await guarded_app()({"type": "lifespan"}, receive, send)
    assert [each["type"] for each in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_the_state_of_the_outer_app_is_not_changed() -> None:
    seen: list[Any] = []

    async def around(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {"role": "their own", "shop": 1}
        await Starlette(routes=[Mount("/ops", guarded_app(TOKENS))])(scope, receive, send)
        seen.append(scope["state"])

    response = await AsgiClient(around).request(path="/ops/x", headers=[ADMIN])
    assert response.json["role"] == "admin"
    assert seen == [{"role": "their own", "shop": 1}]


# On a socket


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[tuple[str, int]]:
    """Serve an app with uvicorn on its own port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, server_header=False))
        running = asyncio.create_task(server.serve([listening]))
        try:
            yield listening.getsockname()[:2]
        finally:
            server.should_exit = True
            await running


@pytest.mark.parametrize(
    "request_head",
    [f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MOST + 1}\r\n\r\n",
     "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
     f"{MOST + 1:x}\r\n" + "x" * (MOST + 1) + "\r\n"],
    ids=["said", "chunked"],
)  # fmt: skip
async def test_a_connection_with_too_much_content_gets_a_response_and_is_closed(request_head: str) -> None:
    async with served(guarded_app()) as (host, port), asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request_head.encode())
        answered = await reader.read()  # read to the end: the server closes the connection
        writer.close()
    assert answered.startswith(b"HTTP/1.1 413 ")
    assert b"application/" in answered or b"text/plain" in answered


async def test_a_client_that_sends_everything_before_reading_gets_a_response() -> None:
    """A client whose connection is closed early would treat it as an outage and send the request again."""
    size = 8 * 1024 * 1024
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"

    def send_then_read(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address, timeout=30) as caller:
            caller.sendall(head.encode() + b"x" * size)
            return b"".join(iter(lambda: caller.recv(65536), b""))

    async with served(guarded_app()) as address:
        answered = await asyncio.to_thread(send_then_read, address)
    assert answered.startswith(b"HTTP/1.1 413 ")
