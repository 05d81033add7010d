"""A claim that the fetcher has chosen, until its messages are dispatched."""

import time
from typing import Final

from duly._core.ops import Suspects
from duly._core.topology import Node
from duly.worker.claim_behind import LIMIT, ClaimBehind
from duly.worker.node_work import SLOW_AFTER
from duly.worker.source import Source


class Claim:
    """A source, a limit, and when the server was asked. All times are of the monotonic clock."""

    __slots__ = ("asked_at", "behind", "calls", "is_woken", "limit", "node", "source", "suspects")

    def __init__(
        self, source: Source, limit: int, suspects: Suspects, calls: int, behind: ClaimBehind | None = None
    ) -> None:
        self.behind: Final = behind
        """The claim as it was sent behind a blocking call. None: it is yet to be sent."""
        self.source: Final = source
        self.node: Final[Node | None] = source.node
        """The node that is asked first. The slot may move before it answers."""
        self.limit: Final = limit
        self.suspects: Final = suspects
        self.calls: Final = calls
        """The most handler calls that its messages may need."""
        self.asked_at: Final = time.monotonic()
        self.is_woken: bool = False
        """Whether a wake token came that the claim may have been too early for."""

    @classmethod
    def sent_behind(cls, source: Source, behind: ClaimBehind) -> "Claim":
        """Return a claim that was sent behind a blocking call."""
        return cls(source, LIMIT, "none", LIMIT, behind)

    def is_slow(self, now: float) -> bool:
        """Return whether the answer takes long."""
        return now >= self.asked_at + SLOW_AFTER
