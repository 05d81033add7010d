"""Settling deliveries together: those that are settled in the same way are one call, all of them or none.

Most verbs are one way. A retry is two, for it is the end of those that have no attempt left; and so is an ack, for
those that were sent with repeat come back. A call that the server refuses, as one with a damaged lease, is parted: then
each is a call of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from duly import AsyncDelivery
from duly._core import codec, ops, outcome_rules, results
from duly._core.call import Call
from duly.errors import CodecError, DulyError, ServerError, Unavailable
from duly.options import checked_positive_seconds, checked_seconds
from duly.web.names import Inbox
from duly.web.problems import Refused, status_of

_LOG: Final = logging.getLogger("duly")
_MOST_BYTES: Final = 4 * 1024 * 1024
"""What one call brings to the server, which does nothing else meanwhile. A body may be the same for a thousand."""
_MOST_NAMED: Final = 20
"""Messages that one sentence names."""
KEPT: Final = object()
"""Stands for the body that a message has."""

Deliveries = Sequence[AsyncDelivery]


class Step(NamedTuple):
    """Deliveries that are settled in the same way."""

    call: Callable[[list[Any]], Call[list[int]]]
    rows: list[Any]
    """Of each, itself and what the script is told of it."""
    dead: Callable[[Any], str] | None = None
    """Says why a row is a dead letter from now on, for the log."""


def acks(inbox: Inbox, deliveries: Deliveries, result: Any = None) -> list[Step]:
    """Finish them; those with repeat come back. A result is kept if the queue keeps any."""
    keys, options = inbox._keys, inbox.options
    repeating = [(each, delay, b"") for each in deliveries if (delay := each._repeat_delay()) is not None]
    coming_back = {row[0] for row in repeating}
    ending = [each for each in deliveries if each not in coming_back]
    packed = "" if result is None or options.done is None else results.packed_result(result, options.max_message_bytes)
    if why := results.refusal_of(packed):
        _LOG.warning("the result of %d messages of %s is not kept: %s", len(ending), inbox.title, why)
    if packed:
        finish = Step(lambda rows: ops.finish(keys, options, rows), [(each, packed) for each in ending])
    else:
        finish = Step(lambda rows: ops.ack(keys, options, [row[0] for row in rows]), [(each,) for each in ending])
    return [finish, Step(lambda rows: ops.recycle(keys, rows), repeating)]


def retries(inbox: Inbox, deliveries: Deliveries, delay: float | None, error: str | None) -> list[Step]:
    """Count a failure: back after the delay, by default the policy's; dead when no attempt is left."""
    keys, options, text = inbox._keys, inbox.options, outcome_rules.described(error)
    seconds = None if delay is None else checked_seconds(delay, "delay")
    rows: dict[str, list[Any]] = {"retry": [], "dead": []}
    for each in deliveries:
        fate, value = outcome_rules.after_failure(each._retry_policy(), each.attempt, seconds)
        rows[fate].append((each, value, *text))
    return [
        Step(lambda rows: ops.retry(keys, rows), rows["retry"]),
        Step(lambda rows: ops.reject(keys, options, rows, failed=True), rows["dead"], _why_failed),
    ]


def _why_failed(row: Any) -> str:
    _, reason, text, _ = row
    return f"{reason}: {text}" if text else str(reason)


def defers(inbox: Inbox, deliveries: Deliveries, delay: float, reason: str) -> list[Step]:
    """Have them come back later; no attempt is spent."""
    told = (checked_seconds(delay, "delay"), outcome_rules.storable(reason))
    return [Step(lambda rows: ops.defer(inbox._keys, rows), [(each, *told) for each in deliveries])]


def rejects(inbox: Inbox, deliveries: Deliveries, reason: str) -> list[Step]:
    """Make them dead, now."""
    keys, options = inbox._keys, inbox.options
    rows = [(each, outcome_rules.storable(reason), "", "") for each in deliveries]
    return [Step(lambda rows: ops.reject(keys, options, rows), rows, lambda _: f"rejected: {reason}")]


def releases(inbox: Inbox, deliveries: Deliveries) -> list[Step]:
    """Give them back at once, to their places."""
    return [Step(lambda rows: ops.release(inbox._keys, [row[0] for row in rows]), [(each,) for each in deliveries])]


def extensions(inbox: Inbox, deliveries: Deliveries, seconds: float) -> list[Step]:
    """Let their leases end so many seconds from now."""
    lease = checked_positive_seconds(seconds, "seconds")
    return [Step(lambda rows: ops.extend(inbox._keys, rows), [(each, lease) for each in deliveries])]


def recycles(inbox: Inbox, deliveries: Deliveries, delay: float, body: Any = KEPT) -> list[Step]:
    """Finish them and put them back as new, with another body if one is given.

    It is encoded and checked once. What is stored of each is written when its call is made: a body may be large, and
    the same for a thousand.
    """
    keys, seconds = inbox._keys, checked_seconds(delay, "delay")
    if body is KEPT:
        return [Step(lambda rows: ops.recycle(keys, rows), [(each, seconds, b"") for each in deliveries])]
    content, raw = inbox._encoder.body(body)
    for each in deliveries:
        _check_readable(inbox, each)

    def call(rows: list[Any]) -> Call[list[int]]:
        return ops.recycle(keys, [(each, seconds, _with_body(record, content, raw)) for each, record, _ in rows])

    return [Step(call, [(each, each._record, raw) for each in deliveries])]


def _check_readable(inbox: Inbox, delivery: AsyncDelivery) -> None:
    try:
        codec.read_record(delivery._record)
    except CodecError:
        raise CodecError(
            f"message {delivery.id} of {inbox.title} is damaged: what is to stay of it beside its body cannot be read. "
            "Reject it, or send a new one and ack this"
        ) from None


def _with_body(record: bytes, content: int, raw: bytes) -> bytes:
    """Write what is stored of a message anew, with another body that is encoded already."""
    old = codec.read_record(record)
    envelope = codec.Envelope(content, raw, old.envelope.headers, old.envelope.retry, old.envelope.repeat)
    return codec.rewritten_part(old, envelope)


class _Course:
    """What became of the rows so far."""

    def __init__(self, inbox: Inbox, count: int) -> None:
        self._inbox = inbox
        self._count = count
        self.settled = 0
        self.lost: list[AsyncDelivery] = []
        self.refused: list[AsyncDelivery] = []
        self._why: ServerError | None = None

    async def carry(self, step: Step, rows: list[Any]) -> None:
        """Settle rows together. If the server refuses that, one by one: what is damaged spoils itself alone."""
        try:
            positions = await self._inbox._link.run(step.call(rows))
        except Unavailable:
            raise
        except ServerError as error:
            if len(rows) == 1:
                self._why = error
                self.refused.append(rows[0][0])
            else:
                for row in rows:
                    await self.carry(step, [row])
        else:
            self._note(step, rows, positions)

    def _note(self, step: Step, rows: list[Any], positions: Sequence[int]) -> None:
        for position, row in enumerate(rows):
            if position in positions:
                self.lost.append(row[0])
                continue
            self.settled += 1
            if step.dead is not None:
                row[0]._log_dead(step.dead(row))

    def ended_by(self, error: DulyError) -> DulyError:
        """Say it when a part was done before: whoever repeats the call finds that part lost, and need not wonder."""
        done = self.settled + len(self.lost)
        if not done:
            return error
        told = (
            f"{error}. Of {self._count} receipts {done} were dealt with before: repeat the call, they are told as lost"
        )
        return Refused(status_of(error), told, getattr(error, "headers", None))

    def check(self) -> None:
        """Say which messages the server refused to settle, if there are any."""
        if self._why is None:
            return
        names = ", ".join(each.id for each in self.refused[:_MOST_NAMED])
        more = len(self.refused) - _MOST_NAMED
        raise Refused(
            status_of(self._why),
            f"of {self._count} messages {self.settled} were settled and {len(self.lost)} lost; the server refused "
            f"{names}{f' and {more} more' if more > 0 else ''}: {self._why}",
        ) from self._why


async def carried_out(inbox: Inbox, steps: Sequence[Step]) -> list[AsyncDelivery]:
    """Settle, and give those whose leases were lost. After the first call that is not answered there is no other."""
    course = _Course(inbox, sum(len(each.rows) for each in steps))
    for step, rows in _calls(steps):
        try:
            await course.carry(step, rows)
        except DulyError as error:
            raise course.ended_by(error) from error
    course.check()
    return course.lost


def _calls(steps: Sequence[Step]) -> Iterator[tuple[Step, list[Any]]]:
    """Part the rows of each step so that no call is too large."""
    for step in steps:
        rows, size = list[Any](), 0
        for row in step.rows:
            added = sum(len(part) for part in row[1:] if isinstance(part, str | bytes))
            if rows and size + added > _MOST_BYTES:
                yield step, rows
                rows, size = [], 0
            rows.append(row)
            size += added
        if rows:
            yield step, rows
