"""One message as the engine holds it. Its place is kept by the queue, and is always exactly one (I2)."""

import struct
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from duly._core.codec import FLAG_DEDUP, FLAG_TTL, Counts, Fault, Lease, Why, stamped

Place = Literal["waiting", "leased", "dead", "done"]

STAMPS_SIZE: Final = len(stamped(0, 0, b""))
_FLAGS_AT, _PRIORITY_AT, _OPTIONS_AT = 1, 2, 3
_US: Final = struct.Struct("<d")
_WINDOW: Final = struct.Struct("<dH")


class Options(NamedTuple):
    """What the flags of a part announce, as far as the engine needs it."""

    ttl: int | None
    dedup_for: int
    dedup: bytes | None


def flags_of(part: bytes) -> int:
    """Read the flags."""
    return part[_FLAGS_AT]


def priority_of(part: bytes) -> int:
    """Read the priority."""
    return part[_PRIORITY_AT]


def options_of(part: bytes) -> Options:
    """Read the options."""
    flags, at = flags_of(part), _OPTIONS_AT
    ttl, dedup_for, dedup = None, 0, None
    if flags & FLAG_TTL:
        ttl = int(_US.unpack_from(part, at)[0])
        at += _US.size
    if flags & FLAG_DEDUP:
        window, length = _WINDOW.unpack_from(part, at)
        dedup_for, dedup = int(window), part[at + _WINDOW.size : at + _WINDOW.size + length]
    return Options(ttl, dedup_for, dedup)


@dataclass(slots=True, eq=False)
class StoredMessage:
    """What is stored of a message. Times are microseconds of the queue's clock."""

    id: bytes
    part: bytes
    sent: int
    due: int
    """As asked for: a retry or defer does not change it, so that a ttl is not prolonged."""
    priority: int
    place: Place = "waiting"
    is_lost: bool = False
    """Somebody removed the body behind our back."""
    counts: Counts | None = None
    """Absent until something goes wrong."""
    why: Why | None = None
    """Present once an error was reported, or when it is dead."""
    lease: Lease | None = None
    """Present while leased."""

    @property
    def size(self) -> int:
        """Bytes of the record; 0 when it is lost."""
        return 0 if self.is_lost else STAMPS_SIZE + len(self.part)

    @property
    def flags(self) -> int:
        """The flags that the sender set."""
        return flags_of(self.part)

    @property
    def expiry(self) -> int | None:
        """When it is over; None without a ttl."""
        ttl = options_of(self.part).ttl
        return None if ttl is None else self.due + ttl

    @property
    def own_place(self) -> int:
        """The due time to which it returns when nobody finished it."""
        return (self.counts.due if self.counts else 0) or self.due

    @property
    def errors(self) -> list[Fault]:
        """The errors reported so far."""
        return self.why.errors if self.why else []

    def counted(self) -> Counts:
        """Copy what went wrong so far."""
        old = self.counts or Counts()
        return Counts(old.failures, old.crashes, old.defers, old.releases, old.due)
