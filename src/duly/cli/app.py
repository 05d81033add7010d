"""The root of the command line. A command is a function, or an app of its own, in a module beside this one.

Commands only parse, call and print; what they do lives in other packages.
"""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from duly.cli import server
from duly.cli.demo import demo
from duly.cli.worker import worker

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"duly {_find_version()}")
        raise typer.Exit


def _find_version() -> str:
    try:
        return metadata.version("duly")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "(not installed)"


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and leave.")
]


@app.callback()
def root(version: Version = False) -> None:
    """Reliable and delayed messages on Redis and Valkey."""


# Register commands here, one line each, in the order of `duly --help`.
app.command()(demo)
app.command()(worker)
app.add_typer(server.app, name="server")
