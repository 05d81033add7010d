"""Settling deliveries together: those that are settled in the same way are one call, all of them or none.

Most verbs are one way. A retry is two, for it is the end of those that have no attempt left; and so is an ack, for
those that were sent with repeat come back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from duly import AsyncDelivery
from duly._core import ops, outcome_rules, results
from duly._core.call import Call
from duly.errors import CodecError, DulyError
from duly.options import checked_positive_seconds, checked_seconds
from duly.web.names import Inbox
from duly.web.problems import Refused, status_of

_LOG: Final = logging.getLogger("duly")
_MOST_BYTES: Final = 4 * 1024 * 1024
"""What one call brings to the server, which does nothing else meanwhile. A body may be the same for a thousand."""

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


def recycles(
    inbox: Inbox, deliveries: Deliveries, delay: float, part_of: Callable[[AsyncDelivery], bytes]
) -> list[Step]:
    """Finish them and put them back as new, with another part of the record, unless that is empty."""
    seconds = checked_seconds(delay, "delay")
    rows = [(each, seconds, part_of(each)) for each in deliveries]
    return [Step(lambda rows: ops.recycle(inbox._keys, rows), rows)]


def with_body(inbox: Inbox, delivery: AsyncDelivery, body: Any) -> bytes:
    """Write what is stored of a message anew, with another body."""
    try:
        return inbox._encoder.with_body(delivery._record, body)
    except CodecError:
        raise CodecError(
            f"message {delivery.id} of {inbox.title} is damaged: what is to stay of it beside its body cannot be read. "
            "Reject it, or send a new one and ack this"
        ) from None


async def carried_out(inbox: Inbox, steps: Sequence[Step]) -> list[AsyncDelivery]:
    """Settle, and give those whose leases were lost. After the first call that fails there is no other."""
    done, lost = 0, list[AsyncDelivery]()
    for step, rows in _calls(steps):
        try:
            positions = await inbox._link.run(step.call(rows))
        except DulyError as error:
            raise _told_of(error, done, sum(len(each.rows) for each in steps)) from error
        done += len(rows)
        for position, row in enumerate(rows):
            if position in positions:
                lost.append(row[0])
            elif step.dead is not None:
                row[0]._log_dead(step.dead(row))
    return lost


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


def _told_of(error: DulyError, done: int, count: int) -> DulyError:
    """Say it when a part was done before: whoever repeats the call finds that part lost, and need not wonder."""
    if not done:
        return error
    told = f"{error}. Of {count} receipts {done} were dealt with before: repeat the call, they are told as lost"
    return Refused(status_of(error), told, getattr(error, "headers", None))
