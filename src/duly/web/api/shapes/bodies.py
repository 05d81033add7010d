"""JSON that passes through: stored and shown as it was sent. What nobody could decode is refused. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from duly.errors import UsageError

DEEPEST: Final = 200
"""Lists in lists in a body: other languages read no more, and whoever reads in Python has a stack of his own."""

NULL: Final = Raw(b"null")


def checked_body(body: Raw | UnsetType, encoded: str | None) -> Raw | bytes:
    """Give what is to be stored: JSON that anybody can decode, or bytes."""
    if encoded is None:
        if isinstance(body, UnsetType):
            raise UsageError("a message needs a body, which may be null, or base64")
        return checked_json(body, "body")
    if body is not UNSET:
        raise UsageError("body and base64 exclude each other: give one")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"base64 is not Base64: {error}") from None


def checked_json(given: Raw, what: str) -> Raw:
    """Refuse JSON that nobody could decode who is given it: half characters, numbers without end, or too deep."""
    try:
        value = msgspec.json.decode(given)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} cannot be decoded: {error}") from None
    if _is_deep(value):
        raise UsageError(f"{what} is nested more than {DEEPEST} levels deep")
    return Raw(bytes(given))


def _is_deep(value: Any) -> bool:
    """Go down by levels, not by calls, which it has too many of."""
    level = _nested([value])
    for _ in range(DEEPEST):
        level = [part for each in level for part in _nested(each)]
    return bool(level)


def _nested(value: Any) -> list[Any]:
    """Give the lists and objects in a list or object."""
    parts = value.values() if isinstance(value, dict) else value
    return [part for part in parts if isinstance(part, list | dict)]


def json_of(value: Any) -> Raw:
    """Write what was decoded as JSON again; bytes, which JSON has not, as {"base64": ...}."""
    if isinstance(value, bytes):
        value = {"base64": base64.b64encode(value).decode()}
    try:
        return Raw(msgspec.json.encode(value))
    except OverflowError:  # whole numbers of more than 64 bits, which msgspec reads but does not write
        return Raw(json.dumps(value, ensure_ascii=False).encode())
    except RecursionError:
        return Raw(b'"nested too deep to be shown"')


def body_shown(body: Any, raw: bytes | None) -> tuple[Raw, str | UnsetType]:
    """Show a body as it was sent. What is no JSON is bytes."""
    if raw is None:
        return NULL, UNSET
    if isinstance(body, bytes):
        return NULL, base64.b64encode(raw).decode()
    return Raw(raw), UNSET
