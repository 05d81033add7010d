"""`duly schedule ls|add|rm|pause|resume`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

import msgspec
import typer
from rich.console import RenderableType

from duly._core.measures import span
from duly._core.naming import nearest
from duly.cli import output, values
from duly.cli.command import command
from duly.cli.completion import complete_schedule
from duly.cli.output import Align, body_text, time_text
from duly.cli.parameters import AsBytes, AsText, Body, Queue
from duly.cli.session import NotFound, Session
from duly.cli.stop_signals import StopSignals
from duly.errors import ServerError, Unavailable, UsageError
from duly.message import Schedule

app: typer.Typer = typer.Typer(no_args_is_help=True, help="Add, list and remove schedules (cron, intervals).")

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name of a schedule.", autocompletion=complete_schedule, show_default=False
    ),
]
Cron = Annotated[str | None, typer.Option("--cron", metavar="TEXT", help='A cron expression, like "0 3 * * *".')]
Every = Annotated[str | None, typer.Option("--every", metavar="DURATION", help="At multiples of this: 30s, 1h.")]
Zone = Annotated[str, typer.Option("--tz", metavar="ZONE", help="The zone of --cron, like Asia/Shanghai.")]
CatchUpName = Literal["one", "skip", "all"]
CatchUp = Annotated[
    str,
    typer.Option(
        "--catch-up",
        metavar="MODE",
        help="For missed times. one: send for the last; skip: only if it is at most 60 s ago; all: send for each.",
        autocompletion=lambda: list(get_args(CatchUpName)),
    ),
]


@command(app)
def ls(session: Session) -> None:
    """List the schedules."""
    found = _found(session)
    session.show_list("schedules", found, _table(found))
    if not session.as_json:
        _note_unserved(session, found)


def _found(session: Session) -> list[Schedule]:
    return [dataclasses.replace(each, body=_shown(each.body)) for each in session.app.schedules()]


def _shown(body: Any) -> Any:
    """Return the body, or JSON text if it is nested too deeply to show."""
    if not output.is_deep(body):
        return body
    try:
        return msgspec.json.encode(body).decode()
    except RecursionError:
        return "nested too deeply to show"


def _note_unserved(session: Session, found: list[Schedule]) -> None:
    """Print which schedules no worker serves: their next time passes, and nothing is sent."""
    try:
        served = {name for each in session.app.workers() for name in each.queues}
    except Unavailable:
        raise
    except ServerError:  # the user may lack permission
        return
    for queue in dict.fromkeys(each.queue for each in found if not each.paused):
        if queue not in served:
            session.note(
                f"no worker serves {queue!r}: nothing is sent until a worker or another consumer receives from it"
            )


def _table(found: list[Schedule]) -> RenderableType:
    columns: dict[str, Align] = {
        "NAME": "left",
        "QUEUE": "left",
        "WHEN": "left",
        "NEXT": "left",
        "LAST": "left",
        "BODY": "left",
    }
    rows = [
        (
            each.name,
            each.queue,
            f"{each.cron} {each.tz}" if each.cron else f"every {span(each.every)}",
            "paused" if each.paused else output.zoned_clock_text(each.next_at, each.tz),
            output.zoned_clock_text(each.last_slot, each.tz),
            body_text(each.body),
        )
        for each in found
    ]
    return output.Sheet(columns, rows, cut=["NAME", "QUEUE", "WHEN", "BODY"], spare=["LAST", "BODY"])


@command(app, starts_server=True)
def add(
    session: Session,
    name: Name,
    queue: Queue,
    body: Body = None,
    cron: Cron = None,
    every: Every = None,
    tz: Zone = "UTC",
    catch_up: CatchUp = "one",
    text: AsText = False,
    as_bytes: AsBytes = False,
) -> None:
    """Store a schedule. An existing schedule with this name is replaced.

    Example: duly schedule add report jobs daily --cron "0 3 * * *"
    """
    if (cron is None) == (every is None):
        raise UsageError("a schedule needs one of --cron and --every")
    how: CatchUpName = values.choice(catch_up, "--catch-up", CatchUpName)
    given = values.body(body, as_text=text, as_bytes=as_bytes)
    seconds = values.optional_duration(every, "--every")
    target = session.target(queue).name
    with StopSignals(session.app) as stops:
        session.app.schedule(name, target, given, cron=cron, every=seconds, tz=tz, catch_up=how)
        stored = next((each for each in _found(session) if each.name == name), None)
        next_at = time_text(stored.next_at if stored else None)
        stops.show_stored(session, stored, f"{name} sends to {queue}; next {next_at}", f"schedule {name} is stored")
    stops.exit_if_stopped()


@command(app)
def rm(session: Session, name: Name) -> None:
    """Remove a schedule. Messages that it has sent stay."""
    _change(session, name, session.app.unschedule, "removed")


@command(app)
def pause(session: Session, name: Name) -> None:
    """Stop sending until it is resumed. Times in between are skipped."""
    _change(session, name, session.app.pause_schedule, "paused")


@command(app)
def resume(session: Session, name: Name) -> None:
    """Continue sending from now on."""
    _change(session, name, session.app.resume_schedule, "resumed")


def _change(session: Session, name: str, act: Callable[[str], bool], done: str) -> None:
    if not act(name):
        known = [each.name for each in session.app.schedules()]
        raise NotFound(f"there is no schedule {name!r}.{nearest(name, known)} `duly schedule ls` lists all")
    session.show({"name": name, done: True}, f"{name} is {done}")
