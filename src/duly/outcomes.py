"""How a handler ends a message other than by returning or failing."""

from dataclasses import dataclass

from duly.options import Seconds, checked_seconds


class Outcome(Exception):
    """Raised in a handler or inside `with d:`, it settles the message so, and goes no further."""


class Defer(Outcome):
    """Not now: the message comes back after `delay` seconds, and no attempt is spent."""

    def __init__(self, delay: Seconds) -> None:
        self.delay = checked_seconds(delay, "Defer.delay")
        super().__init__(f"come back in {self.delay:g} s")


class RetryIn(Outcome):
    """Failed: the message comes back after `delay` seconds, and an attempt is spent."""

    def __init__(self, delay: Seconds) -> None:
        self.delay = checked_seconds(delay, "RetryIn.delay")
        super().__init__(f"try again in {self.delay:g} s")


class Reject(Outcome):
    """Hopeless: the message is dead, now."""

    def __init__(self, reason: str) -> None:
        self.reason = str(reason)
        super().__init__(self.reason)


@dataclass(frozen=True)
class Recycle:
    """Returned by a handler: finished, and back in the queue as new after `delay` seconds."""

    delay: Seconds = 0

    def __post_init__(self) -> None:
        checked_seconds(self.delay, "Recycle.delay")
