"""Message ids: ULIDs, so they sort by time, and by order within a process."""

import itertools
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = [a + b for a in _ALPHABET for b in _ALPHABET]
_COUNTER_BITS: Final = 30


def _encoded(number: int, characters: int) -> str:
    """Write a number in Crockford's base 32, two characters at a time."""
    pairs = []
    for _ in range(characters // 2):
        pairs.append(_PAIRS[number & 1023])
        number >>= 10
    return "".join(reversed(pairs))


class IdMaker:
    """Makes the ids of one process: 48 bits of time, 50 random bits drawn once, 30 bits of a counter.

    The counter only grows, so ids made in one millisecond keep their order; `next()` on it is atomic,
    so threads may share a maker. After a fork a new one is needed.
    """

    def __init__(self, chance: bytes) -> None:
        self._process = _encoded(int.from_bytes(chance[:7], "big") >> 6, 10)
        # Half of the counter's range is left before it wraps, and then the time has moved on.
        self._counter = itertools.count(int.from_bytes(chance[7:11], "big") >> 3)
        self._latest = (0, -1, "")

    def make(self, now_ms: int) -> str:
        """Make an id. If the clock steps back, ids still sort after earlier ones."""
        number = next(self._counter)
        latest_ms, block, prefix = self._latest
        if now_ms > latest_ms or number >> 10 != block:  # otherwise only the last two characters differ
            latest_ms, block = max(now_ms, latest_ms), number >> 10
            prefix = _encoded(latest_ms, 10) + self._process + _encoded(block, 4)
            self._latest = (latest_ms, block, prefix)
        return prefix + _PAIRS[number & 1023]
