"""The walk itself: which keys there are, whose they are, and when to stop."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from duly._core.call import Arg
from duly._core.keys import pattern_of
from duly.doctor.asking import Asker
from duly.doctor.facts import Missing
from duly.doctor.families import Family, Owned, owned

MOST_KEYS: Final = 50_000
MOST_SECONDS: Final = 5.0
"""For each of the two parts: finding the keys, and looking at them."""
FEW: Final = 1000
"""Workers and records of calls that are looked at, at the most."""
HOLDING: Final[tuple[Family, ...]] = ("queue", "topic", "group")
"""Families that hold messages, and have a clock of their own."""
_PAGE: Final = 1000

_Thing = TypeVar("_Thing")

Owners = dict[tuple[Family, str], dict[str, bytes]]
"""By family and owner: the keys, by the names that the scripts have for them."""


@dataclass
class Walk:
    """The keys that were found, and how far they were looked at."""

    asker: Asker
    namespace: str
    looked_at: int
    is_complete: bool
    ends_at: float
    owners: Owners = field(default_factory=lambda: defaultdict(dict))
    strangers: list[tuple[bytes, Owned]] = field(default_factory=list)
    """Keys that no kind of queue, topic or lock has."""
    untold: dict[str, Missing] = field(default_factory=dict)
    """By the name of a check: why it has not seen all that it goes by."""

    def ask(self, check: str, *command: Arg) -> Any:
        """Ask for a check, and note when it is not told. None stands for what was not told."""
        told = self.asker.ask(*command)
        if isinstance(told, Missing):
            self.untold.setdefault(check, told)
            return None
        return told

    def within(self, things: Iterable[_Thing], most: int = MOST_KEYS) -> Iterator[_Thing]:
        """Go through some as long as there is time."""
        for count, thing in enumerate(things):
            if count >= most or time.monotonic() > self.ends_at:
                self.is_complete = False
                return
            yield thing


def walk_through(asker: Asker, namespace: str, most: int) -> Walk | Missing:
    """Find the keys of a namespace, and whose they are."""
    found = _find(asker, namespace, most)
    if isinstance(found, Missing):
        return found
    keys, is_complete = found
    walk = Walk(asker, namespace, len(keys), is_complete, time.monotonic() + MOST_SECONDS)
    for key in keys:
        whose = owned(namespace, key)
        if whose is None:
            continue
        if whose.family is not None and whose.is_known:
            walk.owners[whose.family, whose.owner][whose.tail] = key
        else:
            walk.strangers.append((key, whose))
    return walk


def _find(asker: Asker, namespace: str, most: int) -> tuple[list[bytes], bool] | Missing:
    """Scan, so many keys and seconds at the most. Tells also whether that was all."""
    keys: dict[bytes, None] = {}
    ends_at, cursor = time.monotonic() + MOST_SECONDS, b"0"
    while True:
        page = asker.ask("SCAN", cursor, "MATCH", pattern_of(namespace), "COUNT", _PAGE)
        if isinstance(page, Missing):
            return page
        cursor = page[0]
        keys.update(dict.fromkeys(page[1]))
        if cursor == b"0":
            return sorted(keys)[:most], len(keys) <= most
        if len(keys) > most or time.monotonic() > ends_at:
            return sorted(keys)[:most], False
