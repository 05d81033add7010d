"""The login: a token is given once, a cookie stands for it, and nobody is led astray on the way."""

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
from tests.web.asgi_client import Asker, ResponseTracker
from tests.web.conftest import TOKENS

FORM: Final = ("Content-Type", "application/x-www-form-urlencoded")
OWN: Final = ("Sec-Fetch-Site", "same-origin")
OPERATOR: Final = "a-token-for-operators"
PAGES: Final = ["/", "/queues/q", "/queues/q/messages/1", "/topics", "/topics/t/groups/g", "/workers", "/schedules"]


@pytest.fixture
def asker(site_app: duly.AsyncDuly) -> Asker:
    """Give somebody before a dashboard with tokens."""
    return Asker(create_app(site_app, tokens=TOKENS))


async def log_in(asker: Asker, token: str = OPERATOR, wanted: str = "") -> ResponseTracker:
    fields = urlencode({"token": token, "next": wanted}, errors="surrogatepass")
    return await asker.ask("POST", "/login", [FORM, OWN], [fields.encode()])


def cookie_name(answer: ResponseTracker) -> tuple[str, str]:
    (pair, *_) = answer.value("set-cookie").split(";")
    return ("Cookie", pair)


def attributes(answer: ResponseTracker) -> dict[str, str]:
    (morsel,) = SimpleCookie(answer.value("set-cookie")).values()
    return {name: str(value) for name, value in morsel.items() if value}


async def test_whoever_is_not_known_is_shown_a_form(asker: Asker) -> None:
    answer = await asker.ask(path="/login")
    assert answer.status == 200
    assert answer.value("content-type").startswith("text/html")
    assert b'name="token"' in answer.content
    assert b'action="/login"' in answer.content
    assert answer.values("set-cookie") == []


async def test_the_form_is_sent_with_the_name_of_its_origin(asker: Asker) -> None:
    # Browsers send "Origin: null" with the forms of a page that has no referrers, and that is refused.
    answer = await asker.ask(path="/login")
    assert answer.value("referrer-policy") == "no-referrer"
    assert b'<meta name="referrer" content="same-origin">' in answer.content


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_sends_whoever_is_not_known_to_the_login_and_back(asker: Asker, path: str) -> None:
    sent = await asker.ask(path=path, query="state=dead")
    to = urlsplit(sent.value("location"))
    assert (sent.status, to.path) == (303, "/login")
    wanted = parse_qs(to.query)["next"][0]
    assert wanted == f"{path}?state=dead"
    form = await asker.ask(path="/login", query=to.query)
    assert f'name="next" value="{wanted}"'.encode() in form.content
    assert (await log_in(asker, wanted=wanted)).value("location") == wanted


@pytest.mark.parametrize("path", ["/api/v1/queues", "/api/v1/openapi.json", "/metrics"])
async def test_a_program_that_is_not_known_is_told_so(asker: Asker, path: str) -> None:
    answer = await asker.ask(path=path)
    assert (answer.status, answer.value("www-authenticate")) == (401, "Bearer")


async def test_a_right_token_is_kept_as_a_cookie_that_lets_in(asker: Asker) -> None:
    entered = await log_in(asker)
    assert (entered.status, entered.value("location")) == (303, "/")
    assert attributes(entered) == {
        "httponly": "True",
        "max-age": str(SESSION_SECONDS),
        "path": "/",
        "samesite": "strict",
    }
    assert OPERATOR not in entered.value("set-cookie")
    assert (await asker.ask(headers=[cookie_name(entered)])).status == 200


async def test_over_tls_the_cookie_is_sent_over_tls_alone(site_app: duly.AsyncDuly) -> None:
    asker = Asker(create_app(site_app, tokens=TOKENS), "q.example", scheme="https")
    entered = await log_in(asker)
    assert "secure" in attributes(entered)
    name, value = cookie_name(entered)
    assert value.startswith("__Host-duly_session=")
    assert (await asker.ask(headers=[(name, value)])).status == 200
    # One of the other name may be of a page beside it, without TLS.
    assert (await asker.ask(headers=[(name, value.removeprefix("__Host-"))])).status == 303
    left = await asker.ask("POST", "/logout", [(name, value), OWN])
    assert left.value("set-cookie").startswith('__Host-duly_session="";')


async def test_over_tls_below_a_path_the_cookie_is_sent_to_that_path_alone(site_app: duly.AsyncDuly) -> None:
    asker = Asker(create_app(site_app, tokens=TOKENS), "q.example", scheme="https", root="/ops")
    entered = await log_in(asker)
    assert cookie_name(entered)[1].startswith("duly_session=")
    assert attributes(entered)["path"] == "/ops"
    assert (await asker.ask(headers=[cookie_name(entered)])).status == 200


FORGED: Final = [("Cookie", f"duly_session=9999999999.{number:064x}") for number in range(11)]


async def test_an_address_of_many_wrong_cookies_can_log_in_all_the_same(asker: Asker) -> None:
    for wrong in FORGED[:10]:
        assert (await asker.ask(headers=[wrong])).status == 303
    stale = FORGED[10]
    assert (await asker.ask(headers=[stale])).status == 429
    for path in ("/login", "/static/duly.css", "/healthz"):
        assert (await asker.ask(path=path, headers=[stale])).status == 200
    assert (await asker.ask("POST", "/logout", [stale, OWN])).status == 303
    fields = urlencode({"token": OPERATOR}).encode()
    entered = await asker.ask("POST", "/login", [FORM, OWN, stale], [fields])
    assert entered.status == 303
    assert (await asker.ask(headers=[cookie_name(entered)])).status == 200


@pytest.mark.parametrize("path", ["/static/duly.css", "/healthz"])
async def test_what_is_for_all_is_given_whatever_token_comes_with_it(asker: Asker, path: str) -> None:
    for number in range(11):
        assert (await asker.ask(path=path, headers=[("Authorization", f"Bearer wrong-{number}")])).status == 200
    assert (await asker.ask(path="/api/v1/queues", headers=[("Authorization", f"Bearer {OPERATOR}")])).status == 200


async def test_who_goes_away_within_the_form_is_no_fault(asker: Asker, caplog: pytest.LogCaptureFixture) -> None:
    coming: list[Message] = [
        {"type": "http.request", "body": b"token=", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def gone(scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_half() -> Message:
            return coming.pop(0)

        await asker.app(scope, receive_half, send)

    assert (await Asker(gone).ask("POST", "/login", [FORM, OWN, ("Content-Length", "99")])).status == 408
    assert caplog.records == []


async def test_spaces_around_a_pasted_token_do_no_harm(asker: Asker) -> None:
    assert (await log_in(asker, f" {OPERATOR}\n")).status == 303


@pytest.mark.parametrize(
    "token", ["", "wrong-token", OPERATOR.upper(), "\ud800", "\x00", "<script>alert(1)</script>"], ids=ascii
)
async def test_a_wrong_token_shows_the_form_again_and_never_itself(asker: Asker, token: str) -> None:
    answer = await log_in(asker, token)
    assert answer.status == 401
    assert b'role="alert"' in answer.content
    assert answer.values("set-cookie") == []
    assert not token or token.encode(errors="replace") not in answer.content


async def test_the_same_limit_holds_for_the_form_and_for_programs(asker: Asker) -> None:
    for number in range(5):
        assert (await log_in(asker, f"wrong-token-{number}")).status == 401
        wrong = ("Authorization", f"Bearer another-{number}")
        assert (await asker.ask(path="/api/v1/queues", headers=[wrong])).status == 401
    locked = await log_in(asker)
    assert locked.status == 429
    assert int(locked.value("retry-after")) <= 60
    assert b'name="token"' in locked.content
    assert locked.values("set-cookie") == []
    program = await asker.ask(path="/api/v1/queues", headers=[("Authorization", f"Bearer {OPERATOR}")])
    assert program.status == 429
    elsewhere = Asker(asker.app, address="198.51.100.1")
    assert (await log_in(elsewhere)).status == 303


@pytest.mark.parametrize(
    "origin",
    [[("Sec-Fetch-Site", "cross-site")], [("Origin", "http://evil.example")], [("Origin", "null")]],
    ids=["site", "origin", "null"],
)
async def test_another_site_cannot_log_a_browser_in_or_out_or_use_up_its_tries(
    asker: Asker, origin: Iterable[tuple[str, str]]
) -> None:
    for _ in range(11):
        answer = await asker.ask("POST", "/login", [FORM, *origin], [b"token=wrong-token"])
        assert answer.status == 403
    assert (await asker.ask("POST", "/logout", [*origin])).status == 403
    assert (await log_in(asker)).status == 303


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


@pytest.mark.parametrize("wanted", LEADING_AWAY, ids=lambda text: ascii(text[:30]))
async def test_after_the_login_nobody_is_led_away(asker: Asker, wanted: str) -> None:
    assert (await log_in(asker, wanted=wanted)).value("location") == "/"
    known = cookie_name(await log_in(asker))
    there = await asker.ask(path="/login", query=urlencode({"next": wanted[:1000]}), headers=[known])
    assert there.value("location") == "/" if len(wanted) < 1000 else there.value("location").startswith("/xxx")
    form = await asker.ask(path="/login", query=urlencode({"next": wanted[:1000]}))
    assert b"evil.example" not in form.content
    assert b"javascript" not in form.content


async def test_a_page_with_strange_signs_is_found_again(asker: Asker) -> None:
    path = "/queues/q/messages/" + "ä <b>'\"&;%/?#\u202e"
    sent = await Asker(asker.app).ask(path=path)
    to = urlsplit(sent.value("location"))
    wanted = parse_qs(to.query)["next"][0]
    back = (await log_in(asker, wanted=wanted)).value("location")
    assert back == quote(path)
    assert back.isascii()


async def test_a_logout_takes_the_cookie_back(asker: Asker) -> None:
    known = cookie_name(await log_in(asker))
    left = await asker.ask("POST", "/logout", [known, OWN])
    assert (left.status, left.value("location")) == (303, "/login")
    assert cookie_name(left) == ("Cookie", 'duly_session=""')
    assert left.value("set-cookie").count("Max-Age=0") == 1
    assert attributes(left)["path"] == "/"


@pytest.mark.parametrize(("method", "path"), [("GET", "/logout"), ("PUT", "/login"), ("DELETE", "/login")])
async def test_nothing_else_logs_in_or_out(asker: Asker, method: str, path: str) -> None:
    answer = await asker.ask(method, path, [OWN])
    assert answer.status == 405
    assert answer.values("set-cookie") == []


@pytest.mark.parametrize(
    ("kind", "content", "status"),
    [("application/json", b'{"token": "x"}', 415), ("multipart/form-data; boundary=x", b"", 415), ("", b"token=x", 415),
     (FORM[1], b"token=" + b"x" * 20_000, 413), (FORM[1], b"&".join([b"a=b"] * 9), 400),
     (FORM[1], b"\xff\xfe=%zz", 401),
     (FORM[1], f"token={OPERATOR}&token={OPERATOR}".encode(), 401),
     (FORM[1] + "; charset=utf-8", f"token={OPERATOR}".encode(), 303)],
    ids=["json", "multipart", "none", "large", "many", "garbage", "two", "charset"],
)  # fmt: skip
async def test_a_form_is_what_the_login_takes(asker: Asker, kind: str, content: bytes, status: int) -> None:
    answer = await asker.ask("POST", "/login", [("Content-Type", kind), OWN], [content[:10], content[10:]])
    assert answer.status == status


async def test_without_tokens_the_login_leads_on(site_app: duly.AsyncDuly) -> None:
    asker = Asker(create_app(site_app))
    assert (await asker.ask(path="/login")).value("location") == "/"
    entered = await log_in(asker, "whatever", "/workers")
    assert (entered.value("location"), entered.values("set-cookie")) == ("/workers", [])


async def test_a_read_only_dashboard_is_logged_in_to_as_well(site_app: duly.AsyncDuly) -> None:
    assert (await log_in(Asker(create_app(site_app, tokens=TOKENS, read_only=True)))).status == 303


async def test_below_a_path_cookie_and_ways_stay_below_it(site_app: duly.AsyncDuly) -> None:
    shop = Starlette(routes=[Mount("/the shop", create_app(site_app, tokens=TOKENS))])
    asker = Asker(shop)
    sent = await asker.ask(path="/the shop/workers")
    assert sent.value("location") == "/the%20shop/login?next=%2Fthe%2520shop%2Fworkers"
    fields = urlencode({"token": OPERATOR, "next": "/the%20shop/workers"}).encode()
    entered = await asker.ask("POST", "/the shop/login", [FORM, OWN], [fields])
    assert entered.value("location") == "/the%20shop/workers"
    assert attributes(entered)["path"] == "/the%20shop"
    astray = urlencode({"token": OPERATOR, "next": "/elsewhere"}).encode()
    assert (await asker.ask("POST", "/the shop/login", [FORM, OWN], [astray])).value("location") == "/the%20shop/"
    left = await asker.ask("POST", "/the shop/logout", [OWN, cookie_name(entered)])
    assert (left.value("location"), attributes(left)["path"]) == ("/the%20shop/login", "/the%20shop")


async def test_behind_a_proxy_that_takes_the_path_off_the_root_is_kept(site_app: duly.AsyncDuly) -> None:
    app = create_app(site_app, tokens=TOKENS)

    async def stripped(scope: object, receive: object, send: object) -> None:
        assert isinstance(scope, dict)
        await app({**scope, "root_path": "/ops"}, receive, send)  # type: ignore[arg-type]

    sent = await Asker(stripped).ask(path="/workers")
    assert sent.value("location") == "/ops/login?next=%2Fops%2Fworkers"
