"""The languages of the pages: the choice for a request, the switch, and catalogs without gaps."""

from __future__ import annotations

import ast
import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import jinja2
import pytest
from jinja2 import nodes

import duly
from duly._port import NUMBERS, STATES
from duly.web.access import ROLES
from duly.web.pages import charts
from duly.web.pages.filters import Filter
from duly.web.pages.language import LANGUAGES, Language, accepted_language, pattern_of
from duly.web.problems import TITLES
from tests.web.conftest import TokenClient

WEB: Final = Path(duly.__file__).parent / "web"
CHINESE: Final = LANGUAGES["zh"]
_IN_TAG: Final = re.compile(r"<[^>]*>")
_LITERAL: Final = re.compile(
    r"""(?:aria-label|placeholder|title|alt|data-done|data-confirm|data-label|data-gone)="[^"]*[a-zA-Z]"""
)
_OUR_NAMES: Final = {"Duly", "UTC", "GiB", "nbsp"}


def templates() -> list[Path]:
    return sorted((WEB / "templates").glob("*.html"))


def calls_in(template: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield the translated texts of a template, with the name of the function."""
    tree = jinja2.Environment(autoescape=True).parse(template.read_text("utf-8"))
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name in {"t", "plural"}:
            yield call.node.name, call.args


def texts_of_templates() -> set[str]:
    found = set()
    for template in templates():
        for function, arguments in calls_in(template):
            key = arguments[0 if function == "t" else 1]
            assert isinstance(key, nodes.Const), f"{template.name}: {function}() takes a text, not an expression"
            found.add(key.value)
    return found


def python_calls(*names: str) -> Iterator[ast.Call]:
    for file in sorted(WEB.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            function = getattr(node, "func", None)
            name = getattr(function, "attr", getattr(function, "id", None))
            if isinstance(node, ast.Call) and name in names:
                yield node


def texts_of_python() -> set[str]:
    keys = [call.args[0] for call in python_calls("text") if call.args]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def texts_of_script() -> set[str]:
    script = (WEB / "static" / "duly.js").read_text("utf-8")
    return set(re.findall(r'\bt\("([^"]*)"', script))


TERMS: Final = {
    *STATES, *(name for name in NUMBERS if not name.endswith("bytes")), *ROLES, *TITLES.values(),
    *charts.SPANS.values(), "Refused", "queue", "group", "ms", "s", "m", "h", "d",
    "deliveries", "failures", "crashes", "defers", "releases", "rejects", "cycles", "redrives",
    "sent", "claimed", "progress", "redrive", "ack", "retry", "defer", "release", "crash", "reject", "fail",
    "Messages per minute", "Backlog", "Age of the oldest message", "95th percentile of lateness and handling",
    "running", "waiting", "backoff", *(each.name for each in dataclasses.fields(Filter)),
    "Messages that become due", "in all", "acked", "failed", "due and waiting", "oldest", "lateness", "handling",
}  # fmt: skip


def test_every_text_of_the_pages_is_translated_and_no_translation_is_unused() -> None:
    assert set(CHINESE.pages) == texts_of_templates() | texts_of_python()


def test_every_text_of_the_script_is_translated_and_no_translation_is_unused() -> None:
    assert set(CHINESE.script) == texts_of_script()


def test_every_term_is_translated_and_no_translation_is_unused() -> None:
    assert set(CHINESE.terms) == TERMS


@pytest.mark.parametrize("template", templates(), ids=lambda each: each.name)
def test_templates_have_no_text_that_is_not_translated(template: Path) -> None:
    tree = jinja2.Environment(autoescape=True).parse(template.read_text("utf-8"))
    data = "\x00".join(each.data for each in tree.find_all(nodes.TemplateData))
    words = re.findall(r"[A-Za-z]{2,}", _IN_TAG.sub(" ", data).replace("\x00", ""))
    assert [word for word in words if word not in _OUR_NAMES] == []
    assert _LITERAL.findall(data) == []


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)", text))


@pytest.mark.parametrize("table", ["pages", "script", "sentences"])
def test_translations_have_the_placeholders_of_their_texts(table: str) -> None:
    for english, translated in getattr(CHINESE, table).items():
        assert placeholders(english) == placeholders(translated), english


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "en"),
        ("zh", "zh"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("ZH-tw", "zh"),
        ("en-US,zh;q=0.5", "en"),
        ("en;q=0.5, zh;q=0.6", "zh"),
        ("de, zh;q=0.1", "zh"),
        ("zh;q=0, en;q=0.1", "en"),
        ("zh;q=nonsense", "en"),
        ("*", "en"),
        ("," * 100 + "zh", "en"),
    ],
)
def test_the_browser_chooses_the_language(header: str, code: str) -> None:
    assert accepted_language(header).code == code


async def test_pages_are_in_the_language_of_the_browser(client: httpx.AsyncClient) -> None:
    chinese = await client.get("/", headers={"Accept-Language": "zh-CN"})
    assert '<html lang="zh-CN">' in chinese.text
    assert "<h1>总览</h1>" in chinese.text
    assert chinese.headers["Content-Language"] == "zh-CN"
    english = await client.get("/")
    assert '<html lang="en">' in english.text


async def test_the_switch_stores_the_language_and_goes_back(client: httpx.AsyncClient) -> None:
    page = await client.get("/workers?begin=a")
    assert '<input type="hidden" name="back" value="/workers?begin=a">' in page.text
    answer = await client.post("/language", data={"language": "zh", "back": "/workers?begin=a"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/workers?begin=a")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("duly_language=zh;")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    after = await client.get("/workers", headers={"Accept-Language": "en"})  # the client keeps the cookie
    assert '<html lang="zh-CN">' in after.text


async def test_the_switch_refuses_unknown_languages_and_leads_nowhere_else(client: httpx.AsyncClient) -> None:
    assert (await client.post("/language", data={"language": "xx"})).status_code == 422
    away = await client.post("/language", data={"language": "zh", "back": "//elsewhere.example/"})
    assert away.headers["Location"] == "/"


async def test_the_login_and_its_errors_are_translated(token_client: TokenClient) -> None:
    client = token_client("viewer")
    client.headers.clear()
    client.headers["Accept-Language"] = "zh"
    assert "<h1>登录</h1>" in (await client.get("/login")).text
    answer = await client.post("/login", data={"token": "a-wrong-token"})
    assert answer.status_code == 401
    assert "令牌" in answer.text
    assert "not known" not in answer.text


async def test_error_pages_are_translated(client: httpx.AsyncClient) -> None:
    for path, detail in [
        ("/nowhere", "/nowhere"),
        ("/queues/none", "&#39;none&#39;"),
        ("/topics/none", "&#39;none&#39;"),
    ]:
        page = await client.get(path, headers={"Accept-Language": "zh"})
        assert page.status_code == 404
        assert "<h1>未找到</h1>" in page.text
        assert detail in page.text
        assert "there is no" not in page.text


def _sample(text: ast.expr) -> str | None:
    """Return an example of the text that an expression makes. None: it is made elsewhere."""
    if isinstance(text, ast.Constant):
        return str(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "1" for each in text.values)
    return None


_ERRORS: Final = {"Refused": 1, "NotFound": 0, "NodeAway": 0, "UsageError": 0}
"""Errors, and which of their arguments is the text."""
_ANSWERED_AS_JSON: Final = {"guards.py", "request_limits.py"}


def errors_of_pages() -> set[str]:
    """Return examples of the errors that pages can show. Those of the API alone are in English."""
    found = set()
    for file in (*WEB.glob("*.py"), *(WEB / "pages").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            is_shown = name != "UsageError" or file.parent.name == "pages"
            if name in _ERRORS and is_shown and file.name not in _ANSWERED_AS_JSON:
                found.add(_sample(node.args[_ERRORS[name]]))  # type: ignore[attr-defined]
    return {each for each in found if each is not None}


def test_every_error_of_a_page_is_translated() -> None:
    patterns = [pattern_of(each) for each in CHINESE.sentences]
    missing = [each for each in errors_of_pages() if not any(pattern.fullmatch(each) for pattern in patterns)]
    assert missing == []


async def test_explanations_are_translated(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    queue = site_app.queue("orders", retry=duly.Retry(attempts=2))
    ids = [str(await queue.send(1)) for _ in range(4)]
    dead, failed, held = await queue.receive(limit=3)
    await dead.reject("no such order")
    await failed.retry(60, error="queue full")
    ids.append(str(await queue.send(1, delay=60)))
    found = {}
    for id_ in ids:
        page = await client.get(f"/queues/orders/messages/{id_}", headers={"Accept-Language": "zh"})
        found[id_] = re.findall(r'<p class="line">(.*?)</p>', page.text)[0]
    assert "成为死信" in found[dead.id]
    assert "因错误 &#39;queue full&#39; 正在退避" in found[failed.id]
    assert "租约到" in found[held.id]
    assert "排在第一位" in found[ids[3]]
    assert "延迟到" in found[ids[4]]
    assert not any("message" in each for each in found.values())
    assert all(each.startswith("队列") for each in found.values())


def test_plurals_are_those_of_the_language() -> None:
    def lease_text(language: Language, count: int) -> str:
        return str(language.plural("{count} lease, by consumer", "{count} leases, by consumer", count))

    english = LANGUAGES["en"]
    assert lease_text(english, 1) == "1 lease, by consumer"
    assert lease_text(english, 1200) == "1,200 leases, by consumer"
    assert lease_text(CHINESE, 1).startswith("1 个租约")


def test_durations_have_the_units_of_the_language() -> None:
    assert LANGUAGES["en"].span(320) == "5m 20s"
    assert [CHINESE.span(each) for each in (0.35, 12.3, 320, 11520, None)] == [
        "350 毫秒", "12.3 秒", "5 分 20 秒", "3 小时 12 分", "-",
    ]  # fmt: skip


def test_values_are_escaped_in_every_language() -> None:
    language = Language("xx", "xx", "X", pages={"It is {name}": "<b> {name}"})
    assert language.text("It is {name}", name='<i>"') == "&lt;b&gt; &lt;i&gt;&#34;"


def test_names_with_braces_stay_as_they_are() -> None:
    assert "{name}" in CHINESE.sentence("there is no queue '{name}'.")


@pytest.mark.parametrize("english", CHINESE.sentences)
def test_a_long_text_of_a_user_is_matched_in_linear_time(english: str) -> None:
    first, *others = re.split(r"\{\w+\}", english)
    repeated = "".join(others) or first
    text = (first + repeated * (10_000 // len(repeated)))[:9_999] + "\0"

    began = time.process_time()
    CHINESE.sentence(text)
    assert time.process_time() - began < 5  # with backtracking it takes minutes


def test_a_value_may_contain_the_text_that_ends_the_sentence() -> None:
    text = "message 1 of queue 'q' has been dead since 10:00: rejected, last error a.b. c."
    assert CHINESE.sentence(text).endswith("最后的错误为 a.b. c。")


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        pytest.param(
            "but the queue is paused by worker-1: it is delivered after resume().",
            "但队列已由 worker-1 暂停",
            id="kind",
        ),
        pytest.param(
            "but the group is paused by worker-1: it is delivered after resume().", "但消费者组已由", id="group"
        ),
    ],
)
def test_the_kind_of_a_paused_queue_is_translated(english: str, chinese: str) -> None:
    assert chinese in CHINESE.sentence(f"message 1 of queue 'q' has been ready since 10:00, {english}")


@pytest.mark.parametrize(
    ("end", "chinese"), [("finished or dead", "完成或成为死信"), ("finished or removed", "完成或移除")]
)
def test_how_the_message_in_front_ends_is_translated(end: str, chinese: str) -> None:
    before = "message 1 of queue 'q' is behind message 2 of key 'k', which is due at 10:00"
    text = f"{before}: it is delivered after that one is {end}."
    assert CHINESE.sentence(text).endswith(f"后者{chinese}之后投递。")
