"""Names of queues and topics of other frameworks, in the alphabet of Duly, and back.

Most names are the same on both sides. A character that Duly does not allow becomes `_x` and two hexadecimal digits for
each byte of it: `celery@host` is `celery_x40host`. The encoding is reversible, and different names stay different.
"""

import re
from typing import Final

from duly.errors import InvalidName
from duly.options import is_name

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")
_LIKE_ESCAPE: Final = re.compile(r"_(?=x(?:[0-9a-f]{2}|-))")
"""An underscore that would be read as the beginning of an escape."""
_ESCAPES: Final = re.compile(rb"_x([0-9a-f]{2})")
_MARK: Final = "n_x-"
"""Precedes a name that would not begin with a letter or digit."""


def encoded(name: str) -> str:
    """Return the name of the queue or topic in Duly. Raises InvalidName if it is empty, or too long."""
    text = _ODD.sub(_escape, _LIKE_ESCAPE.sub("_x5f", name))
    if text and not text[0].isalnum():
        text = _MARK + text
    if not is_name(text):
        raise InvalidName(f"the name {name!r} is empty or too long: as {text!r}, it must have 1 to 128 characters")
    return text


def decoded(name: str) -> str:
    """Return the name that `encoded` was called with."""
    text = name.removeprefix(_MARK).encode()
    return _ESCAPES.sub(lambda found: bytes([int(found[1], 16)]), text).decode(errors="surrogateescape")


def _escape(found: "re.Match[str]") -> str:
    return "".join(f"_x{byte:02x}" for byte in found[0].encode(errors="surrogateescape"))
