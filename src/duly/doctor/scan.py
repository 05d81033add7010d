"""The scan for the keys of a namespace: which keys exist, and which queue, topic, group or lock owns them.

Any client of the server may create keys with any name. A key name owner could not be a queue, topic or group of Duly
gets no family, so that its name never appears in a command that a finding suggests.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, TypeVar

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
    pattern_of,
)
from duly._core.resp import Arg
from duly.doctor.client import Client
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
"""Scripts that do not work on queues. All other scripts work on queues and groups."""

_IN_GROUP: Final = (re.compile(rb"group:(.+):(call:[^:]+)"), re.compile(rb"group:(.+):(\w+)"))
_CALL: Final = re.compile(r"call:[^:]+")


@dataclass(frozen=True)
class KeyName:
    """A parsed key."""

    family: Family | None
    """None if no family has such a hash tag."""
    owner: str
    """The name of a queue or topic; for a group, both names, like events/archive."""
    prefix: bytes
    tail: str
    """The name of the key within its owner, like `meta`."""

    @property
    def is_known(self) -> bool:
        """Whether the family has a key with this name."""
        return self.family is not None and (self.tail in tails_of(self.family) or bool(_CALL.fullmatch(self.tail)))


@cache
def tails_of(family: Family) -> frozenset[str]:
    """Return the names of a family's keys: those that its scripts use, without the records of calls."""
    if family in ("queue", "group"):
        others = {name for names in _SCRIPTS.values() for name in names}
        return _keys_of_scripts(name for name in _lua.names() if name not in others)
    if family == "topic":  # its store is like a queue's, and some scripts of queues use it
        return _keys_of_scripts(_SCRIPTS["topic"]) | tails_of("queue")
    return _keys_of_scripts(_SCRIPTS[family])


def _keys_of_scripts(scripts: Iterable[str]) -> frozenset[str]:
    found = {key for name in scripts for key in _lua.script(name).keys} - {"call", "others*"}
    if "waiting*" in found:
        found = (found - {"waiting*"}) | {f"waiting{digit}" for digit in EVERY_PRIORITY}
    return frozenset(found)


def parse_key(namespace: str, key: bytes) -> KeyName | None:
    """Parse a key. Returns None if it belongs to another namespace."""
    head = head_of(namespace)
    end = key.find(b"}:", len(head))
    if not key.startswith(head) or end < 0:
        return None
    prefix, tail = key[: end + 2], key[end + 2 :]
    family, owner = _family(namespace, prefix, key[len(head) : end])
    if family == "topic" and tail.startswith(b"group:"):
        return _of_group(owner, prefix, tail)
    return KeyName(family, owner, prefix, tail.decode(errors="replace"))


def _family(namespace: str, prefix: bytes, tag: bytes) -> tuple[Family | None, str]:
    text = tag.decode(errors="replace")
    if prefix == RegistryKeys(namespace).prefix:
        return "workers", text
    if prefix == ScheduleKeys(namespace).prefix:
        return "schedules", text
    if prefix.startswith(_prefix_of(LockKeys(namespace, ""))):
        return "lock", text
    if prefix.startswith(_prefix_of(OnceKeys(namespace, ""))):
        return "once", text
    if prefix.startswith(_prefix_of(TopicKeys(namespace, ""))):
        return ("topic" if is_name(text[1:]) else None), text[1:]
    return ("queue" if is_name(text) else None), text


def _prefix_of(nameless: QueueKeys) -> bytes:
    """Return the prefix of all keys of a kind, up to the name of the owner."""
    return nameless.prefix.removesuffix(b"}:")


def _of_group(topic: str, prefix: bytes, tail: bytes) -> KeyName:
    for pattern in _IN_GROUP:
        if (found := pattern.fullmatch(tail)) and is_name(name := found.group(1).decode(errors="replace")):
            return KeyName("group", f"{topic}/{name}", prefix + f"group:{name}:".encode(), found.group(2).decode())
    return KeyName(None, topic, prefix, tail.decode(errors="replace"))


MOST_KEYS: Final = 50_000
MOST_SECONDS: Final = 5.0
"""The time limit for finding the keys, and again for examining them."""
FEW: Final = 1000
"""The limit for workers and for records of calls."""
WITH_MESSAGES: Final[tuple[Family, ...]] = ("queue", "topic", "group")
"""Families that store messages and keep a clock."""
_PAGE: Final = 1000

_Thing = TypeVar("_Thing")

Owners = dict[tuple[Family, str], dict[str, bytes]]
"""The keys of each family and owner, by the names that scripts use for them."""


@dataclass
class Scan:
    """The keys that were found, and the limits for examining them."""

    client: Client
    namespace: str
    examined: int
    is_complete: bool
    ends_at: float
    owners: Owners = field(default_factory=lambda: defaultdict(dict))
    unknown_keys: list[tuple[bytes, KeyName]] = field(default_factory=list)
    """Keys with names that Duly does not use."""
    missing: dict[str, Missing] = field(default_factory=dict)
    """For each check that lacks facts: the reason."""

    def ask(self, check: str, *command: Arg) -> Any:
        """Run a command for a check. A refusal is recorded in `missing`, and the result is None."""
        reply = self.client.ask(*command)
        if isinstance(reply, Missing):
            self.missing.setdefault(check, reply)
            return None
        return reply

    def within(self, things: Iterable[_Thing], most: int = MOST_KEYS) -> Iterator[_Thing]:
        """Yield things until the limit or the end of the time."""
        for count, thing in enumerate(things):
            if count >= most or time.monotonic() > self.ends_at:
                self.is_complete = False
                return
            yield thing


def scan_keys(client: Client, namespace: str, most: int) -> Scan | Missing:
    """Find the keys of a namespace, and their owners."""
    found = _find(client, namespace, most)
    if isinstance(found, Missing):
        return found
    keys, is_complete = found
    scan = Scan(client, namespace, len(keys), is_complete, time.monotonic() + MOST_SECONDS)
    for key in keys:
        name = parse_key(namespace, key)
        if name is None:
            continue
        if name.family is not None and name.is_known:
            scan.owners[name.family, name.owner][name.tail] = key
        else:
            scan.unknown_keys.append((key, name))
    return scan


def _find(client: Client, namespace: str, most: int) -> tuple[list[bytes], bool] | Missing:
    """Scan for keys, within limits of number and time. Also returns whether the result is complete."""
    keys: dict[bytes, None] = {}
    ends_at, cursor = time.monotonic() + MOST_SECONDS, b"0"
    while True:
        page = client.ask("SCAN", cursor, "MATCH", pattern_of(namespace), "COUNT", _PAGE)
        if isinstance(page, Missing):
            return page
        cursor = page[0]
        keys.update(dict.fromkeys(page[1]))
        if cursor == b"0":
            return sorted(keys)[:most], len(keys) <= most
        if len(keys) > most or time.monotonic() > ends_at:
            return sorted(keys)[:most], False
