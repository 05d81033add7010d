"""All commands, read from the command line."""

from collections.abc import Iterator
from typing import Any, Final

import typer.main

from duly.cli.app import command_line


def _walk(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for name, each in (inner or {}).items():
        yield from _walk(each, *words, name)


ROOT: Final[Any] = typer.main.get_command(command_line())
ALL: Final = dict(_walk(ROOT))
"""All commands that are not groups, by their words."""
