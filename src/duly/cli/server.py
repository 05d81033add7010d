"""`duly server`: controls the embedded server. The work is done in duly.embedded.control."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from duly._core.measures import size_text
from duly.cli import output
from duly.cli.command import AsJson
from duly.cli.typer_classes import Command
from duly.embedded import control
from duly.embedded.home import Home, default_directory, has_server

app: typer.Typer = typer.Typer(no_args_is_help=True, help="Start, stop and inspect the embedded server.")

Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="PATH", help="The server's directory. Default: $DULY_HOME, else ./.duly."),
]


@app.command(cls=Command)
def start(directory: Directory = None, as_json: AsJson = False) -> None:
    """Start the server and keep it running without users."""
    _show(control.start(directory or default_directory()), as_json)


@app.command(cls=Command)
def stop(
    directory: Directory = None,
    force: Annotated[bool, typer.Option("--force", help="Stop it even if processes use it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the server if no process uses it."""
    home = directory or default_directory()
    users = control.find_users(Home.at(home)) if force else ()
    if users and not as_json:
        typer.echo(f"in use by {output.visible(control.describe(users))}", err=True)
    control.stop(home, force=force)
    _show(control.status(home), as_json)


@app.command(cls=Command)
def restart(directory: Directory = None, as_json: AsJson = False) -> None:
    """Stop the server, even while processes use it, and start it again. Their calls wait for it."""
    _show(control.restart(directory or default_directory()), as_json)


@app.command(cls=Command)
def status(directory: Directory = None, as_json: AsJson = False) -> None:
    """Show whether the server runs, its start, its users and the size of its data."""
    _show(control.status(directory or default_directory()), as_json)


def _show(found: control.Status, as_json: bool) -> None:
    fields = _to_fields(found)
    if as_json:
        output.print_json(fields)
        return
    if not found.is_running and not has_server(found.directory):
        output.print_text(f"no embedded server here: none was started in {output.visible(str(found.directory))}")
        return
    for name, value in fields.items():
        if value is not None:
            output.print_text(f"{name:<10}  {output.visible(_to_text(name, value))}")


def _to_fields(found: control.Status) -> dict[str, Any]:
    return {
        "state": "running" if found.is_running else "stopped",
        "directory": str(found.directory),
        "pid": found.pid,
        "keeper_pid": found.keeper_pid,
        "version": found.version,
        "socket": found.socket,
        "since": found.since and found.since.isoformat(),
        "kept": found.is_kept if found.is_running else None,
        "users": None
        if found.users is None
        else [{"pid": u.pid, "command": u.command, "name": u.name} for u in found.users],
        "memory": found.memory_bytes,
        "data": found.data_bytes,
    }


def _to_text(name: str, value: Any) -> str:
    if name == "users":
        return ", ".join(f"{user['pid']} ({user['name'][:60]})" for user in value) or "none"
    if name in ("memory", "data"):
        return size_text(value)
    if name == "kept":
        return "yes, runs without users" if value else "no, stops with its last user"
    return str(value)
