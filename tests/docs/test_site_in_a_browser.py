"""Every page of the site fits its window, wide and narrow, light and dark, and its pictures load."""

import os
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.docs.test_site import site

__all__ = ["site"]
CHROMIUM: Final = os.environ.get("CHROMIUM", "/usr/bin/chromium")
Scheme = Literal["light", "dark"]
WINDOWS: Final[tuple[tuple[int, Scheme], ...]] = ((1300, "light"), (400, "dark"))
OTHER: Final[dict[Scheme, Scheme]] = {"light": "dark", "dark": "light"}
PATIENCE: Final = 60_000

PROBLEMS: Final = """() => {
    const found = [];
    const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    if (over > 0) found.push(`${over} pixels too wide`);
    for (const image of document.images) {
        if (image.src && !(image.complete && image.naturalWidth)) found.push(`no picture: ${image.src}`);
    }
    return found;
}"""

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(30)
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log, and below `/duly` as well: 404.html has absolute addresses."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix("/duly"))

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_no_page_is_wider_than_its_window(
    site: Path, served: str, browser: Browser, width: int, scheme: Scheme
) -> None:
    """Each page is loaded once in each width, and then changes to the other scheme: that is cheaper than a load."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    found = {}
    for file in sorted(site.rglob("*.html")):
        name = file.relative_to(site).as_posix()
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{served}/duly/{name}" if name == "404.html" else file.as_uri(), timeout=PATIENCE)
        for now in (scheme, OTHER[scheme]):
            page.emulate_media(color_scheme=now)
            if problems := page.evaluate(PROBLEMS):
                found[name, now] = problems
    page.close()

    assert found == {}


def test_a_page_that_is_too_wide_is_found(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.set_content('<div style="width: 500px">x</div><img src="file:///nothing.png">')

    assert page.evaluate(PROBLEMS)[0] == "108 pixels too wide"
    assert len(page.evaluate(PROBLEMS)) == 2


@pytest.mark.parametrize(
    ("words", "pages"),
    [
        ("lease", {"receiving.html", "faq.html", "workers.html", "guide.html", "tutorial.html"}),
        ("retry", {"retries.html", "workers.html", "guide.html", "tutorial.html"}),
        ("celery", {"celery.html"}),
        ("heartbeat", {"workers.html"}),
        ("docker", {"deployment.html"}),
        ("idempotent", {"workers.html", "exactly-once.html"}),
        ("visibility timeout", {"receiving.html", "workers.html", "glossary.html"}),
        ("dead letter queue", {"dead-letters.html"}),
        ("rate limit", {"limits.html"}),
        ("backoff", {"retries.html"}),
        ("cancel a delayed message", {"tutorial.html", "sending.html", "guide.html", "faq.html", "inspecting.html"}),
    ],
)
def test_the_search_leads_to_a_page_for_users(served: str, browser: Browser, words: str, pages: set[str]) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    page.goto(f"{served}/index.html", timeout=PATIENCE)
    first = found_first(page, words)
    page.close()

    assert first in pages


@pytest.mark.parametrize(
    ("words", "pages"),
    [
        ("死信", {"zh/dead-letters.html", "zh/tutorial.html"}),
        ("定时计划", {"zh/schedules.html", "zh/tutorial.html"}),
    ],
)
def test_the_search_finds_chinese_words(served: str, browser: Browser, words: str, pages: set[str]) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    page.goto(f"{served}/zh/index.html", timeout=PATIENCE)
    first = found_first(page, words, placeholder="搜索")
    page.close()

    assert f"zh/{first}" in pages


def found_first(page: Page, words: str, placeholder: str = "Search") -> str:
    page.get_by_placeholder(placeholder).click()
    page.get_by_placeholder(placeholder).fill(words)
    page.get_by_placeholder(placeholder).press("End")  # the page reads the words when a key is released
    results = page.locator(".md-search-result__link")
    expect(results.first).to_be_visible(timeout=PATIENCE)
    address = results.first.get_attribute("href") or ""
    return address.rpartition("/")[2].partition("?")[0].partition("#")[0]


def test_a_diagram_follows_the_switch_to_dark(served: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 800}, color_scheme="light")
    page.goto(f"{served}/order.html", timeout=PATIENCE)
    diagram = page.locator("a.diagram img").first
    expect(diagram).to_have_css("color-scheme", "light", timeout=PATIENCE)
    page.get_by_title("Dark").click()
    expect(diagram).to_have_css("color-scheme", "dark", timeout=PATIENCE)
    page.close()
