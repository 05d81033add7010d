"""`duly receive`: takes messages, prints them, and acks what was printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

import duly
from duly.cli import output, values
from duly.cli.arguments import Inbox, Limit
from duly.cli.session import NotFound, Session
from duly.cli.standard_output import writing
from duly.cli.stopping import undisturbed, until_stopped
from duly.errors import LeaseLost, ServerError, UsageError

_A_WAIT: Final = 20.0
"""Seconds that one round of --follow waits."""

Wait = Annotated[str, typer.Option("--wait", metavar="DURATION", help="How long to wait for the first.")]
Release = Annotated[bool, typer.Option("--release", help="Give back what was shown, no attempt spent.")]
Follow = Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C; with --json one object a line.")]
Raw = Annotated[bool, typer.Option("--raw", help="Print the bodies alone, as they are stored.")]


def receive(
    session: Session,
    queue: Inbox,
    limit: Limit = 1,
    wait: Wait = "0s",
    release: Release = False,
    follow: Follow = False,
    raw: Raw = False,
) -> None:
    """Take messages, print them, and ack those that were printed.

    A stop while it prints acks what was printed whole; the rest goes back.
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
    with until_stopped(session.app):
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
    """Print first, ack then, in one call. What somebody's stop or a full disk kept from being printed goes back."""
    printed = 0
    try:
        for count in _print(session, deliveries, raw=raw, a_line=a_line):
            printed = count
    finally:
        with undisturbed(session.app):  # or a Ctrl-C between the two would leave them leased
            _settle(session, source, deliveries[:printed], release=release)
            _release(deliveries[printed:])


def _settle(session: Session, source: duly.Queue | duly.Group, printed: list[duly.Delivery], *, release: bool) -> None:
    if release:
        _release(printed)
    elif lost := source.ack_many(printed):
        session.note(f"the lease of {', '.join(each.id for each in lost)} was lost: will be delivered again")


def _release(deliveries: Iterable[duly.Delivery]) -> None:
    for delivery in deliveries:
        with suppress(LeaseLost):  # then it is back already
            delivery.release()


def _print(session: Session, deliveries: list[duly.Delivery], *, raw: bool, a_line: bool) -> Iterator[int]:
    """Print, and tell after each message how many have left this process."""
    if session.as_json and not a_line:
        output.print_json([_to_fields(each) for each in deliveries])
        yield len(deliveries)
        return
    for count, each in enumerate(deliveries, 1):
        if raw:
            with writing():
                sys.stdout.buffer.write(each.raw + b"\n")
                sys.stdout.buffer.flush()
        elif session.as_json:
            output.print_json(_to_fields(each), a_line=True)
        else:
            output.print_text(f"{output.visible(each.id)}  {output.whole_body(output.body_of(each))}")
        yield count


def _to_fields(delivery: duly.Delivery) -> dict[str, Any]:
    names = ("id", "queue", "headers", "key", "priority", "attempt", "deliveries", "sent_at", "due_at")
    return {"body": output.body_of(delivery), **{name: getattr(delivery, name) for name in names}}
