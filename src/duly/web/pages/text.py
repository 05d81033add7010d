"""Formats texts from a queue for pages: indents bodies and escapes invisible characters. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any, Final

from markupsafe import Markup, escape

from duly import _port
from duly.message import Message

_INVISIBLE: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that are invisible, change the text direction, or cannot be encoded."""
_LINE_SHOWN: Final = 120
_TEXT_SHOWN: Final = 200_000
_VALUE_SHOWN: Final = 10_000
_BYTES_LAID_OUT: Final = 262_144
_BYTES_SHOWN: Final = 16_384
_BYTES_PER_LINE: Final = 16


def visible(text: str) -> str:
    """Escape invisible characters, so that a text is shown as it is and does not affect the rest of the page."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) if _is_invisible(character) else character for character in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def lines(text: str) -> Markup:
    """Keep the lines of a text, and escape all other invisible characters."""
    omitted = f"\n... {len(text) - _TEXT_SHOWN:,} more characters" if len(text) > _TEXT_SHOWN else ""
    return _escape_lines(text[:_TEXT_SHOWN], omitted)


def _escape_lines(text: str, omitted: str) -> Markup:
    # Tabs and line breaks are kept, all other characters are escaped.
    return escape("\n".join("\t".join(map(visible, each.split("\t"))) for each in text.split("\n")) + omitted)


def body(message: Message) -> Markup:
    """Format a body: a task of Celery, JSON indented, bytes as a hex dump."""
    if call := _port.task_call(message.raw, message.headers):
        facts = f"task: {call.name}\nid: {call.id}\nargs: {call.args}\nkwargs: {call.kwargs}\n\n"
        return lines(facts + _to_json(call.envelope, _TEXT_SHOWN, indent=2))
    if isinstance(message.body, bytes):
        return lines("\n".join(_hex_dump(message.body)))
    if message.raw is None:
        return escape("the body was lost")
    text = _indented(message.raw, message.body)
    is_truncated = len(text) > _TEXT_SHOWN
    return _escape_lines(
        text[:_TEXT_SHOWN], f"\n... and more: {len(message.raw):,} bytes in total" if is_truncated else ""
    )


def editable_json(raw: bytes) -> str:
    """Return stored JSON for an editor: indented if that changes nothing, with invisible characters as escapes."""
    text = raw.decode(errors="replace")
    try:
        value = json.loads(text)
        if json.dumps(value, ensure_ascii=False, separators=(",", ":")) == text:  # no number would be rounded
            text = json.dumps(value, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        pass
    return "".join(_escaped_in_json(each) if _is_invisible(each) and each not in "\n\t\r" else each for each in text)


def _escaped_in_json(character: str) -> str:
    return json.dumps(character)[1:-1]


def as_typed(text: str) -> Markup:
    """Return the text of an editor unchanged. Only the characters of HTML are escaped."""
    return escape(text)


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in _INVISIBLE


def body_line(message: Message) -> str:
    """Format the beginning of a body on one line."""
    if call := _port.task_call(message.raw, message.headers):
        return _cut(str(call))
    if isinstance(message.body, bytes):
        return f"{len(message.body):,} bytes: {message.body[:24].hex(' ')}"
    if message.raw is None:
        return "the body was lost"
    is_json = message.raw[:1] in b'{["-0123456789tfn'
    text = message.raw[: 4 * _LINE_SHOWN].decode(errors="replace") if is_json else value(message.body)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _LINE_SHOWN else text[:_LINE_SHOWN] + "..."


def value(given: Any) -> str:
    """Format a value as JSON on one line."""
    if isinstance(given, bytes):
        return f"{len(given):,} bytes: {given[:24].hex(' ')}"
    try:
        text = _to_json(given, _VALUE_SHOWN)
    except (RecursionError, ValueError):
        return "nested too deep to show"
    return text if len(text) <= _VALUE_SHOWN else text[:_VALUE_SHOWN] + "..."


def _indented(raw: bytes, decoded: Any) -> str:
    """Indent JSON. It is parsed from the stored body, because a queue with a type decodes it to another form.

    Very large bodies are not indented, because other requests wait in the meantime.
    """
    try:
        if len(raw) <= _BYTES_LAID_OUT:
            return _to_json(json.loads(raw), _TEXT_SHOWN, indent=2)
    except RecursionError:
        pass
    except ValueError:  # the fields of an entry from another program, or a number with too many digits
        if isinstance(decoded, dict):
            return _to_json(decoded, _TEXT_SHOWN, indent=2)
    return raw[: 4 * _TEXT_SHOWN + 4].decode(errors="replace")


def _to_json(given: Any, most: int, indent: int | None = None) -> str:
    """Write JSON up to a number of characters. Deeply nested lists have long lines of spaces."""
    found, length = list[str](), 0
    for part in json.JSONEncoder(ensure_ascii=False, indent=indent, default=_json_default).iterencode(given):
        found.append(part)
        length += len(part)
        if length > most:
            break
    return "".join(found)


def _json_default(part: Any) -> str:
    return part[:_BYTES_SHOWN].hex(" ") if isinstance(part, bytes) else repr(part)


def _hex_dump(content: bytes) -> Iterable[str]:
    yield f"{len(content):,} bytes"
    for at in range(0, min(len(content), _BYTES_SHOWN), _BYTES_PER_LINE):
        part = content[at : at + _BYTES_PER_LINE]
        letters = "".join(chr(character) if 32 <= character < 127 else "." for character in part)
        yield f"{at:08x}  {part.hex(' '):<{3 * _BYTES_PER_LINE}} {letters}"
    if len(content) > _BYTES_SHOWN:
        yield f"... {len(content) - _BYTES_SHOWN:,} more bytes"


_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\.\d{3}\+00:00")
_FOR_PROGRAMS: Final = "; redrive() delivers it again."
_HEAD: Final = 280
_END: Final = 120


def explanation_for_page(sentence: str) -> str:
    """Format times like the rest of the page, remove advice that is for programs, and shorten a very long error.

    The middle is left out: the beginning names the cause, the end names the next step.
    """
    if sentence.endswith(_FOR_PROGRAMS):
        sentence = sentence.removesuffix(_FOR_PROGRAMS) + "."
    text = _TIME.sub(r"\1 \2 UTC", sentence)
    return text if len(text) <= _HEAD + _END else f"{text[:_HEAD]} ... {text[-_END:]}"
