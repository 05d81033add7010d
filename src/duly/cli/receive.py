"""`duly receive`: receives messages, prints them, and acks the printed ones."""

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
from duly.cli.receiver import Receiver
from duly.cli.session import NotFound, Session
from duly.cli.stdio import writing
from duly.cli.stop_signals import StopSignals, interrupt, long_running
from duly.errors import ServerError, UsageError

_ROUND_SECONDS: Final = 20.0
"""Seconds that each receive of --follow waits."""

Wait = Annotated[str, typer.Option("--wait", metavar="DURATION", help="How long to wait for the first message.")]
Release = Annotated[bool, typer.Option("--release", help="Release the messages instead of acking them.")]
Follow = Annotated[bool, typer.Option("--follow", help="Continue until Ctrl-C; with --json one object per line.")]
Raw = Annotated[bool, typer.Option("--raw", help="Print only the bodies, as they are stored.")]


def receive(
    session: Session,
    queue: Inbox,
    limit: Limit = 1,
    wait: Wait = "0s",
    release: Release = False,
    follow: Follow = False,
    raw: Raw = False,
) -> None:
    """Receive messages, print them, and ack those that were printed.

    After a stop, printed messages are acked and the others released.
    Without a message there is no output. To read messages without receiving them, use `duly list`.

    Example: duly receive orders --limit 10 --wait 5s
    """
    if release and follow:
        raise UsageError("--release and --follow: released messages would be received again at once, forever")
    if raw and session.as_json:
        raise UsageError("--raw and --json: bodies are printed unchanged, or as JSON")
    seconds = values.duration(wait, "--wait")
    session.starts_server = may_appear = follow or seconds > 0
    source = _open(session, queue, may_appear=may_appear)
    if follow:
        _explain_no_message(session, source, is_final=False)
        with long_running(session.app, session.app.aio) as stops, Receiver(source, stops) as receiver:
            while stops.signal is None:
                _receive(session, receiver, limit, _ROUND_SECONDS, release=False, raw=raw, one_line=True)
        return
    stops, is_any = StopSignals(session.app, session.app.aio), False
    with stops, suppress(KeyboardInterrupt), Receiver(source, stops) as receiver:
        is_any = _receive(session, receiver, limit, seconds, release=release, raw=raw, one_line=False)
    stops.exit_if_stopped()
    if not is_any:
        _explain_no_message(session, source, is_final=True)


def _open(session: Session, name: str, *, may_appear: bool) -> duly.Queue | duly.Group:
    """Open a queue or group. With `may_appear`, a queue need not exist yet."""
    try:
        return session.inbox(name)
    except NotFound as error:
        if not may_appear or "/" in name or name in session.survey().topics():
            raise
        session.note(f"{error}. Waiting for it")
        return session.app.queue(name)


def _explain_no_message(session: Session, source: duly.Queue | duly.Group, *, is_final: bool) -> None:
    """Print why no message is received although the queue has some."""
    with suppress(ServerError):  # a consumer may lack permission for stats
        stats = source.stats()
        if stats.paused:
            session.note(f"{source.label} is paused by {stats.paused}: `duly resume {source.label}`")
        elif is_final and stats.live and not stats.ready:
            session.note(f"nothing is ready in {source.label}: {_waiting(stats)}")


def _waiting(stats: duly.Stats) -> str:
    delayed = f"{stats.delayed:,} delayed"
    if stats.next_due_in is not None:
        delayed += f" (next in {span(stats.next_due_in)})"
    parts = {
        delayed: stats.delayed,
        f"{stats.leased:,} leased": stats.leased,
        f"{stats.parked:,} parked behind others of their keys": stats.parked,
    }
    return ", ".join(text for text, count in parts.items() if count)


def _receive(
    session: Session, receiver: Receiver, limit: int, wait: float, *, release: bool, raw: bool, one_line: bool
) -> bool:
    """Print first, then ack in one call. Messages that were not printed, after a stop or an error, are released.

    A stop interrupts only the printing. Returns whether there were messages.
    """
    deliveries = receiver.receive(limit, wait)
    printed = 0
    try:
        with receiver.stops.on_stop(interrupt):
            for count in _print(session, deliveries, raw=raw, one_line=one_line):
                printed = count
    finally:
        _settle(session, receiver, deliveries, printed, release=release)
    return bool(deliveries)


def _settle(
    session: Session, receiver: Receiver, deliveries: list[duly.AsyncDelivery], printed: int, *, release: bool
) -> None:
    done = [] if release else deliveries[:printed]
    try:
        if lost := receiver.ack(done):
            session.note(f"the lease of {', '.join(each.id for each in lost)} was lost: it will be redelivered")
    finally:
        receiver.release(deliveries[len(done) :])


def _print(session: Session, deliveries: list[duly.AsyncDelivery], *, raw: bool, one_line: bool) -> Iterator[int]:
    """Print messages. Yields the number that was printed, after each."""
    if session.as_json and not one_line:
        output.print_json({"messages": [_to_fields(each) for each in deliveries]})
        yield len(deliveries)
        return
    for count, each in enumerate(deliveries, 1):
        if raw:
            with writing():
                sys.stdout.buffer.write(each.raw + b"\n")
                sys.stdout.buffer.flush()
        elif session.as_json:
            output.print_json(_to_fields(each), one_line=True)
        else:
            output.print_text(f"{output.visible(each.id)}  {output.whole_body(output.body_of(each))}")
        yield count


def _to_fields(delivery: duly.AsyncDelivery) -> dict[str, Any]:
    names = ("id", "queue", "headers", "key", "priority", "attempt", "deliveries", "sent_at", "due_at")
    return {"body": output.body_of(delivery), **{name: getattr(delivery, name) for name in names}}
