"""The login: a token is exchanged for a cookie, and redirects stay on the dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from http.cookies import SimpleCookie
from typing import Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

import duly
from duly.web import create_app
from duly.web.access import SESSION_SECONDS
from tests.web.asgi_client import AsgiClient, AsgiResponse
from tests.web.conftest import TOKENS

FORM: Final = ("Content-Type", "application/x-www-form-urlencoded")
OWN: Final = ("Sec-Fetch-Site", "same-origin")
OPERATOR: Final = "a-token-for-operators"
PAGES: Final = ["/", "/queues/q", "/queues/q/messages/1", "/topics", "/topics/t/groups/g", "/workers", "/schedules"]


@pytest.fixture
def asgi_client(site_app: duly.AsyncDuly) -> AsgiClient:
    """Return a client of a dashboard with tokens."""
    return AsgiClient(create_app(site_app, tokens=TOKENS))


async def log_in(asgi_client: AsgiClient, token: str = OPERATOR, next_path: str = "") -> AsgiResponse:
    fields = urlencode({"token": token, "next": next_path}, errors="surrogatepass")
    return await asgi_client.request("POST", "/login", [FORM, OWN], [fields.encode()])


def cookie_name(response: AsgiResponse) -> tuple[str, str]:
    (pair, *_) = response.value("set-cookie").split(";")
    return ("Cookie", pair)


def attributes(response: AsgiResponse) -> dict[str, str]:
    (morsel,) = SimpleCookie(response.value("set-cookie")).values()
    return {name: str(value) for name, value in morsel.items() if value}


async def test_an_unknown_client_sees_the_login_form(asgi_client: AsgiClient) -> None:
    response = await asgi_client.request(path="/login")
    assert response.status == 200
    assert response.value("content-type").startswith("text/html")
    assert b'name="token"' in response.content
    assert b'action="/login"' in response.content
    assert response.values("set-cookie") == []


async def test_the_form_is_sent_with_its_origin(asgi_client: AsgiClient) -> None:
    # Browsers send "Origin: null" with forms of pages without referrers, which is rejected.
    response = await asgi_client.request(path="/login")
    assert response.value("referrer-policy") == "no-referrer"
    assert b'<meta name="referrer" content="same-origin">' in response.content


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_redirects_an_unknown_client_to_the_login_and_back(asgi_client: AsgiClient, path: str) -> None:
    sent = await asgi_client.request(path=path, query="state=dead")
    to = urlsplit(sent.value("location"))
    assert (sent.status, to.path) == (303, "/login")
    next_path = parse_qs(to.query)["next"][0]
    assert next_path == f"{path}?state=dead"
    form = await asgi_client.request(path="/login", query=to.query)
    assert f'name="next" value="{next_path}"'.encode() in form.content
    assert (await log_in(asgi_client, next_path=next_path)).value("location") == next_path


@pytest.mark.parametrize("path", ["/api/v1/queues", "/api/v1/openapi.json", "/metrics"])
async def test_an_unknown_program_gets_401(asgi_client: AsgiClient, path: str) -> None:
    response = await asgi_client.request(path=path)
    assert (response.status, response.value("www-authenticate")) == (401, "Bearer")


async def test_a_valid_token_sets_a_working_session_cookie(asgi_client: AsgiClient) -> None:
    login = await log_in(asgi_client)
    assert (login.status, login.value("location")) == (303, "/")
    assert attributes(login) == {
        "httponly": "True",
        "max-age": str(SESSION_SECONDS),
        "path": "/",
        "samesite": "strict",
    }
    assert OPERATOR not in login.value("set-cookie")
    assert (await asgi_client.request(headers=[cookie_name(login)])).status == 200


async def test_over_tls_the_cookie_is_secure(site_app: duly.AsyncDuly) -> None:
    asgi_client = AsgiClient(create_app(site_app, tokens=TOKENS), "q.example", scheme="https")
    login = await log_in(asgi_client)
    assert "secure" in attributes(login)
    name, value = cookie_name(login)
    assert value.startswith("__Host-duly_session=")
    assert (await asgi_client.request(headers=[(name, value)])).status == 200
    # A cookie with the other name may come from another page of the host, without TLS.
    assert (await asgi_client.request(headers=[(name, value.removeprefix("__Host-"))])).status == 303
    left = await asgi_client.request("POST", "/logout", [(name, value), OWN])
    assert left.value("set-cookie").startswith('__Host-duly_session="";')


async def test_over_tls_below_a_path_the_cookie_is_limited_to_that_path(site_app: duly.AsyncDuly) -> None:
    asgi_client = AsgiClient(create_app(site_app, tokens=TOKENS), "q.example", scheme="https", root="/ops")
    login = await log_in(asgi_client)
    assert cookie_name(login)[1].startswith("duly_session=")
    assert attributes(login)["path"] == "/ops"
    assert (await asgi_client.request(headers=[cookie_name(login)])).status == 200


FORGED: Final = [("Cookie", f"duly_session=9999999999.{number:064x}") for number in range(11)]


async def test_an_address_with_many_wrong_cookies_can_still_log_in(asgi_client: AsgiClient) -> None:
    for wrong in FORGED[:10]:
        assert (await asgi_client.request(headers=[wrong])).status == 303
    stale = FORGED[10]
    assert (await asgi_client.request(headers=[stale])).status == 429
    for path in ("/login", "/static/duly.css", "/healthz"):
        assert (await asgi_client.request(path=path, headers=[stale])).status == 200
    assert (await asgi_client.request("POST", "/logout", [stale, OWN])).status == 303
    fields = urlencode({"token": OPERATOR}).encode()
    login = await asgi_client.request("POST", "/login", [FORM, OWN, stale], [fields])
    assert login.status == 303
    assert (await asgi_client.request(headers=[cookie_name(login)])).status == 200


@pytest.mark.parametrize("path", ["/static/duly.css", "/healthz"])
async def test_public_paths_ignore_tokens(asgi_client: AsgiClient, path: str) -> None:
    for number in range(11):
        assert (
            await asgi_client.request(path=path, headers=[("Authorization", f"Bearer wrong-{number}")])
        ).status == 200
    assert (
        await asgi_client.request(path="/api/v1/queues", headers=[("Authorization", f"Bearer {OPERATOR}")])
    ).status == 200


async def test_a_disconnect_during_the_login_is_not_an_internal_error(
    asgi_client: AsgiClient, caplog: pytest.LogCaptureFixture
) -> None:
    coming: list[Message] = [
        {"type": "http.request", "body": b"token=", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def gone(scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_half() -> Message:
            return coming.pop(0)

        await asgi_client.app(scope, receive_half, send)

    assert (await AsgiClient(gone).request("POST", "/login", [FORM, OWN, ("Content-Length", "99")])).status == 408
    assert caplog.records == []


async def test_spaces_around_a_token_are_ignored(asgi_client: AsgiClient) -> None:
    assert (await log_in(asgi_client, f" {OPERATOR}\n")).status == 303


@pytest.mark.parametrize(
    "token", ["", "wrong-token", OPERATOR.upper(), "\ud800", "\x00", "<script>alert(1)</script>"], ids=ascii
)
async def test_a_wrong_token_shows_the_form_again_without_the_token(asgi_client: AsgiClient, token: str) -> None:
    response = await log_in(asgi_client, token)
    assert response.status == 401
    assert b'role="alert"' in response.content
    assert response.values("set-cookie") == []
    assert not token or token.encode(errors="replace") not in response.content


async def test_the_form_and_programs_share_the_failure_limit(asgi_client: AsgiClient) -> None:
    for number in range(5):
        assert (await log_in(asgi_client, f"wrong-token-{number}")).status == 401
        wrong = ("Authorization", f"Bearer another-{number}")
        assert (await asgi_client.request(path="/api/v1/queues", headers=[wrong])).status == 401
    locked = await log_in(asgi_client)
    assert locked.status == 429
    assert int(locked.value("retry-after")) <= 60
    assert b'name="token"' in locked.content
    assert locked.values("set-cookie") == []
    program = await asgi_client.request(path="/api/v1/queues", headers=[("Authorization", f"Bearer {OPERATOR}")])
    assert program.status == 429
    elsewhere = AsgiClient(asgi_client.app, address="198.51.100.1")
    assert (await log_in(elsewhere)).status == 303


@pytest.mark.parametrize(
    "origin",
    [[("Sec-Fetch-Site", "cross-site")], [("Origin", "http://evil.example")], [("Origin", "null")]],
    ids=["site", "origin", "null"],
)
async def test_another_site_cannot_log_a_browser_in_or_out_or_use_up_its_attempts(
    asgi_client: AsgiClient, origin: Iterable[tuple[str, str]]
) -> None:
    for _ in range(11):
        response = await asgi_client.request("POST", "/login", [FORM, *origin], [b"token=wrong-token"])
        assert response.status == 403
    assert (await asgi_client.request("POST", "/logout", [*origin])).status == 403
    assert (await log_in(asgi_client)).status == 303


LEADING_AWAY = [
    *(
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
    ),
    *(
        "https://evil.example",
        "https:evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        "evil.example",
        "..",
        "",
    ),
    *(" //evil.example", "/a\\b", "/a\r\nSet-Cookie: a=b", "/\x00", "/\x7f", "?x", "#x", "/" + "x" * 5000),
]


@pytest.mark.parametrize("next_path", LEADING_AWAY, ids=lambda text: ascii(text[:30]))
async def test_the_login_never_redirects_to_another_site(asgi_client: AsgiClient, next_path: str) -> None:
    assert (await log_in(asgi_client, next_path=next_path)).value("location") == "/"
    known = cookie_name(await log_in(asgi_client))
    there = await asgi_client.request(path="/login", query=urlencode({"next": next_path[:1000]}), headers=[known])
    assert there.value("location") == "/" if len(next_path) < 1000 else there.value("location").startswith("/xxx")
    form = await asgi_client.request(path="/login", query=urlencode({"next": next_path[:1000]}))
    assert b"evil.example" not in form.content
    assert b"javascript" not in form.content


async def test_a_page_with_special_characters_is_redirected_to(asgi_client: AsgiClient) -> None:
    path = "/queues/q/messages/" + "ä <b>'\"&;%/?#\u202e"
    sent = await AsgiClient(asgi_client.app).request(path=path)
    to = urlsplit(sent.value("location"))
    next_path = parse_qs(to.query)["next"][0]
    back = (await log_in(asgi_client, next_path=next_path)).value("location")
    assert back == quote(path)
    assert back.isascii()


async def test_a_logout_removes_the_cookie(asgi_client: AsgiClient) -> None:
    known = cookie_name(await log_in(asgi_client))
    left = await asgi_client.request("POST", "/logout", [known, OWN])
    assert (left.status, left.value("location")) == (303, "/login")
    assert cookie_name(left) == ("Cookie", 'duly_session=""')
    assert left.value("set-cookie").count("Max-Age=0") == 1
    assert attributes(left)["path"] == "/"


@pytest.mark.parametrize(("method", "path"), [("GET", "/logout"), ("PUT", "/login"), ("DELETE", "/login")])
async def test_other_methods_do_not_log_in_or_out(asgi_client: AsgiClient, method: str, path: str) -> None:
    response = await asgi_client.request(method, path, [OWN])
    assert response.status == 405
    assert response.values("set-cookie") == []


@pytest.mark.parametrize(
    ("kind", "content", "status"),
    [("application/json", b'{"token": "x"}', 415), ("multipart/form-data; boundary=x", b"", 415), ("", b"token=x", 415),
     (FORM[1], b"token=" + b"x" * 20_000, 413), (FORM[1], b"&".join([b"a=b"] * 9), 400),
     (FORM[1], b"\xff\xfe=%zz", 401),
     (FORM[1], f"token={OPERATOR}&token={OPERATOR}".encode(), 401),
     (FORM[1] + "; charset=utf-8", f"token={OPERATOR}".encode(), 303)],
    ids=["json", "multipart", "none", "large", "many", "garbage", "two", "charset"],
)  # fmt: skip
async def test_the_login_expects_a_form(asgi_client: AsgiClient, kind: str, content: bytes, status: int) -> None:
    response = await asgi_client.request("POST", "/login", [("Content-Type", kind), OWN], [content[:10], content[10:]])
    assert response.status == status


async def test_without_tokens_the_login_redirects(site_app: duly.AsyncDuly) -> None:
    asgi_client = AsgiClient(create_app(site_app))
    assert (await asgi_client.request(path="/login")).value("location") == "/"
    login = await log_in(asgi_client, "whatever", "/workers")
    assert (login.value("location"), login.values("set-cookie")) == ("/workers", [])


async def test_a_read_only_dashboard_has_a_login(site_app: duly.AsyncDuly) -> None:
    assert (await log_in(AsgiClient(create_app(site_app, tokens=TOKENS, read_only=True)))).status == 303


async def test_below_a_path_cookies_and_redirects_stay_below_it(site_app: duly.AsyncDuly) -> None:
    shop = Starlette(routes=[Mount("/the shop", create_app(site_app, tokens=TOKENS))])
    asgi_client = AsgiClient(shop)
    sent = await asgi_client.request(path="/the shop/workers")
    assert sent.value("location") == "/the%20shop/login?next=%2Fthe%2520shop%2Fworkers"
    fields = urlencode({"token": OPERATOR, "next": "/the%20shop/workers"}).encode()
    login = await asgi_client.request("POST", "/the shop/login", [FORM, OWN], [fields])
    assert login.value("location") == "/the%20shop/workers"
    assert attributes(login)["path"] == "/the%20shop"
    astray = urlencode({"token": OPERATOR, "next": "/elsewhere"}).encode()
    assert (await asgi_client.request("POST", "/the shop/login", [FORM, OWN], [astray])).value(
        "location"
    ) == "/the%20shop/"
    left = await asgi_client.request("POST", "/the shop/logout", [OWN, cookie_name(login)])
    assert (left.value("location"), attributes(left)["path"]) == ("/the%20shop/login", "/the%20shop")


async def test_behind_a_proxy_that_strips_the_path_the_root_is_kept(site_app: duly.AsyncDuly) -> None:
    app = create_app(site_app, tokens=TOKENS)

    async def stripped(scope: object, receive: object, send: object) -> None:
        assert isinstance(scope, dict)
        await app({**scope, "root_path": "/ops"}, receive, send)  # type: ignore[arg-type]

    sent = await AsgiClient(stripped).request(path="/workers")
    assert sent.value("location") == "/ops/login?next=%2Fops%2Fworkers"
