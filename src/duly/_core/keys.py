"""The names of all keys. No other module makes them.

All keys of a queue share its hash tag, so that a script may use them together on a cluster. The first braces of a key
are its hash tag: in a namespace like `{shop}`, all keys share that of the namespace.
"""

import re
from typing import ClassVar, Final

from duly import _lua
from duly._core.topology import slot_of
from duly._lua import Kind, Script
from duly._lua.keys import OF_THE_TOPIC
from duly.options import is_name

EVERY_PRIORITY: Final = "9876543210"


_OF_LIFE: Final = (
    b"msgs",
    b"meta",
    b"leased",
    b"parked",
    *(b"waiting" + bytes([digit]) for digit in EVERY_PRIORITY.encode()),
)
"""An idle worker of many queues names these keys of each queue every few seconds."""

_REGISTRY: Final = "~workers"
"""No queue has this name: theirs begin with a letter or digit."""

_SCHEDULES: Final = "~schedules"
_PROBE: Final = "~doctor"
_KOMBU: Final = "~kombu"
_VALUE: Final = "~value:"


_IN_TOPIC: Final = tuple(
    "waiting0" if name == "topic_waiting" else name.removeprefix("topic_") for name in OF_THE_TOPIC
)
"""The keys of a topic that scripts of its groups need, as the topic names them."""


class QueueKeys:
    """The keys of one queue, as bytes, by the names that the scripts' headers use."""

    __slots__ = ("_ready_made", "_slot", "name", "prefix")

    waker: ClassVar[str] = "wake"
    """The script that passes on a wake token that a waiting consumer no longer needs."""
    kind: Kind = "queue"
    """The form of the scripts for these keys."""
    tail: tuple[bytes, ...] = ()
    """The last KEYS of every script."""

    def __init__(self, namespace: str, name: str) -> None:
        self.name: str = name
        self.prefix: bytes = f"{namespace}:{{{name}}}:".encode()
        self._ready_made: dict[tuple[str, str], tuple[bytes, ...]] = {}
        self._slot: int | None = None

    @property
    def slot(self) -> int:
        """The slot of all these keys on a cluster."""
        if self._slot is None:
            self._slot = slot_of(self.prefix)
        return self._slot

    @property
    def title(self) -> str:
        """Whose keys these are, for people."""
        return f"queue {self.name!r}"

    def script(self, name: str) -> Script:
        """Return a script in the form for these keys."""
        return _lua.script(name, self.kind)

    def key(self, name: str) -> bytes:
        """Name one key."""
        return self.prefix + name.encode()

    def call(self, stream: bytes) -> bytes:
        """Name the key of a stream of calls."""
        return self.prefix + b"call:" + stream

    def waiting(self, digits: str) -> list[bytes]:
        """Name the sorted sets of some priorities."""
        return [self.key(f"waiting{digit}") for digit in digits]

    @property
    def of_life(self) -> list[bytes]:
        """The keys that show whether there are live messages, in the order of `occupied`."""
        prefix = self.prefix
        return [prefix + name for name in _OF_LIFE]

    def of_script(self, script: Script, digits: str) -> tuple[bytes, ...]:
        """Return the KEYS of a script without its call key. They are cached."""
        wanted = (script.name, digits)
        found = self._ready_made.get(wanted)
        if found is None:
            keys: list[bytes] = []
            for name in script.keys:
                if name == "waiting*":
                    keys += self.waiting(digits)
                elif name not in ("call", "others*"):
                    keys.append(self.key(name))
            found = self._ready_made[wanted] = tuple(keys)
        return found


class RegistryKeys(QueueKeys):
    """The keys of the registry of workers of a namespace."""

    __slots__ = ()

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace, _REGISTRY)

    @property
    def title(self) -> str:
        """Whose keys these are, for people."""
        return "the registry of workers"


class ProbeKeys(QueueKeys):
    """Keys that a check of the server names but never writes."""

    __slots__ = ()

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace, _PROBE)


class KombuKeys(QueueKeys):
    """The keys of the declarations of kombu: queues, and bindings of exchanges."""

    __slots__ = ()

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace, _KOMBU)

    @property
    def title(self) -> str:
        """Whose keys these are, for people."""
        return "the declarations of kombu"


class ForeignKeys(QueueKeys):
    """A key of another program, and the keys that share its slot."""

    __slots__ = ()

    def __init__(self, key: str) -> None:
        super().__init__("", key)
        self.prefix = key.encode(errors="surrogateescape")


class ValueKeys(QueueKeys):
    """The key of a value that an adapter stores for another framework, like a result of Dramatiq."""

    __slots__ = ()

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(namespace, _VALUE + name)

    @property
    def title(self) -> str:
        """Whose keys these are, for people."""
        return f"the value {self.name.removeprefix(_VALUE)!r}"


class ScheduleKeys(QueueKeys):
    """The keys of the registry of schedules of a namespace."""

    __slots__ = ()

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace, _SCHEDULES)

    @property
    def title(self) -> str:
        """Whose keys these are, for people."""
        return "the registry of schedules"


class LockKeys(QueueKeys):
    """The keys of one lock. Any text may be its name."""

    __slots__ = ("lock",)

    waker = "wake_lock"

    def __init__(self, namespace: str, lock: str) -> None:
        super().__init__(namespace, f"~lock:{_escaped(lock)}")
        self.lock = lock

    @property
    def title(self) -> str:
        """Whose keys these are, for people."""
        return f"lock {self.lock!r}"


class OnceKeys(QueueKeys):
    """The key of one effect that happens at most once. Any text may be its name."""

    __slots__ = ("effect",)

    def __init__(self, namespace: str, effect: str) -> None:
        super().__init__(namespace, f"~once:{_escaped(effect)}")
        self.effect = effect

    @property
    def title(self) -> str:
        """Whose key this is, for people."""
        return f"effect {self.effect!r}"


class TopicKeys(QueueKeys):
    """The keys of a topic: its stream, and keys like a queue's for delayed publishes."""

    __slots__ = ("topic",)

    kind: Kind = "topic"

    def __init__(self, namespace: str, topic: str) -> None:
        super().__init__(namespace, f"@{topic}")
        self.topic: str = topic

    @property
    def title(self) -> str:
        """Whose keys these are, for people."""
        return f"topic {self.topic!r}"

    @property
    def stream(self) -> bytes:
        """The stream itself, which other programs may use as well."""
        return self.key("stream")

    @property
    def watched(self) -> tuple[bytes, ...]:
        """The keys that readers wait on: the stream, and the wake key for a new earliest delayed publish."""
        return self.stream, self.key("wake")


class GroupKeys(QueueKeys):
    """The keys of one group of a topic: those of a queue, and the stream that feeds it."""

    __slots__ = ("group", "kind", "tail", "topic")

    def __init__(self, topic: TopicKeys, group: str, *, frees: bool) -> None:
        """Make the names. `frees`: the stream drops entries that every group has acked."""
        self.topic: TopicKeys = topic
        self.group: str = group
        self.kind: Kind = "freeing" if frees else "group"
        self.name: str = f"{topic.topic}/{group}"
        self.prefix: bytes = topic.prefix + f"group:{group}:".encode()
        self.tail: tuple[bytes, ...] = tuple(map(topic.key, _IN_TOPIC))
        self._ready_made = {}
        self._slot = None

    @property
    def watched(self) -> tuple[bytes, ...]:
        """The keys that consumers wait on: the stream, and the wake keys of the topic and of the group."""
        return (*self.topic.watched, self.key("wake"))

    @property
    def title(self) -> str:
        """Whose keys these are, for people."""
        return f"group {self.name!r}"


def _escaped(text: str) -> str:
    """Escape braces, which would end the hash tag."""
    return text.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def head_of(namespace: str) -> bytes:
    """Return the prefix of all keys of a namespace, and of no others."""
    return f"{namespace}:{{".encode()


def pattern_of(namespace: str) -> str:
    """Match all keys of a namespace."""
    return f"{namespace}:{{*}}:*"


def queue_pattern(namespace: str) -> str:
    """Match the key that every used queue has."""
    return f"{namespace}:{{*}}:meta"


def queue_of_key(namespace: str, key: bytes) -> str | None:
    """Read a queue's name from a key that matches `queue_pattern`; None: it does not belong to a queue."""
    found = _QUEUE_TAG.fullmatch(key, len(namespace) + 1, len(key) - len(":meta"))
    return _name_in(found)


def topic_pattern(namespace: str) -> str:
    """Match the keys of topics, and of their groups."""
    return f"{namespace}:{{@*}}:*"


def topic_of_key(namespace: str, key: bytes) -> str | None:
    """Read a topic's name from a key that matches `topic_pattern`; None: it does not belong to a topic."""
    found = _OF_TOPIC.fullmatch(key, len(namespace) + 1)
    return _name_in(found)


def _name_in(found: re.Match[bytes] | None) -> str | None:
    """Read a valid name. Keys with any other name were written by other programs."""
    name = None if found is None else found.group(1).decode(errors="replace")
    return name if name is not None and is_name(name) else None


_QUEUE_TAG: Final = re.compile(rb"\{([^{}]*)\}")
_OF_TOPIC: Final = re.compile(rb"\{@([^{}]*)\}:(?:stream|meta|msgs|waiting0)")
"""A topic with only delayed publishes has no stream. One that only other programs use has nothing else."""
