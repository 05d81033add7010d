"""The pages make a site: it builds without a warning, has all pages and names, and needs nothing from elsewhere."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import duly
import duly.testing
from tools.site_links import EXCLUDED, LOGO, outer_pages, with_reachable_links
from tools.site_look import described, search_options, without_anchor_list

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*?\ssrc=[\"']?([^\"'\s>]+)|<link\b(?![^>]*rel=.?canonical)[^>]*?\shref=[\"']?([^\"'\s>]+)"
)
OF_STYLES = re.compile(r"url\(\s*[\"']?((?:https?:)?//[^)]*)\)|@import\s+[\"']?((?:https?:)?//\S*)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as a reader would."""
    folder = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages() -> list[str]:
    found = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    return sorted(found - set(EXCLUDED))


def test_the_site_has_every_page(site: Path) -> None:
    assert [page for page in pages() if not (site / page).with_suffix(".html").exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"[\w/.-]+\.md", navigation)
    of_the_project = [
        page for page in outer_pages().values() if page == "examples/index.md" or page.startswith("project/")
    ]

    assert sorted(named) == sorted(pages() + of_the_project)


def test_pages_for_the_makers_are_not_in_the_site(site: Path) -> None:
    configured = (ROOT / "mkdocs.yml").read_text().partition("exclude_docs: |\n")[2]

    assert tuple(configured.split()[: len(EXCLUDED)]) == EXCLUDED
    assert [page for page in EXCLUDED if (site / page).with_suffix(".html").exists()] == []


def test_every_example_is_a_page_with_its_code(site: Path) -> None:
    examples = [path for path in (ROOT / "examples").iterdir() if path.suffix in {".py", ".mjs"}]

    assert len(examples) > 30
    for path in examples:
        page = site / "examples" / f"{path.stem}-{path.suffix[1:]}.html"
        shown = re.sub(r"<[^>]+>", "", page.read_text())
        assert path.name in shown
        assert path.read_text().splitlines()[-1].split("(")[0].strip() in unescape(shown)


def test_every_public_name_is_on_a_reference_page(site: Path) -> None:
    shown = "".join(page.read_text() for page in (site / "reference").glob("*.html"))

    names = [f"duly.{name}" for name in duly.__all__] + [f"duly.testing.{name}" for name in duly.testing.__all__]
    assert len(names) > 60
    assert [name for name in names if f'id="{name}"' not in shown] == []


@pytest.mark.parametrize("kind", [duly.Duly, duly.Queue, duly.Delivery, duly.Topic, duly.Group, duly.Task, duly.Worker])
def test_every_public_member_is_on_a_reference_page(site: Path, kind: type) -> None:
    shown = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    names = [name for name in dir(kind) if not name.startswith("_")]

    assert len(names) >= 3
    assert [name for name in names if f'id="duly.{kind.__name__}.{name}"' not in shown] == []


@pytest.mark.parametrize(
    "method",
    [
        duly.Duly.task,
        duly.Duly.schedule,
        duly.Queue.send,
        duly.Queue.send_many,
        duly.Queue.receive,
        duly.Queue.handler,
        duly.Queue.cancel,
        duly.Delivery.ack,
        duly.Delivery.retry,
        duly.Delivery.commit,
        duly.Topic.publish,
        duly.Task.send,
        duly.Task.later,
        duly.Task.using,
    ],
    ids=lambda method: method.__qualname__,
)
def test_a_method_that_is_often_used_describes_its_parameters_and_has_an_example(method: Callable[..., Any]) -> None:
    text = inspect.getdoc(method) or ""
    arguments = text.partition("Args:\n")[2].partition("\n\n")[0]
    described = re.findall(r"^    \**(\w+): \S", arguments, re.MULTILINE)

    assert described == list(inspect.signature(method).parameters)[1:]
    assert "Example:\n    ```python\n" in text


def private_members(html: str) -> list[str]:
    """Find headings of what begins with an underscore: it may change without a word."""
    return re.findall(r'\bid="(duly\.[\w.]*?\b_\w+)"', html)


def test_a_reference_page_shows_no_private_member(site: Path) -> None:
    found = {
        page.name: names for page in (site / "reference").glob("*.html") if (names := private_members(page.read_text()))
    }

    assert found == {}


def test_a_private_member_is_found() -> None:
    html = '<h3 id="duly.Queue.send"></h3><h3 id="duly.Queue._claim"></h3><h3 id="duly.Queue.__repr__"></h3>'

    assert private_members(html) == ["duly.Queue._claim", "duly.Queue.__repr__"]


def signatures(html: str) -> list[str]:
    """Return the signatures of a reference page as text."""
    blocks = re.findall(r'<div class="[^"]*doc-signature[^"]*">(.*?)</div>', html, re.DOTALL)
    return [unescape(re.sub(r"<[^>]+>", "", block)).strip() for block in blocks]


def has_internal_part(signature: str) -> bool:
    """Whether a signature has a private name, or a parameter that only raises an error."""
    return re.search(r"(?<![\w.])_\w|\b(?:misplaced|unknown)\b|\bNever\b", signature) is not None


def test_signatures_of_the_reference_have_no_internal_parts(site: Path) -> None:
    found = [each for page in (site / "reference").glob("*.html") for each in signatures(page.read_text())]

    assert len(found) > 200
    assert [each for each in found if has_internal_part(each)] == []
    assert any("on_busy: OnBusy = Defer(2)" in each for each in found), "the value of a private constant"


@pytest.mark.parametrize(
    ("signature", "is_internal"),
    [
        ("send(body: T, *, delay: Seconds | None = None) -> MessageId", False),
        ("group(name: str, **unknown: Never) -> Group", True),
        ("schedule(name: str, body: T = _NOT_GIVEN) -> bool", True),
        ("redrive(dead_since: float, rate_: int) -> int", False),
    ],
)
def test_an_internal_part_of_a_signature_is_found(signature: str, is_internal: bool) -> None:
    html = f'<div class="language-python doc-signature highlight"><pre>{signature}</pre></div>'

    assert [has_internal_part(each) for each in signatures(html)] == [is_internal]


def test_every_public_name_is_in_the_table_of_the_reference() -> None:
    table = (DOCS / "reference/index.md").read_text()
    errors = {name for name in duly.__all__ if is_error(getattr(duly, name))}

    assert [name for name in duly.__all__ if f"`{name}`" not in table and name not in errors] == []


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, duly.DulyError)


def test_every_decision_is_listed() -> None:
    index = (DOCS / "decisions/index.md").read_text()
    decisions = sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))

    assert re.findall(r"^\| \[\d+\. [^]]*\]\((0\S+\.md)\) \| \S", index, re.MULTILINE) == decisions


def loaded_from_elsewhere(html: str) -> list[str]:
    """Find what a browser would fetch for a page from another place than the site."""
    found = [address for pair in LOADED.findall(html) for address in pair if address]
    return [address for address in found if re.match(r"(https?:)?//", address)]


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    found = {
        page.relative_to(site).as_posix(): outer
        for page in site.rglob("*.html")
        if (outer := loaded_from_elsewhere(page.read_text()))
    }

    assert found == {}


def test_styles_load_nothing_from_elsewhere(site: Path) -> None:
    styles = list(site.rglob("*.css"))

    assert styles
    assert [style.name for style in styles if OF_STYLES.search(style.read_text())] == []


def test_external_resources_of_a_page_are_found() -> None:
    html = '<a href="https://a.example"></a><script src="//b.example/x.js"></script><link rel=x href=https://c.example>'

    assert loaded_from_elsewhere(html) == ["//b.example/x.js", "https://c.example"]
    assert OF_STYLES.search("@font-face { src: url('https://d.example/f.woff2') }")
    assert not OF_STYLES.search("a { background: url(assets/a.svg) }")


@pytest.mark.parametrize(
    ("page", "text", "shown"),
    [
        pytest.param("a.md", "[guide](guide.md#x)", "[guide](guide.md#x)", id="a page stays a link"),
        pytest.param("zh/a.md", "[x](../guide.md)", "[x](../guide.md)", id="a page further up stays a link"),
        pytest.param("a.md", "[x](#here)", "[x](#here)", id="a place on the page stays a link"),
        pytest.param(
            "a.md", "[x](https://a.example/../b)", "[x](https://a.example/../b)", id="an address stays a link"
        ),
        pytest.param("a.md", "[x](../src/a.lua#L1)", "[x](R/blob/HEAD/src/a.lua#L1)", id="a file is in the repository"),
        pytest.param("a.md", "[x](mission.md)", "[x](R/blob/HEAD/docs/mission.md)", id="a page that is left out"),
        pytest.param("a.md", "[x](../CHANGELOG.md)", "[x](project/changelog.md)", id="the changelog is a page"),
        pytest.param("zh/a.md", "[x](../../SECURITY.md)", "[x](../project/security.md)", id="a page of the project"),
        pytest.param(
            "a.md", "[x](../examples/08_first_handler.py)", "[x](examples/08_first_handler-py.md)", id="an example"
        ),
        pytest.param("project/changelog.md", "[x](docs/guide.md#a)", "[x](../guide.md#a)", id="a page from the root"),
        pytest.param("examples/index.md", "[x](02_async.py)", "[x](02_async-py.md)", id="from the list to an example"),
        pytest.param(
            "a.md", "[`x[0]`](../a.py) [b](b.md)", "[`x[0]`](R/blob/HEAD/a.py) [b](b.md)", id="brackets in brackets"
        ),
        pytest.param("a.md", "```\n[x](../a.py)\n```", "```\n[x](../a.py)\n```", id="code stays"),
        pytest.param("a.md", "````\n```\n[x](../a.py)\n````", "````\n```\n[x](../a.py)\n````", id="code in code stays"),
    ],
)
def test_links_lead_to_a_page_or_to_the_repository(page: str, text: str, shown: str) -> None:
    assert with_reachable_links(text, page, "R") == shown


# --- Search, descriptions, languages --------------------------------------------------------------------------


def test_the_search_has_user_pages_only(site: Path) -> None:
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}

    assert {"tutorial.html", "workers.html", "zh/tutorial.html", "reference/queue.html"} <= found
    assert [page for page in found if page.startswith(("decisions/", "protocol", "internals", "conformance"))] == []


def test_the_search_finds_names_within_code(site: Path) -> None:
    separator = json.loads((site / "search/search_index.json").read_text())["config"]["separator"]

    words = re.split(separator, 'f.apply_async((42,), countdown=30) "visibility_timeout", Redis 6.2')
    assert {"apply_async", "countdown", "visibility_timeout", "6.2"} <= set(words)


def test_user_pages_are_boosted_and_internal_ones_left_out() -> None:
    assert search_options("tutorial.md")["boost"] > search_options("scaling.md")["boost"]
    assert search_options("zh/workers.md")["boost"] > 1
    assert search_options("decisions/0001-one-sorted-set.md") == {"exclude": True}


def test_every_page_has_its_own_description(site: Path) -> None:
    found = {}
    for page in pages():
        text = (site / page).with_suffix(".html").read_text()
        found[page] = re.findall(r'<meta name="description" content="([^"]*)"', text)

    assert [page for page, texts in found.items() if len(texts) != 1 or len(texts[0]) < 6] == []
    shown = [texts[0] for page, texts in found.items() if not page.startswith("reference/")]
    assert len(set(shown)) > 0.9 * len(shown)


def test_a_description_is_the_first_text_of_a_page() -> None:
    page = (
        "# Order\n\n![a](b.svg)\n\n[A](#a) · [B](#b) ·\n[C](#c)\n\nMessages with `key=` are\n[in order](x.md).\n\nMore."
    )

    assert described(page) == "Messages with key= are in order."
    assert described("# A\n\n" + "word " * 100).endswith("word …")
    assert described("# A\n\n" + "消息按顺序投递。" * 100).endswith("投递。消息按顺序投递 …")
    assert without_anchor_list(page).count("(#") == 0
    assert "Messages with" in without_anchor_list(page)


def test_each_page_links_to_its_twin_in_the_other_language(site: Path) -> None:
    def twin_of(page: str) -> str:
        [address] = re.findall(r'<a class="language" href="([^"]+)"', (site / page).read_text())
        return str(address)

    assert twin_of("migration/celery.html") == "../zh/migration/celery.html"
    assert twin_of("zh/migration/celery.html") == "../../migration/celery.html"
    assert twin_of("internals.html") == "zh/index.html"
    assert '<html lang="zh"' in (site / "zh/guide.html").read_text()


def test_the_labels_of_a_chinese_page_are_chinese(site: Path) -> None:
    text = (site / "zh/guide.html").read_text()
    labels = set(re.findall(r'(?:aria-label|placeholder|title)="([^"]+)"', text))
    config = re.findall(r'<script id="__config" type="application/json">(.*?)</script>', text)
    shown = json.loads(config[0])["translations"]
    del shown["select.version"]  # the site has one version, so it is not shown

    labels |= set(shown.values())
    assert {"搜索", "复制", "# 个匹配的页面"} <= labels
    assert [label for label in sorted(labels) if not re.search("[\u4e00-\u9fff]", label)] == ["Duly"]


@pytest.mark.parametrize(
    ("page", "address"), [("index.html", "images/icon.svg"), ("zh/guide.html", "../images/icon.svg")]
)
def test_the_site_has_the_logo_of_the_dashboard(site: Path, page: str, address: str) -> None:
    text = (site / page).read_text()

    assert f'<img src="{address}" alt="logo">' in text
    assert f'<link rel="icon" href="{address}">' in text
    assert (site / LOGO[1]).read_bytes() == (ROOT / LOGO[0]).read_bytes()


def test_the_home_shows_the_product_and_how_to_install_it(site: Path) -> None:
    for home in ("index.html", "zh/index.html"):
        text = (site / home).read_text()
        assert 'class="hero"' in text
        assert "pip install" in text
        assert "system.svg" in text
        assert text.partition('class="cards"')[2].partition("</div>")[0].count("<li>") == 6


def test_no_page_of_the_site_links_to_a_file_outside(site: Path) -> None:
    hrefs = {
        (page.relative_to(site).as_posix(), href)
        for page in site.rglob("*.html")
        for href in re.findall(r"<a\b[^>]*?\shref=[\"']?([^\"'\s>#?]+)", page.read_text())
        if not re.match(r"[a-z]+:|//", href)
    }
    gone = [(page, href) for page, href in sorted(hrefs) if not ((site / page).parent / href).exists()]

    assert [(page, href) for page, href in gone if page != "404.html"] == []
