"""Arguments as a server receives them, and stored rows as a server returns them."""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from duly._core.bounds import LEASE_TEXT_SIZE
from duly._core.pieces import Pieces
from duly._core.resp import Arg
from duly.memory.message import StoredMessage

_LEASE: Final = struct.Struct("<dIBB")
_LENGTH: Final = struct.Struct("<H")
_pack = msgspec.msgpack.Encoder().encode


def arguments(args: Sequence[Arg]) -> list[bytes]:
    """Convert the arguments of a call to bytes, as they are sent."""
    return [bytes(arg) if isinstance(arg, bytes | Pieces) else str(arg).encode() for arg in args]


def record(message: StoredMessage) -> bytes:
    """Write the record; a lost one is empty."""
    return message.record or b""


def counts(message: StoredMessage) -> bytes:
    """Write the row of `counts`."""
    return b"" if message.counts is None else _pack(message.counts)


def why(message: StoredMessage) -> bytes:
    """Write the row of `why`."""
    if message.why is None:
        return b""
    row = msgspec.structs.astuple(message.why)
    return _pack(row if message.why.result_until else row[:-1])  # as the scripts do: mostly absent


def lease(message: StoredMessage) -> bytes:
    """Write the row of `leases`."""
    held = message.lease
    if held is None:
        return b""
    text = _LEASE.pack(held.fence, held.size, held.flags, held.priority)
    if held.key is not None:
        key = held.key.encode()
        text += _LENGTH.pack(len(key)) + key
    return (text + held.consumer.encode()).ljust(LEASE_TEXT_SIZE)
