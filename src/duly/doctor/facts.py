"""The facts about a server that the checks judge, and the parsers of its replies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from duly._core.address import Kind

PAUSE: Final = 0.05
"""Seconds that the examination blocks on an empty key, to find out whether the server lets clients wait."""


@dataclass(frozen=True)
class Missing:
    """A fact that the server did not provide."""

    reason: str
    rule: str = ""
    """The ACL rule that would allow the command, like `+config|get`. Empty if no rule would help."""


@dataclass(frozen=True)
class Skew:
    """Seconds by which the server's clock is ahead of this machine's. The margin of error is half a round trip."""

    seconds: float
    margin: float


@dataclass(frozen=True)
class SlowCommand:
    """A row of the slow log, not older than a day."""

    command: str
    seconds: float
    is_ours: bool
    """Whether it names a key of the namespace."""


@dataclass(frozen=True)
class Stall:
    """An event of the latency monitor, not older than a day."""

    event: str
    longest: float


@dataclass(frozen=True)
class BigKey:
    """A key of the namespace and its size in bytes."""

    key: bytes
    owner: str
    tail: str
    size: int


@dataclass(frozen=True)
class Orphan:
    """A key without an owner, or of an owner that has lost the key by which it is found."""

    key: bytes
    reason: str
    fix: str


@dataclass(frozen=True)
class QueueClock:
    """A queue whose clock is ahead of the server's, in seconds."""

    owner: str
    ahead: float


@dataclass(frozen=True)
class SilentWorker:
    """A registered worker, and the seconds since its last heartbeat. None: it never sent one."""

    name: bytes
    seconds: float | None


@dataclass(frozen=True)
class Layout:
    """How the keys are spread over the hash slots of a cluster, or would be."""

    owners: int = 0
    """Number of queues, topics with their groups, locks and registries."""
    split: tuple[str, ...] = ()
    """Owners whose keys are in several hash slots."""


@dataclass(frozen=True)
class SlotLoad:
    """The messages and entries in one hash slot of a cluster."""

    slot: int
    owners: tuple[str, ...]
    messages: int


@dataclass(frozen=True)
class Keyspace:
    """The keys of the namespace, as far as they were examined."""

    examined: int = 0
    is_complete: bool = True
    big: tuple[BigKey, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    without_expiry: tuple[tuple[bytes, int], ...] = ()
    """Keys that lack an expiry, with the milliseconds that it should be."""
    expiring: tuple[bytes, ...] = ()
    """Keys that have an expiry and must not have one."""
    clocks: tuple[QueueClock, ...] = ()
    silent: tuple[SilentWorker, ...] = ()
    differing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Queues and groups for which workers have different options, with the names of these options."""
    layout: Layout = Layout()
    loads: tuple[SlotLoad, ...] = ()
    """The slots of a node of a cluster that have messages."""
    missing: Mapping[str, Missing] = field(default_factory=dict)
    """For each check that lacks facts: the reason."""

    @property
    def coverage_note(self) -> str:
        """A note for findings if there are more keys than were examined."""
        return "" if self.is_complete else f" (there are more keys than the {self.examined} that were examined)"


@dataclass(frozen=True)
class Permissions:
    """The permissions of the connected user: the rules that it lacks for each role of `duly acl`."""

    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """All facts of an examination."""

    shown: str
    kind: Kind
    namespace: str
    info: Mapping[str, str] | Missing
    """The replies to INFO and INFO commandstats."""
    settings: Mapping[str, str] | Missing
    """The replies to CONFIG GET, by name. Settings that the server does not have are left out."""
    skew: Skew | Missing
    pings: tuple[float, ...] | Missing
    scripts: tuple[float, ...] | Missing
    blocked: float | Missing
    """Seconds that a blocking call of `PAUSE` took."""
    slow: tuple[SlowCommand, ...] | Missing
    stalls: tuple[Stall, ...] | Missing
    keyspace: Keyspace | Missing
    permissions: Permissions | Missing
    absent: frozenset[str] | Missing
    """Commands that Duly uses and the server does not have, for any user."""
    cluster: Mapping[str, str] | Missing = field(default_factory=dict)
    """The reply to CLUSTER INFO. Empty if the server is not a node of a cluster."""
    user: str = "default"
    place: str = ""
    """The directory of an embedded server."""

    def keys_for(self, check: str) -> Keyspace | Missing:
        """Return the keys for a check, or the reason why it lacks facts."""
        return self.keyspace if isinstance(self.keyspace, Missing) else self.keyspace.missing.get(check, self.keyspace)

    def setting(self, name: str) -> str | Missing:
        """Look up a setting. INFO has some settings as well, for users who may not run CONFIG."""
        if not isinstance(self.settings, Missing) and name in self.settings:
            return self.settings[name]
        if not isinstance(self.info, Missing) and (value := self.info.get(name.replace("-", "_"))) is not None:
            return value
        if isinstance(self.settings, Missing):
            return self.settings
        return Missing(f"the server has no setting {name}")


def number(text: str | bytes | None) -> float:
    """Parse a number. Other text counts as 0."""
    try:
        return float(text) if text is not None else 0.0
    except ValueError:
        return 0.0


def fields(text: str) -> dict[str, str]:
    """Parse the fields of a line of INFO, like `calls=5,usec=44`."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


Product = Literal["Redis", "Valkey"]
Version = tuple[int, int, int]


def product_of(info: Mapping[str, str]) -> tuple[Product, str]:
    """Return product and version from INFO. Valkey also reports a version of Redis, with which it is compatible."""
    valkey = info.get("valkey_version")
    return ("Valkey", valkey) if valkey else ("Redis", info.get("redis_version", "0"))


def read_version(text: str) -> Version:
    """Parse a version like `7.0.15`. Missing numbers are 0."""
    numbers = [int(each) for each in re.findall(r"\d+", text)[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch
