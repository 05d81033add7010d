"""The root of the command line. Each command is a function or a Typer app in another module of this package.

Commands parse, call and print. The work is done in other packages.
"""

from __future__ import annotations

from typing import Annotated

import typer

import duly
from duly.cli import dead, inspection, management, receive, schedule, send, server, topic
from duly.cli.acl import acl
from duly.cli.audit import audit
from duly.cli.bench import bench
from duly.cli.call import call
from duly.cli.command import command
from duly.cli.dashboard import dashboard
from duly.cli.demo import demo
from duly.cli.doctor import doctor
from duly.cli.stats import stats
from duly.cli.typer_classes import Command, Commands
from duly.cli.worker import AppCommand, worker

app: typer.Typer = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"duly {duly.__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
]


@app.callback()
def root(version: Version = False) -> None:
    """Reliable and delayed messages on Redis and Valkey."""


# Register commands here, one line each, in the order of `duly --help`.
app.command(cls=Command)(demo)
app.command(cls=AppCommand)(worker)
command(app, starts_server=True)(dashboard)
command(app, starts_server=True)(send.send)
app.command(cls=AppCommand)(call)
command(app)(receive.receive)
command(app)(stats)
command(app)(inspection.queues)
command(app, "list")(inspection.list_)
command(app)(inspection.show)
command(app)(inspection.explain)
command(app)(inspection.pending)
command(app)(inspection.workers)
command(app)(management.cancel)
command(app)(management.promote)
command(app)(management.reschedule)
app.add_typer(dead.app, name="dead", cls=Commands)
command(app)(management.pause)
command(app)(management.resume)
command(app)(management.purge)
command(app)(management.delete)
app.add_typer(schedule.app, name="schedule", cls=Commands)
app.add_typer(topic.app, name="topic", cls=Commands)
command(app)(audit)
command(app)(doctor)
command(app)(acl)
command(app, starts_server=True)(bench)
app.add_typer(server.app, name="server", cls=Commands)
