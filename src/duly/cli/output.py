"""Output of the commands: tables for people, JSON for programs. Nothing here calls the server."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import sys
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from rich.console import Console, ConsoleOptions, Group, OverflowMethod, RenderResult
from rich.table import Table
from rich.text import Text

from duly import AsyncDelivery, _port
from duly.errors import CodecError
from duly.message import Entry, Message

_WIDE: Final = 1_000_000_000
"""Columns of a pipe, where no text is cut and no line is wrapped."""
_HIDDEN: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that move the cursor, change colours or the direction of a line."""
_BODY_SHOWN: Final = 200
_DEEPEST: Final = 200
"""The deepest nesting of lists that is printed."""
_CUT_WIDTH: Final = 8
"""The smallest width of a column that is cut."""
_GAP: Final = 2

Align = Literal["left", "right"]


def console(*, to_errors: bool = False) -> Console:
    """Open standard output (or error) for tables, as wide as the terminal. In a pipe the width is unlimited."""
    stream = sys.stderr if to_errors else sys.stdout
    is_free = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(file=stream, width=_WIDE if is_free else None, highlight=False, markup=False, emoji=False)


def is_interactive(screen: Console) -> bool:
    """Return whether the output is a terminal that can show a live view. A pipe with forced colours is not one."""
    return screen.file.isatty() and screen.is_terminal and not screen.is_dumb_terminal


def print_text(text: str) -> None:
    """Print text unchanged and flush it. Ids and bodies must not be wrapped or cut."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def visible(text: object) -> str:
    """Escape a text from a queue, so that the terminal shows control characters instead of executing them.

    Characters outside the encoding of standard output are escaped as well, before the widths of columns are computed.
    """
    return "".join(
        _escaped(one) if unicodedata.category(one) in _HIDDEN or not _is_encodable(one) else one for one in str(text)
    )


def visible_lines(text: str) -> str:
    """Escape a text, but keep its line breaks."""
    return "\n".join(visible(line) for line in text.splitlines())


def _escaped(character: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character) or character.encode(
        "unicode_escape", "backslashreplace"
    ).decode()


def body_of(message: Message | Entry | AsyncDelivery) -> Any:
    """Return the body. It is raw bytes if it does not decode, and JSON text if it is nested too deeply to show."""
    try:
        body = message.body
    except CodecError:
        return message.raw
    return (message.raw or b"").decode(errors="replace") if is_deep(body) else body


def shown_body_of(message: Message) -> Any:
    """Return the body for people. A message of Celery is shown as the call of its task."""
    call = _port.task_call(message.raw, message.headers)
    return body_of(message) if call is None else str(call)


def is_deep(body: Any) -> bool:
    """Return whether a body is nested too deeply to show. Works level by level, since recursion would overflow."""
    level = [body]
    for _ in range(_DEEPEST):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def body_text(body: Any) -> str:
    """Format a body on one line, cut if it is long."""
    if isinstance(body, bytes):
        text = f"bytes, {len(body):,}: {body[:40].hex(' ')}"
    elif isinstance(body, str):
        text = body[: _BODY_SHOWN + 1]
    else:
        text = msgspec.json.encode(body)[: 4 * _BODY_SHOWN].decode(errors="replace")
    return visible(text if len(text) <= _BODY_SHOWN else text[:_BODY_SHOWN] + "...")


def whole_body(body: Any) -> str:
    """Format a whole body on one line."""
    if isinstance(body, bytes):
        return f"bytes, {len(body):,}: {body.hex(' ')}"
    return visible(body) if isinstance(body, str) else json_text(body)


def time_text(at: datetime | None) -> str:
    """Format a time in the local zone."""
    return "-" if at is None else at.astimezone().isoformat(sep=" ", timespec="milliseconds")


def clock_text(at: datetime | None) -> str:
    """Format a time in the local zone, short, for a column."""
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def zoned(title: str) -> str:
    """Return the heading of a column of times, with the local zone, or both zones if there is daylight saving time."""
    year = datetime.now().astimezone().year
    names = dict.fromkeys(datetime(year, month, 1).astimezone().tzname() or "" for month in (1, 7))
    return f"{title} ({'/'.join(names)})"


def zoned_clock_text(at: datetime | None, zone: str) -> str:
    """Format a time in a zone of the tz database, with its name. Uses the local zone if the zone is unknown."""
    try:
        return "-" if at is None else at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return clock_text(at)


def exact_clock_text(at: datetime) -> str:
    """Format a time in the local zone, with milliseconds."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


class Sheet:
    """Rows in columns, laid out for the terminal.

    In a narrow terminal, the columns in `cut` become narrower, then those in `spare` are left out in order, then others
    from the right. Other columns, like ids and numbers, are never cut. With `total`, the last row is bold.
    """

    def __init__(
        self,
        columns: Mapping[str, Align],
        rows: Iterable[Sequence[object]],
        *,
        cut: Collection[str] = (),
        spare: Sequence[str] = (),
        total: bool = False,
    ) -> None:
        self._columns = columns
        self._rows = [[cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row] for row in rows]
        self._cut = cut
        self._spare = spare
        self._total = total

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out for the available width."""
        made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        widths = self._widths(options.max_width)
        overflow: OverflowMethod = "ellipsis" if console.encoding.startswith("utf") else "crop"
        for name, width in widths.items():
            made.add_column(name, justify=self._columns[name], no_wrap=True, overflow=overflow, width=width)
        kept = [at for at, name in enumerate(self._columns) if name in widths]
        last = len(self._rows) - 1
        for at, row in enumerate(self._rows):
            made.add_row(*(row[each] for each in kept), style="bold" if self._total and at == last else None)
        yield made

    def _widths(self, most: int) -> dict[str, int]:
        """Return the widths of the columns that fit."""
        widths = {
            name: max([len(name), *(row[at].cell_len for row in self._rows)]) for at, name in enumerate(self._columns)
        }
        for left_out in (None, *self._spare, *reversed([*self._columns][1:])):
            widths.pop(left_out or "", None)
            if _fitted(widths, self._cut, most):
                break
        return widths


def _fitted(widths: dict[str, int], cut: Collection[str], most: int) -> bool:
    """Narrow the widest columns of `cut` until all fit. Returns False if they do not fit."""
    room = most - _GAP * (len(widths) - 1)
    while sum(widths.values()) > room:
        shrinkable = [name for name in widths if name in cut and widths[name] > _CUT_WIDTH]
        if not shrinkable:
            return False
        widths[max(shrinkable, key=widths.__getitem__)] -= 1
    return True


def fields(rows: Mapping[str, object]) -> Group:
    """Return names and values, one per line."""
    indent = max(map(len, rows)) + _GAP
    return Group(*(_Field(name.ljust(indent), visible(value)) for name, value in rows.items()))


class _Field:
    def __init__(self, name: str, value: str) -> None:
        self._name = Text(name, "bold")
        self._value = Text(value)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Print a value on one line if it fits. A table cell would add trailing spaces."""
        if self._name.cell_len + self._value.cell_len <= options.max_width:
            yield self._name + self._value
            return
        made = Table.grid()
        made.add_column(no_wrap=True)
        made.add_column(overflow="fold")
        made.add_row(self._name, self._value)
        yield made


def print_json(value: Any, *, one_line: bool = False) -> None:
    """Print a value as JSON: indented for a person at a terminal, else on one line."""
    sys.stdout.write(json_text(value, indent=2 if sys.stdout.isatty() and not one_line else None) + "\n")
    sys.stdout.flush()


def json_text(value: Any, indent: int | None = None) -> str:
    """Format a value as JSON. Control characters, and characters outside the encoding, are escaped."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=indent)
    is_shown = str.isprintable if supports_unicode() else lambda one: one.isprintable() and _is_encodable(one)
    return "".join(one if one == "\n" or is_shown(one) else _json_escaped(one) for one in text)


def _json_escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def _is_encodable(character: str) -> bool:
    """Return whether standard output can encode a character."""
    if character.isascii() or supports_unicode():
        return True
    try:
        character.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def supports_unicode() -> bool:
    """Return whether standard output is UTF-8."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def plain(value: Any) -> Any:  # noqa: PLR0911, one line per type
    """Convert values of the library into JSON types. Times are in UTC, durations in seconds."""
    if isinstance(value, Message | Entry):
        return _message_fields(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")  # as the HTTP API writes it
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value


def _message_fields(message: Message | Entry) -> dict[str, Any]:
    """Return the fields of a message. A body of bytes becomes {"base64": ...}."""
    left_out = ("raw", "cursor", "body")
    found = {
        each.name: plain(getattr(message, each.name))
        for each in dataclasses.fields(message)
        if each.name not in left_out
    } | {"body": plain(body_of(message))}
    if isinstance(message, Message):
        found |= {"attempt": message.attempt, "deliveries": message.deliveries}
    return found
