"""How much memory the keys take that grow with the messages."""

from collections.abc import Iterator
from typing import Final

from duly.doctor.facts import BigKey
from duly.doctor.keyspace.walking import HOLDING, Walk

_SAMPLES: Final = 5
_SMALL: Final = ("wake", "ends")


def sizes(walk: Walk) -> Iterator[BigKey]:
    """Ask for the size of each, until it is not told."""
    growing = [
        (owner, tail, key)
        for (family, owner), keys in walk.owners.items()
        for tail, key in keys.items()
        if family in HOLDING and tail not in _SMALL and not tail.startswith("call:")
    ]
    for owner, tail, key in walk.within(growing):
        told = walk.ask("big-keys", "MEMORY", "USAGE", key, "SAMPLES", _SAMPLES)
        if "big-keys" in walk.untold:
            return
        if told is not None:  # it is gone meanwhile
            yield BigKey(key, owner, tail, told)
