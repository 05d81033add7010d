"""Make the calls that settle deliveries, for holders, handlers and HTTP clients.

Most verbs have one way. A retry has two: a message without attempts left becomes dead. An ack has three: a message with
`repeat` is stored again, and another script stores results. A defer over its limit is a reject.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from duly._core import codec, ops
from duly._core.call import Call
from duly._core.keys import QueueKeys
from duly._core.outcome_rules import (
    Decision,
    after_defer,
    after_failure,
    after_failure_at_any_rate,
    described,
    storable,
)
from duly._core.resp import Arg
from duly._core.verbs import VERBS
from duly.options import MAX_BATCH, QueueOptions, Retry, checked_positive_seconds, checked_seconds


class Held(ops.Held, Protocol):
    """A delivery, with the values that decide how it is settled."""

    @property
    def queue(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def defers(self) -> int: ...
    def _repeat_delay(self) -> float | None: ...
    def _retry_policy(self) -> Retry: ...


Row = tuple[Any, ...]
"""A delivery, and its arguments of the script."""


@dataclass(frozen=True, eq=False, slots=True)
class Way:
    """One way to settle. It is compared by identity, so that grouping rows by it is fast."""

    verb: str
    """The verb that the delivery remembers: the same verb again is a success."""
    call: Callable[[QueueKeys, QueueOptions, Sequence[Any]], Call[list[int]]]
    """Makes the call for rows. The reply is the positions of those whose lease was lost."""
    logged: str = ""
    """The word for it in a worker's log, if it is not the verb."""
    reason: Callable[[Row], str] | None = None
    """Returns why a message is dead; None: this way does not make it dead."""


def _why_failed(row: Row) -> str:
    _, reason, text, _ = row
    return f"{reason}: {text}" if text else str(reason)


ACK: Final = Way("ack", lambda keys, options, rows: ops.ack(keys, options, [row[0] for row in rows]))
FINISH: Final = Way("ack", ops.finish)
REPEAT: Final = Way("ack", lambda keys, _, rows: ops.recycle(keys, rows))
RETRY: Final = Way("retry", lambda keys, _, rows: ops.retry(keys, rows))
FAIL: Final = Way(
    "retry", lambda keys, options, rows: ops.reject(keys, options, rows, failed=True), "dead", _why_failed
)
REJECT: Final = Way("reject", ops.reject, reason=lambda row: f"rejected: {row[1]}")
RECYCLE: Final = Way("recycle", lambda keys, _, rows: ops.recycle(keys, rows))
DEFER: Final = Way("defer", lambda keys, _, rows: ops.defer(keys, rows))
RELEASE: Final = Way("release", lambda keys, _, rows: ops.release(keys, [row[0] for row in rows]))
EXTEND: Final = Way("extend", lambda keys, _, rows: ops.extend(keys, rows))


class Step(NamedTuple):
    """Deliveries that are settled in the same way, in one call."""

    way: Way
    rows: Sequence[Row]

    @property
    def deliveries(self) -> list[Any]:
        """The deliveries of the rows."""
        return [row[0] for row in self.rows]

    def call(self, keys: QueueKeys, options: QueueOptions) -> Call[list[int]]:
        """Make the call."""
        return self.way.call(keys, options, self.rows)


def bounded(steps: Iterable[Step]) -> list[Step]:
    """Split steps that have more rows than a call may have, and drop empty ones."""
    return [
        Step(way, rows[first : first + MAX_BATCH]) for way, rows in steps for first in range(0, len(rows), MAX_BATCH)
    ]


def acked(deliveries: Iterable[Held], result: str = "") -> list[Step]:
    """Finish messages, with their handler's packed result. Those that were sent with `repeat` are stored again."""
    ending, repeating = list[Row](), list[Row]()
    for each in deliveries:
        delay = each._repeat_delay()
        if delay is not None:
            repeating.append((each, delay, b""))
        else:
            ending.append((each, result) if result else (each,))
    return [Step(FINISH if result else ACK, ending), Step(REPEAT, repeating)]


def retried(deliveries: Iterable[Held], delay: Any, error: BaseException | str | None) -> list[Step]:
    """Count a failure. Retry after the delay, by default the policy's; make it dead if no attempt is left."""
    seconds, text = None if delay is None else checked_seconds(delay, "delay"), described(error)
    rows: dict[str, list[Row]] = {"retry": [], "dead": []}
    for each in deliveries:
        fate, value = after_failure(each._retry_policy(), each.attempt, seconds)
        rows[fate].append((each, value, *text))
    return [Step(RETRY, rows["retry"]), Step(FAIL, rows["dead"])]


def deferred(deliveries: Iterable[Held], delay: Any, reason: Any) -> list[Step]:
    """Redeliver messages later. This uses up no attempt."""
    arguments = (checked_seconds(delay, "delay"), storable(str(reason)))
    return [Step(DEFER, [(each, *arguments) for each in deliveries])]


def recycled(deliveries: Iterable[Held], delay: Any, part: codec.Part = b"") -> list[Step]:
    """Finish messages and store them again as new; without a part they keep their bodies."""
    seconds = checked_seconds(delay, "delay")
    return [Step(RECYCLE, [(each, seconds, part) for each in deliveries])]


def rejected(deliveries: Iterable[Held], reason: Any) -> list[Step]:
    """Make messages dead at once."""
    arguments = (storable(str(reason)), "", "")
    return [Step(REJECT, [(each, *arguments) for each in deliveries])]


def released(deliveries: Iterable[Held]) -> list[Step]:
    """Return messages at once to their places in the queue."""
    return [Step(RELEASE, [(each,) for each in deliveries])]


def extended(deliveries: Iterable[Held], seconds: Any) -> list[Step]:
    """Let leases end `seconds` from now."""
    lease = checked_positive_seconds(seconds, "seconds")
    return [Step(EXTEND, [(each, lease) for each in deliveries])]


def alike(verb: str, deliveries: Iterable[Held], *rest: Arg | float) -> list[Step]:
    """Make the step of a verb with one way and one script, with the same arguments for each delivery."""
    (script,) = VERBS[verb].scripts
    way = Way(verb, lambda keys, _, rows: ops.of_rows(script, keys, rows))
    given = [repr(each) if isinstance(each, float) else each for each in rest]
    return [Step(way, [(each, *given) for each in deliveries])]


class ChosenWay(NamedTuple):
    """The way to settle a delivery by a decision."""

    way: Way
    row: Row
    flaws: Sequence[str] = ()
    """Errors in the user's own outcome or policy: lines for the log."""


def choose_way(delivery: Held, decision: Decision) -> ChosenWay:
    """Choose how to settle by a decision: one rule for `with d:` and for workers."""
    return _WAYS[decision.verb](delivery, decision)


def _acked(delivery: Held, decision: Decision) -> ChosenWay:
    delay = delivery._repeat_delay()
    return (
        ChosenWay(FINISH, (delivery, decision.result)) if delay is None else ChosenWay(REPEAT, (delivery, delay, b""))
    )


def _retried(delivery: Held, decision: Decision) -> ChosenWay:
    policy, attempt, error = delivery._retry_policy(), delivery.attempt, decision.error
    (fate, value), flaw = after_failure_at_any_rate(delivery.queue, policy, attempt, decision.delay, error)
    flaws = [line for line in (decision.flaw, flaw) if line]
    return ChosenWay(RETRY if fate == "retry" else FAIL, (delivery, value, *described(error)), flaws)


def _deferred(delivery: Held, decision: Decision) -> ChosenWay:
    assert decision.delay is not None
    fate, value = after_defer(decision.delay, decision.policy, delivery.defers)
    if fate == "reject":
        return ChosenWay(REJECT, (delivery, value, "", ""))
    return ChosenWay(DEFER, (delivery, value, storable(decision.policy.reason)))


_WAYS: Final[Mapping[str, Callable[[Held, Decision], ChosenWay]]] = {
    "ack": _acked,
    "retry": _retried,
    "defer": _deferred,
    "recycle": lambda delivery, decision: ChosenWay(RECYCLE, (delivery, decision.delay, b"")),
    "reject": lambda delivery, decision: ChosenWay(
        REJECT, (delivery, storable(decision.reason), *described(decision.error))
    ),
    "release": lambda delivery, _: ChosenWay(RELEASE, (delivery,)),
}
