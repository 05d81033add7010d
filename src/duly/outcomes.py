"""How a handler ends a message other than by returning or failing."""

import math
from dataclasses import dataclass
from typing import Literal, Self

from duly.options import Seconds, Wait, checked_count, checked_number, checked_seconds


class Outcome(Exception):
    """Raised in a handler or inside `with d:`, it settles the message so, and goes no further."""


class Defer(Outcome):
    """Not now: the message comes back after `delay` seconds, and no attempt is spent.

    When it was deferred n times before, it waits `delay * factor**n` seconds; `max` bounds what the factor
    makes of the delay. With `limit`, a message that was deferred so often already is dead instead.
    `reason` is for people: it is in the timeline.
    """

    # For subclasses that do not call __init__.
    factor: float = 1.0
    max: float = 3600.0
    limit: int | None = None
    reason: str = ""
    """What was in the way: explain() and the timeline say it, and the reason of a message deferred too often."""

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
        super().__init__(f"come back in {self.delay:g} s")

    def because(self, reason: str) -> Self:
        """Make the same outcome anew, with what was in the way: an error that is raised twice gathers tracebacks."""
        again = type(self).__new__(type(self), *self.args)
        again.__dict__.update(self.__dict__)
        again.args, again.reason = self.args, reason
        return again


class RetryIn(Outcome):
    """Failed: the message comes back after `delay` seconds, and an attempt is spent."""

    def __init__(self, delay: Seconds) -> None:
        self.delay: float = checked_seconds(delay, "RetryIn.delay")
        super().__init__(f"try again in {self.delay:g} s")


class Reject(Outcome):
    """Hopeless: the message is dead, now."""

    def __init__(self, reason: str) -> None:
        self.reason: str = str(reason)
        super().__init__(self.reason)


@dataclass(frozen=True)
class Recycle:
    """Returned by a handler: finished, and back in the queue as new after `delay` seconds."""

    delay: Seconds = 0

    def __post_init__(self) -> None:
        checked_seconds(self.delay, "Recycle.delay")


OnBusy = Literal["raise"] | Wait | Defer
"""What to do when somebody else has the lock: raise LockBusy, wait for it, or have the message come back later."""
