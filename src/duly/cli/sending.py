"""`duly send`: a message, or with --lines many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

import duly
from duly.cli import values
from duly.cli.arguments import AsBytes, AsText, At, Body, Dedup, DedupFor, Delay, Headers, Key, Lines, Queue
from duly.cli.session import Session
from duly.errors import UsageError

_A_BATCH: Final = 1000

Priority = Annotated[int, typer.Option("--priority", metavar="N", help="0 to 9, higher first.")]
Replace = Annotated[bool, typer.Option("--replace", help="With --dedup: a message that still waits takes this body.")]
Ttl = Annotated[str | None, typer.Option("--ttl", metavar="DURATION", help="Gone if nobody took it so long after due.")]
OwnId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="An id of your own; stored once while it is there.")
]
Durable = Annotated[
    str | None,
    typer.Option("--durable", metavar="LEVEL", help="Wait for fsync, replica, or a number of replicas to confirm."),
]


def send(
    session: Session,
    queue: Queue,
    body: Body = None,
    delay: Delay = None,
    at: At = None,
    key: Key = None,
    priority: Priority = 0,
    dedup: Dedup = None,
    dedup_for: DedupFor = None,
    replace: Replace = False,
    ttl: Ttl = None,
    header: Headers = None,
    own_id: OwnId = None,
    durable: Durable = None,
    text: AsText = False,
    as_bytes: AsBytes = False,
    lines: Lines = False,
) -> None:
    """Send a message, or with --lines many.

    Example: duly send orders '{"order": 17}' --delay 30m
    """
    options: dict[str, Any] = {
        **values.due(delay, at),
        "key": key,
        "priority": priority,
        "dedup": dedup,
        "dedup_for": values.optional_duration(dedup_for, "--dedup-for"),
        "replace": replace,
        "ttl": values.optional_duration(ttl, "--ttl"),
        "headers": values.headers(header),
        "id": own_id,
    }
    if lines:
        if own_id is not None or dedup is not None:
            raise UsageError("--lines sends many messages: --id and --dedup are for one")
        batches = values.bodies_by_line(body, _A_BATCH, as_text=text, as_bytes=as_bytes)
        messages = ([duly.Send(each, **options) for each in batch] for batch in batches)
        _send_lines(session, session.target(queue), messages, _durable(durable))
        return
    given = values.body(body, as_text=text, as_bytes=as_bytes)
    sent = session.target(queue).send(given, durable=_durable(durable), **options)
    session.show_stored({"queue": queue, "id": sent}, sent, f"{sent} is stored in {queue}")


def _send_lines(session: Session, queue: duly.Queue, batches: Iterable[list[duly.Send]], durable: Any) -> None:
    ids: list[str] = []
    with session.progress("sending", None) as progress:
        try:
            for batch in batches:
                ids += queue.send_many(batch, durable=durable)
                progress(len(ids))
        except BaseException:
            if ids:
                session.note(f"{len(ids):,} were sent to {queue.name} before it failed: those of the first lines")
            raise
    told = f"{len(ids):,} sent to {queue.name}"
    session.show_stored({"queue": queue.name, "count": len(ids), "ids": ids}, told, told)


def _durable(level: str | None) -> Any:
    if level is None or not level.isdecimal():
        return level  # the library refuses what it does not know
    return int(level)
