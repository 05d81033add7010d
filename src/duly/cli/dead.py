"""`duly dead ls|show|redrive|rm|purge`: dead letters."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from duly.cli import inspection, management, values
from duly.cli.command import command
from duly.cli.message_table import Columns, chosen_columns, message_table
from duly.cli.parameters import After, DryRun, Headers, Id, Inbox, Most, Yes
from duly.cli.session import NotFound, Session
from duly.errors import UsageError
from duly.selection import Where

app: typer.Typer = typer.Typer(no_args_is_help=True, help="Inspect, redrive and delete dead letters.")

WhereError = Annotated[
    str | None,
    typer.Option("--error", metavar="TEXT", help="Only if the last error has this text; * matches anything."),
]
WhereReason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only those that died for this reason.")
]
WhereKey = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only with this key; * matches anything.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only those that died then or later. 2h: 2 hours ago.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only those that died before.")]
WhereIds = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Only this one; repeatable.")]
To = Annotated[str | None, typer.Option("--to", metavar="QUEUE", help="Redrive into another queue.")]
Rate = Annotated[str | None, typer.Option("--rate", metavar="RATE", help="Limit the rate, like 50/s.")]
AtEnd = Annotated[bool, typer.Option("--at-end", help="Put them behind all due messages, not at their original place.")]
Newest = Annotated[bool, typer.Option("--newest", help="Newest first.")]
MostOrAll = Annotated[int | None, typer.Option("--limit", metavar="N", help="At most N. Default: all.")]

_USUAL: Final = ("id", "died", "reason", "key", "error", "body")
_SPARE: Final = ("key", "died", "reason")


@command(app)
def ls(
    session: Session,
    queue: Inbox,
    limit: Most = 50,
    error: WhereError = None,
    reason: WhereReason = None,
    key: WhereKey = None,
    since: Since = None,
    until: Until = None,
    header: Headers = None,
    newest: Newest = False,
    after: After = None,
    columns: Columns = None,
) -> None:
    """List dead letters, oldest first, with the first 200 characters of each body; --json has all of it."""
    where = _where(error, reason, key, since, until, header, None)
    chosen = chosen_columns(columns, as_json=session.as_json)
    source = session.inbox(queue)
    before = None if after is None else source.get(after)
    if after is not None and (before is None or before.state != "dead"):
        raise NotFound(f"--after: message {after!r} is not a dead letter of {queue} any more: start again without it")
    letters = source.find_dead(where, limit, newest=newest, after=before)
    following = letters[-1].id if len(letters) == limit else None
    table = message_table(letters, chosen or _USUAL, spare=() if chosen else _SPARE)
    session.show_list("messages", letters, table, following=following)


def _where(
    error: str | None,
    reason: str | None,
    key: str | None,
    since: str | None,
    until: str | None,
    header: list[str] | None,
    ids: list[str] | None,
) -> Where | None:
    given: dict[str, Any] = {
        "error": error,
        "reason": reason,
        "key": key,
        "since": values.optional_past(since, "--since"),
        "until": values.optional_past(until, "--until"),
        "headers": values.headers(header),
        "ids": ids or None,
    }
    return Where(**given) if any(each is not None for each in given.values()) else None


@command(app)
def show(session: Session, queue: Inbox, id: Id) -> None:  # noqa: A002
    """Show one dead letter, with its errors and timeline. Status 1 if it is not dead."""
    message = session.inbox(queue).get(id)
    if message is not None and message.state != "dead":
        raise NotFound(f"message {id!r} of {queue} is not a dead letter, it is {message.state}: `duly show` shows it")
    inspection.show(session, queue, id)


@command(app)
def redrive(
    session: Session,
    queue: Inbox,
    limit: MostOrAll = None,
    error: WhereError = None,
    reason: WhereReason = None,
    key: WhereKey = None,
    since: Since = None,
    until: Until = None,
    header: Headers = None,
    ids: WhereIds = None,
    to: To = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    at_end: AtEnd = False,
) -> None:
    """Put dead letters back into the queue, oldest first, with new attempts.

    Example: duly dead redrive payments --error Timeout --rate 50/s --dry-run
    """
    source = session.inbox(queue)
    where = _where(error, reason, key, since, until, header, ids)
    if to is not None:
        session.target(to)
    total = limit if where is not None else min(source.stats().dead, limit or 1 << 62)
    place = f" from {queue} to {to}" if to else f" in {queue}"
    with session.progress("redriving", total, "" if dry_run else f"were redriven{place}") as progress:
        count = source.redrive(limit, where, to=to, rate=rate, dry_run=dry_run, at_end=at_end, on_progress=progress)
    done = "would be redriven" if dry_run else "redriven"
    if ids and limit is None and count < len(set(ids)):
        raise NotFound(
            f"{count} of {len(set(ids))} {done}: the others are not dead letters of {queue}, or are filtered out"
        )
    session.show({"queue": queue, "to": to, "dry_run": dry_run, "redriven": count}, f"{count:,} {done}{place}")


@command(app)
def rm(
    session: Session,
    queue: Inbox,
    error: WhereError = None,
    reason: WhereReason = None,
    key: WhereKey = None,
    since: Since = None,
    until: Until = None,
    header: Headers = None,
    ids: WhereIds = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete matching dead letters. This cannot be undone.

    Example: duly dead rm payments --error "card expired" --dry-run
    """
    where = _where(error, reason, key, since, until, header, ids)
    if where is None:
        raise UsageError(f"rm needs a filter, like --error TEXT; `duly dead purge {queue}` deletes all")
    source = session.inbox(queue)
    count = source.purge("dead", where=where, dry_run=True)
    if count and not dry_run:
        session.confirm(f"Remove {count:,} dead letter(s) of {queue} permanently?", yes=yes)
        with session.progress("removing", count, f"were removed from {queue}") as progress:
            count = source.purge("dead", where=where, on_progress=progress)
    done = "would be removed" if dry_run else "removed"
    session.show({"queue": queue, "dry_run": dry_run, "removed": count}, f"{count:,} {done} from {queue}")


@command(app)
def purge(session: Session, queue: Inbox, yes: Yes = False) -> None:
    """Delete all dead letters of a queue. This cannot be undone."""
    management.purge_state(session, queue, "dead", yes=yes)
