"""Typer classes of commands and groups, with shorter help and more helpful errors."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from duly.errors import UsageError

_OF_COMMANDS: Final = ("--url", "--namespace", "--json")
_IMPLIED: Final = {"--ahead": "1d"}
"""Options that need no value if they are the last word, or another option follows: the value that they then have."""


class Command(TyperCommand):
    """A command. The error for a missing argument shows the example of the help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command."""
        try:
            return super().parse_args(ctx, self._with_implied_values(args))
        except typer.BadParameter as error:
            if not error.message:  # an argument is missing
                error.message = _example_of(self.help or "")
            raise

    def _with_implied_values(self, args: list[str]) -> list[str]:
        """Add the values of options that were given without one."""
        own = {name for each in self.params for name in each.opts} & _IMPLIED.keys()
        words = []
        for word, following in zip(args, [*args[1:], "-"], strict=False):
            words.append(word)
            if word in own and following.startswith("-"):
                words.append(_IMPLIED[word])
        return words

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line. Required arguments have no braces."""
        return [piece.translate({ord("{"): None, ord("}"): None}) for piece in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        return _without_types_of_flags(super().get_params(ctx))


class Commands(TyperGroup):
    """A group of commands. The error for an option before the command shows its right place."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the group."""
        name = args[0].partition("=")[0] if args else ""
        if name in _OF_COMMANDS and not ctx.resilient_parsing and (path := self._path_to(name, args[1:])):
            raise UsageError(f"put {name} after the command: {ctx.command_path} {path} {name} ...")
        return super().parse_args(ctx, args)

    def _path_to(self, option: str, words: list[str]) -> str:
        """Return the command among the words, if it has the option."""
        command: Any = self
        path = []
        for word in words:
            if found := getattr(command, "commands", {}).get(word):
                command = found
                path.append(word)
        has = any(option in each.opts for each in command.params)
        return " ".join(path) if path and has else ""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        return _without_types_of_flags(super().get_params(ctx))


def _example_of(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("Example: ")), "")


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Remove <bool> after options without a value."""
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters
