"""`duly worker`: runs the handlers of an app. The work is done in duly.worker."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Annotated, Any, cast

import typer

import duly
from duly.cli import values
from duly.cli.typer_classes import Command
from duly.errors import UsageError
from duly.options import checked_count
from duly.worker import logs, run
from duly.worker.app_loader import load_app, warn_of_memory
from duly.worker.assignment import Assignment
from duly.worker.event_loop import leave
from duly.worker.health import HealthServer
from duly.worker.monitor import Monitor
from duly.worker.reloader import Reloader
from duly.worker.supervisor import Supervisor, child_command
from duly.worker.worker_options import DEFAULT_GRACE, WorkerOptions

MOST_PROCESSES = 1000
MOST_PORT = 65_535
Place = tuple[str, int]
"""A host and a port to listen on. An empty host means all addresses."""

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="The app, as package.module:name. The default name is app. A function without arguments is called.",
        show_default=False,
    ),
]
OnlyRecover = Annotated[
    bool,
    typer.Option(
        "--only-recover",
        help="Run no handlers and import no app: reclaim messages of dead consumers, in all queues or in --queues.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="With --only-recover: the server. Default: $DULY_URL, else the embedded one."
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="With --only-recover: the prefix of all keys.")
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        help="Run N worker processes under a parent that restarts them when they die. Default: only this process.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        help="Handlers that run concurrently per process. Default: the settings of the handlers.",
    ),
]
Queues = Annotated[
    str | None,
    typer.Option(
        "--queues",
        metavar="NAMES",
        help="Serve only these, like a,b. a:3,b:1 takes three messages of a for one of b while both have some. "
        "events/archive is a group of the topic events, and events all its groups. Default: all with handlers.",
    ),
]
Grace = Annotated[
    str, typer.Option("--grace", metavar="DURATION", help="How long running handlers may continue after a stop.")
]
Reload = Annotated[
    bool, typer.Option("--reload", help="For development: restart when a .py file below this directory changes.")
]
LogLevel = Annotated[
    str, typer.Option("--log-level", metavar="LEVEL", help=f"The lowest level to log: {', '.join(logs.LEVELS)}.")
]
LogFormat = Annotated[
    str, typer.Option("--log-format", metavar="FORMAT", help="text, or json: one object per line, on standard error.")
]


Health = Annotated[
    str | None,
    typer.Option(
        "--health",
        metavar="[HOST:]PORT",
        help="Serve /healthz and /metrics of this worker on a port, for probes. Default host: all addresses.",
    ),
]


class AppCommand(Command):
    """A command without --url, since it uses the server of the app."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Refuses --url with an explanation."""
        names = {each.partition("=")[0] for each in args}
        if "--url" in names and "--only-recover" not in names and not ctx.resilient_parsing:
            raise UsageError("the server is the app's: set DULY_URL, or give duly.Duly(...) an address")
        return super().parse_args(ctx, args)


def worker(
    target: Target = None,
    processes: Processes = None,
    concurrency: Concurrency = None,
    queues: Queues = None,
    grace: Grace = f"{DEFAULT_GRACE:g}s",
    reload: Reload = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    health: Health = None,
    only_recover: OnlyRecover = False,
    url: Url = None,
    namespace: Namespace = None,
) -> None:
    """Run the handlers of an app until stopped.

    Example: duly worker shop.jobs:app --processes 4 --queues high:3,low:1

    With --only-recover no handlers run: expired leases are reclaimed, due
    schedules are sent, and expired messages are removed. Use it where
    consumers are away for long. Consumers do this themselves.

    The first SIGTERM or SIGINT (Ctrl-C) stops gracefully: messages that
    have not started are released, and running handlers have --grace to
    finish. A second signal stops at once.

    Exit status 0: all handlers finished. 1: a handler was interrupted, or
    a process was lost at the stop. 2: the worker cannot start like this.
    """
    place = None if health is None else _host_and_port(health)
    if only_recover:
        refused = {"TARGET": target, "--processes": processes, "--concurrency": concurrency, "--reload": reload or None}
        _check_only_recover([name for name, value in refused.items() if value is not None])
        logs.configure(cast("logs.LogFormat", log_format), log_level)
        _monitor(queues, url, namespace or "duly", place)
        return
    if target is None:
        raise UsageError("Missing argument 'TARGET'. Example: duly worker shop.jobs:app --processes 4")
    if namespace is not None:
        raise UsageError("--namespace is for --only-recover: the namespace of handlers is the app's")
    options = WorkerOptions(queues, concurrency, values.duration(grace, "--grace"))
    if processes is not None:
        checked_count(processes, "--processes", most=MOST_PROCESSES)
    assignment = Assignment(target, options, cast("logs.LogFormat", log_format), log_level)
    if processes is None and not reload:
        raise typer.Exit(_serve(assignment, place))
    raise typer.Exit(_supervise(assignment, processes or 1, reload, place))


def _host_and_port(text: str) -> Place:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= MOST_PORT):
        raise UsageError(f"--health: {text!r} is not a port, like 8080, or a host and a port, like 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def _check_only_recover(given: Sequence[str]) -> None:
    if given:
        raise UsageError(f"--only-recover runs no handlers: leave out {', '.join(given)}. --url names the server")


def _monitor(queues: str | None, url: str | None, namespace: str, health: Place | None) -> None:
    names = WorkerOptions(queues).queues
    with duly.Duly(url, namespace=namespace) as app, ExitStack() as stack:
        if app._address.kind == "memory":
            raise UsageError("memory:// works within one process: there is nothing to recover. Give a --url")
        monitor = Monitor(app, None if names is None else list(names))
        if health is not None:
            stack.enter_context(HealthServer(*health, lambda: [monitor.vitals()]))
        asyncio.run(monitor.run())


def _serve(assignment: Assignment, health: Place | None) -> int:
    """Run the worker in this process, without a parent."""
    app = load_app(assignment.target)
    logs.configure(assignment.log_format, assignment.log_level)  # after the import, which may configure logging
    _announce(assignment, app=app)
    warn_of_memory(app)
    show_vitals = None if health is None else lambda read: HealthServer(*health, lambda: [read()])
    status = 0 if run(app, assignment.options, show_vitals=show_vitals) else 1
    leave(status)
    return status


def _supervise(assignment: Assignment, processes: int, reload: bool, health: Place | None) -> int:
    logs.configure(assignment.log_format, assignment.log_level)
    make = Reloader if reload else Supervisor
    with ExitStack() as stack:
        if health is not None:
            directory = stack.enter_context(TemporaryDirectory(prefix="duly-"))
            assignment = replace(assignment, vitals=directory)
        supervisor = make(child_command(assignment), processes, assignment.options.grace)
        if health is not None:
            stack.enter_context(HealthServer(*health, lambda: supervisor.vitals(assignment.vitals)))
        _announce(assignment, processes=processes, reload=reload)
        return supervisor.run()


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
