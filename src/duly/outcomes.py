"""Outcomes that a handler can choose besides success and failure."""

import math
from dataclasses import dataclass
from typing import Literal, Self

from duly.options import Seconds, Wait, checked_count, checked_number, checked_seconds


class Outcome(Exception):
    """The base class of outcomes. Raised in a handler or inside `with d:`, it settles the message and is caught."""


class Defer(Outcome):
    """Deliver the message again after `delay` seconds, without using an attempt (snooze).

    A message that was deferred n times before waits `delay * factor**n` seconds. `max` limits the result of the
    multiplication. With `limit`, a message that was already deferred `limit` times is dead instead.
    `reason` is for people and appears in the timeline.
    """

    # For subclasses that do not call __init__.
    factor: float = 1.0
    max: float = 3600.0
    limit: int | None = None
    reason: str = ""
    """The reason, which explain() and the timeline show. It is also the reason of a message deferred too often."""

    def __init__(
        self,
        delay: Seconds,
        *,
        factor: float = 1.0,
        max: Seconds = 3600.0,  # noqa: A002
        limit: int | None = None,
        reason: str = "",
    ) -> None:
        self.delay: float = checked_seconds(delay, "Defer.delay")
        checked_number(factor, "Defer.factor", most=math.inf)
        self.factor = factor
        self.max = checked_seconds(max, "Defer.max")
        self.limit = None if limit is None else checked_count(limit, "Defer.limit")
        self.reason = str(reason)
        super().__init__(f"redeliver in {self.delay:g} s")

    def because(self, reason: str) -> Self:
        """Return a copy with a reason. An exception that is raised twice would collect tracebacks, so it is copied."""
        again = type(self).__new__(type(self), *self.args)
        again.__dict__.update(self.__dict__)
        again.args, again.reason = self.args, reason
        return again


class RetryIn(Outcome):
    """Count a failed attempt, and retry the message after `delay` seconds."""

    def __init__(self, delay: Seconds) -> None:
        self.delay: float = checked_seconds(delay, "RetryIn.delay")
        super().__init__(f"retry in {self.delay:g} s")


class Reject(Outcome):
    """Make the message dead at once, without further attempts."""

    def __init__(self, reason: str) -> None:
        self.reason: str = str(reason)
        super().__init__(self.reason)


@dataclass(frozen=True)
class Recycle:
    """Returned by a handler: ack the message and enqueue it again as new, due after `delay` seconds, in one step."""

    delay: Seconds = 0

    def __post_init__(self) -> None:
        checked_seconds(self.delay, "Recycle.delay")


OnBusy = Literal["raise"] | Wait | Defer
"""The reaction to a lock that another holder has: raise LockBusy, wait for the lock, or defer the message."""
