"""`duly send`: a message, or with --lines many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import typer

import duly
from duly.cli import values
from duly.cli.arguments import AsBytes, AsText, At, Body, Dedup, DedupFor, Delay, Headers, Key, Lines, Queue
from duly.cli.session import Session
from duly.cli.stopping import Stops
from duly.errors import NotDurable, QueueFull, Unavailable, UsageError

_A_BATCH: Final = 1000

Priority = Annotated[int, typer.Option("--priority", metavar="N", help="0 to 9, higher first.")]
Replace = Annotated[bool, typer.Option("--replace", help="With --dedup: a message that still waits takes this body.")]
Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="DURATION", help="Of no use later than this after it is due: ends where it waits."),
]
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
    }
    if lines:
        if own_id is not None or dedup is not None:
            raise UsageError("--lines sends many messages: --id and --dedup are for one")
        batches = values.bodies_by_line(body, _A_BATCH, as_text=text, as_bytes=as_bytes)
        messages = ([duly.Send(each, **options) for each in batch] for batch in batches)
        _send_lines(session, session.target(queue), messages, _durable(durable))
        return
    given = values.body(body, as_text=text, as_bytes=as_bytes)
    _send_one(session, session.target(queue), given, {**options, "id": own_id}, _durable(durable))


def _send_one(session: Session, queue: duly.Queue, body: Any, options: dict[str, Any], durable: Any) -> None:
    """Send. A stop waits for the answer: who is not told that a message is stored sends it again."""
    # Chosen here, so that it can be told when there is no answer.
    id_ = options["id"] = session.app._new_id() if options["id"] is None else options["id"]
    unconfirmed: NotDurable | None = None
    with Stops(session.app) as stops:
        try:
            stored = queue.send(body, durable=durable, **options)
        except NotDurable as error:
            (stored,), unconfirmed = error.ids, error
        except Unavailable:
            session.note(
                f"if it is stored, it is {id_}: `duly show {queue.name} {id_}` tells, and with --id {id_} it can be "
                "sent again without being stored twice"
            )
            raise
    session.show_stored({"queue": queue.name, "id": stored}, stored, f"{stored} is stored in {queue.name}")
    if unconfirmed is not None:
        raise unconfirmed
    stops.leave()


def _send_lines(session: Session, queue: duly.Queue, batches: Iterable[list[duly.Send]], durable: Any) -> None:
    """Send a batch after the other. A stop waits for the answer, and it is told how far it came."""
    ids: list[str] = []
    with session.progress("sending", None) as progress:
        try:
            for batch in batches:
                with Stops(session.app) as stops:
                    ids += _stored(session, queue, batch, durable)
                progress(len(ids))
                stops.leave()
        except BaseException as error:
            ids += _stored_by(error)
            if ids:
                end = "was stopped" if isinstance(error, KeyboardInterrupt) else "failed"
                session.note(f"{len(ids):,} were sent to {queue.name} before it {end}: those of the first lines")
            raise
    told = f"{len(ids):,} sent to {queue.name}"
    session.show_stored({"queue": queue.name, "count": len(ids), "ids": ids}, told, told)


def _stored(session: Session, queue: duly.Queue, batch: list[duly.Send], durable: Any) -> list[str]:
    try:
        return queue.send_many(batch, durable=durable)
    except Unavailable:
        session.note(f"whether the next {len(batch):,} are stored in {queue.name} is not known")
        raise


def _stored_by(error: BaseException) -> Sequence[str]:
    """Give what a batch has stored that was not sent as it was asked for."""
    if isinstance(error, NotDurable):
        return error.ids
    return error.stored if isinstance(error, QueueFull) else ()


_DIGITS: Final = 9
"""Of a number of replicas: with more it is none, and Python would not even read thousands of them."""


def _durable(level: str | None) -> Any:
    if level is None or not level.isdecimal() or len(level) > _DIGITS:
        return level  # the library refuses what it does not know
    return int(level)
