"""Bytes as a text that others keep for us and give back. A digest tells one that was cut off or changed on its way.

It is no secret: whoever can read it may, and whoever can make one may. Pure.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

_DIGEST: Final = 8


def sealed(content: bytes, purpose: bytes) -> str:
    """Write bytes as a text for an address or JSON. One of another purpose is not taken in its place."""
    return base64.urlsafe_b64encode(_digest(content, purpose) + content).decode().rstrip("=")


def unsealed(text: str, purpose: bytes) -> bytes | None:
    """Undo `sealed`; None: it is none, or not all of one."""
    try:
        found = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    digest, content = found[:_DIGEST], found[_DIGEST:]
    return content if digest == _digest(content, purpose) else None


def _digest(content: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST, person=purpose).digest()
