"""`duly send`: a message, or with --lines many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

import duly
from duly.cli import values
from duly.cli.parameters import AsBytes, AsText, At, Body, Dedup, DedupFor, Delay, Headers, Key, Lines, Queue
from duly.cli.session import Session
from duly.cli.stop_signals import StopSignals, interrupt
from duly.errors import NotDurable, QueueFull, Unavailable, UsageError

_MESSAGES_PER_BATCH: Final = 1000

_Lines = list[tuple[int, duly.Send]]
"""Messages with their line numbers."""

Spread = Annotated[
    str | None,
    typer.Option("--spread", metavar="DURATION", help="Due at a random moment within this long after its time."),
]
Priority = Annotated[int, typer.Option("--priority", metavar="N", help="0 to 9, higher first.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="With --dedup: replace the body of a message that is still waiting.")
]
Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="DURATION", help="Expires this long after it is due, if it is still waiting."),
]
OwnId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Your own id; a message with an id that exists is not stored again."),
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
    spread: Spread = None,
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
        "spread": values.optional_duration(spread, "--spread"),
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
        batches = values.bodies_by_line(body, _MESSAGES_PER_BATCH, as_text=text, as_bytes=as_bytes)
        messages = ([(number, duly.Send(each, **options)) for number, each in batch] for batch in batches)
        _send_lines(session, session.target(queue), messages, _durable(durable))
        return
    given = values.body(body, as_text=text, as_bytes=as_bytes)
    send_one(session, session.target(queue), given, {**options, "id": own_id}, _durable(durable))


def send_one(session: Session, queue: duly.Queue, body: Any, options: dict[str, Any], durable: Any = None) -> None:
    """Send a message. A stop waits for the reply, so that a stored message is not sent again."""
    # Chosen here, so that it can be printed if there is no reply.
    id_ = options["id"] = session.app._new_id() if options["id"] is None else options["id"]
    unconfirmed: NotDurable | None = None
    with StopSignals(session.app) as stops:
        try:
            stored = queue.send(body, durable=durable, **options)
        except NotDurable as error:
            (stored,), unconfirmed = error.ids, error
        except Unavailable:
            stops.note(
                session,
                f"unknown whether {id_} is stored: `duly show {queue.name} {id_}` shows it. To send it again without "
                f"storing it twice, use --id {id_}",
            )
            raise
        notice = f"{stored} is stored in {queue.name}"
        shown = {"queue": queue.name, "id": stored} | ({} if durable is None else {"durable": stored.durable})
        stops.show_stored(session, shown, stored, notice)
    if unconfirmed is not None:
        raise unconfirmed
    stops.exit_if_stopped()


def _send_lines(session: Session, queue: duly.Queue, batches: Iterator[_Lines], durable: Any) -> None:
    """Send batch by batch. A stop interrupts only the wait for more lines, and the progress is printed."""
    with StopSignals(session.app) as stops, suppress(KeyboardInterrupt):
        sending = _Sending(session, queue, durable, stops)
        try:
            with session.progress("sending", None) as progress:
                for batch in _until(stops, batches):
                    sending.send(batch)
                    progress(len(sending.ids))
        except BaseException as error:
            sending.note_end(error)
            raise
        notice = f"{len(sending.ids):,} sent to {queue.name}"
        stops.show_stored(session, {"queue": queue.name, "count": len(sending.ids), "ids": sending.ids}, notice, notice)
    stops.exit_if_stopped()


def _until(stops: StopSignals, batches: Iterator[_Lines]) -> Iterator[_Lines]:
    while True:
        with stops.on_stop(interrupt):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


class _Sending:
    """The progress of --lines."""

    def __init__(self, session: Session, queue: duly.Queue, durable: Any, stops: StopSignals) -> None:
        self.ids: list[str] = []
        self._last_line = 0
        self._session = session
        self._queue = queue
        self._durable = durable
        self._stops = stops

    def send(self, batch: _Lines) -> None:
        try:
            self._count(batch, self._queue.send_many([message for _, message in batch], durable=self._durable))
        except NotDurable as error:
            self._count(batch, error.ids)
            raise
        except QueueFull as error:
            self._count(batch, error.stored)
            raise
        except Unavailable:
            lines = f"lines {batch[0][0]} to {batch[-1][0]}"
            self._stops.note(self._session, f"unknown whether {lines} are stored in {self._queue.name}")
            raise

    def _count(self, batch: _Lines, ids: Sequence[str]) -> None:
        """Count the stored messages of a batch. If not all were stored, they are the first ones."""
        if ids:
            self.ids += ids
            self._last_line = batch[len(ids) - 1][0]

    def note_end(self, error: BaseException) -> None:
        """Print the last line that was sent. It differs from the number of messages, since empty lines are skipped."""
        if self.ids:
            end = "was stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            sent = f"{len(self.ids):,} were sent to {self._queue.name} before it {end}"
            self._stops.note(self._session, f"{sent}: all up to line {self._last_line}")


_DIGITS: Final = 9
"""Digits of a number of replicas. Longer numbers are invalid, and Python refuses to parse thousands of digits."""


def _durable(level: str | None) -> Any:
    if level is None or not level.isdecimal() or len(level) > _DIGITS:
        return level  # the library refuses unknown levels
    return int(level)
