"""The lists of the pages about workers match the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from duly.cli.app import command_line

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "src/duly/worker").glob("*.py"), ROOT / "src/duly/cli/worker.py"]
PAGES = ["docs/workers.md", "docs/zh/workers.md"]
PAGES_OF_EVENTS = ["docs/errors.md", "docs/zh/errors.md"]
NAME = re.compile(r"[a-z_]+\.[a-z_]+")
BY_VERB = {"message.defer", "message.recycle"}
"""Logged as f"message.{verb}"."""


def names_logged(source: Path) -> Iterator[str]:
    """Name the events of a file: the texts like `worker.started` that are given to `event` or `_log`."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("event", "_log"):
            given = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield from (each for each in given if isinstance(each, str) and NAME.fullmatch(each))


def names_listed(page: str) -> set[str]:
    """Name the events in the first column of the table whose second column is a level."""
    rows = re.findall(
        r"^\| (`[^|]*) \| (?:debug|info|warning|error|critical)\b", (ROOT / page).read_text(), re.MULTILINE
    )
    return {name for row in rows for name in re.findall(r"`([^`]*)`", row)}


@pytest.mark.parametrize("page", PAGES_OF_EVENTS)
def test_all_events_are_listed_and_no_others(page: str) -> None:
    logged = {name for source in SOURCES for name in names_logged(source)}

    assert len(logged) > 20
    assert names_listed(page) == logged | BY_VERB


def test_other_log_lines_occur_in_the_code() -> None:
    section = (ROOT / "docs/errors.md").read_text().split("\n## Other log lines\n")[1]
    listed = [
        text for row in re.findall(r"^\| (`.*?) \| ", section, re.MULTILINE) for text in re.findall("`(.*?)`", row)
    ]
    parts = [text for source in (ROOT / "src/duly").rglob("*.py") for text in literals(source)]

    assert len(listed) > 10
    assert [text for text in listed if not any(text in part for part in parts)] == []


def literals(source: Path) -> Iterator[str]:
    """Return the texts of a file, with those that are continued on the next line in one piece."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("page", PAGES)
def test_all_options_of_the_command_are_listed(page: str) -> None:
    command = typer.main.get_command(command_line()).commands["worker"]  # type: ignore[attr-defined]
    options = {name for each in command.params for name in each.opts if name.startswith("--")}

    listed = set(re.findall(r"`(--[a-z-]+)", (ROOT / page).read_text()))

    assert options - {"--help"} <= listed
