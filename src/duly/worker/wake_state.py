"""Which entries a member of a group has seen. Pure arithmetic: time is an argument."""

import random
from collections.abc import Mapping
from typing import Final

from duly._core import patience
from duly._core.keys import GroupKeys
from duly._core.publishing import parsed_id
from duly._core.replies import Claimed

EntryId = tuple[int, int]

_MAX_FRUITLESS: Final = 8
"""The highest count of fruitless wake-ups: rests reach their maximum before."""


class WakeState:
    """Holds the ids that a claim has seen, and when to wait for newer ones.

    An entry wakes all members of a group, and one of them gets it. A member that woke for nothing rests before it waits
    again, longer each time. Otherwise ten idle processes would make ten claims per entry, at any rate of entries.
    """

    def __init__(self, keys: GroupKeys) -> None:
        self.keys = keys
        self._fruitless = 0
        self.known: Mapping[bytes, EntryId] = {}
        """The streams to watch, and the last id of each that a claim has seen."""
        self.is_woken: bool = False
        """Whether it has woken since the last claim."""
        self.rests_until: float = 0.0

    def learn(self, claimed: Claimed, now: float) -> None:
        """Note which ids a claim has seen, and whether it returned messages."""
        ids = (parsed_id(id_.decode()) for id_ in claimed.position or ())
        self.known = dict(zip(self.keys.watched, ids, strict=False))
        if self.is_woken:
            self.is_woken = False
            if claimed.ids:
                self._fruitless //= 2  # gradually: members that have been faster so far will be faster again
            else:
                self._fruitless = min(self._fruitless + 1, _MAX_FRUITLESS)
                self.rests_until = now + patience.rest_after(self._fruitless, random.random)

    def has_news(self, news: Mapping[bytes, EntryId]) -> bool:
        """Return whether the news contain an id that it has not seen."""
        return any(key in news and news[key] > id_ for key, id_ in self.known.items())


def written_id(id_: EntryId) -> bytes:
    """Encode an id as servers do."""
    return b"%d-%d" % id_
