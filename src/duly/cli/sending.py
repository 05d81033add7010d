"""`duly send` and `duly receive`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

import duly
from duly.cli import output, values
from duly.cli.arguments import (
    AsBytes,
    AsText,
    At,
    Body,
    Dedup,
    DedupFor,
    Delay,
    Headers,
    Inbox,
    Key,
    Limit,
    Lines,
    Queue,
)
from duly.cli.session import NotFound, Session, nearest
from duly.errors import CodecError, LeaseLost, ServerError, UsageError

_A_BATCH: Final = 1000
_A_WAIT: Final = 20.0
"""Seconds that one round of --follow waits."""

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
Wait = Annotated[str, typer.Option("--wait", metavar="DURATION", help="How long to wait for the first.")]
Release = Annotated[bool, typer.Option("--release", help="Give back what was shown, no attempt spent.")]
Follow = Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C; with --json one object a line.")]
Raw = Annotated[bool, typer.Option("--raw", help="Print the bodies alone, as they are stored.")]


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
        "delay": values.optional_duration(delay, "--delay"),
        "at": values.optional_moment(at, "--at"),
        "key": key,
        "priority": priority,
        "dedup": dedup,
        "dedup_for": values.optional_duration(dedup_for, "--dedup-for"),
        "replace": replace,
        "ttl": values.optional_duration(ttl, "--ttl"),
        "headers": values.headers(header),
        "id": own_id,
    }
    target = session.app.queue(queue)
    if lines:
        if own_id is not None or dedup is not None:
            raise UsageError("--lines sends many messages: --id and --dedup are for one")
        batches = values.bodies_by_line(body, _A_BATCH, as_text=text, as_bytes=as_bytes)
        messages = ([duly.Send(each, **options) for each in batch] for batch in batches)
        _send_lines(session, target, messages, _durable(durable))
        return
    given = values.body(body, as_text=text, as_bytes=as_bytes)
    sent = target.send(given, durable=_durable(durable), **options)
    session.show({"queue": queue, "id": sent}, sent)
    _note_new(session, target, 1)


def _note_new(session: Session, queue: duly.Queue, count: int) -> None:
    """Ask about a queue that nothing else was ever sent to, if one of a name like it is there: a slip, maybe."""
    with suppress(ServerError):  # a producer may lack the right to look
        if queue.stats().sent > count:
            return
        others = [name for name in session.app.queues() if name != queue.name]
        if question := nearest(queue.name, others):
            session.note(f"queue {queue.name!r} is new.{question}")


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
    session.show({"queue": queue.name, "count": len(ids), "ids": ids}, f"{len(ids):,} sent to {queue.name}")
    if ids:
        _note_new(session, queue, len(ids))


def _durable(level: str | None) -> Any:
    if level is None or not level.isdecimal():
        return level  # the library refuses what it does not know
    return int(level)


def receive(
    session: Session,
    queue: Inbox,
    limit: Limit = 1,
    wait: Wait = "0s",
    release: Release = False,
    follow: Follow = False,
    raw: Raw = False,
) -> None:
    """Take messages, print them, and ack each one after it was printed.

    Without a message there is no output. To look without taking, use `duly list`.

    Example: duly receive orders --limit 10 --wait 5s
    """
    if release and follow:
        raise UsageError("--release and --follow: what is given back would come again at once, for ever")
    if raw and session.as_json:
        raise UsageError("--raw and --json: bodies are printed as they are, or as JSON")
    seconds = values.duration(wait, "--wait")
    source = _open(session, queue, may_come=follow or seconds > 0)
    if not follow:
        deliveries = source.receive(limit, seconds)
        _hand_over(session, source, deliveries, release=release, raw=raw, a_line=False)
        if not deliveries:
            _note_paused(session, source)
        return
    _note_paused(session, source)
    with session.until_stopped():
        while True:
            _hand_over(session, source, source.receive(limit, _A_WAIT), release=False, raw=raw, a_line=True)


def _open(session: Session, name: str, *, may_come: bool) -> duly.Queue | duly.Group:
    """Find a queue, which may come into being while it is waited for."""
    try:
        return session.inbox(name)
    except NotFound as error:
        if not may_come or "/" in name or name in session.app.topics():
            raise
        session.note(f"{error}. Waiting for it")
        return session.app.queue(name)


def _note_paused(session: Session, source: duly.Queue | duly.Group) -> None:
    with suppress(ServerError):  # a consumer may lack the right to look
        if paused := source.stats().paused:
            session.note(f"{source.label} is paused by {paused}: `duly resume {source.label}`")


def _hand_over(
    session: Session,
    source: duly.Queue | duly.Group,
    deliveries: list[duly.Delivery],
    *,
    release: bool,
    raw: bool,
    a_line: bool,
) -> None:
    """Print first, ack then: what could not be printed goes back."""
    try:
        _print(session, deliveries, raw=raw, a_line=a_line)
    except BaseException:
        with session.undisturbed():
            _release(deliveries)
        raise
    with session.undisturbed():  # or a Ctrl-C between the two would leave them leased
        if release:
            _release(deliveries)
        elif lost := source.ack_many(deliveries):
            session.note(f"the lease of {', '.join(each.id for each in lost)} was lost: will be delivered again")


def _release(deliveries: Iterable[duly.Delivery]) -> None:
    for delivery in deliveries:
        with suppress(LeaseLost):  # then it is back already
            delivery.release()


def _print(session: Session, deliveries: Iterable[duly.Delivery], *, raw: bool, a_line: bool) -> None:
    if raw:
        sys.stdout.buffer.writelines(each.raw + b"\n" for each in deliveries)
    elif not session.as_json:
        for each in deliveries:
            session.console.print(f"{output.visible(each.id)}  {output.whole_body(_body(each))}", soft_wrap=True)
    elif a_line:
        for each in deliveries:
            output.print_json(_to_fields(each), a_line=True)
    else:
        output.print_json([_to_fields(each) for each in deliveries])
    sys.stdout.flush()


def _body(delivery: duly.Delivery) -> Any:
    try:
        return delivery.body
    except CodecError:
        return delivery.raw


def _to_fields(delivery: duly.Delivery) -> dict[str, Any]:
    names = ("id", "queue", "headers", "key", "priority", "attempt", "deliveries", "sent_at", "due_at")
    return {"body": _body(delivery), **{name: getattr(delivery, name) for name in names}}
