"""The README is true: its first screen runs as printed, both languages have the same figures, and it stays short."""

import os
import re
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Final

import pytest

import duly
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
HOMES = [ROOT / "docs/index.md", ROOT / "docs/zh/index.md"]
FIRST_SCREEN: Final = 40
MOST_LINES: Final = 165
MOST_COLUMNS: Final = 97

FILE = re.compile(r"^```python\n# (\w+\.py)\b(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

both_languages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@both_languages
def test_the_readme_is_short_and_shows_code_in_its_first_screen(page: Path) -> None:
    lines = page.read_text().splitlines()

    assert len(lines) <= MOST_LINES
    assert lines[:FIRST_SCREEN].count("```python") == 2
    assert lines[:FIRST_SCREEN].count("```sh") == 1


def width_of(line: str) -> int:
    """Count the columns of a line: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


@both_languages
def test_no_line_of_code_is_cut_off_on_the_page_of_a_code_host(page: Path) -> None:
    blocks = re.findall(r"^```\w+\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)

    assert len(blocks) >= 6
    assert [line for block in blocks for line in block.splitlines() if width_of(line) > MOST_COLUMNS] == []


def test_both_languages_have_the_same_sections_rows_and_bullets() -> None:
    english, chinese = (
        [re.match(r"#+|\||-|>|!|```\w*|", line)[0] for line in page.read_text().splitlines()]  # type: ignore[index]
        for page in PAGES
    )

    assert english == chinese


@pytest.mark.parametrize(("page", "home"), list(zip(PAGES, HOMES, strict=True)), ids=["english", "chinese"])
def test_the_home_page_of_the_site_begins_like_the_readme(page: Path, home: Path) -> None:
    beginning = page.read_text().partition("\n## ")[0]
    title, tagline, _badges, _links, *rest = beginning.strip().split("\n\n")
    of_the_home = home.read_text().replace("../images/", "images/").replace("images/", "docs/images/")

    assert of_the_home.startswith("\n\n".join([title, tagline, *rest]))


@pytest.mark.slow
@both_languages
def test_the_first_screen_runs_as_printed(page: Path, tmp_path: Path) -> None:
    """In an empty directory and without a server: a worker in one terminal, the program that sends in another."""
    text = page.read_text()
    for name, source in FILE.findall(text):
        (tmp_path / name).write_text(f"# {source}")
    _install, start_worker, send = SHELL.findall(text)[0].splitlines()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    environment["PYTHONUNBUFFERED"] = "1"  # as in a terminal, which shows each line at once
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    log = tmp_path / "worker.log"

    with duly.Duly(f"embedded://{tmp_path}/.duly") as app, log.open("wb") as output:
        mail = app.queue("mail")
        mail.stats()  # and the server is held between two commands
        worker = subprocess.Popen(
            shlex.split(start_worker), cwd=tmp_path, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            subprocess.run(shlex.split(send, comments=True), cwd=tmp_path, env=environment, check=True, timeout=60)
            wait_until(lambda: "welcome 42 en" in log.read_text())
            wait_until(lambda: mail.stats().acked == 1)
        finally:
            worker.terminate()
            assert worker.wait(60) == 0, log.read_text()
        assert mail.stats().delayed == 1


def test_both_languages_have_the_same_figures_in_each_line() -> None:
    english, chinese = (
        [sorted(re.findall(r"\d+(?:[.,]\d+)*", line)) for line in page.read_text().splitlines()] for page in PAGES
    )

    assert any(len(figures) > 4 for figures in english)
    assert [(line, theirs) for line, theirs in zip(english, chinese, strict=True) if line != theirs] == []
