"""`duly receive`: takes messages, prints them, and acks what was printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

import duly
from duly._core.measures import span
from duly.cli import output, values
from duly.cli.parameters import Inbox, Limit
from duly.cli.receiver import Taker
from duly.cli.session import NotFound, Session
from duly.cli.stdio import writing
from duly.cli.stop_signals import Stops, going_on, interrupt
from duly.errors import ServerError, UsageError

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

    A stop acks what was printed whole; the rest goes back.
    Without a message there is no output. To look without taking, use `duly list`.

    Example: duly receive orders --limit 10 --wait 5s
    """
    if release and follow:
        raise UsageError("--release and --follow: what is given back would come again at once, for ever")
    if raw and session.as_json:
        raise UsageError("--raw and --json: bodies are printed as they are, or as JSON")
    seconds = values.duration(wait, "--wait")
    session.makes_server = may_come = follow or seconds > 0
    source = _open(session, queue, may_come=may_come)
    if follow:
        _note_why(session, source, is_over=False)
        with going_on(session.app, session.app.aio) as stops, Taker(source, stops) as taker:
            while stops.came is None:
                _receive(session, taker, limit, _A_WAIT, release=False, raw=raw, a_line=True)
        return
    stops, is_any = Stops(session.app, session.app.aio), False
    with stops, suppress(KeyboardInterrupt), Taker(source, stops) as taker:
        is_any = _receive(session, taker, limit, seconds, release=release, raw=raw, a_line=False)
    stops.leave()
    if not is_any:
        _note_why(session, source, is_over=True)


def _open(session: Session, name: str, *, may_come: bool) -> duly.Queue | duly.Group:
    """Find a queue, which may come into being while it is waited for."""
    try:
        return session.inbox(name)
    except NotFound as error:
        if not may_come or "/" in name or name in session.app.topics():
            raise
        session.note(f"{error}. Waiting for it")
        return session.app.queue(name)


def _note_why(session: Session, source: duly.Queue | duly.Group, *, is_over: bool) -> None:
    """Say why there is nothing, where there is something: it could be taken for lost."""
    with suppress(ServerError):  # a consumer may lack the right to look
        stats = source.stats()
        if stats.paused:
            session.note(f"{source.label} is paused by {stats.paused}: `duly resume {source.label}`")
        elif is_over and stats.live and not stats.ready:
            session.note(f"nothing is ready in {source.label}: {_waiting(stats)}")


def _waiting(stats: duly.Stats) -> str:
    delayed = f"{stats.delayed:,} delayed"
    if stats.next_due_in is not None:
        delayed += f" (next in {span(stats.next_due_in)})"
    parts = {
        delayed: stats.delayed,
        f"{stats.leased:,} leased": stats.leased,
        f"{stats.parked:,} behind others of their keys": stats.parked,
    }
    return ", ".join(text for text, count in parts.items() if count)


def _receive(
    session: Session, taker: Taker, limit: int, wait: float, *, release: bool, raw: bool, a_line: bool
) -> bool:
    """Print first, ack then, in one call. What somebody's stop or a full disk kept from being printed goes back.

    A stop interrupts nothing but the printing. True: there was something.
    """
    deliveries = taker.take(limit, wait)
    printed = 0
    try:
        with taker.stops.at_once(interrupt):
            for count in _print(session, deliveries, raw=raw, a_line=a_line):
                printed = count
    finally:
        _settle(session, taker, deliveries, printed, release=release)
    return bool(deliveries)


def _settle(
    session: Session, taker: Taker, deliveries: list[duly.AsyncDelivery], printed: int, *, release: bool
) -> None:
    done = [] if release else deliveries[:printed]
    try:
        if lost := taker.ack(done):
            session.note(f"the lease of {', '.join(each.id for each in lost)} was lost: will be delivered again")
    finally:
        taker.release(deliveries[len(done) :])


def _print(session: Session, deliveries: list[duly.AsyncDelivery], *, raw: bool, a_line: bool) -> Iterator[int]:
    """Print, and tell after each message how many have left this process."""
    if session.as_json and not a_line:
        output.print_json({"messages": [_to_fields(each) for each in deliveries]})
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


def _to_fields(delivery: duly.AsyncDelivery) -> dict[str, Any]:
    names = ("id", "queue", "headers", "key", "priority", "attempt", "deliveries", "sent_at", "due_at")
    return {"body": output.body_of(delivery), **{name: getattr(delivery, name) for name in names}}
