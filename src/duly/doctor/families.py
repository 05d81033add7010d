"""Whose a key is, and whether any script of ours has a key of that name. Pure: reads names only.

Who may write to the server may give keys any name. A name that Duly would not take for a queue, topic or group has no
family: so it is in no command that somebody is told to type.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from duly import _lua
from duly._core.keys import (
    EVERY_PRIORITY,
    LockKeys,
    OnceKeys,
    QueueKeys,
    RegistryKeys,
    ScheduleKeys,
    TopicKeys,
    head_of,
)
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
