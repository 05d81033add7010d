"""The documentation is true: its code runs, its examples run, its links lead somewhere."""

import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from urllib.parse import unquote

import pytest

import duly
from duly.testing import clock
from tests import warm
from tests.matrix import IS_WHOLE

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MARKDOWN = [
    page for page in ROOT.rglob("*.md") if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
]

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
ENGINES = ("memory", "embedded") if IS_WHOLE else ("embedded",)
OWN_PROCESS = {"docs/django.md", "docs/sentry.md", "docs/zh/django.md", "docs/zh/sentry.md"}
"""Pages whose code configures a library for the whole process."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules_of(page: Path) -> set[str]:
    """Name the modules that a page shows: a block that is one begins with `# shop.py`."""
    return set(re.findall(r"^```python\n# (\w+)\.py\b", page.read_text(), re.MULTILINE))


def blocks_of(page: Path) -> list[CodeType]:
    """Compile the Python of a page, with the line numbers of the page, so that a failure points there."""
    text = page.read_text()
    found = []
    for block in BLOCK.finditer(text):
        lines_before = text.count("\n", 0, block.start(1))
        found.append(compile("\n" * lines_before + block.group(1), name_of(page), "exec"))
    return found


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"embedded://{tmp_path}/d"


@pytest.fixture
def reader(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sit in an empty directory, with DULY_URL set as a reader would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DULY_URL", url)
    yield
    clock.reset()


def runs_in_this_process(page: Path) -> bool:
    return has_other_code(page) and name_of(page) not in OWN_PROCESS


def runs_as_a_program(page: Path) -> bool:
    return has_other_code(page) and name_of(page) in OWN_PROCESS


def has_other_code(page: Path) -> bool:
    """Return whether a page has its own code. Chinese pages make the calls of the English ones, which is compared."""
    return bool(blocks_of(page)) and (IS_WHOLE or "zh" not in name_of(page))


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("page", [page for page in PAGES if runs_in_this_process(page)], ids=name_of)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(page.stem)
    namespace = module.__dict__
    namespace["duly"] = duly
    for name in modules_of(page):  # blocks of the page may import what blocks above them define
        monkeypatch.setitem(sys.modules, name, module)

    try:
        for block in blocks_of(page):
            exec(block, namespace)
    finally:
        for value in namespace.values():
            if isinstance(value, duly.Duly | sqlite3.Connection):
                value.close()


def program_of(page: Path) -> str:
    """Return the code of a page as a program, with the line numbers of the page."""
    text = page.read_text()
    lines = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block.group(1).splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines)


@pytest.mark.parametrize("page", [page for page in PAGES if runs_as_a_program(page)], ids=name_of)
def test_the_code_of_a_page_runs_as_a_program(page: Path, url: str, tmp_path: Path) -> None:
    program = tmp_path / f"{page.stem}_page.py"
    program.write_text(program_of(page))

    done = warm.run([sys.executable, str(program)], timeout=60, cwd=tmp_path, env={**os.environ, "DULY_URL": url})

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_of_a_page_is_found(page: Path) -> None:
    assert page.read_text().count("```python") == len(blocks_of(page))
    assert page.read_text().count("```py\n") == 0


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_an_example_runs(example: Path, url: str, tmp_path: Path) -> None:
    words = [sys.executable, "-W", "error", str(example)]
    done = warm.run(words, timeout=60, cwd=tmp_path, env={**os.environ, "DULY_URL": url})

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 15


def anchors_of(page: Path) -> set[str]:
    """Name the anchors that the headings of a page get: lower case, hyphens for spaces, no punctuation."""
    headings = HEADING.findall(ANY_BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(ANY_BLOCK.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", MARKDOWN, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Here we are\n\n[a](page.md) [b](#here-we-are) [c](gone.md) [d](#gone) [e](https://example.org)\n"
    )

    assert broken_links(page) == ["gone.md", "#gone"]


def test_a_test_that_a_page_names_in_a_link_is_in_the_file() -> None:
    named = [
        (name, page.parent / path)
        for page in PAGES
        for name, path in re.findall(r"\[`(test_\w+)`\]\(([\w/.]+\.py)\)", page.read_text())
    ]

    assert named
    assert [name for name, path in named if f"def {name}(" not in path.read_text()] == []


def test_both_languages_show_the_same_code() -> None:
    """Comments and texts are translated; the calls are the same."""
    pairs = [("README.md", "README.zh-CN.md")]
    chinese_pages = [page.relative_to(ROOT / "docs/zh") for page in sorted((ROOT / "docs/zh").rglob("*.md"))]
    pairs += [(f"docs/{page}", f"docs/zh/{page}") for page in chinese_pages]
    assert len(pairs) >= 3
    for english, chinese in pairs:
        ours, theirs = (
            [sorted(set(re.findall(r"\.\w+\(", block))) for block in BLOCK.findall((ROOT / page).read_text())]
            for page in (english, chinese)
        )
        assert ours == theirs, (english, chinese)


@pytest.mark.parametrize(
    ("example", "call"),
    [
        pytest.param("07_testing_with_the_virtual_clock.py", "remind_until_paid(", id="a payment reminder until paid"),
        pytest.param("09_tasks.py", "text_message.later(", id="a text message some minutes later"),
        pytest.param("03_delay_and_cancel.py", "closing.cancel(", id="an order closed unless it is paid"),
        pytest.param("22_order.py", "key=item", id="changes of the stock in order"),
        pytest.param("23_limits.py", "max_in_flight=4", id="four at once over all workers"),
        pytest.param("24_realtime_and_archive.py", 'handler(group="archive"', id="one message, computed and archived"),
        pytest.param("25_late_group.py", 'statistics.seek("beginning")', id="a group that goes back"),
    ],
)
def test_the_examples_show(example: str, call: str) -> None:
    assert call in (ROOT / "examples" / example).read_text()
