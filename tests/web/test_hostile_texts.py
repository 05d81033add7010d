"""Hostile texts in every place that can hold one: they are shown as texts and have no effect.

The tests send them through the library, through the API and in URLs. Then they load every page and call every GET. A
page must have the same elements as with a plain word in these places.
"""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import product
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
import redis.asyncio
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount, Route

import duly
from duly._core import ops
from duly._core.keys import RegistryKeys
from duly._core.registry import Info, written_info
from duly.errors import InvalidName, UsageError
from duly.web import create_app
from tests.conftest import StartedServer
from tests.web.conftest import client_of

TEXTS: Final = {
    "script": "<script>alert(1)</script>&lt;b&gt;&#60;i&#62;&amp;",
    "image": '"><img src=x onerror=alert(1)>',
    "attribute": "' onmouseover='alert(1)' x='",
    "endings": "</title></pre></script></textarea><svg/onload=alert(1)><!-- ",
    "javascript": "javascript:alert(1)",
    "template": "{{12345*54321}}{% raise %}${12345*54321}",
    "crlf": "a\r\nSet-Cookie: hacked=1\r\n\r\n<b>bold</b>",
    "ansi": "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "right-to-left": "\u202egnp.exe\u2066\u200f\u2028",
    "nul": "a\x00b",
    "surrogate": "a\ud800b\udfff",
    "metric": 'x"} 1\nevil_total{a="b\\',
    "slashes": "//evil.example/../../%2e%2e/\\..\\?a=b#c;d",
    "long": "<b>" * 2_000,
}
PLAIN: Final = "plain"
STATES: Final = ("ready", "delayed", "leased", "dead", "done")
SHOWN: Final = ("script", "attribute", "endings", "javascript", "template")
"""Texts that a page shows unchanged: no invisible characters, and nothing that JSON escapes."""

Element = tuple[str, tuple[str, ...]]
"""The name of an element, and the names of its attributes."""

text_ids = pytest.mark.parametrize("name", list(TEXTS))


# Storing a text everywhere


async def accepted(*calls: Any) -> list[Any]:
    """Try a call. A text that Duly rejects cannot be shown."""
    results = []
    for call in calls:
        try:
            results.append(await call)
        except UsageError:
            results.append(None)
    return results


async def fill(app: duly.AsyncDuly, text: str) -> None:
    """Store a text in each field of messages in each state, of workers and schedules, and as a consumer."""
    link: Any = app._link
    getattr(link, "connections", link).consumer = sendable(text)
    queue = app.queue("orders", done=duly.Keep(count=100), retry=duly.Retry(attempts=1))
    body = {text: [text, text]}
    options: dict[str, Any] = {"headers": {"x-word": text}}
    for settle in (_ack, _defer, _fail, _reject):
        await accepted(queue.send(body, **options), queue.send("a body", id=f"{settle.__name__}{text}"))
        for delivery in await queue.receive(2, wait=0):
            await accepted(settle(delivery, text))
    await accepted(
        queue.send(body, **options),
        queue.send("a key", key=text, dedup=text),
        queue.send("an id", id=text),
        queue.send("header names", headers={text: text}),
        queue.send(text.encode(errors="replace"), delay=1000),
        queue.send(text, delay=1000),
        app.schedule("nightly", queue, body, every=3600),
        _beat(app, text),
    )
    await _fill_topic(app, text)
    await queue.receive(1, wait=0)
    await queue.pause()


async def _fill_topic(app: duly.AsyncDuly, text: str) -> None:
    topic = app.topic("events")
    group = topic.group("archive")
    await group.create()
    for _ in range(3):
        await accepted(topic.publish({text: text}, headers={"x-word": text}))
    await accepted(topic.publish({text: text}, key=text), topic.publish(text, delay=1000))
    for delivery in await group.receive(1, wait=0):
        await accepted(_reject(delivery, text))
    await group.receive(1, wait=0)


async def _ack(delivery: duly.AsyncDelivery, text: str) -> None:
    await delivery.ack(result={text: text})


async def _defer(delivery: duly.AsyncDelivery, text: str) -> None:
    await delivery.defer(1000, reason=text)


async def _fail(delivery: duly.AsyncDelivery, text: str) -> None:
    await delivery.retry(error=RuntimeError(text))


async def _reject(delivery: duly.AsyncDelivery, text: str) -> None:
    await delivery.reject(text)


def sendable(text: str) -> str:
    """Make a text encodable: host and consumer names come from the system."""
    return text.encode(errors="replace").decode()


async def _beat(app: duly.AsyncDuly, text: str) -> None:
    word = sendable(text)
    info = Info(
        host=word,
        pid=7,
        queues=("orders", word),
        concurrency=1,
        in_flight=0,
        handled=0,
        started_at=datetime.now(UTC),
        last_poll=0.5,
        version=word,
    )
    await app._link.run(ops.beat(RegistryKeys(app.namespace), word, written_info(info), 600.0))


async def fill_by_api(client: httpx.AsyncClient, text: str) -> None:
    """Send a text through each call that accepts one. JSON can contain texts that Python cannot encode."""

    async def post(path: str, **body: Any) -> Any:
        response = await client.post(
            f"/api/v1{path}", content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        assert response.status_code < 500, response.text
        assert_no_injection(response)
        return response.json() if response.status_code < 300 else {}

    for path in ("/queues/calls", "/topics/events"):
        await post(f"{path}/messages", body=text)
        await post(f"{path}/messages", body={text: text}, headers={"x-word": text})
        await post(f"{path}/messages", body=1, headers={text: text}, key=text, dedup=text)
        await post(f"{path}/messages", base64=text)
    await post("/queues/calls/messages", body=1, id=text)
    await post(
        "/queues/calls/redrive", where={"error": text, "reason": text, "key": text, "ids": [text]}, to=text, rate=text
    )
    await post("/queues/calls/purge", confirm=text, state=text)
    settling: dict[str, dict[str, Any]] = {
        "ack": {"result": text},
        "retry": {"error": text},
        "defer": {"delay": 1000, "reason": text},
        "reject": {"reason": text},
        "release": {},
        "recycle": {"body": text},
        "extend": {"seconds": 1000},
        "progress": {"fraction": 0.4, "text": text},
    }
    for settle, more in settling.items():
        await post("/queues/calls/messages", body=[text])
        for message in (await post("/queues/calls/receive", limit=1, wait=0)).get("messages", ()):
            await post(f"/queues/calls/{settle}", receipt=message["receipt"], **more)
        await post(f"/queues/calls/{settle}", receipt=text, **more)


# Loading everything


Places = dict[str, str]
"""Values for the path parameters: queue, topic, group, id."""

WORDS: Final = ("queue", "topic", "group", "id")


async def places_of(app: duly.AsyncDuly) -> list[Places]:
    """Return all names and ids to load."""
    group = app.topic("events").group("archive")
    homes: list[tuple[Places, Any]] = [({"queue": name}, app.queue(name)) for name in ("orders", "calls")]
    homes.append(({"topic": "events", "group": "archive"}, group))
    found = [home for home, _ in homes]
    for (home, inbox), state in product(homes, STATES):
        found += [{**home, "id": message.id} for message in await inbox.list(state, 50)]
    return found


def addresses(site: Starlette, there: Iterable[Places]) -> Iterator[str]:
    """Return every URL that can be loaded, from the routes."""
    for path in _paths(site.routes):
        wanted = re.findall(r"{(\w+)[^}]*}", path)
        assert path.startswith("/static/") or set(wanted) <= set(WORDS), f"what stands in {path}?"
        fitting = [each for each in there if each.keys() == set(wanted)] if wanted else [{}]
        for places in fitting:
            yield re.sub(r"{(\w+)[^}]*}", lambda found, places=places: quoted(places[found[1]]), path)  # type: ignore[misc]


def quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _paths(routes: Iterable[Any], before: str = "") -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _paths(route.routes, before + route.path)
        elif isinstance(route, Route) and "GET" in (route.methods or ()) and not route.path.endswith("/events"):
            yield before + route.path  # a stream of events has no end, and only numbers


class Parts(HTMLParser):
    """The elements that a browser would create from a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: set[Element] = set()
        self.addresses: set[str] = set()
        self.texts: list[str] = []
        self.oddities: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, tuple(sorted(name for name, _ in attrs))))
        for name, value in attrs:
            if name in {"href", "src", "action", "formaction", "data", "poster", "xlink:href"}:
                self.addresses.add(value or "")
        if tag == "script":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._open:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._open and data.strip():
            self.oddities.append(f"an inline script: {data}")

    def handle_decl(self, decl: str) -> None:
        if decl.lower() != "doctype html":
            self.oddities.append(decl)

    def handle_comment(self, data: str) -> None:
        self.oddities.append(data)

    def handle_pi(self, data: str) -> None:
        self.oddities.append(data)

    def unknown_decl(self, data: str) -> None:
        self.oddities.append(data)


def assert_no_injection(response: httpx.Response) -> None:
    """Check the rules for every response."""
    for name, value in response.headers.raw:
        assert not re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", name + value), (name, value)
    assert "hacked" not in response.headers.get("set-cookie", "")
    assert response.headers["x-content-type-options"] == "nosniff"
    content = response.content.decode()  # UTF-8, as declared
    assert "670592745" not in content, "a template was run"
    kind = response.headers.get("content-type", "")
    assert content == "" or kind.startswith(("text/html; charset=utf-8", "application/", "text/plain")), kind
    if "json" in kind:
        json.loads(content)


def assert_harmless(response: httpx.Response, known: set[Element]) -> None:
    """Check that a page has only its usual elements."""
    parts = Parts(response.text)
    assert parts.oddities == []
    assert parts.elements <= known
    for address in parts.addresses:
        assert re.match(r"(?:/(?![/\\])|[#?])", address), address
        assert address.isascii(), address
    unseen = {each for each in response.text if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert unseen <= {"\n", "\t"}, [hex(ord(each)) for each in unseen]


def is_page(response: httpx.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.startswith("text/html")


async def look_at(client: httpx.AsyncClient, path: str, query: str = "") -> httpx.Response:
    response = await client.get(httpx.URL(path + query))
    assert response.status_code < 500, (path, response.text)
    assert_no_injection(response)
    return response


async def look_at_all(site: Starlette, client: httpx.AsyncClient, there: list[Places]) -> list[httpx.Response]:
    """Load everything once, and lists in each state."""
    found = []
    for path in addresses(site, there):
        is_list = path.endswith(("/orders", "/calls", "/archive", "/messages"))
        queries = [f"?state={state}" for state in STATES] if is_list else [""]
        found += [await look_at(client, path, query) for query in queries]
    return found


TREND_LINE: Element = ("path", ("d", "fill", "stroke-linecap", "stroke-linejoin", "stroke-width"))
"""A page has this element after some seconds, which depends on the machine."""


@pytest.fixture(scope="module")
def known() -> set[Element]:
    """Return the elements of all pages without hostile texts, including error pages."""
    elements = asyncio.run(_context()) | {TREND_LINE}
    assert ("script", ("defer", "src")) in elements
    assert not [name for _, names in elements for name in names if name.startswith("on") or name == "style"]
    return elements


async def _context() -> set[Element]:
    async with duly.AsyncDuly("memory://") as app:
        await fill(app, PLAIN)
        site = create_app(app)
        async with client_of(site) as client, client_of(create_app(app, tokens="a-token-for-all")) as stranger:
            await fill_by_api(client, PLAIN)
            responses = await look_at_all(site, client, await places_of(app))
            responses += [await look_at(client, "/nothing"), await look_at(stranger, "/login", "?next=/x")]
    return {element for response in responses if is_page(response) for element in Parts(response.text).elements}


@text_ids
async def test_hostile_texts_are_escaped_everywhere(
    name: str, known: set[Element], caplog: pytest.LogCaptureFixture
) -> None:
    text = TEXTS[name]
    async with duly.AsyncDuly("memory://") as app:
        await fill(app, text)
        site = create_app(app)
        async with client_of(site) as client:
            await fill_by_api(client, text)
            caplog.clear()  # logs of workers are not tested here
            there = await places_of(app)
            responses = await look_at_all(site, client, there)
    pages = [each for each in responses if is_page(each)]
    assert len(there) > (3 if name == "surrogate" else 10)  # texts that cannot be encoded are stored almost nowhere
    for page in pages:
        assert_harmless(page, known)
    if name in SHOWN:
        for place in ("/messages/", "/queues/orders?state=ready", "/workers", "/groups/archive"):
            shown = ["".join(Parts(page.text).texts) for page in pages if place in str(page.url)]
            assert any(text in each for each in shown), place
    assert not caplog.records


@text_ids
async def test_hostile_texts_in_urls_are_quoted(name: str, known: set[Element], site_app: duly.AsyncDuly) -> None:
    text = TEXTS[name][:1000]
    names = ("state", "after", "next", "limit", "consumer", text)
    queries = ["?" + "&".join(f"{quoted(each)}={quoted(text)}" for each in names)]
    queries += [f"?{each}={quoted(text)}" for each in ("state", "after")]
    await site_app.queue("orders").send("x", id="1")
    await site_app.topic("events").group("archive").create()
    named = dict.fromkeys(WORDS, text)
    strange = [{word: named[word] for word in each} for each in _combinations()]
    there: list[Places] = [{"queue": "orders"}, {"queue": "orders", "id": "1"}, {"topic": "events", "group": "archive"}]
    for tokens in (None, "a-token-for-all"):
        site = create_app(site_app, tokens=tokens)
        paths = [*addresses(site, strange), f"/{quoted(text)}", f"/api/v1/{quoted(text)}"]
        asked = [(path, "") for path in paths]
        asked += [
            (path, query) for path in addresses(site, there) for query in (queries if tokens is None else queries[:1])
        ]
        async with client_of(site) as client:
            responses = [await look_at(client, path, query) for path, query in asked]
        for response in responses:
            if is_page(response):
                assert_harmless(response, known)
            if response.is_redirect:
                assert re.match(r"/(?![/\\])", response.headers["location"])


def _combinations() -> list[tuple[str, ...]]:
    homes: list[tuple[str, ...]] = [("queue",), ("topic", "group")]
    return [*homes, *((*home, "id") for home in homes), ("topic",)]


@text_ids
async def test_metrics_with_hostile_names_are_parsed_correctly(name: str, site_app: duly.AsyncDuly) -> None:
    def families(response: httpx.Response) -> set[str]:
        found = text_string_to_metric_families(response.text)
        return {sample.name for family in found for sample in family.samples}

    async with duly.AsyncDuly("memory://") as plain, client_of(create_app(plain)) as client:
        await fill(plain, PLAIN)
        expected = families(await look_at(client, "/metrics"))
    async with client_of(create_app(site_app)) as client:
        await fill(site_app, TEXTS[name])
        found = families(await look_at(client, "/metrics"))
    assert found
    assert found <= expected


@text_ids
async def test_hostile_names_are_rejected_for_queues_topics_groups_and_schedules(
    name: str, site_app: duly.AsyncDuly
) -> None:
    text = TEXTS[name]
    for naming in (site_app.queue, site_app.topic, site_app.topic("events").group):
        with pytest.raises(InvalidName):
            naming(text)
    with pytest.raises(InvalidName):
        await site_app.schedule(text, "orders", 1, every=60)
    given = quote(text[:1000], safe="", errors="surrogatepass")
    async with client_of(create_app(site_app)) as client:
        for path in (f"/queues/{given}", f"/topics/{given}", f"/topics/events/groups/{given}"):
            response = await client.post(httpx.URL(f"/api/v1{path}/messages"), json={"body": 1})
            assert response.status_code in {404, 405, 422}
            assert_no_injection(response)
    assert await site_app.queues() == await site_app.topics() == []


# Data of other programs


@pytest.fixture
async def foreign(server: StartedServer) -> AsyncIterator[tuple[duly.AsyncDuly, redis.asyncio.Redis]]:
    """Yield an app on a real server, and a client for writing other data there."""
    url = server("valkey").url
    async with (
        duly.AsyncDuly(url, namespace=f"hostile-{uuid.uuid4().hex}") as app,
        redis.asyncio.Redis.from_url(url) as raw,
    ):
        yield app, raw


async def test_data_of_other_programs_are_escaped(
    foreign: tuple[duly.AsyncDuly, redis.asyncio.Redis], known: set[Element]
) -> None:
    app, raw = foreign
    await fill(app, PLAIN)
    await app.queue("calls").send(1)
    stream = app.topic("events").stream
    for text in TEXTS.values():
        word = text.encode(errors="surrogatepass")[:5000]
        await raw.xadd(stream, {word: word, b"\xff\xfe": b"\xff<b>"})
        await raw.xgroup_create(stream, word, id="0")
        for key in (f"{app.namespace}:{{".encode() + word + b"}:", f"{app.namespace}:{{@".encode() + word + b"}:"):
            await raw.set(key + b"seq", 1)
            await raw.hset(key + b"counts", mapping={b"sent": 1})
    await app.topic("events").group("archive").receive(50, wait=0)
    site = create_app(app)
    async with client_of(site) as client:
        responses = await look_at_all(site, client, await places_of(app))
    for response in filter(is_page, responses):
        assert_harmless(response, known)

    def shown(path: str) -> str:
        return "".join(each for page in responses if page.url.path == path for each in Parts(page.text).texts)

    assert TEXTS["script"] in shown("/topics"), "a group of another program is there all the same"
    assert TEXTS["script"] in shown("/topics/events/groups/archive")
    assert TEXTS["script"] not in shown("/"), "what no queue can be called is none"
