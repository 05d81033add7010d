"""`duly import celery|rq|delayqueue|rmq|redisson|list|sorted-set`: move the messages of other queues to Duly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from typing import Annotated, Literal

import typer

import duly
from duly import _port, importing
from duly.cli.command import command
from duly.cli.parameters import DryRun
from duly.cli.session import NotFound, Session
from duly.errors import UsageError

app: typer.Typer = typer.Typer(no_args_is_help=True, help="Move the messages of other queues to Duly.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue there.", show_default=False)]
KeyName = Annotated[str, typer.Argument(metavar="KEY", help="The key there.", show_default=False)]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="URL", help="The server of the other queue. Default: the server of Duly."),
]
To = Annotated[str | None, typer.Option("--to", metavar="QUEUE", help="The queue of Duly. Default: the same name.")]
Body = Annotated[str, typer.Option("--body", metavar="FORMAT", help="The format of the bodies: json, text or bytes.")]
Unfinished = Annotated[
    bool, typer.Option("--unfinished", help="Also those that consumers have not finished. Stop the consumers first.")
]
Prefix = Annotated[str | None, typer.Option("--prefix", metavar="TEXT", help="The prefix of the keys there.")]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="OLD=NEW", help="The task of Duly for a task or function there; repeatable."),
]

_Open = Callable[[duly.Duly], importing.Source]


@command(app, starts_server=True)
def celery(
    session: Session,
    name: Name,
    source: From = None,
    to: To = None,
    as_tasks: Annotated[bool, typer.Option("--as-tasks", help="Make calls of tasks of Duly, as --task does.")] = False,
    task: Tasks = None,
    prefix: Prefix = None,
    unfinished: Unfinished = False,
    dry_run: DryRun = False,
) -> None:
    """Move a queue of Celery on its redis transport. By default, Celery workers on duly+redis:// run the messages.

    Example: duly import celery celery --from redis://old:6379/0 --dry-run
    """
    tasks = _names(task) if task or as_tasks else None

    def opened(at: duly.Duly) -> importing.Source:
        return importing.CeleryQueue(at, name, tasks=tasks, prefix=prefix or "", unfinished=unfinished)

    _move(session, name, source, to, opened, dry_run=dry_run)


@command(app, starts_server=True)
def rq(
    session: Session,
    name: Name,
    source: From = None,
    to: To = None,
    task: Tasks = None,
    unfinished: Unfinished = False,
    dry_run: DryRun = False,
) -> None:
    """Move a queue of RQ as calls of tasks. Only jobs of RQ's JSONSerializer; pickled ones stay."""

    def opened(at: duly.Duly) -> importing.Source:
        return importing.RqQueue(at, name, tasks=_names(task), unfinished=unfinished)

    _move(session, name, source, to, opened, dry_run=dry_run)


@command(app, starts_server=True)
def delayqueue(
    session: Session,
    name: Name,
    source: From = None,
    to: To = None,
    body: Body = "text",
    prefix: Prefix = None,
    unfinished: Unfinished = False,
    dry_run: DryRun = False,
) -> None:
    """Move a queue of hdt3213/delayqueue (Go), with due times and the retries that are left."""

    def opened(at: duly.Duly) -> importing.Source:
        return importing.Delayqueue(at, name, body=_format(body), prefix=prefix, unfinished=unfinished)

    _move(session, name, source, to, opened, dry_run=dry_run)


@command(app, starts_server=True)
def rmq(
    session: Session,
    name: Name,
    source: From = None,
    to: To = None,
    body: Body = "text",
    rejected: Annotated[bool, typer.Option("--rejected", help="Also the rejected ones.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Move a queue of adjust/rmq (Go), and what connections without a heartbeat had taken."""

    def opened(at: duly.Duly) -> importing.Source:
        return importing.RmqQueue(at, name, body=_format(body), rejected=rejected)

    _move(session, name, source, to, opened, dry_run=dry_run)


@command(app, starts_server=True)
def redisson(
    session: Session,
    name: Name,
    source: From = None,
    to: To = None,
    body: Body = "bytes",
    dry_run: DryRun = False,
) -> None:
    """Move a queue of Redisson (Java) and its RDelayedQueue, with due times. --body json also reads Jackson's JSON."""

    def opened(at: duly.Duly) -> importing.Source:
        return importing.RedissonQueue(at, name, body=_format(body))

    _move(session, name, source, to, opened, dry_run=dry_run)


@command(app, "list", starts_server=True)
def list_(
    session: Session,
    key: KeyName,
    source: From = None,
    to: To = None,
    body: Body = "json",
    pop: Annotated[
        str, typer.Option("--pop", metavar="END", help="The end from which consumers take: right or left.")
    ] = "right",
    dry_run: DryRun = False,
) -> None:
    """Move your own list: LPUSH and BRPOP, or --pop left for RPUSH and BLPOP."""
    if pop not in ("left", "right"):
        raise UsageError(f"--pop must be right or left, not {pop!r}")

    def opened(at: duly.Duly) -> importing.Source:
        return importing.PlainList(at, key, body=_format(body), pop=pop)

    _move(session, key, source, to, opened, dry_run=dry_run)


@command(app, "sorted-set", starts_server=True)
def sorted_set(
    session: Session,
    key: KeyName,
    source: From = None,
    to: To = None,
    body: Body = "json",
    in_ms: Annotated[bool, typer.Option("--ms", help="Scores are milliseconds since the epoch, not seconds.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Move your own sorted set, whose scores are due times."""

    def opened(at: duly.Duly) -> importing.Source:
        return importing.PlainSortedSet(at, key, body=_format(body), unit=0.001 if in_ms else 1.0)

    _move(session, key, source, to, opened, dry_run=dry_run)


def _move(session: Session, name: str, source: str | None, to: str | None, opened: _Open, *, dry_run: bool) -> None:
    target = session.target(to or _port.encoded_name(name))
    with closing(duly.Duly(source)) if source else nullcontext(session.app) as origin:
        found = opened(origin)
        with session.progress("moving", None, "" if dry_run else f"were moved to {target.name}") as progress:
            report = importing.move(found, target, dry_run=dry_run, on_progress=progress)
    if report.is_empty:
        keys = ", ".join(place.key for place in found.places())
        raise NotFound(f"nothing was found in {keys}: is it the right name, server and database?")
    shown = {
        "queue": target.name,
        "dry_run": dry_run,
        "moved": report.moved,
        "resumed": report.resumed,
        "left": report.left,
        "gone": report.gone,
    }
    session.show(shown, "\n".join(_lines(report, target.name, dry_run=dry_run)))


def _lines(report: importing.Report, queue: str, *, dry_run: bool) -> list[str]:
    """Describe a report."""
    done = "would be moved" if dry_run else "moved"
    lines = [f"{report.total:,} {done} to {queue}{_listed(report.moved)}"]
    if report.resumed:
        lines.append(f"{report.resumed:,} of them had been taken by an import that was stopped")
    if report.gone:
        deleted = "would be deleted" if dry_run else "deleted"
        lines.append(f"{sum(report.gone.values()):,} had expired there, and {deleted}{_listed(report.gone)}")
    lines += [f"{number:,} left there: {reason}" for reason, number in report.left.items()]
    return lines


def _listed(numbers: Mapping[str, int]) -> str:
    return f": {', '.join(f'{number:,} {name}' for name, number in numbers.items())}" if numbers else ""


def _names(pairs: list[str] | None) -> dict[str, str]:
    """Read OLD=NEW pairs."""
    names = {}
    for pair in pairs or []:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UsageError(f"--task must be OLD=NEW, like shop.close=close, not {pair!r}")
        names[old] = new
    return names


def _format(body: str) -> Literal["json", "text", "bytes"]:
    if body not in ("json", "text", "bytes"):
        raise UsageError(f"--body must be json, text or bytes, not {body!r}")
    return body  # type: ignore[return-value]
