"""A walk through the keys of a namespace: which keys there are, whose they are, and when to stop."""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, TypeVar

from duly import _lua
from duly._core.call import Arg
from duly._core.keys import (
    EVERY_PRIORITY,
    LockKeys,
    OnceKeys,
    QueueKeys,
    RegistryKeys,
    ScheduleKeys,
    TopicKeys,
    head_of,
    pattern_of,
)
from duly.doctor.client import Asker
from duly.doctor.facts import Missing
from duly.options import is_name

Family = Literal["queue", "topic", "group", "workers", "schedules", "lock", "once"]

_SCRIPTS: Final[Mapping[Family, tuple[str, ...]]] = {
    "workers": ("beat", "depart", "workers"),
    "schedules": ("register", "unregister"),
    "lock": ("lock", "unlock", "prolong", "wake_lock"),
    "once": ("once",),
    "topic": ("publish", "read_topic", "tidy_topic", "topic_stats", "delete_topic"),
}
"""Scripts that work on no queue. All others do, and on groups as well."""

_IN_GROUP: Final = (re.compile(rb"group:(.+):(call:[^:]+)"), re.compile(rb"group:(.+):(\w+)"))
_CALL: Final = re.compile(r"call:[^:]+")


@dataclass(frozen=True)
class Owned:
    """A key: of which family, of whom, and what is its name there."""

    family: Family | None
    """None: no family has such a hash tag."""
    owner: str
    """As people write it: a queue or topic by its name, a group as events/archive."""
    prefix: bytes
    tail: str

    @property
    def is_known(self) -> bool:
        """Whether its family has keys of that name."""
        return self.family is not None and (self.tail in tails_of(self.family) or bool(_CALL.fullmatch(self.tail)))


@cache
def tails_of(family: Family) -> frozenset[str]:
    """Name the keys of a family: those that its scripts are given, without the records of calls."""
    if family in ("queue", "group"):
        others = {name for names in _SCRIPTS.values() for name in names}
        return _given(name for name in _lua.names() if name not in others)
    if family == "topic":  # its store is like a queue's, and several scripts of queues work on it
        return _given(_SCRIPTS["topic"]) | tails_of("queue")
    return _given(_SCRIPTS[family])


def _given(scripts: Iterable[str]) -> frozenset[str]:
    found = {key for name in scripts for key in _lua.script(name).keys} - {"call", "others*"}
    if "waiting*" in found:
        found = (found - {"waiting*"}) | {f"waiting{digit}" for digit in EVERY_PRIORITY}
    return frozenset(found)


def owned(namespace: str, key: bytes) -> Owned | None:
    """Tell whose a key is; None: it is not of this namespace."""
    head = head_of(namespace)
    end = key.find(b"}:", len(head))
    if not key.startswith(head) or end < 0:
        return None
    prefix, tail = key[: end + 2], key[end + 2 :]
    family, owner = _family(namespace, prefix, key[len(head) : end])
    if family == "topic" and tail.startswith(b"group:"):
        return _of_group(owner, prefix, tail)
    return Owned(family, owner, prefix, tail.decode(errors="replace"))


def _family(namespace: str, prefix: bytes, tag: bytes) -> tuple[Family | None, str]:
    text = tag.decode(errors="replace")
    if prefix == RegistryKeys(namespace).prefix:
        return "workers", text
    if prefix == ScheduleKeys(namespace).prefix:
        return "schedules", text
    if prefix.startswith(_open(LockKeys(namespace, ""))):
        return "lock", text
    if prefix.startswith(_open(OnceKeys(namespace, ""))):
        return "once", text
    if prefix.startswith(_open(TopicKeys(namespace, ""))):
        return ("topic" if is_name(text[1:]) else None), text[1:]
    return ("queue" if is_name(text) else None), text


def _open(nameless: QueueKeys) -> bytes:
    """Say how the keys of a kind begin, up to where the name would be."""
    return nameless.prefix.removesuffix(b"}:")


def _of_group(topic: str, prefix: bytes, tail: bytes) -> Owned:
    for pattern in _IN_GROUP:
        if (found := pattern.fullmatch(tail)) and is_name(name := found.group(1).decode(errors="replace")):
            return Owned("group", f"{topic}/{name}", prefix + f"group:{name}:".encode(), found.group(2).decode())
    return Owned(None, topic, prefix, tail.decode(errors="replace"))


# The walk itself: which keys there are, whose they are, and when to stop.

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
