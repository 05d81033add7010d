"""How commands and groups of commands read their words: help without noise, and errors that say what to type."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from duly.errors import UsageError

_OF_COMMANDS: Final = ("--url", "--namespace", "--json")


class Command(TyperCommand):
    """A command. A missing argument is told with the example of its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words behind the command."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if not error.message:  # nothing is wrong with what was given: something is missing
                error.message = _example_of(self.help or "")
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Give the words of the usage line: arguments that are needed stand without braces."""
        return [piece.translate({ord("{"): None, ord("}"): None}) for piece in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the parameters."""
        return _without_types_of_flags(super().get_params(ctx))


class Commands(TyperGroup):
    """A group of commands. An option that stands before the command is told where it belongs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words behind the group."""
        name = args[0].partition("=")[0] if args else ""
        if name in _OF_COMMANDS and not ctx.resilient_parsing and (path := self._path_to(name, args[1:])):
            raise UsageError(f"put {name} after the command: {ctx.command_path} {path} {name} ...")
        return super().parse_args(ctx, args)

    def _path_to(self, option: str, words: list[str]) -> str:
        """Name the command among the words, if it has the option."""
        command: Any = self
        path = []
        for word in words:
            if found := getattr(command, "commands", {}).get(word):
                command = found
                path.append(word)
        has = any(option in each.opts for each in command.params)
        return " ".join(path) if path and has else ""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the parameters."""
        return _without_types_of_flags(super().get_params(ctx))


def _example_of(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("Example: ")), "")


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Leave out <bool> behind an option that takes no value."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters
