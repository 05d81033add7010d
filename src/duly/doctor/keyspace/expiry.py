"""Keys that should go by themselves and will not, and keys that will and should not."""

from collections.abc import Iterator
from typing import Final

from duly.doctor.keyspace.walking import FEW, HOLDING, Walk

_KEPT_MS: Final = {"call": 3_600_000, "awaited": 60_000, "ends": 60_000}
"""Keys that go by themselves, by how their names begin, and after how long at the most."""
_WINDOWS: Final = ("dedup", "dedup_ends")
"""Keys that go when the last of their windows is over."""
_LASTING: Final = (*HOLDING, "schedules")


def unexpiring(walk: Walk) -> Iterator[tuple[bytes, int]]:
    """Find those without an expiry, with the milliseconds that they would have."""
    passing = [
        (key, _KEPT_MS[kind])
        for keys in walk.owners.values()
        for tail, key in keys.items()
        if (kind := tail.partition(":")[0]) in _KEPT_MS
    ]
    for key, kept in walk.within(passing, FEW):
        if walk.ask("expiry", "PTTL", key) == -1:
            yield key, kept


def vanishing(walk: Walk) -> Iterator[bytes]:
    """Find those with an expiry that would take messages or schedules along. No script of ours gives them one."""
    lasting = [
        key
        for (family, _), keys in walk.owners.items()
        for tail, key in keys.items()
        if family in _LASTING and tail.partition(":")[0] not in _KEPT_MS and tail not in _WINDOWS
    ]
    for key in walk.within(lasting):
        left = walk.ask("expiry", "PTTL", key)
        if left is None:
            return
        if left >= 0:
            yield key
