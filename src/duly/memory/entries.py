"""Conversion between an entry of a stream and the record that a group stores of it."""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from duly._core import codec
from duly._core.bounds import LONGEST_KEY
from duly._core.publishing import BODY, BYTES, HEADER, KEY, SENT, opened
from duly.memory.stream import Entry

_LENGTH: Final = struct.Struct("<H")
_pack = msgspec.msgpack.Encoder().encode


def record_of(entry: Entry, due: int) -> bytes:
    """Write the record of an entry."""
    found = opened(entry.fields)
    key = (found.key or "").encode()
    key = key if _is_sound_key(key) else b""
    head = bytes((codec.VERSION, codec.FLAG_KEY if key else 0, 0)) + (_LENGTH.pack(len(key)) + key if key else b"")
    envelope = [found.content, found.body, *([found.headers] if found.headers else [])]  # one that ends early
    return codec.stamped(entry.id[0] * 1000 if found.sent is None else found.sent, due, head + _pack(envelope))


def _is_sound_key(key: bytes) -> bool:
    """Return whether scripts can handle a key. Any program may have written it."""
    has_controls = any(byte < ord(" ") or byte == ord("\x7f") for byte in key)
    return 0 < len(key) <= LONGEST_KEY and not has_controls


def fields_of(record: bytes) -> Sequence[bytes]:
    """Write the fields of the entry that a record becomes."""
    stored = codec.read_record(record)
    fields = [BODY if stored.envelope.content == codec.CONTENT_JSON else BYTES, stored.envelope.body]
    if stored.key is not None:
        fields += (KEY, stored.key.encode())
    fields += (SENT, str(codec.read_stamps(record)[0]).encode())
    for name, value in (stored.envelope.headers or {}).items():
        fields += (HEADER + name.encode(), value.encode())
    return fields
