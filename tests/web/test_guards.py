"""What a request must be like before anything looks at it, and what every answer has."""

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
from tests.web.asgi_client import Asker, Headers
from tests.web.conftest import TOKENS

MESSAGE_BYTES: Final = 3000
MOST: Final = MESSAGE_BYTES * 4 // 3 + 65_536
ADMIN: Final = ("Authorization", "Bearer a-token-for-admins")
WRONG: Final = [("Authorization", f"Bearer a-wrong-token-{number}") for number in range(10)]
CHANGES: Final = ("POST", "PUT", "PATCH", "DELETE", "QUERY")
ORIGIN: Final = ("Origin", "http://localhost")


async def behind(request: Request) -> Response:
    """Tell what came through."""
    if request.url.path.endswith("/fault"):
        raise ZeroDivisionError("secret of the inside")
    if request.url.path.endswith("/unread"):
        return PlainTextResponse("not read")
    content = await request.body()
    return JSONResponse({"role": request.state.role, "bytes": len(content)}, headers={"Cache-Control": "max-age=9"})


def door(tokens: Any = None, names: Any = None, **limits: Any) -> Starlette:
    """Make guards with next to nothing behind them."""
    app = duly.AsyncDuly("memory://", max_message_bytes=MESSAGE_BYTES)
    site = Site(app, Access(tokens), Names(app))
    request_limits = dataclasses.replace(RequestLimits.for_message_size(MESSAGE_BYTES), **limits)
    methods = ["GET", "HEAD", "OPTIONS", *CHANGES]
    routes = [Route("/{rest:path}", behind, methods=methods)]
    return Starlette(routes=routes, middleware=[Middleware(Guards, site=site, hosts=names, limits=request_limits)])


def session(token: str = "a-token-for-operators") -> tuple[str, str]:
    return ("Cookie", f"theme=dark; duly_session={Access(TOKENS).new_session(token)}; other=1")


# Who asks


async def test_without_tokens_whoever_comes_is_the_admin() -> None:
    answer = await Asker(door()).ask()
    assert answer.json["role"] == "admin"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_token_is_sent_as_bearer(scheme: str) -> None:
    answer = await Asker(door(TOKENS)).ask(headers=[("Authorization", f"{scheme} a-token-for-viewers")])
    assert answer.json["role"] == "viewer"


async def test_whoever_brings_nothing_is_nobody() -> None:
    answer = await Asker(door(TOKENS)).ask()
    assert answer.json["role"] is None


async def test_a_session_in_a_cookie_stands_for_its_role() -> None:
    answer = await Asker(door(TOKENS)).ask(headers=[session()])
    assert answer.json["role"] == "operator"


async def test_a_cookie_in_pieces_is_read_as_http2_sends_it() -> None:
    name, value = session()
    answer = await Asker(door(TOKENS)).ask(headers=[("Cookie", "a=b"), (name, value.split("; ")[1])])
    assert answer.json["role"] == "operator"


@pytest.mark.parametrize("token", ["a-token-for-viewers", "a-wrong-token", ""])
async def test_a_token_wins_over_the_cookie_also_when_it_is_wrong(token: str) -> None:
    answer = await Asker(door(TOKENS)).ask(headers=[session(), ("Authorization", f"Bearer {token}")])
    assert answer.json["role"] == TOKENS.get(token)


async def test_what_a_proxy_asks_for_does_not_hide_the_cookie() -> None:
    answer = await Asker(door(TOKENS)).ask(headers=[session(), ("Authorization", "Basic dXNlcjpwYXNz")])
    assert answer.json["role"] == "operator"


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "duly_session"])
async def test_a_token_in_the_query_string_is_neither_taken_nor_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asker = Asker(create_app(duly.AsyncDuly("memory://"), tokens=TOKENS))
    for path in ("/api/v1/queues", "/metrics", "/"):
        answer = await asker.ask(path=path, query=f"{name}=a-token-for-admins")
        assert answer.status in {303, 401}
    assert "a-token-for-admins" not in caplog.text


@pytest.mark.parametrize("name", ["Authorization", "Host", "Origin", "Sec-Fetch-Site", "Content-Length"])
async def test_a_header_that_decides_something_comes_once(name: str) -> None:
    value = {"Host": "localhost", "Authorization": ADMIN[1], "Origin": ORIGIN[1]}.get(name, "0")
    answer = await Asker(door(TOKENS)).ask("POST", headers=[(name, value), (name, value)])
    assert answer.status == 400
    assert answer.value("content-type") == "application/problem+json"


async def test_after_ten_wrong_tokens_an_address_is_told_to_wait() -> None:
    app = door(TOKENS)
    for wrong in WRONG:
        assert (await Asker(app).ask(headers=[wrong])).json["role"] is None
    locked = await Asker(app).ask(headers=[ADMIN])
    assert locked.status == 429
    assert 0 < int(locked.value("retry-after")) <= 60
    assert (await Asker(app, address="192.0.2.2").ask(headers=[ADMIN])).json["role"] == "admin"
    assert (await Asker(app).ask()).status == 200, "who brings no token guesses nothing"


async def test_somebody_without_an_address_is_counted_too() -> None:
    app = door(TOKENS)
    for wrong in WRONG:
        await Asker(app, address=None).ask(headers=[wrong])
    assert (await Asker(app, address=None).ask(headers=[WRONG[0]])).status == 429


# For whom it is

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
async def test_without_tokens_the_names_of_this_machine_are_answered_to(host: str) -> None:
    assert (await Asker(door(), host).ask()).status == 200


@pytest.mark.parametrize("host", ELSEWHERE)
async def test_without_tokens_no_other_name_is_answered_to(host: str) -> None:
    answer = await Asker(door(), host).ask()
    assert (answer.status, answer.value("content-type")) == (421, "application/problem+json")
    assert "--allow-host" in answer.json["detail"]


@pytest.mark.parametrize("host", [*LOOPBACK, *ELSEWHERE])
async def test_with_tokens_any_name_is_answered_to(host: str) -> None:
    assert (await Asker(door(TOKENS), host).ask()).status == 200


@pytest.mark.parametrize("host", BROKEN, ids=ascii)
@pytest.mark.parametrize("tokens", [None, TOKENS], ids=["open", "tokens"])
async def test_what_is_no_host_is_refused(host: str, tokens: Any) -> None:
    assert (await Asker(door(tokens), host).ask()).status == 400


async def test_a_request_for_no_host_is_refused() -> None:
    app = door(TOKENS)
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
async def test_names_that_are_given_are_the_only_ones(tokens: Any, host: str, status: int) -> None:
    given = ["q.example", "R.example:8443", "2001:db8::1", "[2001:db8::2]:80"]
    assert (await Asker(door(tokens, given), host).ask()).status == status


@pytest.mark.parametrize("given", [["*"], ["http://q.example"], ["q.example/"], [""], [7], ["[::x]"]], ids=str)
def test_what_cannot_be_a_host_is_refused_at_once(given: Any) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        AllowedHosts(given, allow_any=True)


def test_one_name_alone_is_not_taken_apart() -> None:
    assert hosts.checked_hosts("q.example") == {Host("q.example", None)}


# From where it is asked


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
async def test_a_change_that_another_site_asks_for_is_refused(method: str, headers: Headers, who: str) -> None:
    brought = {"open": [], "bearer": [ADMIN], "cookie": [session()]}[who]
    answer = await Asker(door(None if who == "open" else TOKENS)).ask(method, headers=[*brought, *headers])
    assert (answer.status, answer.value("content-type")) == (403, "application/problem+json")


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize(
    "headers", [[("Sec-Fetch-Site", "same-origin")], [("Sec-Fetch-Site", "none")], [ORIGIN]], ids=str
)
@pytest.mark.parametrize("who", ["open", "bearer", "cookie"])
async def test_a_change_from_our_own_pages_passes(method: str, headers: Headers, who: str) -> None:
    brought = {"open": [], "bearer": [ADMIN], "cookie": [session()]}[who]
    answer = await Asker(door(None if who == "open" else TOKENS)).ask(method, headers=[*brought, *headers])
    assert answer.status == 200


async def test_a_change_by_a_program_passes_but_with_a_cookie_it_must_say_where_it_is_from() -> None:
    assert (await Asker(door()).ask("POST")).status == 200
    assert (await Asker(door(TOKENS)).ask("POST", headers=[ADMIN])).status == 200
    assert (await Asker(door(TOKENS)).ask("POST", headers=[session()])).status == 403
    # The cookie did not let it in.
    assert (await Asker(door(TOKENS)).ask("POST", headers=[session(), ADMIN])).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_looking_is_allowed_from_everywhere_and_shown_to_nobody_else(method: str) -> None:
    headers = [("Sec-Fetch-Site", "cross-site"), ("Origin", "http://evil.example")]
    answer = await Asker(door()).ask(method, headers=headers)
    assert answer.status == 200
    assert not [name for name, _ in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [("http", "q.example", "http://q.example:80"), ("http", "q.example:80", "http://q.example"),
     ("https", "q.example:443", "https://Q.EXAMPLE"), ("https", "q.example:8443", "https://q.example:8443"),
     ("http", "[::1]:8787", "http://[0::1]:8787")],
)  # fmt: skip
async def test_the_same_origin_is_known_in_each_spelling(scheme: str, host: str, origin: str) -> None:
    answer = await Asker(door(TOKENS), host, scheme=scheme).ask("POST", headers=[session(), ("Origin", origin)])
    assert answer.status == 200


async def test_a_refusal_behind_a_proxy_says_what_the_proxy_must_pass_on() -> None:
    asker = Asker(door(TOKENS), "q.example", scheme="http")
    answer = await asker.ask("POST", headers=[session(), ("Origin", "https://q.example")])
    assert answer.status == 403
    assert "X-Forwarded-Proto" in answer.json["detail"]


# How large it is


async def test_content_up_to_the_limit_is_taken() -> None:
    content = [b"x" * (MOST - 9), b"", b"x" * 9]
    answer = await Asker(door()).ask("POST", headers=[("Content-Length", str(MOST))], content=content)
    assert answer.json["bytes"] == MOST


LENGTHS = {"a byte more": str(MOST + 1), "18 digits": "9" * 18, "5000 digits": "9" * 5000}


@pytest.mark.parametrize("length", list(LENGTHS.values()), ids=list(LENGTHS))
async def test_content_that_is_said_to_be_larger_is_thrown_away(length: str) -> None:
    answer = await Asker(door()).ask("POST", headers=[("Content-Length", length)], content=[b"x"] * 5)
    assert (answer.status, answer.unread) == (413, 0)
    assert answer.value("connection") == "close"
    assert str(MOST) in answer.json["detail"]


HEADS = {"chunked": [("Transfer-Encoding", "chunked")], "a lie": [("Content-Length", "5")]}


@pytest.mark.parametrize("headers", list(HEADS.values()), ids=list(HEADS))
async def test_content_that_gets_larger_is_thrown_away(headers: Headers) -> None:
    content = [b"x" * MOST, b"x", b"y", b"z"]
    answer = await Asker(door()).ask("POST", headers=headers, content=content)
    assert (answer.status, answer.unread) == (413, 0)
    assert answer.value("connection") == "close"


@pytest.mark.parametrize("headers", [[("Content-Length", str(MOST + 1))], *HEADS.values()], ids=["said", *HEADS])
async def test_no_more_than_so_much_is_thrown_away(headers: Headers) -> None:
    content = [b"x" * (MOST + 1), b"y", b"z", b"z"]
    answer = await Asker(door(unread_bytes=MOST + 1)).ask("POST", headers=headers, content=content)
    assert (answer.status, answer.unread) == (413, 2)
    assert answer.value("connection") == "close"


@pytest.mark.parametrize("limit", ["unread_seconds", "idle_seconds"])
async def test_what_is_thrown_away_is_not_waited_for_long(limit: str) -> None:
    asker = Asker(door(**{limit: 0.0}))
    headers = [("Content-Length", str(MOST + 1))]
    answer = await asker.ask("POST", headers=headers, content=[b"x"], stays_open=True)
    assert answer.status == 413
    assert answer.value("connection") == "close"


async def test_content_that_waits_to_be_asked_for_is_not_asked_for() -> None:
    headers = [("Content-Length", str(MOST + 1)), ("Expect", "100-continue")]
    answer = await Asker(door()).ask("POST", headers=headers, content=[b"x"] * 5)
    assert (answer.status, answer.unread) == (413, 5)


async def test_on_http2_no_connection_is_named() -> None:
    asker = Asker(door(), http_version="2")
    answer = await asker.ask("POST", headers=[("Content-Length", str(MOST + 1))])
    assert (answer.status, answer.values("connection")) == (413, [])


@pytest.mark.parametrize("length", ["x", "-1", "+1", "1 1", "", "٣"], ids=ascii)
async def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    value = length.encode().decode("latin-1")
    assert (await Asker(door()).ask("POST", headers=[("Content-Length", value)])).status == 400


async def test_content_whose_end_is_said_in_two_ways_is_refused() -> None:
    headers = [("Content-Length", "1"), ("Transfer-Encoding", "chunked")]
    answer = await Asker(door()).ask("POST", headers=headers, content=[b"x"])
    assert (answer.status, answer.value("connection")) == (400, "close")


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
async def test_content_that_nobody_reads_does_not_hold_the_connection(
    method: str, headers: Headers, content: list[bytes], stays_open: bool, connection: list[str]
) -> None:
    asker = Asker(door(unread_bytes=99, idle_seconds=0))
    answer = await asker.ask(method, "/unread", headers, content, stays_open=stays_open)
    assert (answer.content, answer.values("connection")) == (b"not read", connection)


async def test_content_that_does_not_arrive_is_not_waited_for() -> None:
    asker = Asker(door(body_seconds=0))
    answer = await asker.ask("POST", content=[b"x"], stays_open=True)
    assert answer.status == 408
    assert answer.value("connection") == "close"


async def test_whoever_has_all_of_the_content_may_take_long_to_answer() -> None:
    app = duly.AsyncDuly("memory://")

    async def slow(request: Request) -> Response:
        await request.body()
        leaving = asyncio.ensure_future(request.receive())
        for _ in range(20):  # turns in which a limit that is long over would be noticed
            await asyncio.sleep(0)
        is_cut = leaving.done()
        leaving.cancel()
        return JSONResponse({"is_cut": is_cut})

    inner = Starlette(routes=[Route("/", slow, methods=["POST"])])
    guards = Guards(inner, Site(app, Access(None), Names(app)), limits=RequestLimits(100, body_seconds=0))
    answer = await Asker(guards).ask("POST", content=[b"x"])
    assert answer.json == {"is_cut": False}


async def test_headers_over_their_limit_are_refused() -> None:
    head = [("X-Filler", "x" * 1000)] * 32
    assert (await Asker(door()).ask(headers=head)).status == 200
    assert (await Asker(door()).ask(headers=[*head, *head[:1]])).status == 431


async def test_an_address_over_its_limit_is_refused() -> None:
    path = "/" + "x" * 4095
    assert (await Asker(door()).ask(path=path, query="y" * 4096)).status == 200
    assert (await Asker(door()).ask(path=path, query="y" * 4097)).status == 414


# What every answer has

ANSWERS = {
    "200": ("GET", "/", []),
    "400": ("GET", "/", [("Host", "a b")]),
    "403": ("POST", "/", [("Origin", "null")]),
    "421": ("GET", "/", [("Host", "evil.example")]),
    "413": ("POST", "/", [("Content-Length", str(MOST + 1))]),
    "static": ("GET", "/static/x.css", []),
}


@pytest.mark.parametrize(("method", "path", "headers"), list(ANSWERS.values()), ids=list(ANSWERS))
async def test_every_answer_has_the_headers_that_keep_a_browser_safe(method: str, path: str, headers: Headers) -> None:
    answer = await Asker(door()).ask(method, path, headers)
    assert_safe(answer.headers)
    assert answer.value("cache-control") == ("max-age=9" if "static" in path else "no-store")


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


async def test_a_fault_is_answered_with_the_same_headers_and_tells_nothing() -> None:
    answer = await Asker(door()).ask(path="/fault")
    assert answer.status == 500
    assert_safe(answer.headers)
    assert b"secret" not in answer.content


@pytest.mark.parametrize("path", ["/", "/api/v1/queues"])
async def test_a_fault_is_told_in_the_log_once_and_within_its_line(
    path: str, site_app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(names: Names) -> list[str]:
        raise ZeroDivisionError

    monkeypatch.setattr(Names, "queues", fail)
    assert (await Asker(create_app(site_app)).ask(path=path)).status == 500
    assert [each.message for each in caplog.records] == [f"GET {path!r} failed"]


async def test_an_answer_that_fails_half_way_is_left_to_the_server_to_cut() -> None:
    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    app = duly.AsyncDuly("memory://")
    with pytest.raises(ZeroDivisionError):
        await Asker(Guards(half, Site(app, Access(None), Names(app)))).ask()


async def test_the_pages_of_the_dashboard_have_the_headers_too(site_app: duly.AsyncDuly) -> None:
    asker = Asker(create_app(site_app, tokens=TOKENS))
    for path in ("/", "/login", "/nothing", "/api/v1/queues", "/api/v1/nothing", "/metrics", "/healthz"):
        for headers in ([], [ADMIN]):
            assert_safe((await asker.ask(path=path, headers=headers)).headers)


# Other connections, and other apps around it


async def test_a_websocket_is_closed() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await door()({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_the_start_and_end_of_a_server_pass_through() -> None:
    coming: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return coming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await door()({"type": "lifespan"}, receive, send)
    assert [each["type"] for each in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_below_another_app_what_that_app_knows_is_left_alone() -> None:
    seen: list[Any] = []

    async def around(scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {"role": "their own", "shop": 1}
        await Starlette(routes=[Mount("/ops", door(TOKENS))])(scope, receive, send)
        seen.append(scope["state"])

    answer = await Asker(around).ask(path="/ops/x", headers=[ADMIN])
    assert answer.json["role"] == "admin"
    assert seen == [{"role": "their own", "shop": 1}]


# On a socket


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[tuple[str, int]]:
    """Serve an app with uvicorn, on a port of its own."""
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
async def test_a_connection_with_too_much_content_is_answered_and_closed(request_head: str) -> None:
    async with served(door()) as (host, port), asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(request_head.encode())
        answered = await reader.read()  # to the end: it comes only because the server closes
        writer.close()
    assert answered.startswith(b"HTTP/1.1 413 ")
    assert b"application/" in answered or b"text/plain" in answered


async def test_whoever_sends_all_before_he_reads_finds_an_answer() -> None:
    """A connection that is closed under him would be an outage to him, and he would send it again."""
    size = 8 * 1024 * 1024
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"

    def send_then_read(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address, timeout=30) as caller:
            caller.sendall(head.encode() + b"x" * size)
            return b"".join(iter(lambda: caller.recv(65536), b""))

    async with served(door()) as address:
        answered = await asyncio.to_thread(send_then_read, address)
    assert answered.startswith(b"HTTP/1.1 413 ")
