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
from duly.cli.stop_signals import Stops, interrupt
from duly.errors import NotDurable, QueueFull, Unavailable, UsageError

_A_BATCH: Final = 1000

_Lines = list[tuple[int, duly.Send]]
"""Messages, each with the number of its line."""

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
        messages = ([(number, duly.Send(each, **options)) for number, each in batch] for batch in batches)
        _send_lines(session, session.target(queue), messages, _durable(durable))
        return
    given = values.body(body, as_text=text, as_bytes=as_bytes)
    send_one(session, session.target(queue), given, {**options, "id": own_id}, _durable(durable))


def send_one(session: Session, queue: duly.Queue, body: Any, options: dict[str, Any], durable: Any = None) -> None:
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
            stops.note(
                session,
                f"if it is stored, it is {id_}: `duly show {queue.name} {id_}` tells, and with --id {id_} it can be "
                "sent again without being stored twice",
            )
            raise
        told = f"{stored} is stored in {queue.name}"
        stops.show_stored(session, {"queue": queue.name, "id": stored}, stored, told)
    if unconfirmed is not None:
        raise unconfirmed
    stops.leave()


def _send_lines(session: Session, queue: duly.Queue, batches: Iterator[_Lines], durable: Any) -> None:
    """Send a batch after the other. A stop cuts only the wait for more lines, and it is told how far it came."""
    with Stops(session.app) as stops, suppress(KeyboardInterrupt):
        sending = _Sending(session, queue, durable, stops)
        try:
            with session.progress("sending", None) as progress:
                for batch in _until(stops, batches):
                    sending.send(batch)
                    progress(len(sending.ids))
        except BaseException as error:
            sending.note_end(error)
            raise
        told = f"{len(sending.ids):,} sent to {queue.name}"
        stops.show_stored(session, {"queue": queue.name, "count": len(sending.ids), "ids": sending.ids}, told, told)
    stops.leave()


def _until(stops: Stops, batches: Iterator[_Lines]) -> Iterator[_Lines]:
    while True:
        with stops.at_once(interrupt):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


class _Sending:
    """How far many lines are stored."""

    def __init__(self, session: Session, queue: duly.Queue, durable: Any, stops: Stops) -> None:
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
            self._stops.note(self._session, f"whether {lines} are stored in {self._queue.name} is not known")
            raise

    def _count(self, batch: _Lines, ids: Sequence[str]) -> None:
        """Count what was stored of a batch: the first ones, where it is not all of it."""
        if ids:
            self.ids += ids
            self._last_line = batch[len(ids) - 1][0]

    def note_end(self, error: BaseException) -> None:
        """Say from which line on to send again. The number of messages does not tell: empty lines are none."""
        if self.ids:
            end = "was stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            sent = f"{len(self.ids):,} were sent to {self._queue.name} before it {end}"
            self._stops.note(self._session, f"{sent}: all up to line {self._last_line}")


_DIGITS: Final = 9
"""Of a number of replicas: with more it is none, and Python would not even read thousands of them."""


def _durable(level: str | None) -> Any:
    if level is None or not level.isdecimal() or len(level) > _DIGITS:
        return level  # the library refuses what it does not know
    return int(level)
