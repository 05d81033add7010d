"""`duly worker`: serves the handlers of an app. Parses and starts; the work is in duly.worker."""

from __future__ import annotations

import logging
import os
from typing import Annotated, Any, cast

import typer

from duly.cli import values
from duly.cli.spoken import Command
from duly.errors import UsageError
from duly.options import checked_count
from duly.worker import logs, run
from duly.worker.app_loader import load_app, warn_of_memory
from duly.worker.assignment import Assignment
from duly.worker.event_loop import leave
from duly.worker.reloader import Reloader
from duly.worker.supervisor import Supervisor, child_command
from duly.worker.worker_options import DEFAULT_GRACE, WorkerOptions

MOST_PROCESSES = 1000

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The app, as package.module:name. Without a name: app. A function without arguments is called for it.",
        show_default=False,
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        help="Run N worker processes under a parent that restarts those that die. Default: this process alone.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency", metavar="N", help="Handlers that run at once in a process. Default: what the handlers say."
    ),
]
Queues = Annotated[
    str | None,
    typer.Option(
        "--queues",
        metavar="NAMES",
        help="Serve these only, like a,b; a:3,b:1 asks a three times as often as b. events/archive is a group of the "
        "topic events, and events all its groups. Default: all with handlers.",
    ),
]
Grace = Annotated[
    str, typer.Option("--grace", metavar="DURATION", help="How long running handlers may go on after a stop.")
]
Reload = Annotated[
    bool, typer.Option("--reload", help="For development: start again when a .py file below this directory changes.")
]
LogLevel = Annotated[
    str, typer.Option("--log-level", metavar="LEVEL", help=f"What is logged at least: {', '.join(logs.LEVELS)}.")
]
LogFormat = Annotated[
    str, typer.Option("--log-format", metavar="FORMAT", help="text, or json: one object a line. To standard error.")
]


class OnServerOfApp(Command):
    """A command that has no --url, unlike the others, and says why."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, unless there is one."""
        if any(each.partition("=")[0] == "--url" for each in args) and not ctx.resilient_parsing:
            raise UsageError("the server is the app's: set DULY_URL, or give duly.Duly(...) an address")
        return super().parse_args(ctx, args)


def worker(
    target: Target,
    processes: Processes = None,
    concurrency: Concurrency = None,
    queues: Queues = None,
    grace: Grace = f"{DEFAULT_GRACE:g}s",
    reload: Reload = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Run the handlers of an app until told to stop.

    Example: duly worker shop.jobs:app --processes 4 --queues high:3,low:1

    The first SIGTERM or SIGINT (Ctrl-C) stops in order: what is not begun
    goes back to its queue, running handlers have the grace to finish.
    A second one stops at once.

    Exit status 0: nothing was cut off. 1: something was, or a process was
    lost at the stop. 2: the worker cannot be run like this.
    """
    options = WorkerOptions(queues, concurrency, values.duration(grace, "--grace"))
    if processes is not None:
        checked_count(processes, "--processes", most=MOST_PROCESSES)
    assignment = Assignment(target, options, cast("logs.LogFormat", log_format), log_level)
    if processes is None and not reload:
        raise typer.Exit(_serve(assignment))
    raise typer.Exit(_supervise(assignment, processes or 1, reload))


def _serve(assignment: Assignment) -> int:
    """Work in this very process: whoever kills it has killed the worker."""
    app = load_app(assignment.target)
    logs.configure(assignment.log_format, assignment.log_level)  # after the import, which may set up its own
    _announce(assignment, app=app)
    warn_of_memory(app)
    status = 0 if run(app, assignment.options) else 1
    leave(status)
    return status


def _supervise(assignment: Assignment, processes: int, reload: bool) -> int:
    logs.configure(assignment.log_format, assignment.log_level)
    _announce(assignment, processes=processes, reload=reload)
    make = Reloader if reload else Supervisor
    return make(child_command(assignment), processes, assignment.options.grace).run()


def _announce(assignment: Assignment, **more: Any) -> None:
    logs.event(
        logging.getLogger("duly.worker"),
        logging.INFO,
        "worker.serving",
        target=assignment.target,
        queues=assignment.options.queues or "all with handlers",
        pid=os.getpid(),
        **more,
    )
