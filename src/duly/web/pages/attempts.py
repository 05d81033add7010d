"""The attempts at a message, from its timeline: how long it waited, ran and backed off. Drawn as bars. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from duly.message import Event, Message

WIDTH: Final = 240
HEIGHT: Final = 14
_MIN_WIDTH: Final = 2.0
"""A part that is too short to see is drawn with this width."""
_KEPT: Final = 20
"""The number of deliveries that a timeline has at most."""
_FAILED: Final = ("retry", "crash", "fail", "reject")
_BACK_OFF: Final = ("retry", "crash", "defer")
"""Ends of a delivery after which the message is delayed on purpose."""


@dataclass
class Attempt:
    """One delivery of a message."""

    number: int | None = None
    """None: it does not count as an attempt, or its number is unknown."""
    redrives: int = 0
    """The number of redrives before it."""
    claimed_at: datetime | None = None
    consumer: str | None = None
    outcome: str = ""
    detail: str = ""
    waiting: float | None = None
    """Seconds from the send, redrive or release to the claim."""
    running: float | None = None
    """Seconds from the claim to the end, or until now."""
    back_off: float | None = None
    """Seconds from the end to the next delivery: to its claim, or to its due time."""
    bars: list[Bar] = field(default_factory=list)


@dataclass(frozen=True)
class Bar:
    """A part of an attempt, in the units of its SVG."""

    style: str
    x: float
    width: float


def attempts_of(message: Message, now: datetime) -> list[Attempt]:
    """Return the deliveries of a message in order, and the current wait for the next. The timeline may be cut."""
    rows = _rows(message, now)
    _number(rows, message)
    longest = max((sum(_parts(each).values()) for each in rows), default=0.0)
    for each in rows:
        each.bars = _bars(each, longest)
    return rows


def _rows(message: Message, now: datetime) -> list[Attempt]:
    rows: list[Attempt] = []
    before: Event | None = None
    redrives = 0
    for event in message.timeline:
        if event.what == "claimed":
            rows.append(_begun(event, before, rows, redrives))
        elif event.what == "redrive":
            redrives += 1
        elif event.what != "sent" and rows:
            rows[-1].detail = event.detail
            if event.what != "progress":
                rows[-1].outcome, rows[-1].running = event.what, event.took
        before = event
    _finish(message, rows, before, now, redrives)
    return rows


def _begun(claim: Event, before: Event | None, rows: Sequence[Attempt], redrives: int) -> Attempt:
    row = Attempt(claimed_at=claim.at, consumer=claim.consumer, redrives=redrives)
    if before is not None:
        seconds = _seconds(before.at, claim.at)
        if before.what in _BACK_OFF and rows:
            rows[-1].back_off = seconds
        else:
            row.waiting = seconds
    return row


def _finish(message: Message, rows: list[Attempt], last: Event | None, now: datetime, redrives: int) -> None:
    """Add the present: the delivery that runs, or the wait for the next one."""
    if message.state == "leased" and rows and not rows[-1].outcome:
        rows[-1].outcome, rows[-1].running = "running", _seconds(rows[-1].claimed_at or now, now)
    elif message.state == "done" and rows and not rows[-1].outcome:
        rows[-1].outcome = "ack"
    elif message.state in ("ready", "delayed", "parked") and last is not None:
        if last.what in _BACK_OFF and rows:
            rows[-1].back_off = _seconds(last.at, max(message.due_at or now, last.at))
        else:
            rows.append(Attempt(outcome="waiting", waiting=_seconds(last.at, now), redrives=redrives))


def _number(rows: Sequence[Attempt], message: Message) -> None:
    """Number the attempts. A redrive resets the number.

    Attempts since the last redrive are counted backwards from the counts of the message, because the timeline begins
    late after many deliveries.
    """
    counted = [each for each in rows if each.outcome in (*_FAILED, "running", "ack")]
    newest = rows[-1].redrives if rows else 0
    number = message.failures + message.crashes + message.rejects
    number += any(each.outcome in ("running", "ack") for each in counted)
    for each in reversed([each for each in counted if each.redrives == newest]):
        each.number, number = (number if number > 0 else None), number - 1
    if len(rows) < _KEPT:
        numbers: Counter[int] = Counter()
        for each in (each for each in counted if each.redrives != newest):
            numbers[each.redrives] += 1
            each.number = numbers[each.redrives]


def _parts(row: Attempt) -> dict[str, float]:
    parts = {"waiting": row.waiting, "running": row.running, "backoff": row.back_off}
    return {name: seconds for name, seconds in parts.items() if seconds is not None}


def _bars(row: Attempt, longest: float) -> list[Bar]:
    """Draw the parts one after the other. All rows have the same scale."""
    bars, x = list[Bar](), 0.0
    for style, seconds in _parts(row).items():
        width = max(seconds / longest * (WIDTH - 3 * _MIN_WIDTH), _MIN_WIDTH) if longest else _MIN_WIDTH
        bars.append(Bar(style, round(x, 1), round(width, 1)))
        x += width
    return bars


def _seconds(begin: datetime, end: datetime) -> float:
    return max((end - begin).total_seconds(), 0.0)
