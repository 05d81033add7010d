"""What was learnt about a server: values, and what it would not tell. No opinion here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from duly._core.address import Kind

PAUSE: Final = 0.05
"""Seconds that the examination blocks on a key that nobody fills, to see whether the server lets it wait."""


@dataclass(frozen=True)
class Missing:
    """Something that the server did not tell."""

    reason: str
    right: str = ""
    """The rule that would allow the question, like `+config|get`; empty: it is no matter of rights."""


@dataclass(frozen=True)
class Skew:
    """How far the server's clock is ahead of ours, in seconds, give or take half a round trip."""

    seconds: float
    give_or_take: float


@dataclass(frozen=True)
class SlowCommand:
    """A row of the slow log, of the last day."""

    command: str
    seconds: float
    is_ours: bool
    """Whether it names a key of the namespace."""


@dataclass(frozen=True)
class Stall:
    """What the latency monitor noted under one name in the last day."""

    event: str
    longest: float


@dataclass(frozen=True)
class BigKey:
    """A key of the namespace and the bytes that it takes."""

    key: bytes
    owner: str
    tail: str
    size: int


@dataclass(frozen=True)
class Orphan:
    """A key that belongs to nothing any more, or whose owner has lost the key that names it."""

    key: bytes
    reason: str
    mend: str


@dataclass(frozen=True)
class QueueClock:
    """A queue whose clock is ahead of the server's, in seconds."""

    owner: str
    ahead: float


@dataclass(frozen=True)
class SilentWorker:
    """A worker on the list that has not shown that it lives for so many seconds; None: never."""

    name: bytes
    seconds: float | None


@dataclass(frozen=True)
class Layout:
    """How the keys lie in the slots of a cluster, or would lie."""

    owners: int = 0
    """Queues, topics with their groups, locks and the like."""
    split: tuple[str, ...] = ()
    """Those whose keys are not all in one slot."""


@dataclass(frozen=True)
class Keyspace:
    """The keys of the namespace, as far as they were looked at."""

    looked_at: int = 0
    is_complete: bool = True
    big: tuple[BigKey, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    unexpiring: tuple[tuple[bytes, int], ...] = ()
    """Keys that should go by themselves and will not, with the milliseconds that they would have."""
    vanishing: tuple[bytes, ...] = ()
    """Keys that will go by themselves and should not."""
    clocks: tuple[QueueClock, ...] = ()
    silent: tuple[SilentWorker, ...] = ()
    layout: Layout = Layout()
    untold: Mapping[str, Missing] = field(default_factory=dict)
    """By the name of a check: why it has not seen all that it goes by."""

    @property
    def if_partly(self) -> str:
        """What a finding adds when not all keys were looked at."""
        return "" if self.is_complete else f" (there are more than the {self.looked_at} that were looked at)"


@dataclass(frozen=True)
class Rights:
    """What the connected user may do: for each role of `duly acl`, what it lacks for it."""

    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """All that an examination goes by."""

    shown: str
    kind: Kind
    namespace: str
    info: Mapping[str, str] | Missing
    """The answers to INFO, and to INFO commandstats."""
    settings: Mapping[str, str] | Missing
    """Answers to CONFIG GET, by name; what the server does not know is absent."""
    skew: Skew | Missing
    pings: tuple[float, ...] | Missing
    scripts: tuple[float, ...] | Missing
    blocked: float | Missing
    """Seconds that a wait of PAUSE took."""
    slow: tuple[SlowCommand, ...] | Missing
    stalls: tuple[Stall, ...] | Missing
    keyspace: Keyspace | Missing
    rights: Rights | Missing
    absent: frozenset[str] | Missing
    """Commands that Duly uses and the server does not have, whoever asks."""
    cluster: Mapping[str, str] | Missing = field(default_factory=dict)
    """The answer to CLUSTER INFO; empty where the server is no node of one."""
    user: str = "default"
    place: str = ""
    """The directory of an embedded server."""

    def keys_for(self, check: str) -> Keyspace | Missing:
        """Give a check what it goes by, or the reason why it cannot judge."""
        return self.keyspace if isinstance(self.keyspace, Missing) else self.keyspace.untold.get(check, self.keyspace)

    def setting(self, name: str) -> str | Missing:
        """Look up a setting; INFO has some of them where CONFIG is forbidden."""
        if not isinstance(self.settings, Missing) and name in self.settings:
            return self.settings[name]
        if not isinstance(self.info, Missing) and (told := self.info.get(name.replace("-", "_"))) is not None:
            return told
        if isinstance(self.settings, Missing):
            return self.settings
        return Missing(f"the server has no setting {name}")


# Numbers and fields, out of the texts that a server answers with.


def number(text: str | bytes | None) -> float:
    """Read a number; what is none is 0."""
    try:
        return float(text) if text is not None else 0.0
    except ValueError:
        return 0.0


def fields(text: str) -> dict[str, str]:
    """Read `calls=5,usec=44`, as lines of INFO have it."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


# Which server it is, and of which version.

Product = Literal["Redis", "Valkey"]
Version = tuple[int, int, int]


def product_of(info: Mapping[str, str]) -> tuple[Product, str]:
    """Read it from INFO. Valkey tells the version of Redis that it is like, too."""
    valkey = info.get("valkey_version")
    return ("Valkey", valkey) if valkey else ("Redis", info.get("redis_version", "0"))


def read_version(text: str) -> Version:
    """Read `7.0.15`; what is missing is 0."""
    numbers = [int(each) for each in re.findall(r"\d+", text)[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch
