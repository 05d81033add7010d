"""The commands of `duly` in the shell blocks of the pages exist, with their options."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from duly.cli.app import command_line

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SHELL = re.compile(r"^```(?:sh|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> list[str]:
    lines = [line for block in SHELL.findall(page.read_text()) for line in block.splitlines()]
    return [line for line in lines if line.startswith("duly ")]


def parse(line: str) -> dict[str, Any]:
    """Parse a command without running it."""
    command: Any = typer.main.get_command(command_line())
    _, *words = shlex.split(line, comments=True)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    params: dict[str, Any] = command.make_context(line, words).params
    return params


COMMANDS = [(page.name, line) for page in PAGES for line in commands_of(page)]


def test_the_pages_have_commands() -> None:
    assert len(COMMANDS) > 15
    assert {page for page, _ in COMMANDS} >= {"troubleshooting.md", "tuning.md", "security.md"}


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line}" for page, line in COMMANDS])
def test_a_command_exists_with_its_options(page: str, line: str) -> None:
    assert parse(line) is not None


@pytest.mark.parametrize("line", ["duly shew orders 1", "duly stats --wach"])
def test_a_wrong_command_is_found(line: str) -> None:
    with pytest.raises(Exception, match=r"shew|wach"):
        parse(line)
