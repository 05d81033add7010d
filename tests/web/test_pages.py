"""The pages as a browser requests them: content, permissions and links."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

import httpx
import pytest
import redis.asyncio
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount

import duly
from duly.web import create_app
from duly.web.access import Access
from duly.web.names import Names
from duly.web.overview import OverviewCache
from duly.web.pages import text as page_text
from duly.web.pages import trends, views, with_timeout
from duly.web.pages.error_groups import pattern_of
from duly.web.pages.text import explanation_for_page
from duly.web.pages.trends import RateHistory
from duly.web.problems import Refused
from duly.web.site import Site
from tests.conftest import StartedServer
from tests.web.conftest import TokenClient, beat, client_of

_VOID: Final = {"meta", "link", "img", "input", "br", "path"}


class Page(HTMLParser):
    """A parsed page: elements, text and links."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.status = response.status_code
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        self.feed(response.text)
        self.text = " ".join(" ".join(self.words).split())
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]

    def addresses(self) -> list[str]:
        return [each for name in ("href", "src", "action", "data-url", "data-then") for each in self.all(name)]

    def buttons(self) -> set[str]:
        return {urlsplit(each).path.rpartition("/")[2] for each in self.all("data-url")}


async def look(client: httpx.AsyncClient, path: str) -> Page:
    return Page(await client.get(path))


def _raised(text: str) -> ValueError:
    """Create an error with a traceback."""
    with pytest.raises(ValueError, match=text) as caught:
        raise ValueError(text)
    return caught.value


async def given(app: duly.AsyncDuly, secret: str = "secret") -> dict[str, str]:
    """Put one message into each state, and something on every page. Returns the page of each message."""
    orders = app.queue("orders", done=duly.Keep(count=10))
    sent: dict[str, str] = {}
    sent["dead"] = await orders.send({"body": f"{secret}-body"}, headers={"note": f"{secret}-header"}, priority=9)
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.retry(delay=0, error=_raised(f"{secret}-error"))
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.reject(f"{secret}-reason")
    sent["done"] = await orders.send("to do", priority=9)
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.ack(result=f"{secret}-result")
    sent["leased"] = await orders.send(f"{secret}-held", key="k", priority=9)
    await orders.receive(1, wait=0)
    sent["parked"] = await orders.send(f"{secret}-parked", key="k")
    assert await orders.receive(1, wait=0) == []
    sent["ready"] = await orders.send(f"{secret}-bytes".encode())
    sent["delayed"] = await orders.send(f"{secret}-later", delay=3600)
    await app.topic("events").group("archive").create()
    entry = await app.topic("events").publish(f"{secret}-entry")
    await app.schedule("nightly", orders, f"{secret}-schedule", cron="0 3 * * *")
    pages = {state: f"/queues/orders/messages/{id_}" for state, id_ in sent.items()}
    return {**pages, "entry": f"/topics/events/groups/archive/messages/{entry}"}


STATES: Final = ("ready", "delayed", "leased", "parked", "dead", "done")
PLACES: Final = (
    "/",
    "/topics",
    "/topics/events",
    "/workers",
    "/schedules",
    "/topics/events/groups/archive",
    *(f"/queues/orders?state={state}" for state in STATES if state != "dead"),
    "/queues/orders/dead",
    "/topics/events/groups/archive/dead",
)


# Content


async def test_the_overview_lists_each_queue_and_group(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    nothing = await look(client, "/")
    await given(site_app)
    await site_app.queue("quiet").pause()

    page = await look(client_of(create_app(site_app)), "/")

    assert "There are no queues yet" in nothing.text
    assert "memory://" in page.text
    assert "orders 1 1 1 1 1 " in page.text
    assert "quiet paused 0 0 0 0 0 " in page.text
    assert "events/archive 1 0 0 0 0 " in page.text
    assert {"/queues/orders", "/queues/orders/dead", "/topics/events/groups/archive"} <= set(page.all("href"))


@pytest.mark.parametrize("state", STATES)
async def test_messages_are_listed_by_state(site_app: duly.AsyncDuly, client: httpx.AsyncClient, state: str) -> None:
    pages = await given(site_app)

    found = Page(await client.get(f"/queues/orders?state={state}", follow_redirects=True))

    list_messages = [each for each in found.all("href") if "/messages/" in each]
    assert list_messages == [pages[state]]
    assert f"{state.capitalize()} 1" in found.text or "Dead letters of orders 1" in found.text


async def test_a_message_is_shown_with_all_details(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    pages = await given(site_app)

    dead, done = await look(client, pages["dead"]), await look(client, pages["done"])
    ready, entry = await look(client, pages["ready"]), await look(client, pages["entry"])

    assert '{ "body": "secret-body" }' in dead.text
    assert "note secret-header" in dead.text
    assert "has been dead since" in dead.text
    assert ": secret-reason" in dead.text
    assert "Attempt 1: ValueError: secret-error" in dead.text
    assert "Traceback (most recent call last)" in dead.text
    assert "secret-result" in done.text
    assert "00000000 73 65 63 72 65 74 2d 62 79 74 65 73 secret-bytes" in ready.text
    assert "is the only unread entry" in entry.text


async def test_all_messages_are_on_exactly_one_page(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    ids = await site_app.queue("orders").send_many(range(120))
    address, found, pages = "/queues/orders?state=ready", list[str](), 0

    while address:
        page = await look(client, address)
        found += [each.rpartition("/")[2] for each in page.all("href") if "/messages/" in each]
        address = next((each["href"] for _, each in page.elements if each.get("rel") == "next"), "")
        pages += 1

    assert found == ids
    assert pages == 3


async def test_a_page_after_a_message_that_left_the_state_is_the_first_page(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    first, *_ = ids = await site_app.queue("orders").send_many(range(3))
    await site_app.queue("orders").cancel(first)

    page = await look(client, f"/queues/orders?state=ready&after={first}")

    assert f"Message {first} is no longer ready: this is the first page." in page.text
    assert [each.rpartition("/")[2] for each in page.all("href") if "/messages/" in each] == ids[1:]


async def test_a_page_continues_after_a_removed_message(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    ids = await site_app.queue("orders").send_many(range(60))
    first = await look(client, "/queues/orders?state=ready")
    for id_ in ids[48:52]:
        await site_app.queue("orders").cancel(id_)

    second = await look(client, next(each["href"] for _, each in first.elements if each.get("rel") == "next"))

    assert [each.rpartition("/")[2] for each in second.all("href") if "/messages/" in each] == ids[52:]
    assert (await client.get("/queues/orders?state=ready&after=next~forged")).status_code == 422


async def test_topics_and_schedules_are_paginated(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "ROWS", 2)
    for name in "abcde":
        await site_app.topic(name).publish(1)
        await site_app.schedule(name, f"queue-{name}", 1, every=60)
    for path in ("/topics", "/schedules"):
        address, shown = path, list[list[str]]()
        while address:
            page = await look(client, address)
            shown.append([each for each in page.words if each in tuple("abcde")])
            address = next((each["href"] for _, each in page.elements if each.get("rel") == "next"), "")
        assert shown == [["a", "b"], ["c", "d"], ["e"]], path

    overview = await look(client, "/")
    assert "3 more are on the topics page" in overview.text
    assert "/topics/b" in overview.all("href")


async def test_workers_show_the_messages_that_they_handle(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    queue = site_app.queue("orders")
    ids = [str(await queue.send(number)) for number in range(12)]
    await queue.receive(limit=12)
    [consumer] = (await queue.pending()).consumers
    await beat(site_app, consumer, "orders")
    await beat(site_app, "idle-worker", "orders", "events/archive")
    page = await look(client, "/workers")
    shown = [id_ for id_ in ids if f"/queues/orders/messages/{id_}" in page.all("href")]
    assert len(shown) == 10
    assert "and 2 more" in page.text
    assert "/topics/events/groups/archive" in page.all("href")
    assert page.text.count("attempt 1, for") == 10


async def test_viewers_have_no_buttons_of_schedules(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await site_app.schedule("report", "jobs", 1, every=60)
    as_viewer = await token_client("viewer").get("/schedules")
    assert "/api/v1/schedules" not in as_viewer.text
    as_operator = await token_client("operator").get("/schedules")
    for action in ("run", "pause"):
        assert f'data-call="POST" data-url="/api/v1/schedules/report/{action}"' in as_operator.text
    assert 'data-call="DELETE" data-url="/api/v1/schedules/report"' in as_operator.text


async def test_a_schedule_that_no_worker_serves_names_its_queue_in_quotes_and_links_it(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    await site_app.schedule("report", "unserved", 1, every=60)

    page = await look(client, "/schedules")

    assert "No worker serves queue 'unserved' : its schedules do not run" in page.text
    assert "/queues/unserved" in page.all("href")


async def test_the_timeline_of_a_message_has_milliseconds(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    pages = await given(site_app)

    page = await look(client, pages["dead"])

    message = await site_app.queue("orders").get(pages["dead"].rpartition("/")[2])
    assert message is not None
    for event in message.timeline:
        assert f"{event.at:%Y-%m-%d %H:%M:%S}.{event.at.microsecond // 1000:03}" in page.text


async def test_the_page_of_a_message_shows_its_progress(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    id_ = await orders.send(1)
    (delivery,) = await orders.receive(wait=0)
    await delivery.progress(0.4, "<loading>")

    assert "40%: <loading>" in (await look(client, f"/queues/orders/messages/{id_}")).text
    await delivery.release()
    assert "40%" not in (await look(client, f"/queues/orders/messages/{id_}")).text


async def test_an_unknown_rate_is_a_dash(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.queue("orders").send(1)

    for path in ("/", "/queues/orders"):
        page = await look(client, path)
        assert "Sent/s, 2 min -" in page.text, path
        assert "Acked/s, 2 min -" in page.text, path


async def test_a_topic_has_a_page_with_links_to_its_groups(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.topic("events").group("archive").create()
    await site_app.topic("events").publish(1)

    page = await look(client, "/topics/events")

    assert page.status == 200
    assert "/topics/events/groups/archive" in page.all("href")
    assert "entries 1" in page.text
    assert "/topics/events" in (await look(client, "/topics/events/groups/archive")).all("href")
    missing = await look(client, "/topics/event")
    assert missing.status == 404
    assert "Did you mean 'events'?" in missing.text


async def test_an_unreadable_topic_does_not_hide_others(
    server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    for name in ("broken", "whole"):
        await server_app.topic(name).publish(1)
    raw: Any = redis.asyncio.Redis.from_url(server("valkey").url)
    await raw.hset(f"{server_app.namespace}:{{@broken}}:meta", "published", "a nonsense")
    await raw.aclose()

    page = await look(server_client, "/topics")

    assert page.status == 200
    assert "broken It cannot be read: " in page.text
    assert "whole entries 1 delayed 0 published 1" in page.text


async def test_queues_are_paginated(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    names = [f"queue-{at:03}" for at in range(101)]
    for name in names:
        await site_app.queue(name).send(1)

    first = await look(client, "/")
    second = await look(client, next(each["href"] for _, each in first.elements if each.get("rel") == "next"))

    links = [each.rpartition("/")[2] for page in (first, second) for each in page.all("href") if "/queues/" in each]
    assert [each for each in links if "?" not in each] == names
    assert "Ready 101" in first.text


async def test_a_tile_of_the_overview_links_to_the_queues_that_have_such_messages(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    await site_app.queue("few").send(1, delay=60)
    await site_app.queue("many").send_many([duly.Send(1, delay=60), duly.Send(2, delay=60)])
    await site_app.queue("none").send(1)
    overview = await look(client, "/")
    assert "/?state=delayed#queues" in overview.all("href")

    page = await look(client, "/?state=delayed")

    links = [each for each in page.all("href") if each.startswith("/queues/")]
    assert links == ["/queues/many", "/queues/many?state=delayed", "/queues/few", "/queues/few?state=delayed"]
    assert "Only those with delayed messages, most first." in page.text
    assert "No queue or group has dead messages." in (await look(client, "/?state=dead")).text


async def test_queues_with_messages_in_a_state_are_paginated(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    for at in range(101):
        await site_app.queue(f"queue-{at:03}").send_many([1] * (at + 1))

    first = await look(client, "/?state=ready&find=queue")
    following = next(each["href"] for _, each in first.elements if each.get("rel") == "next")
    second = await look(client, f"/{following}")

    links = [each for each in second.all("href") if each.startswith("/queues/")]
    assert links == ["/queues/queue-000", "/queues/queue-000?state=ready"]
    assert "/?find=queue&state=ready" in second.all("href")


async def test_an_unreadable_queue_does_not_hide_others(
    server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    await server_app.queue("orders").send("x")
    await server_app.queue("zz").send("x")
    async with redis.asyncio.Redis.from_url(server("valkey").url) as raw:
        await raw.delete(f"{server_app.namespace}:{{zz}}:meta")
        await raw.set(f"{server_app.namespace}:{{zz}}:meta", "x")

    page = await look(server_client, "/")

    assert "orders 1 0 0 0 0 " in page.text
    assert "zz cannot be read: " in page.text


async def test_viewing_every_page_changes_nothing(
    server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    pages = await given(server_app)
    async with redis.asyncio.Redis.from_url(server("valkey").url) as raw:
        keys = [each async for each in raw.scan_iter(f"{server_app.namespace}:*", count=1000)]
        before = [await raw.dump(key) for key in keys]
        for path in (*PLACES, *pages.values()):
            assert (await server_client.get(path)).status_code == 200
        after = [await raw.dump(key) for key in keys]
        others = [each async for each in raw.scan_iter(f"{server_app.namespace}:*", count=1000)]

    assert after == before
    assert set(others) == set(keys)


async def test_the_overview_is_fetched_at_most_once_per_second(site_app: duly.AsyncDuly) -> None:
    now = 100.0
    site = Site(site_app, Access(None), Names(site_app))
    overviews = OverviewCache(site.names, clock=lambda: now)
    queue = site_app.queue("orders")
    await queue.send(1)

    await overviews.get()
    await queue.send(2)
    now = 100.9
    soon = (await overviews.get()).stats["orders"].ready, list(overviews.rates.of("orders").sent)
    now = 102.0
    later = (await overviews.get()).stats["orders"].ready, list(overviews.rates.of("orders").sent)

    assert soon == (1, [])
    assert later == (2, [0.5])


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [("ord", ["orders", "reorders"]), ("VES/ARCH", ["waves/archive"]), ("nothing", [])],
    ids=["part", "group", "none"],
)
async def test_queues_are_found_by_a_part_of_their_name(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, wanted: str, shown: list[str]
) -> None:
    for name in ("orders", "reorders", "mails"):
        await site_app.queue(name).send(1)
    await site_app.topic("waves").group("archive").create()

    page = await look(client, f"/?find={wanted}")

    named = {"/queues/" + each: each for each in ("orders", "reorders", "mails")}
    named["/topics/waves/groups/archive"] = "waves/archive"
    assert [named[each] for each in page.all("href") if each in named] == shown


async def test_searching_for_a_full_name_redirects_to_its_page(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    await site_app.queue("orders").send(1)
    await site_app.topic("events").group("archive").create()

    asked = ("/?find=orders", "/?find=events/archive", "/queues")
    responses = [await client.get(each) for each in asked]

    assert {each.status_code for each in responses} == {303}
    assert [each.headers["location"] for each in responses] == ["/queues/orders", "/topics/events/groups/archive", "/"]


async def test_empty_query_parameters_are_ignored(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    (id_,) = await site_app.queue("orders").send_many([1])

    page = await look(client, "/queues/orders?state=&after=")

    assert f"/queues/orders/messages/{id_}" in page.all("href")
    for path in ("/?find=&after=", "/topics?after=&begin=", "/schedules?after=", "/workers?after="):
        assert (await client.get(path)).status_code == 200


async def test_an_id_that_browsers_cannot_request_is_not_a_link(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    for id_ in (".", "..", "..."):
        await site_app.queue("orders").send(1, id=id_)

    page = await look(client, "/queues/orders")

    assert [each for each in page.all("href") if "/messages/" in each] == ["/queues/orders/messages/..."]
    assert " . " in page.text
    assert " .. " in page.text


async def test_an_unavailable_server_is_reported_on_the_page(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise duly.Unavailable("listing may or may not have been carried out")

    monkeypatch.setattr(site_app, "workers", away)

    page = await look(client, "/workers?after=a%26b")

    assert page.status == 503
    assert "the server does not answer: nothing can be shown until it does Try again" in page.text
    assert "?after=a%26b" in page.all("href")
    assert page.all("data-live") == ["failure"]


async def test_a_slow_page_times_out_and_its_fetch_continues() -> None:
    may_end, has_ended = asyncio.Event(), asyncio.Event()

    async def looking() -> Response:
        await may_end.wait()
        has_ended.set()
        return Response()

    with pytest.raises(Refused, match=r"has not answered within 0\.01 s") as caught:
        await with_timeout(looking(), 0.01)
    may_end.set()

    assert caught.value.status == 503
    async with asyncio.timeout(30):
        await has_ended.wait()


async def test_the_page_of_a_queue_shows_its_rates(site_app: duly.AsyncDuly) -> None:
    now = 100.0
    paces = RateHistory(lambda: now)
    queue = site_app.queue("orders")

    async def sent() -> list[float]:
        return list(paces.add("orders", await queue.stats()).sent)

    courses = [await sent()]
    for moment in (100.5, 102.0, 104.0, 200.0):
        now = moment
        await queue.send(1)
        courses.append(await sent())

    assert courses == [[], [], [1.0], [1.0, 0.5], []]


# Permissions


async def test_viewers_see_no_payload_on_any_page(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    pages = await given(site_app)

    seen = {}
    for role in ("viewer", "operator"):
        found = [await token_client(role).get(path) for path in (*PLACES, *pages.values())]
        assert {each.status_code for each in found} == {200}
        seen[role] = "".join(each.text for each in found)

    words = ("body", "header", "error", "reason", "result", "held", "parked", "later", "entry", "schedule", "bytes")
    assert [word for word in words if f"secret-{word}" not in seen["operator"]] == []
    assert "secret" not in seen["viewer"]
    assert b"secret".hex(" ") not in seen["viewer"]


STEERING: Final = {"pause", "redrive", "messages"}


@pytest.mark.parametrize(
    ("role", "read_only", "expected"),
    [
        ("viewer", False, set[str]()),
        ("operator", False, STEERING),
        ("admin", False, {*STEERING, "purge"}),
        ("admin", True, set[str]()),
    ],
)
async def test_actions_that_are_not_permitted_are_not_shown(
    site_app: duly.AsyncDuly, role: Any, read_only: bool, expected: set[str]
) -> None:
    pages = await given(site_app)
    site = create_app(site_app, tokens={"a-token-of-a-role": role}, read_only=read_only)

    async with client_of(site, headers={"Authorization": "Bearer a-token-of-a-role"}) as client:
        queue, dead = await look(client, "/queues/orders"), await look(client, pages["dead"])
        topics = await look(client, "/topics")

    assert queue.buttons() == expected
    assert bool(dead.buttons()) == bool(topics.buttons()) == bool(expected)


@pytest.mark.parametrize("path", [*PLACES, "/queues/orders/messages/1"])
async def test_an_unknown_client_is_redirected_to_the_login(site_app: duly.AsyncDuly, path: str) -> None:
    async with client_of(create_app(site_app, tokens="a-token-of-a-role")) as client:
        response = await client.get(path)

    assert response.status_code == 303
    assert response.headers["location"].startswith("/login?next=%2F")


# Errors


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/nowhere", 404, "there is no page at /nowhere"),
        ("/static/duly.py", 404, "there is no page at /static/duly.py"),
        ("/queues/order", 404, "there is no queue 'order'. Did you mean 'orders'?"),
        ("/topics/events/groups/archives", 404, "topic 'events' has no group 'archives'. Did you mean 'archive'?"),
        (
            "/queues/orders/messages/x",
            404,
            "queue 'orders' has no message 'x': it is unknown, finished or cancelled",
        ),
        ("/queues/orders?state=gone", 422, "'gone' is not a state: use one of ready, delayed"),
    ],
    ids=["path", "file", "queue", "group", "message", "state"],
)
async def test_errors_are_shown_on_a_page(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, path: str, status: int, detail: str
) -> None:
    await given(site_app)

    page = await look(client, path)

    assert page.status == status
    assert detail in page.text


async def test_pages_and_api_have_the_same_error_texts(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await given(site_app)

    for path in ("/queues/order", "/queues/orders/messages/x", "/topics/event/groups/archive"):
        problem = (await client.get("/api/v1" + path)).json()
        page = await look(client, path)
        assert (page.status, problem["detail"] in page.text) == (problem["status"], True)


async def test_an_internal_error_is_only_logged(
    site_app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("in the engine room")

    monkeypatch.setattr(site_app, "workers", broken)
    transport = httpx.ASGITransport(app=create_app(site_app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        page = await look(client, "/workers")

    assert page.status == 500
    assert "internal error of the dashboard: see its log" in page.text
    assert "engine room" not in page.text
    assert "engine room" in caplog.text


# Escaping and structure

HOSTILE: Final = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "a/b?c=d&e#f%2e%00 ü",
    "../../login",
)


async def _given_dead_of(queue: duly.AsyncQueue, text: str) -> None:
    """Store a text in every field of a message."""
    await queue.send({text: text}, id=text, key=text, headers={"h": text})
    (delivery,) = await queue.receive(1, wait=0)
    await delivery.retry(delay=0, error=text)
    (delivery,) = await queue.receive(1, wait=0)
    await delivery.reject(text)


@pytest.mark.parametrize("text", HOSTILE)
async def test_texts_from_a_queue_are_escaped(site_app: duly.AsyncDuly, client: httpx.AsyncClient, text: str) -> None:
    await _given_dead_of(site_app.queue("orders"), text)
    await _given_dead_of(site_app.queue("others"), "x")

    listing = await look(client, "/queues/orders/dead")
    (href,) = (each for each in listing.all("href") if "/messages/" in each)
    message, harmless = await look(client, href), await look(client, "/queues/others/messages/x")

    assert (message.status, listing.text.count(text)) == (200, 7 + (pattern_of(text) == text))
    assert [json.loads(each) for each in message.all("data-content")] == [{"where": {"ids": [text]}}, {}]
    assert [(tag, [*attributes]) for tag, attributes in message.elements] == [
        (tag, [*attributes]) for tag, attributes in harmless.elements
    ]


async def test_invisible_characters_are_escaped(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    id_ = await site_app.queue("orders").send("a\u202eb\u0000c\u2028d\x7f", key="\u202ekey")

    listing, page = await look(client, "/queues/orders"), await look(client, f"/queues/orders/messages/{id_}")

    assert "\\u202ekey" in listing.text
    assert not {"\u202e", "\x00", "\u2028", "\x7f"} & set(listing.text + page.text)


async def test_cancelling_a_leased_message_asks_for_confirmation(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    orders = site_app.queue("orders")
    path = f"/queues/orders/messages/{await orders.send(1)}"
    waiting = await look(client, path)
    await orders.receive(1, wait=0)
    held = await look(client, path)

    assert waiting.all("data-url") == [f"/api/v1{path}"]
    assert held.all("data-url") == [f"/api/v1{path}?running=true"]
    assert held.all("data-confirm") != waiting.all("data-confirm")


async def test_notices_have_no_text_of_a_message(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    """The script fills placeholders in braces. An id with braces would be filled as well, and name another message."""
    id_ = "t{id}{constructor}"
    orders = site_app.queue("orders")
    await orders.send(1, id=id_, delay=60)
    delayed = await look(client, "/queues/orders/messages/" + quote(id_))
    await orders.promote(id_)
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.reject("no")
    dead = await look(client, "/queues/orders/messages/" + quote(id_))

    notices = delayed.all("data-done") + dead.all("data-done")
    assert sorted(notices) == [
        "{about} is due now",
        "{about} was cancelled",
        "{about} was cancelled",
        "{about} was redriven",
    ]
    assert set(delayed.all("data-about") + dead.all("data-about")) == {id_}


async def test_no_page_has_inline_scripts_styles_or_handlers(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    pages = await given(site_app)
    for path in (*PLACES, *pages.values(), "/nowhere"):
        page = await look(client, path)
        for tag, attributes in page.elements:
            assert tag != "style"
            assert tag != "script" or set(attributes) == {"src", "defer"}
            assert "style" not in attributes
            assert not [name for name in attributes if name.startswith("on")]
        assert all(each.startswith(("/", "?", "#")) and not each.startswith("//") for each in page.addresses())


async def test_mounted_below_a_path_all_urls_are_below_it(site_app: duly.AsyncDuly) -> None:
    pages = await given(site_app)
    root, leads_to = "/ops/duly", set[str]()
    async with client_of(Starlette(routes=[Mount(root, create_app(site_app))])) as client:
        for path in (*PLACES, *pages.values(), "/nowhere", "/static/nothing"):
            page = await look(client, root + path)
            found = {urljoin(root + path, each) for each in page.addresses()}
            assert all(each.startswith(root + "/") for each in found)
            leads_to |= {urljoin(root + path, each) for each in page.all("href") if not each.startswith("#")}
        for each in leads_to:
            assert (await client.get(each)).status_code == 200


async def test_every_table_and_field_has_a_label(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    pages = await given(site_app)
    for path in (*PLACES, *pages.values()):
        page = await look(client, path)
        tags = [tag for tag, _ in page.elements]
        assert tags.count("caption") == tags.count("table")
        assert tags.count("h1") == tags.count("main") == 1
        assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")
        fields = [attributes for tag, attributes in page.elements if tag in ("input", "textarea", "select")]
        assert tags.count("label") == sum(each.get("type") != "hidden" for each in fields)
        ids = page.all("id")
        assert len(ids) == len(set(ids))
        assert set(page.all("aria-labelledby")) <= set(ids)


# Bodies


@pytest.mark.parametrize(
    ("body", "raw", "shown"),
    [
        ({"n": 2**70}, b'{"n":1180591620717411303424}', '{\n  "n": 1180591620717411303424\n}'),
        ("<b>", b'"<b>"', "&#34;&lt;b&gt;&#34;"),
        (b"\x00A", b"\x00A", "2 bytes\n00000000  00 41" + " " * 44 + ".A"),
        (None, b"[" * 9000, "[" * 9000),
        (None, None, "the body was lost"),
        ({"f": b"\xff"}, b"\x00\x00", "{\n  &#34;f&#34;: &#34;ff&#34;\n}"),
    ],
    ids=["number", "text", "bytes", "deep", "lost", "fields"],
)
def test_a_body_is_formatted_from_its_stored_form(body: Any, raw: bytes | None, shown: str) -> None:
    message = duly.Message("1", "q", "ready", body, raw, {}, None, 0, None, None, 0, 0, 0, 0)

    assert page_text.body(message) == shown.replace('"', "&#34;")


@pytest.mark.parametrize(
    "raw",
    [b"[" * 190 + b"1," * 120_000 + b"1" + b"]" * 190, b"[" * 190 + b"1," * 500_000 + b"1" + b"]" * 190],
    ids=["laid out", "as it is"],
)
def test_formatting_of_a_body_is_limited(raw: bytes) -> None:
    """Each number is preceded by 380 spaces. All of them would be 200 MB and block other requests for seconds."""
    message = duly.Message("1", "q", "ready", None, raw, {}, None, 0, None, None, 0, 0, 0, 0)
    tracemalloc.start()

    shown = page_text.body(message)

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20_000_000
    assert shown.endswith(f"... and more: {len(raw):,} bytes in total")
    assert 200_000 < len(shown) < 200_100


def test_formatting_of_a_value_is_limited() -> None:
    assert page_text.value(list(range(100_000))).endswith("...")
    assert len(page_text.value("x" * 100_000)) == 10_003
    assert page_text.value({"a": [1]}) == '{"a": [1]}'


def test_very_large_bodies_are_truncated() -> None:
    message = duly.Message("1", "q", "ready", b"x" * 100_000, b"x" * 100_000, {}, None, 0, None, None, 0, 0, 0, 0)

    assert page_text.body(message).endswith("... 83,616 more bytes")
    assert page_text.lines("y" * 200_001).endswith("... 1 more characters")
    assert len(page_text.body_line(message)) < 200


# Explanations


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("it is due at 2026-11-16T15:24:29.123+00:00.", "it is due at 2026-11-16 15:24:29 UTC."),
        ("it is dead because: no; redrive() delivers it again.", "it is dead because: no."),
        ("a" * 280 + "b" * 999 + "c" * 120, "a" * 280 + " ... " + "c" * 120),
        ("a" * 400, "a" * 400),
    ],
    ids=["time", "program", "long", "short"],
)
def test_an_explanation_is_adapted_for_pages(sentence: str, shown: str) -> None:
    assert explanation_for_page(sentence) == shown


def test_a_trend_is_drawn_over_time_and_leaves_gaps_empty() -> None:
    line = trends.trend([1.0, 2.0, 0.0, 2.0], [0.0, 60.0, 62.0, 120.0])

    assert line == "M0.0 10.0h0M48.0 1.5h0L49.6 18.5M96.0 1.5h0"


def test_a_trend_shows_two_minutes() -> None:
    assert trends.trend([9.0, 1.0], [0.0, 121.0]) == "M96.0 1.5h0"
    assert trends.trend([], []) == ""
