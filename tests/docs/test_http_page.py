"""The page about HTTP is true: every operation is listed and shown, and answers as documented."""

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import duly
from duly.web import create_app
from duly.web.access import ROLES
from duly.web.api import paths_of
from duly.web.api.catalog import OPERATIONS
from duly.web.problems import TITLES

ROOT = Path(__file__).parents[2]
PAGES: Final = {"en": ROOT / "docs/http.md", "zh": ROOT / "docs/zh/http.md"}
TOKEN: Final = "a-token-for-the-page"
ROW = re.compile(r"^\| (GET|POST|PUT|PATCH|DELETE) \| `(\S+)` \| (\w+) \| \S", re.MULTILINE)
SHOWN = re.compile(r"^```sh\n(curl .*?)\n```$(?:\n\n^```json\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
VARIABLES: Final = {"$DULY": "/api/v1", "$AUTH": f"Authorization: Bearer {TOKEN}"}
KINDS: Final = (
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"),  # a time
    re.compile(r"\d{13}-\d+"),  # the id of an entry
    re.compile(r"[\w.-]+:\d+:[0-9a-f]{6}"),  # a consumer
    re.compile(r"[\w-]{40,}(\.\.\.)?"),  # a receipt
)


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    """Return the page, in each language."""
    return PAGES[request.param].read_text()


def test_every_operation_is_listed_with_its_role_and_no_other_is(page: str) -> None:
    assert len(OPERATIONS) > 20
    assert sorted(ROW.findall(page)) == sorted((each.method, each.path, each.needs) for each in OPERATIONS)


def test_every_role_is_explained(page: str) -> None:
    assert tuple(re.findall(r"^\| (viewer|operator|admin) \| \S", page, re.MULTILINE)) == ROLES


def test_every_status_that_a_problem_may_have_is_explained(page: str) -> None:
    rows = re.findall(r"^\| (\d{3}(?:, \d{3})*) \| \S", page, re.MULTILINE)
    explained = {int(status) for row in rows for status in row.split(", ")}

    assert explained == set(TITLES)


class Call:
    """A call with curl, as the page shows it."""

    def __init__(self, line: str) -> None:
        words = shlex.split(line)[1:]
        for name, value in VARIABLES.items():
            words = [word.replace(name, value) for word in words]
        options = dict(pairwise(words))
        [self.address] = [word for word in words if word.startswith("/api/")]
        self.content = options.get("--json")
        self.method = options.get("-X", "POST" if self.content else "GET")
        self.headers = dict([options["-H"].split(": ", 1)])
        if self.content:
            self.headers["Content-Type"] = "application/json"

    def goes_to(self, operation: Any) -> bool:
        """Whether this is a call of an operation."""
        asked = self.address.removeprefix("/api/v1").partition("?")[0]
        patterns = [re.sub(r"\\{\w+\\}", r"[^/]+", re.escape(path)) for path in paths_of(operation)]
        return self.method == operation.method and any(re.fullmatch(each, asked) for each in patterns)

    async def ask(self, client: httpx.AsyncClient, content: str | None) -> httpx.Response:
        return await client.request(self.method, self.address, headers=self.headers, content=content)


def test_every_operation_is_shown(page: str) -> None:
    calls = [Call(line) for line, _ in SHOWN.findall(page)]

    shown = [each for each in OPERATIONS if each.media_type == "application/json"]  # streams have no end
    assert [each.name for each in shown if not any(call.goes_to(each) for call in calls)] == []


def test_both_languages_show_the_same() -> None:
    english, chinese = (SHOWN.findall(page.read_text()) for page in PAGES.values())

    assert english == chinese
    assert len(english) > 20


@pytest.fixture
async def app() -> AsyncIterator[duly.AsyncDuly]:
    async with duly.AsyncDuly("memory://") as app:
        yield app


@pytest.fixture
async def client(app: duly.AsyncDuly) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(app, tokens=TOKEN))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def fresh_receipt(app: duly.AsyncDuly, client: httpx.AsyncClient) -> str:
    """Take order-18 in any state, as a reader does at this point of the page."""
    orders = app.queue("orders")
    await orders.cancel("order-18", running=True)
    await orders.send({"order": 18}, id="order-18", priority=9)
    taken = await Call('curl -H "$AUTH" --json "{}" $DULY/queues/orders/receive').ask(client, '{"limit": 1, "wait": 5}')
    receipt: str = taken.json()["messages"][0]["receipt"]
    return receipt


def with_kinds(given: dict[str, Any]) -> dict[str, Any]:
    """Write what a name stands for in place of one that is another each time."""
    kinds = {name: next((kind.pattern for kind in KINDS if kind.fullmatch(name)), name) for name in given}
    return {kinds[name]: value for name, value in given.items()}


def is_like(shown: Any, given: Any) -> bool:
    """Whether an answer is what the page shows. Times, ids of entries, consumers and fences are others each time."""
    if isinstance(shown, dict) and isinstance(given, dict):
        shown, given = with_kinds(shown), with_kinds(given)
        fits = set(shown) - {"..."} <= set(given) if "..." in shown else set(shown) == set(given)
        return fits and all(is_like(value, given[name]) for name, value in shown.items() if name != "...")
    if isinstance(shown, list) and isinstance(given, list):
        return len(shown) == len(given) and all(map(is_like, shown, given))
    if isinstance(shown, str) and isinstance(given, str):
        begins = shown.endswith("...") and given.startswith(shown.removesuffix("..."))
        return shown == given or begins or any(kind.fullmatch(shown) and kind.fullmatch(given) for kind in KINDS)
    if isinstance(shown, int) and shown > 10**12:
        return isinstance(given, int) and given > 10**12
    if isinstance(shown, float):
        return isinstance(given, float)
    return type(shown) is type(given) and shown == given


def is_answer(shown: Any, given: httpx.Response) -> bool:
    """Whether a response has the content that the page shows."""
    return is_like(shown, given.json() if given.content else None)


LISTS_ARE_CACHED: Final = 10.0
"""Seconds, generously, until a list contains a queue or topic that a call has just created."""


async def test_every_call_is_answered_as_documented(app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    wrong, receipt = [], ""
    for line, answer in SHOWN.findall(PAGES["en"].read_text()):
        call = Call(line)
        content = call.content
        if content and "RECEIPT" in content:
            receipt = receipt if "SAME-RECEIPT" in content else await fresh_receipt(app, client)
            content = re.sub(r"(SAME-)?RECEIPT", receipt, content)
        shown = json.loads(answer.replace(", ...", ', "...": null')) if answer else None
        given = await call.ask(client, content)
        deadline = time.monotonic() + LISTS_ARE_CACHED
        while call.method == "GET" and not is_answer(shown, given) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            given = await call.ask(client, content)
        if not is_answer(shown, given):
            wrong.append((line, shown, given.status_code, given.text))

    assert wrong == []


DEEP: Final = json.loads("[" * 202 + "]" * 202)


@pytest.mark.parametrize(
    ("row", "method", "path", "content"),
    [
        (0, "POST", "/messages", {"body": "a" * (1 << 20)}),
        (1, "POST", "/messages", {"body": "a" * 3 * (1 << 19)}),
        (3, "POST", "/messages", [{"body": 1}] * 1001),
        (3, "POST", "/ack", {"receipts": ["a"] * 1001}),
        (4, "POST", "/receive", {"limit": 101}),
        (4, "GET", "/messages?limit=101", None),
        (5, "POST", "/receive", {"wait": 21}),
        (6, "POST", "/messages", {"body": DEEP}),
        (7, "GET", "/messages?after=" + "a" * 8192, None),
    ],
)
async def test_a_request_over_a_limit_is_answered_as_documented(
    page: str, client: httpx.AsyncClient, row: int, method: str, path: str, content: object
) -> None:
    section = page.partition("`max_message_bytes=`")[2]
    statuses = re.findall(r"\| (\d{3}.*?) \|$", section, re.MULTILINE)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    await client.post("/api/v1/queues/orders/messages", json={"body": 1}, headers=headers)

    answer = await client.request(method, f"/api/v1/queues/orders{path}", json=content, headers=headers)

    assert str(answer.status_code) in statuses[row]


@pytest.mark.parametrize(
    ("shown", "given", "is_so"),
    [
        ({"id": "a"}, {"id": "a"}, True),
        ({"id": "a"}, {"id": "b"}, False),
        ({"id": "a"}, {"id": "a", "more": 1}, False),
        ({"id": "a", "...": None}, {"id": "a", "more": 1}, True),
        ({"id": "a", "...": None}, {"more": 1}, False),
        ([1, 2], [1], False),
        ("there is...", "there is no queue", True),
        ("2026-11-16T09:30:00.000000Z", "2027-01-01T00:00:00Z", True),
        ("2026-11-16T09:30:00.000000Z", "tomorrow", False),
        (0.1, 59.9, True),
        (0.1, 1, False),
        ({"web-1:22374:eb3d96": 1}, {"shop-2:7:000000": 1}, True),
        ({"web-1:22374:eb3d96": 1}, {"nobody": 1}, False),
        (None, 0, False),
    ],
)
def test_a_false_answer_is_found(shown: Any, given: Any, is_so: bool) -> None:
    assert is_like(shown, given) is is_so
