"""The script of the pages in a real browser: it refreshes pages and sends forms to the API."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import uvicorn
from playwright.sync_api import Browser, Dialog, Page, Route, ViewportSize, expect, sync_playwright

import duly
from duly.web import create_app
from duly.web.application import sign_in_link
from duly.web.overview import Snapshots
from tests.web.conftest import beat

_CHROMIUM: Final = Path("/usr/bin/chromium")
_PATIENCE_MS: Final = 40_000
_REPORT: Final = """
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""

# Quiet: a browser needs all of a small machine, and a page that waits for 5 s reports that it is not up to date.
# A group: one process runs all these tests, since each process would start another browser.
pytestmark = [pytest.mark.slow, pytest.mark.quiet, pytest.mark.xdist_group("browser")]


class Dashboard:
    """A dashboard on a local port, and its app."""

    def __init__(self, **options: Any) -> None:
        self.app = duly.Duly("memory://")
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.site = create_app(self.app, **options)
        config = uvicorn.Config(self.site, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()
        self.app.close()


@pytest.fixture(scope="module")
def dashboard() -> Iterator[Dashboard]:
    """Yield one dashboard for all tests of the module; each test has its own queues."""
    made = Dashboard()
    made.app.queue(EARLY).send("a body")
    yield made
    made.close()


EARLY: Final = "early"
"""A queue that pages know at once. The names of newer ones are cached for three seconds."""


@pytest.fixture
def locked() -> Iterator[Dashboard]:
    """Yield a dashboard that requires a token."""
    made = Dashboard(tokens="a-token-of-an-admin")
    yield made
    made.close()


@pytest.fixture(scope="module")
def crowded() -> Iterator[Dashboard]:
    """Yield a dashboard with something on each page."""
    made = Dashboard()
    topic = made.app.topic("news")
    topic.group("wire").create()
    topic.publish({"title": "a text"})
    made.app.queue("orders").send({"order": 1})
    failing = made.app.queue("failing", retry=duly.Retry(attempts=1))
    failing.send({"order": 1, "customer": "x" * 40}, key="customer-of-many-years")
    failing.receive(1)[0].retry(error="ConnectionError: the bank answered with status 503, and a long explanation")
    failing.send("later", delay=600)
    made.app.schedule("a-report-with-a-long-name", "orders", {"kind": "daily"}, cron="0 3 * * *", tz="Europe/Berlin")
    beat_of_holder(made.app, "orders")
    yield made
    made.close()


CUT_TABLES: Final = """
    [...document.querySelectorAll("table")]
        .filter((each) => each.scrollWidth > each.parentElement.closest(".scroll, main").clientWidth + 1)
        .map((each) => each.caption.textContent)
"""
"""The tables of a page that are wider than the space for them."""


def beat_of_holder(app: duly.Duly, name: str) -> str:
    """Take a message of a queue, and send the heartbeat of a worker that has it. Return the id of the message."""
    queue = app.queue(name)
    [delivery] = queue.receive(limit=1, lease=3600)
    [consumer] = queue.pending().consumers
    beat(app, consumer, "orders", "news/wire")
    return delivery.id


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start the installed browser."""
    if not _CHROMIUM.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{_CHROMIUM} is missing: `make servers` installs it")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def complaints() -> list[str]:
    """Collect the errors that the browser logs."""
    return []


@pytest.fixture
def page(browser: Browser, dashboard: Dashboard, complaints: list[str]) -> Iterator[Page]:
    """Open a tab. The test fails if the browser logs an error or a violation of the policy."""
    tab = browser.new_page(base_url=dashboard.url)
    tab.set_default_timeout(_PATIENCE_MS)
    tab.add_init_script(_REPORT)
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    yield tab
    assert complaints == []
    assert tab.evaluate("window.violations") == []
    tab.close()


@pytest.fixture(autouse=True)
def patience() -> None:
    """Use long timeouts, because machines that run tests are slow."""
    expect.set_options(timeout=_PATIENCE_MS)


def test_the_switch_changes_the_language_of_page_and_script(
    page: Page, dashboard: Dashboard, complaints: list[str]
) -> None:
    dashboard.app.queue("bilingual").send(1)
    page.clock.install()
    page.goto("/queues/bilingual?state=ready")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("队列")
    expect(page).to_have_url(re.compile(r"/queues/bilingual\?state=ready$"))
    page.get_by_role("button", name="暂停").click()
    expect(page.locator("#notice")).to_contain_text("已暂停")
    page.route("**/queues/bilingual**", lambda route: route.abort())
    page.clock.run_for(2_100)
    expect(page.locator("#away")).to_contain_text("仪表盘没有响应")
    page.unroute("**/queues/bilingual**")
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Queue")
    assert {"ERR_FAILED" in each for each in complaints} == {True}
    complaints.clear()


@pytest.mark.long
def test_schedules_are_run_paused_resumed_and_removed(page: Page, dashboard: Dashboard) -> None:
    dashboard.app.schedule("report", "reports", {"kind": "daily"}, every=3600)
    page.goto("/schedules")
    row = page.get_by_role("row", name=re.compile("^report "))
    row.get_by_role("button", name="Run now").click()
    expect(page.locator("#notice")).to_contain_text("report was run: message")
    assert dashboard.app.queue("reports").stats().ready == 1
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    page.once("dialog", Dialog.dismiss)
    row.get_by_role("button", name="Remove").click()
    expect(row).to_be_visible()
    page.once("dialog", Dialog.accept)
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    assert dashboard.app.schedules() == []


def test_a_one_time_link_signs_in_once(browser: Browser, locked: Dashboard) -> None:
    link = sign_in_link(locked.site, locked.url, "a-token-of-an-admin")
    first, second = browser.new_context(), browser.new_context()
    tab = first.new_page()
    sent: list[str] = []
    tab.on("request", lambda request: sent.append(request.url + request.headers.get("referer", "")))
    tab.goto(link)
    expect(tab.get_by_role("heading", name="Overview")).to_be_visible()
    assert "once-" not in tab.url
    assert not any("once-" in each for each in sent)
    late = second.new_page()
    late.goto(link)
    expect(late.get_by_role("alert")).to_contain_text("this link has been used or has expired")
    first.close()
    second.close()


def test_workers_lead_to_the_messages_that_they_handle(browser: Browser, crowded: Dashboard) -> None:
    tab = browser.new_page(base_url=crowded.url)
    tab.goto("/workers")
    runs = tab.get_by_role("list", name=re.compile("^Messages that .* handles now"))
    expect(runs).to_contain_text("of orders, attempt 1, for")
    runs.get_by_role("link").first.click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("leased")
    tab.go_back()
    tab.get_by_role("link", name="news/wire").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("news/wire")
    tab.close()


def test_tiles_lead_to_lists_and_charts_are_drawn(browser: Browser, crowded: Dashboard) -> None:
    tab = browser.new_page(base_url=crowded.url)
    [letter] = crowded.app.queue("failing").list("dead")

    def expect_drawn(name: str, parts: int = 1) -> None:
        drawing = tab.get_by_role("img", name=re.compile(name)).first
        expect(drawing).to_be_visible()
        boxes = [each.bounding_box() for each in drawing.locator("path").all()]
        assert len([box for box in boxes if box and box["width"] > 1 and box["height"] > 1]) >= parts, name

    tab.goto("/")
    expect_drawn("Messages per minute")
    tab.locator(".state.dead a").click()
    expect(tab).to_have_url(re.compile(r"/\?state=dead#queues$"))
    rows = tab.locator("section[aria-labelledby=queues] tbody tr")
    expect(rows).to_have_count(1)
    rows.get_by_role("link", name="failing").click()
    expect_drawn("Backlog")
    spans, hours = tab.get_by_label("Length of the history"), tab.locator(".chart path.axis").first.get_attribute("d")
    spans.get_by_role("link", name="A day").click()
    expect(spans.locator("[aria-current=page]")).to_have_text("A day")
    expect(tab.locator(".chart path.axis").first).not_to_have_attribute("d", hours or "")
    expect_drawn("Messages that become due: in all 1")
    tab.locator(".state.dead a").click()
    tab.get_by_role("link", name=re.compile("^ConnectionError: ")).click()
    tab.get_by_role("link", name=letter.id).click()
    expect_drawn("waited .*, ran ", parts=2)
    tab.close()


def test_a_topic_leads_to_its_groups(browser: Browser, crowded: Dashboard) -> None:
    tab = browser.new_page(base_url=crowded.url)
    tab.goto("/topics")
    tab.get_by_role("link", name="news", exact=True).click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("Topic news")
    tab.get_by_role("link", name="wire").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("news/wire")
    tab.close()


NARROW: Final[ViewportSize] = {"width": 390, "height": 800}
WIDE: Final[ViewportSize] = {"width": 1120, "height": 800}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_table_is_cut(browser: Browser, crowded: Dashboard, language: str) -> None:
    context = browser.new_context(viewport=WIDE, locale=language, base_url=crowded.url, color_scheme="dark")
    tab = context.new_page()
    for path in (
        "/",
        "/workers",
        "/schedules",
        "/topics",
        "/topics/news",
        "/topics/news/groups/wire",
        "/queues/failing/dead",
    ):
        tab.goto(path)
        for size in (NARROW, WIDE):
            tab.set_viewport_size(size)
            assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"], path
            assert tab.evaluate(CUT_TABLES) == [], path
    context.close()


def test_an_open_page_is_refreshed(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("counted")
    queue.send(1)
    page.goto("/")
    row = page.get_by_role("row", name=re.compile("^counted "))
    expect(row.get_by_role("cell").first).to_have_text("1")
    page.evaluate("window.isSame = true")
    row.get_by_role("link", name="counted").focus()

    queue.send(2)

    expect(row.get_by_role("cell").first).to_have_text("2")
    expect(row.get_by_role("link", name="counted")).to_be_focused()
    assert page.evaluate("window.isSame") is True


def test_a_queue_is_paused_and_resumed_by_a_button(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("paused")
    queue.send(1)
    page.goto("/queues/paused")

    page.get_by_role("button", name="Pause").click()

    expect(page.get_by_role("status").filter(has_text="paused is paused")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    assert queue.stats().paused is not None
    page.get_by_role("button", name="Resume").press("Enter")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert queue.stats().paused is None


def test_a_purge_requires_the_typed_name(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("purged")
    queue.send_many(range(3))
    page.goto("/queues/purged")
    page.locator("#purging summary").click()
    button, name = page.get_by_role("button", name="Purge"), page.get_by_label("to confirm")

    expect(button).to_be_disabled()
    name.fill("purge")
    expect(button).to_be_disabled()
    name.fill("purged")
    button.click()

    expect(page.get_by_role("status").filter(has_text="3 messages were removed")).to_be_visible()
    expect(page.get_by_text("No ready message.")).to_be_visible()
    expect(button).to_be_disabled()
    assert queue.stats().purged == 3


def test_a_message_from_the_form_is_stored_as_typed(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("filled")
    queue.pause()
    page.goto("/queues/filled")
    page.locator("#send-form summary").click()
    button = page.get_by_role("button", name="Send a message")

    page.get_by_label("Body").fill("not JSON")
    button.click()
    expect(page.get_by_role("status").filter(has_text="The body is not JSON")).to_be_visible()
    page.get_by_label("Body").fill('{"n": 12345678901234567890}')
    page.locator("#send-form").get_by_label("Key").fill("k")
    button.click()

    expect(page.get_by_role("row").filter(has_text="12345678901234567890")).to_be_visible()
    (message,) = queue.list("ready")
    assert (message.body, message.key) == ({"n": 12345678901234567890}, "k")


def test_a_body_is_shown_as_text_and_a_cancel_needs_a_confirmation(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("hostile")
    text = "<img src=x onerror=\"document.title='taken'\">"
    id_ = queue.send(text, key=text, delay=3600)
    asked: list[str] = []

    def accept(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    page.on("dialog", accept)
    page.goto("/queues/hostile?state=delayed")
    expect(page.get_by_role("cell", name=text, exact=True)).to_be_visible()
    page.get_by_role("link", name=id_).click()
    expect(page.locator("pre")).to_contain_text("<img src=x")
    assert page.locator("main img").count() == 0
    assert page.title() == f"{id_} · Duly"
    page.get_by_role("button", name="Cancel").click()

    expect(page.get_by_role("status").filter(has_text=f"{id_} was cancelled")).to_be_visible()
    assert queue.get(id_) is None
    assert asked == ["Cancel this message? It is removed permanently."]


def test_a_leased_message_is_cancelled_after_a_confirmation(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("held")
    id_ = queue.send("body")
    (delivery,) = queue.receive(1, wait=0, lease=600)
    asked: list[str] = []

    def accept(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    page.on("dialog", accept)
    page.goto(f"/queues/held/messages/{id_}")
    page.get_by_role("button", name="Cancel").click()

    expect(page.get_by_role("status").filter(has_text=f"{id_} was cancelled")).to_be_visible()
    assert queue.get(id_) is None
    with pytest.raises(duly.LeaseLost):
        delivery.ack()
    assert [each.split(".")[0] for each in asked] == ["A consumer holds this message"]


def test_an_id_with_braces_is_shown_unchanged(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("braces")
    id_ = queue.send(1, id="t{id}{constructor}{about}", delay=3600)
    page.goto("/queues/braces?state=delayed")
    page.get_by_role("link", name=id_).click()

    page.get_by_role("button", name="Promote").click()

    expect(page.get_by_role("status").filter(has_text=f"{id_} is due now")).to_be_visible()
    expect(page.locator("#notice p")).to_have_text(f"{id_} is due now")


def test_a_user_signs_in_pauses_a_queue_and_signs_out(page: Page, locked: Dashboard) -> None:
    queue = locked.app.queue("orders")
    queue.send(1)

    page.goto(f"{locked.url}/queues/orders")
    page.get_by_label("Token").fill("a-token-of-an-admin")
    page.get_by_label("Token").press("Enter")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()

    expect(page.get_by_label("Token")).to_be_visible()
    assert queue.stats().paused is not None


def test_a_page_reports_an_unreachable_dashboard_and_recovers(
    page: Page, dashboard: Dashboard, complaints: list[str]
) -> None:
    dashboard.app.queue("far").send(1)
    page.clock.install()
    page.goto("/queues/far")

    def refuse(route: Route) -> None:
        route.fulfill(status=503, content_type="text/html", body="<p id=detail>no answer</p>")

    page.route("**/queues/far", refuse)
    page.clock.run_for(2_100)
    expect(page.locator("#away")).to_have_text(
        re.compile(r"^Not up to date since \d\d:\d\d:\d\d UTC: no answer. Trying again every \d+ s.")
    )
    page.unroute("**/queues/far")
    page.clock.run_for(30_100)

    expect(page.locator("#away")).to_be_hidden()
    assert {"503" in each for each in complaints} == {True}
    complaints.clear()


def test_a_slow_refresh_is_reported(page: Page, dashboard: Dashboard) -> None:
    dashboard.app.queue("slow").send(1)
    page.clock.install()
    page.goto("/queues/slow")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/queues/slow", hold)

    with page.expect_request("**/queues/slow"):
        page.clock.run_for(2_100)
    page.clock.run_for(5_100)
    expect(page.locator("#away")).to_have_text(
        re.compile(r"^Not up to date since .* UTC: the dashboard has not answered")
    )
    held[0].continue_()
    page.unroute("**/queues/slow")

    expect(page.locator("#away")).to_be_hidden()


def test_an_error_page_reloads_when_the_server_is_back(
    page: Page, dashboard: Dashboard, complaints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: Snapshots) -> None:
        raise duly.Unavailable("listing may or may not have been carried out")

    page.clock.install()
    with monkeypatch.context() as patched:
        patched.setattr(Snapshots, "workers", away)
        page.goto("/workers")
        expect(page.get_by_role("link", name="Try again")).to_be_visible()
    page.clock.run_for(30_100)

    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    assert {"503" in each for each in complaints} == {True}
    complaints.clear()


def test_a_form_sent_again_after_a_lost_response_is_stored_once(
    page: Page, dashboard: Dashboard, complaints: list[str]
) -> None:
    queue = dashboard.app.queue("sent-once")
    queue.pause()
    page.goto("/queues/sent-once")
    page.locator("#send-form summary").click()
    page.get_by_label("Body").fill("1")
    button = page.get_by_role("button", name="Send a message")

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/messages", lose)
    button.click()
    expect(page.get_by_role("status").filter(has_text="sending it again is safe")).to_be_visible()
    page.unroute("**/messages")
    for delivery in _taken(queue):
        delivery.ack()
    button.click()
    expect(page.get_by_role("status").filter(has_text="was sent")).to_be_visible()
    assert (queue.stats().sent, queue.stats().duplicates) == (1, 1)
    page.get_by_label("Body").fill("1")
    button.click()

    expect(page.get_by_role("row").filter(has_text="1")).to_be_visible()
    assert queue.stats().sent == 2
    complaints.clear()


def _taken(queue: duly.Queue) -> list[duly.Delivery]:
    """Receive the messages of a paused queue."""
    queue.resume()
    found = queue.receive(wait=0)
    queue.pause()
    return list(found)


def test_an_expired_session_is_reported_with_a_link_to_the_login(
    page: Page, locked: Dashboard, complaints: list[str]
) -> None:
    locked.app.queue("orders").send(1)
    page.clock.install()
    page.goto(f"{locked.url}/queues/orders")
    page.get_by_label("Token").fill("a-token-of-an-admin")
    page.get_by_label("Token").press("Enter")
    button = page.get_by_role("button", name="Pause")
    expect(button).to_be_visible()

    page.context.clear_cookies()
    button.click()

    expect(page.locator("#notice")).to_contain_text("You are signed out. Sign in again.")
    expect(page.locator("#away")).to_have_text("You are signed out. Sign in again")
    page.locator("#away").get_by_role("link").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.url.endswith("/login?next=%2Fqueues%2Forders")
    assert {"401" in each for each in complaints} == {True}
    complaints.clear()


def test_a_finished_message_is_reported_as_gone(page: Page, dashboard: Dashboard, complaints: list[str]) -> None:
    queue = dashboard.app.queue("finishing")
    id_ = queue.send(1)
    page.clock.install()
    page.goto(f"/queues/finishing/messages/{id_}")
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()

    queue.receive(1)[0].ack()
    page.clock.run_for(2_100)

    expect(page.locator("#away")).to_have_text(re.compile("^This message no longer exists"))
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    complaints.clear()


def test_the_focus_survives_changes_of_the_page(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("focused")
    ids = queue.send_many(range(60))
    page.clock.install()
    page.goto("/queues/focused")
    page.get_by_role("link", name="Next page").focus()

    queue.cancel(ids[10])
    page.clock.run_for(2_100)
    expect(page.get_by_role("link", name=ids[10])).to_have_count(0)
    expect(page.get_by_role("link", name="Next page")).to_be_focused()
    page.get_by_role("link", name=ids[11]).focus()
    queue.cancel(ids[11])
    page.clock.run_for(2_100)

    expect(page.get_by_role("link", name=ids[11])).to_have_count(0)
    expect(page.locator(".scroll[aria-labelledby=messages]")).to_be_focused()


def test_rows_of_later_pages_are_not_refreshed(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("read-on")
    ids = queue.send_many(range(60))
    page.clock.install()
    page.goto("/queues/read-on")
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name=ids[55])).to_be_visible()

    queue.cancel(ids[55])
    page.clock.run_for(2_100)

    expect(page.get_by_role("navigation", name="Messages by state")).to_contain_text("Ready 59")
    expect(page.get_by_role("link", name=ids[55])).to_be_visible()


def test_redriving_all_dead_letters_needs_a_confirmation(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("failed")
    queue.send(1)
    queue.receive(1)[0].reject("no")
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto("/queues/failed?state=done")
    tab = page.get_by_role("link", name="Done 0")
    expect(tab).to_be_visible()
    box = tab.bounding_box()  # charts are above the tabs, so only the width counts
    assert box is not None
    assert 0 <= box["x"] <= box["x"] + box["width"] <= 360
    asked: list[str] = []

    def refuse(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.once("dialog", refuse)
    page.get_by_role("button", name="Redrive all dead").click()
    assert queue.stats().dead == 1
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Redrive all dead").click()

    expect(page.get_by_role("status").filter(has_text="1 dead letter was redriven")).to_be_visible()
    assert asked == ["Redrive the dead letter of failed?"]


def _die(queue: duly.Queue, *errors: str) -> list[str]:
    """Store one dead letter for each error."""
    ids = []
    for error in errors:
        ids.append(str(queue.send({"error": error})))
        queue.receive(1)[0].retry(delay=0, error=error)
        queue.receive(1)[0].reject("given up")
    return ids


def test_selected_dead_letters_are_redriven_after_a_preview(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("letters")
    ids = _die(queue, "no stock for 17", "timeout", "no stock for 4711")
    page.goto("/queues/letters")
    page.locator(".cards .dead a").click()
    expect(page.get_by_role("row", name="2 no stock for *")).to_be_visible()
    page.get_by_role("link", name="no stock for *").click()
    expect(page.get_by_role("link", name=ids[1])).to_have_count(0)

    page.get_by_label("All on this page").check()
    page.get_by_label(f"Select {ids[2]}").uncheck()
    page.get_by_role("button", name="Redrive selected").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Redrive 1 dead letter")
    assert queue.stats().dead == 3
    page.get_by_role("button", name="Redrive 1").click()

    expect(page.get_by_role("status").filter(has_text="1 dead letter was redriven")).to_be_visible()
    assert [each.id for each in queue.list("ready")] == ids[:1]
    expect(page.get_by_role("textbox", name="Error")).to_have_value("no stock for *")


def test_dead_letters_are_filtered_by_time(page: Page, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("hourly")
    _die(queue, "first", "second", "third")
    died = queue.list("dead")[1].finished_at
    assert died is not None
    letters = page.locator("section[aria-labelledby=letters] tbody tr")
    page.goto("/queues/hourly/dead")

    page.get_by_label("Since, UTC").fill(died.isoformat())
    page.keyboard.press("Enter")
    expect(letters).to_have_count(2)
    expect(page.get_by_label("Since, UTC")).to_have_value(f"{died:%Y-%m-%d %H:%M:%S.%f}")
    page.get_by_label("Since, UTC").fill("")
    page.get_by_label("Until, UTC").fill("1h")
    page.keyboard.press("Enter")
    expect(letters).to_have_count(0)
    page.get_by_role("link", name="Last hour").click()
    expect(letters).to_have_count(3)


def test_a_search_by_id_opens_the_message_and_its_texts_are_copied(page: Page, dashboard: Dashboard) -> None:
    id_ = dashboard.app.queue(EARLY).send({"text": "to copy"}, id="an id/with signs")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/")
    expect(page.get_by_role("link", name=EARLY)).to_be_visible()
    page.get_by_label("Find a message by its id").fill(id_)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(id_)
    page.get_by_role("button", name="Copy the id").click()
    expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == id_
    page.get_by_role("button", name="Copy the body").click()
    page.wait_for_function("async () => (await navigator.clipboard.readText()).includes('to copy')")


@pytest.mark.parametrize(("label", "text"), [("Key", "customer-*"), ("Header", "shop=north"), ("Error", "*no stock*")])
def test_a_queue_is_searched(page: Page, dashboard: Dashboard, label: str, text: str) -> None:
    queue = dashboard.app.queue("searched")
    queue.purge("delayed")
    wanted = queue.send(2, key="customer-7", headers={"shop": "north"})
    queue.receive(1)[0].retry(delay=60, error="ValueError: no stock for 17")
    queue.send(1, key="supplier-7", headers={"shop": "south"}, delay=60)
    page.goto("/queues/searched")
    page.locator(".cards .delayed a").click()
    page.get_by_text("Search delayed messages").click()
    page.locator("#filtering").get_by_label(label).fill(text)
    page.keyboard.press("Enter")

    rows = page.locator("section[aria-labelledby=messages] tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.get_by_role("link")).to_have_text(wanted)


def test_dead_letters_are_deleted_and_resent_without_scripts(browser: Browser, dashboard: Dashboard) -> None:
    queue = dashboard.app.queue("plain")
    ids = _die(queue, "first", "second")
    context = browser.new_context(base_url=dashboard.url, java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(_PATIENCE_MS)
    page.goto("/queues/plain/dead")

    page.get_by_label(f"Select {ids[0]}").check()
    page.get_by_role("button", name="Delete selected").click()
    page.get_by_role("button", name="Delete 1").click()
    expect(page.get_by_text("1 dead letter was deleted.")).to_be_visible()
    page.get_by_role("link", name=ids[1]).click()
    page.get_by_role("link", name="Edit and resend").click()
    page.get_by_label("Body, as JSON").fill('{"error": "none"}')
    page.get_by_role("button", name="Send").click()

    expect(page.get_by_text("was sent. The old one was removed.")).to_be_visible()
    (new,) = queue.list("ready")
    assert new.body == {"error": "none"}
    assert queue.stats().dead == 0
    context.close()


_CUT_TABLES: Final = """() => [...document.querySelectorAll("table.stacked")].filter(
    (table) => table.scrollWidth > table.parentElement.clientWidth).length"""


def test_no_page_logs_errors_or_is_too_wide(page: Page, dashboard: Dashboard, complaints: list[str]) -> None:
    queue = dashboard.app.queue("a-name-that-is-as-long-as-those-of-people-who-think-of-everything")
    id_ = queue.send({"text": "x" * 500}, headers={"h": "y" * 300})
    queue.receive(1)[0].reject("z" * 300)
    dashboard.app.topic("events").group("archive").create()
    dashboard.app.topic("events").publish("x" * 200)
    dashboard.app.schedule("tick", queue, "x" * 200, every=30)
    inbox = f"/queues/{queue.name}"
    page.set_viewport_size({"width": 360, "height": 740})

    for path in ("/", "/topics", "/topics/events/groups/archive", "/workers", "/schedules", inbox,
                 f"{inbox}/dead", f"{inbox}/messages/{id_}", f"{inbox}/resend/{id_}", f"{inbox}?state=ready&key=x",
                 "/search?id=unknown"):  # fmt: skip
        page.goto(path)
        assert page.evaluate(_CUT_TABLES) == 0, path
        assert page.evaluate("document.documentElement.scrollWidth") == 360, path
        assert page.evaluate("window.violations") == [], path
        assert complaints == [], path
