"""Receipts: a delivery as a text that anybody who has it can give back, to settle it.

It holds what settling needs (the fence, the counts and the message's own rules), so that the dashboard need not
remember who has what: another process of it, or the same after a restart, takes it as well. A digest tells one that
was cut off or changed on its way. It is no secret: whoever may settle may settle, and the fence decides what counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from duly import AsyncDelivery
from duly._core import codec
from duly.errors import CodecError, UsageError
from duly.web.names import Inbox
from duly.web.sealed import sealed, unsealed

_VERSION: Final = 1
_HEAD: Final = 19
"""Bytes of a record up to its priority: whoever claims has looked so far."""
_PURPOSE: Final = b"duly receipt"


class _Receipt(msgspec.Struct, array_like=True):
    version: int
    inbox: str
    id: str
    fence: int
    record: bytes
    counts: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Receipt).decode


def receipt_of(delivery: AsyncDelivery) -> str:
    """Write the receipt of a delivery."""
    record = _without_payload(delivery._record)
    packed = _encode(_Receipt(_VERSION, delivery.queue, delivery.id, delivery.fence, record, delivery._counts))
    return sealed(packed, _PURPOSE)


def delivery_of(inbox: Inbox, receipt: str) -> AsyncDelivery:
    """Make the delivery that a receipt stands for."""
    packed = _read(receipt)
    if packed is None:
        raise UsageError(f"{_beginning(receipt)} is not a receipt: use those that receive gave, unchanged")
    if packed.inbox != inbox.label:
        raise UsageError(f"the receipt of message {packed.id} is of {packed.inbox!r}, not of {inbox.label!r}")
    return AsyncDelivery(inbox, packed.id, packed.fence, packed.record, packed.counts)


def _read(receipt: str) -> _Receipt | None:
    """Undo `receipt_of`; None: it is none, or not all of one."""
    packed = unsealed(receipt, _PURPOSE)
    if packed is None:
        return None
    try:
        found = _decode(packed)
    except (ValueError, msgspec.DecodeError):  # sealed by somebody else
        return None
    return found if found.version == _VERSION and len(found.record) >= _HEAD else None


def _without_payload(record: bytes) -> bytes:
    """Leave body and headers out of a record: settling needs its flags, key and rules."""
    try:
        stored = codec.read_record(record)
    except CodecError:  # damaged: it can still be settled, by the queue's rules
        return record[:_HEAD]
    return _written(stored, codec.CONTENT_BYTES, b"", None)


def with_message_headers(delivery: AsyncDelivery, headers: Mapping[str, str]) -> AsyncDelivery:
    """Make a delivery that knows the headers of its message again: with another body, it is to keep them."""
    stored = codec.read_record(delivery._record)
    record = _written(stored, stored.envelope.content, stored.envelope.body, dict(headers))
    return AsyncDelivery(delivery._queue, delivery.id, delivery.fence, record, delivery._counts)


def _written(stored: codec.Record, content: int, body: bytes, headers: dict[str, str] | None) -> bytes:
    envelope = codec.Envelope(content, body, headers, stored.envelope.retry, stored.envelope.repeat)
    return codec.stamped(stored.sent, stored.due, codec.rewritten_part(stored, envelope))


def _beginning(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
