"""What a member of a group has heard of: arithmetic that is asked, not run."""

import random
from collections.abc import Mapping
from typing import Final

from duly._core import patience
from duly._core.keys import GroupKeys
from duly._core.publishing import parsed_id
from duly._core.replies import Claimed

EntryId = tuple[int, int]

_MOST_IN_VAIN: Final = 8
"""Times that count: the rest is at its longest before."""


class WakeState:
    """Knows behind which entries and rings there is news, and when to listen for it.

    All members hear of an entry, and one gets it. A member that was woken for nothing rests before it listens again,
    longer each time: else ten idle processes would cost ten claims an entry, however fast they come.
    """

    def __init__(self, keys: GroupKeys) -> None:
        self.keys = keys
        self._in_vain = 0
        self.known: Mapping[bytes, EntryId] = {}
        """The streams to watch, and the last of each that a claim has seen."""
        self.is_woken = False
        """Whether there was news since the last claim."""
        self.rests_until = 0.0

    def learn(self, claimed: Claimed, now: float) -> None:
        """Note what a claim has seen, and whether it found anything."""
        ids = (parsed_id(id_.decode()) for id_ in claimed.position or ())
        self.known = dict(zip(self.keys.watched, ids, strict=False))
        if self.is_woken:
            self.is_woken = False
            if claimed.ids:
                self._in_vain //= 2  # not at once: where others were faster so far, they will be again
            else:
                self._in_vain = min(self._in_vain + 1, _MOST_IN_VAIN)
                self.rests_until = now + patience.rest_after(self._in_vain, random.random)

    def is_new(self, news: Mapping[bytes, EntryId]) -> bool:
        """Tell whether there is something in the news that it has not seen."""
        return any(key in news and news[key] > id_ for key, id_ in self.known.items())


def written_id(id_: EntryId) -> bytes:
    """Write an id as servers do."""
    return b"%d-%d" % id_
