"""Texts from a queue as a page shows them: bodies laid out, and characters that nobody sees written out. Pure."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from typing import Any, Final

from markupsafe import Markup, escape

from duly.message import Message

_UNSHOWN: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Characters that nobody sees, that turn the direction of a line, or that cannot be sent."""
_LINE_SHOWN: Final = 120
_TEXT_SHOWN: Final = 200_000
_BYTES_SHOWN: Final = 16_384
_BYTES_A_LINE: Final = 16


def visible(text: str) -> str:
    """Write a text so that all of it is seen, and nothing else of the page is moved by it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(one) if unicodedata.category(one) in _UNSHOWN else one for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def lines(text: str) -> Markup:
    """Keep the lines of a text, and make everything else in it visible."""
    shown = text[:_TEXT_SHOWN]
    left_out = f"\n... {len(text) - _TEXT_SHOWN:,} more characters" if len(text) > _TEXT_SHOWN else ""
    # Tabs and ends of lines are laid out; all others are not.
    return escape("\n".join("\t".join(map(visible, each.split("\t"))) for each in shown.split("\n")) + left_out)


def body(message: Message) -> Markup:
    """Lay out a body: JSON indented, bytes as a hex dump."""
    if isinstance(message.body, bytes):
        return lines("\n".join(_hex_lines(message.body)))
    if message.raw is None:
        return escape("the body was lost")
    return lines(_indented(message.raw, message.body))


def body_line(message: Message) -> str:
    """Write the beginning of a body on one line."""
    if isinstance(message.body, bytes):
        return f"{len(message.body):,} bytes: {message.body[:24].hex(' ')}"
    if message.raw is None:
        return "the body was lost"
    is_json = message.raw[:1] in b'{["-0123456789tfn'
    text = message.raw[: 4 * _LINE_SHOWN].decode(errors="replace") if is_json else value(message.body)
    return text if len(text) <= _LINE_SHOWN else text[:_LINE_SHOWN] + "..."


def value(given: Any) -> str:
    """Write a value on one line, as JSON."""
    if isinstance(given, bytes):
        return f"{len(given):,} bytes: {given[:24].hex(' ')}"
    try:
        return json.dumps(given, ensure_ascii=False, default=_foreign)
    except (RecursionError, ValueError):
        return "nested too deep to show"


def _indented(raw: bytes, decoded: Any) -> str:
    """Lay out JSON. It is read from what was sent: a queue with a type has decoded it to something else."""
    try:
        return json.dumps(json.loads(raw), ensure_ascii=False, indent=2)
    except RecursionError:
        return raw.decode(errors="replace")
    except ValueError:  # the fields of an entry that another program added, or a number of too many digits
        if isinstance(decoded, dict):
            return json.dumps(decoded, ensure_ascii=False, indent=2, default=_foreign)
        return raw.decode(errors="replace")


def _foreign(part: Any) -> str:
    return part.hex(" ") if isinstance(part, bytes) else repr(part)


def _hex_lines(content: bytes) -> Iterable[str]:
    yield f"{len(content):,} bytes"
    for at in range(0, min(len(content), _BYTES_SHOWN), _BYTES_A_LINE):
        part = content[at : at + _BYTES_A_LINE]
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        yield f"{at:08x}  {part.hex(' '):<{3 * _BYTES_A_LINE}} {letters}"
    if len(content) > _BYTES_SHOWN:
        yield f"... {len(content) - _BYTES_SHOWN:,} more bytes"
