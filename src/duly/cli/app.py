"""The root of the command line. Each command is a function or a Typer app in another module of this package.

Commands parse, call and print. The work is done in other packages. Only the module of the command that runs is
imported, because importing all of them takes longer than most commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer

import duly
from duly.cli.command import command
from duly.cli.typer_classes import Command, Commands

_Register = Callable[[typer.Typer, str, Any], None]


def _on_server(app: typer.Typer, name: str, function: Any) -> None:
    """Register a command with the options of the server."""
    command(app, name)(function)


def _starting_server(app: typer.Typer, name: str, function: Any) -> None:
    """Register a command that starts an embedded server in a directory that has none."""
    command(app, name, starts_server=True)(function)


def _of_app(app: typer.Typer, name: str, function: Any) -> None:
    """Register a command that uses the server of the user's app."""
    from duly.cli.worker import AppCommand

    app.command(name, cls=AppCommand)(function)


def _alone(app: typer.Typer, name: str, function: Any) -> None:
    """Register a command that has its own server."""
    app.command(name, cls=Command)(function)


def _group(app: typer.Typer, name: str, commands: Any) -> None:
    """Register a group of commands."""
    app.add_typer(commands, name=name, cls=Commands)


# In the order of `duly --help`.
COMMANDS: Final[Mapping[str, tuple[str, str, _Register]]] = {
    "demo": ("demo", "demo", _alone),
    "worker": ("worker", "worker", _of_app),
    "dashboard": ("dashboard", "dashboard", _starting_server),
    "send": ("send", "send", _starting_server),
    "call": ("call", "call", _of_app),
    "receive": ("receive", "receive", _on_server),
    "stats": ("stats", "stats", _on_server),
    "queues": ("inspection", "queues", _on_server),
    "list": ("inspection", "list_", _on_server),
    "show": ("inspection", "show", _on_server),
    "explain": ("inspection", "explain", _on_server),
    "pending": ("inspection", "pending", _on_server),
    "workers": ("inspection", "workers", _on_server),
    "cancel": ("management", "cancel", _on_server),
    "promote": ("management", "promote", _on_server),
    "reschedule": ("management", "reschedule", _on_server),
    "dead": ("dead", "app", _group),
    "pause": ("management", "pause", _on_server),
    "resume": ("management", "resume", _on_server),
    "purge": ("management", "purge", _on_server),
    "delete": ("management", "delete", _on_server),
    "schedule": ("schedule", "app", _group),
    "topic": ("topic", "app", _group),
    "import": ("imports", "app", _group),
    "audit": ("audit", "audit", _on_server),
    "doctor": ("doctor", "doctor", _on_server),
    "acl": ("acl", "acl", _on_server),
    "bench": ("bench", "bench", _starting_server),
    "server": ("server", "app", _group),
}
"""By name: the module, the function or group in it, and how it is registered."""


def command_line(first_word: str | None = None) -> typer.Typer:
    """Return the command line. If the first word is a command, it has only this one, and else all of them.

    `duly --version` needs none.
    """
    app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(root)
    for name in _needed(first_word):
        module, attribute, register = COMMANDS[name]
        register(app, name, getattr(import_module(f"duly.cli.{module}"), attribute))
    return app


def _needed(first_word: str | None) -> Iterable[str]:
    if first_word == "--version":
        return ()
    return COMMANDS if first_word is None or first_word not in COMMANDS else (first_word,)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"duly {duly.__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
]


def root(version: Version = False) -> None:
    """Reliable background jobs and delayed messages, on Redis or Valkey."""
