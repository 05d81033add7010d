"""Which tokens were right lately, and from where: who uses one is not shut out by a stranger beside him. Pure.

Of a token that nobody has used from an address, a guess there tells nothing while the address has to wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from duly.web.attempts import group_of

REMEMBERED_SECONDS: Final = 3600.0
MOST_REMEMBERED: Final = 4096


class Known:
    """The tokens that were right in the last hour, by address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str], float] = {}
        """When each was last right; the one that was not for the longest time is first."""

    def note(self, token: str, address: str) -> None:
        """Remember that a token was right."""
        key = (group_of(address), token)
        self._seen.pop(key, None)
        if len(self._seen) >= MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = self._clock()

    def among(self, tokens: Iterable[str], address: str) -> list[str]:
        """Find those of some tokens that were right lately from an address."""
        group, since = group_of(address), self._clock() - REMEMBERED_SECONDS
        return [each for each in tokens if self._seen.get((group, each), float("-inf")) > since]
