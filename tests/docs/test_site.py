"""The pages make a site: it builds without a warning, has all pages and names, and needs nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import duly
import duly.testing
from tools.site_links import without_outer_links

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*?\ssrc=[\"']?([^\"'\s>]+)|<link\b[^>]*?\shref=[\"']?([^\"'\s>]+)"
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
    return sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_site_has_every_page(site: Path) -> None:
    assert [page for page in pages() if not (site / page).with_suffix(".html").exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"[\w/.-]+\.md", navigation)

    assert sorted(named) == pages()


def test_every_public_name_is_on_a_reference_page(site: Path) -> None:
    shown = "".join(page.read_text() for page in (site / "reference").glob("*.html"))

    names = [f"duly.{name}" for name in duly.__all__] + [f"duly.testing.{name}" for name in duly.testing.__all__]
    assert len(names) > 60
    assert [name for name in names if f'id="{name}"' not in shown] == []


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
        pytest.param("a.md", "see [this](../examples/1.py).", "see this (`examples/1.py`).", id="a file is named"),
        pytest.param("a.md", "[`a.lua`](../src/a.lua)", "`a.lua`", id="a name that is shown is not repeated"),
        pytest.param("zh/a.md", "[速度](../../README.zh-CN.md#速度)", "速度 (`README.zh-CN.md`)", id="an anchor goes"),
        pytest.param("a.md", "[`x[0]`](../a.py) [b](b.md)", "`x[0]` (`a.py`) [b](b.md)", id="brackets in brackets"),
        pytest.param(
            "a.md", "```\n[x](../a.py)\n```\n[x](../a.py)", "```\n[x](../a.py)\n```\nx (`a.py`)", id="code stays"
        ),
        pytest.param("a.md", "````\n```\n[x](../a.py)\n````", "````\n```\n[x](../a.py)\n````", id="code in code stays"),
    ],
)
def test_links_out_of_the_documentation_become_text(page: str, text: str, shown: str) -> None:
    assert without_outer_links(text, page) == shown


def test_no_page_of_the_site_links_to_a_file_outside(site: Path) -> None:
    hrefs = {
        (page.relative_to(site).as_posix(), href)
        for page in site.rglob("*.html")
        for href in re.findall(r"<a\b[^>]*?\shref=[\"']?([^\"'\s>#?]+)", page.read_text())
        if not re.match(r"[a-z]+:|//", href)
    }
    gone = [(page, href) for page, href in sorted(hrefs) if not ((site / page).parent / href).exists()]

    assert [(page, href) for page, href in gone if page != "404.html"] == []
