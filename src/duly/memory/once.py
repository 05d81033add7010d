"""once: effects that happen at most once. It does not touch a queue."""

from typing import Final, NamedTuple

from duly.memory.calls import Kept
from duly.memory.state import QueueState

_UNKNOWN: Final = -1
"""In place of the crash count: it is unknown whether the effect has happened."""


class _Noted(NamedTuple):
    """The delivery that may cause the effect."""

    message: tuple[bytes, ...]
    fence: int
    deliveries: int
    crashes: int
    redrives: int


class Once(QueueState):
    """The delivery that may cause an effect, and how long this is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: _Noted | None = None
        self.until_us: int = 0

    def allow(self) -> None:
        """Forget the delivery: the effect may happen again."""
        self.noted, self.until_us = None, 0


def once(effect: Once, args: list[bytes]) -> Kept:
    """Return whether a delivery may cause the effect, and store that it may."""
    asking = _Noted(tuple(args[:3]), *map(int, args[3:7]))
    noted = effect.noted if effect.until_us > effect.server_us else None
    if noted is None or (_is_later(noted, asking) and _was_returned(noted, asking)):
        effect.noted, effect.until_us = asking, effect.server_us + int(args[7])
        return Kept(1)
    if _is_later(noted, asking):
        effect.noted = noted._replace(crashes=_UNKNOWN)
    return Kept(0)


def _is_later(noted: _Noted, asking: _Noted) -> bool:
    """Return whether an earlier delivery of the same message has the permission."""
    return noted.message == asking.message and noted.fence < asking.fence


def _was_returned(noted: _Noted, asking: _Noted) -> bool:
    """Return whether the earlier holder returned the message alive: no lease expired since, and it was not redriven."""
    is_same_life = noted.crashes == asking.crashes and noted.redrives == asking.redrives
    return noted.deliveries < asking.deliveries and is_same_life
