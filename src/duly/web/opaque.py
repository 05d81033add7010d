"""Cursors and receipts: opaque texts that clients store and send back.

A digest detects texts that were truncated or changed. They are not secret and grant no access. A receipt has what
settling needs: the fencing token, the counts and the message's own policies. So the dashboard stores no deliveries,
and any of its processes accepts the receipt, even after a restart.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated, Final

import msgspec

from duly import AsyncDelivery
from duly import _port as port
from duly._port import Inbox
from duly.errors import UsageError
from duly.message import Message

_DIGEST: Final = 8


def encode_opaque(content: bytes, purpose: bytes) -> str:
    """Encode bytes for a URL or JSON. Texts of one purpose are not valid for another."""
    return base64.urlsafe_b64encode(_digest(content, purpose) + content).decode().rstrip("=")


def decode_opaque(text: str, purpose: bytes) -> bytes | None:
    """Decode an opaque text. None: it is invalid or truncated."""
    try:
        found = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    digest, content = found[:_DIGEST], found[_DIGEST:]
    return content if digest == _digest(content, purpose) else None


def _digest(content: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST, person=purpose).digest()


_CURSOR_MARK: Final = "next~"
"""The prefix of a cursor. Any other `after` is the id of a message."""
_CURSOR_PURPOSE: Final = b"duly cursor"

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Score = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Priority = Annotated[int, msgspec.Meta(ge=0, le=255)]


class _Cursor(msgspec.Struct, array_like=True):
    state: str
    id: _Text
    score: _Score
    priority: _Priority
    key: str | None


_FIRST_ID: Final = "\x01"
"""Lower than all ids, in byte order."""

_pack_cursor = msgspec.msgpack.Encoder().encode
_unpack_cursor = msgspec.msgpack.Decoder(_Cursor).decode


def encode_cursor(message: Message) -> str:
    """Encode the position of a message in its list. It works even after the message has left the list."""
    packed = _pack_cursor(_Cursor(message.state, message.id, *message.cursor, message.key))
    return _CURSOR_MARK + encode_opaque(packed, _CURSOR_PURPOSE)


def decode_cursor(after: str, state: str) -> Message | str:
    """Decode `after`: a position for `list(after=...)`, or the id of a message."""
    if not after.startswith(_CURSOR_MARK):
        return after
    found = _read_cursor(after.removeprefix(_CURSOR_MARK))
    if found is None:
        raise UsageError("`after` is not a whole cursor: use `next` of the previous page, or the id of a message")
    if found.state != state:
        raise UsageError(f"`after` is from a page of {found.state!r} messages, not of {state!r}: start without it")
    return _message(found)


def position_before(state: str, score: int) -> Message:
    """Return the position in a list, newest first, that only messages with lower scores are behind."""
    return _message(_Cursor(state, _FIRST_ID, score, 0, None))


def _read_cursor(text: str) -> _Cursor | None:
    """Decode a cursor. None: it is invalid or truncated."""
    packed = decode_opaque(text, _CURSOR_PURPOSE)
    if packed is None:
        return None
    try:
        found = _unpack_cursor(packed)
    except (ValueError, msgspec.DecodeError):  # the digest is right, the content is not
        return None
    return found if port.is_position(found.id, found.score) else None


def _message(found: _Cursor) -> Message:
    """Create a message that has only its position."""
    return Message(
        id=found.id,
        queue="",
        state=found.state,  # type: ignore[arg-type]
        body=None,
        raw=None,
        headers={},
        key=found.key,
        priority=found.priority,
        sent_at=None,
        due_at=None,
        failures=0,
        crashes=0,
        defers=0,
        releases=0,
        cursor=(found.score, found.priority),
    )


_VERSION: Final = 1
_RECEIPT_PURPOSE: Final = b"duly receipt"


class _Receipt(msgspec.Struct, array_like=True):
    version: int
    inbox: str
    id: str
    fence: int
    record: bytes
    counts: bytes


_pack_receipt = msgspec.msgpack.Encoder().encode
_unpack_receipt = msgspec.msgpack.Decoder(_Receipt).decode


def encode_receipt(delivery: AsyncDelivery) -> str:
    """Encode a delivery as a receipt."""
    record, counts = port.record_without_payload(delivery), port.counts_of(delivery)
    receipt = _Receipt(_VERSION, delivery.queue, delivery.id, delivery.fence, record, counts)
    return encode_opaque(_pack_receipt(receipt), _RECEIPT_PURPOSE)


def decode_receipt(inbox: Inbox, receipt: str) -> AsyncDelivery:
    """Restore the delivery of a receipt."""
    packed = _read_receipt(receipt)
    if packed is None:
        raise UsageError(f"{_beginning(receipt)} is not a receipt: use the ones from receive, unchanged")
    if packed.inbox != inbox.label:
        raise UsageError(f"the receipt of message {packed.id} belongs to {packed.inbox!r}, not to {inbox.label!r}")
    return port.delivery_from(inbox, packed.id, packed.fence, packed.record, packed.counts)


def _read_receipt(receipt: str) -> _Receipt | None:
    """Decode a receipt. None: it is invalid or truncated."""
    packed = decode_opaque(receipt, _RECEIPT_PURPOSE)
    if packed is None:
        return None
    try:
        found = _unpack_receipt(packed)
    except (ValueError, msgspec.DecodeError):  # the digest is right, the content is not
        return None
    return found if found.version == _VERSION and len(found.record) >= port.RECORD_HEAD_BYTES else None


def _beginning(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
