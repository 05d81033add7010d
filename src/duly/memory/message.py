"""One message as the engine stores it. The queue keeps its place, which is always exactly one (I2)."""

import struct
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from duly._core.codec import FLAG_DEDUP, FLAG_KEY, FLAG_TTL, Counts, Lease, Why, part_of, read_stamps, stamped

Place = Literal["waiting", "parked", "leased", "dead", "done"]

BODY_LOST: Final = "body lost"
DAMAGED: Final = "damaged"
STAMPS_SIZE: Final = len(stamped(0, 0, b""))
HIGHEST_PRIORITY: Final = 9
_FLAGS_AT, _PRIORITY_AT, _OPTIONS_AT = STAMPS_SIZE + 1, STAMPS_SIZE + 2, STAMPS_SIZE + 3
_US: Final = struct.Struct("<d")
_LENGTH: Final = struct.Struct("<H")


class Options(NamedTuple):
    """The optional parts of a record, as far as the engine needs them."""

    ttl: int | None
    dedup_for: int
    dedup: bytes | None
    key: bytes | None = None


_NO_OPTIONS: Final = Options(None, 0, None)


def flags_of(record: bytes) -> int:
    """Read the flags."""
    return record[_FLAGS_AT]


def priority_of(record: bytes) -> int:
    """Read the priority."""
    return record[_PRIORITY_AT]


def options_of(record: bytes) -> Options:
    """Read the options; ValueError: the record is too short."""
    flags, at = flags_of(record), _OPTIONS_AT
    ttl, dedup_for, dedup, key = None, 0, None, None
    if not flags:
        return _NO_OPTIONS
    try:
        if flags & FLAG_TTL:
            ttl = int(_US.unpack_from(record, at)[0])
            at += _US.size
        if flags & FLAG_DEDUP:
            dedup_for = int(_US.unpack_from(record, at)[0])
            dedup, at = _read_text(record, at + _US.size)
        if flags & FLAG_KEY:
            key, _ = _read_text(record, at)
    except struct.error as error:
        raise ValueError("the options are cut off") from error
    return Options(ttl, dedup_for, dedup, key)


def _read_text(record: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(record, at)
    begin, end = at + _LENGTH.size, at + _LENGTH.size + length
    if end > len(record):
        raise ValueError("a text is cut off")
    return record[begin:end], end


def head_of(record: bytes) -> tuple[bytes, Options]:
    """Read all but the envelope."""
    return record[:_OPTIONS_AT], options_of(record)


def flaw_of(record: bytes | None) -> str | None:
    """Return why a record cannot be delivered: another program has removed or overwritten it."""
    if record is None:
        return BODY_LOST
    if len(record) <= _PRIORITY_AT or priority_of(record) > HIGHEST_PRIORITY:
        return DAMAGED
    try:
        read_stamps(record)
        options_of(record)
    except (ValueError, OverflowError):
        return DAMAGED
    return None


@dataclass(slots=True, eq=False)
class StoredMessage:
    """The stored state of a message. Times are microseconds of the queue's clock."""

    id: bytes
    record: bytes | None
    """None: another program has removed it."""
    priority: int
    """The priority under which it waits, even if its record is lost."""
    place: Place = "waiting"
    counts: Counts | None = None
    """Absent until something goes wrong."""
    why: Why | None = None
    """Present after the first failure, and on a dead or finished message."""
    lease: Lease | None = None
    """Present while leased."""
    row_size: int = 0
    """Bytes of its row among those of the dead or done ones."""

    @property
    def size(self) -> int:
        """Bytes of the record; 0 if it is lost."""
        return 0 if self.record is None else len(self.record)

    @property
    def held_size(self) -> int:
        """Bytes that it counts among live messages while it is leased: the size of the delivered record."""
        return self.size if self.lease is None else self.lease.size

    @property
    def flaw(self) -> str | None:
        """Why it cannot be delivered; None: it can."""
        return flaw_of(self.record)

    @property
    def intact(self) -> bytes:
        """The record of a message without a flaw."""
        assert self.record is not None
        return self.record

    @property
    def due(self) -> int:
        """As requested: a retry or defer does not change it, so that it does not prolong a ttl."""
        return read_stamps(self.intact)[1]

    def redate(self, due: int) -> None:
        """Write the record again, with another due time."""
        self.record = stamped(read_stamps(self.intact)[0], due, part_of(self.intact))

    @property
    def expiry(self) -> int | None:
        """When it expires; None without a ttl."""
        return self.expiry_and_key[0]

    @property
    def expiry_and_key(self) -> tuple[int | None, bytes | None]:
        """The expiry and the key of a message without a flaw."""
        options = options_of(self.intact)
        return None if options.ttl is None else self.due + options.ttl, options.key

    @property
    def own_place(self) -> int:
        """The due time to which it returns if it is not finished."""
        return (self.counts.due if self.counts else 0) or self.due

    @property
    def key(self) -> bytes | None:
        """Its key; None without one, or if the record is lost."""
        return None if self.flaw else options_of(self.intact).key

    @property
    def has_begun(self) -> bool:
        """Whether it has been delivered since it was sent or redriven."""
        counts = self.counts
        return counts is not None and counts.failures + counts.crashes + counts.defers + counts.releases > 0

    @property
    def is_lost_from_lane(self) -> bool:
        """Whether it is parked and cannot be found: only the lost record had its place."""
        return self.place == "parked" and self.flaw is not None

    def counted(self) -> Counts:
        """Copy the counts of failures so far."""
        old = self.counts or Counts()
        return Counts(old.failures, old.crashes, old.defers, old.releases, old.due, old.cycles, old.redrives)
