"""What the commands print: plain tables for people, JSON for programs. Nothing here asks the server."""

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

from duly import AsyncDelivery
from duly.errors import CodecError
from duly.message import Entry, Message

_WIDE: Final = 1_000_000_000
"""Columns of a pipe: nothing is cut off there, and no line is broken."""
_UNSHOWN: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Characters that would move the cursor, change colours or turn the direction of a line."""
_BODY_SHOWN: Final = 200
_DEEPEST: Final = 200
"""Lists in lists that are written as such."""
_CUT_WIDTH: Final = 8
"""What is left at least of a column that gives way."""
_GAP: Final = 2

Align = Literal["left", "right"]


def console(*, to_errors: bool = False) -> Console:
    """Open standard output (or error) for tables: as wide as the terminal, and as they need in a pipe."""
    stream = sys.stderr if to_errors else sys.stdout
    is_free = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(file=stream, width=_WIDE if is_free else None, highlight=False, markup=False, emoji=False)


def is_watched(screen: Console) -> bool:
    """Tell whether somebody can watch it move: a terminal, and not a pipe that was told to have colours."""
    return screen.file.isatty() and screen.is_terminal and not screen.is_dumb_terminal


def print_text(text: str) -> None:
    """Print lines as they are, and at once: ids and bodies, which no layout may break or leave out."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def visible(text: object) -> str:
    """Write a text from a queue so that a terminal shows it and obeys nothing in it.

    What standard output cannot carry is escaped here: on its way out, a column would be too narrow for it.
    """
    return "".join(
        _escaped(one) if unicodedata.category(one) in _UNSHOWN or not _is_carried(one) else one for one in str(text)
    )


def visible_lines(text: str) -> str:
    """Keep the lines of a text, and make everything else in it visible."""
    return "\n".join(visible(line) for line in text.splitlines())


def _escaped(character: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character) or character.encode(
        "unicode_escape", "backslashreplace"
    ).decode()


def body_of(message: Message | Entry | AsyncDelivery) -> Any:
    """Give the body: as it was sent where it does not decode, and as one text where it is nested too deep to show."""
    try:
        body = message.body
    except CodecError:
        return message.raw
    return (message.raw or b"").decode(errors="replace") if is_deep(body) else body


def is_deep(body: Any) -> bool:
    """Tell whether a body is nested too deep to show. Goes down by levels, not by calls, which it has too many of."""
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
    """Write a body on one line, cut where it is long."""
    if isinstance(body, bytes):
        text = f"bytes, {len(body):,}: {body[:40].hex(' ')}"
    elif isinstance(body, str):
        text = body[: _BODY_SHOWN + 1]
    else:
        text = msgspec.json.encode(body)[: 4 * _BODY_SHOWN].decode(errors="replace")
    return visible(text if len(text) <= _BODY_SHOWN else text[:_BODY_SHOWN] + "...")


def whole_body(body: Any) -> str:
    """Write a body on one line, all of it."""
    if isinstance(body, bytes):
        return f"bytes, {len(body):,}: {body.hex(' ')}"
    return visible(body) if isinstance(body, str) else json_text(body)


def time_text(at: datetime | None) -> str:
    """Write a time in the zone of the reader."""
    return "-" if at is None else at.astimezone().isoformat(sep=" ", timespec="milliseconds")


def clock_text(at: datetime | None) -> str:
    """Write a time in the zone of the reader, short, for a column."""
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def zoned(title: str) -> str:
    """Head a column of times with the zone of the reader, or both its zones where clocks are put forward."""
    year = datetime.now().astimezone().year
    names = dict.fromkeys(datetime(year, month, 1).astimezone().tzname() or "" for month in (1, 7))
    return f"{title} ({'/'.join(names)})"


def zoned_clock_text(at: datetime | None, zone: str) -> str:
    """Write a time in a zone of the tz database, with its name; in the reader's where the zone is not known here."""
    try:
        return "-" if at is None else at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return clock_text(at)


def exact_clock_text(at: datetime) -> str:
    """Write a time in the zone of the reader, with milliseconds: what follows within a second is told apart."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


class Sheet:
    """Rows in columns, laid out for the terminal.

    When it is narrow, the columns `cut` give way, then those of `spare` are left out, in this order, then others from
    the right; what remains, like ids and numbers, is never cut. With `total`, the last row stands out.
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
        """Lay out for the width that there is."""
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
        """Give each column what it needs, as far as there is room."""
        widths = {
            name: max([len(name), *(row[at].cell_len for row in self._rows)]) for at, name in enumerate(self._columns)
        }
        for left_out in (None, *self._spare, *reversed([*self._columns][1:])):
            widths.pop(left_out or "", None)
            if _fitted(widths, self._cut, most):
                break
        return widths


def _fitted(widths: dict[str, int], cut: Collection[str], most: int) -> bool:
    """Take from the widest columns that may give way until all fit; False: they do not."""
    room = most - _GAP * (len(widths) - 1)
    while sum(widths.values()) > room:
        giving = [name for name in widths if name in cut and widths[name] > _CUT_WIDTH]
        if not giving:
            return False
        widths[max(giving, key=widths.__getitem__)] -= 1
    return True


def fields(rows: Mapping[str, object]) -> Group:
    """Lay out names and values, one a line."""
    indent = max(map(len, rows)) + _GAP
    return Group(*(_Field(name.ljust(indent), visible(value)) for name, value in rows.items()))


class _Field:
    def __init__(self, name: str, value: str) -> None:
        self._name = Text(name, "bold")
        self._value = Text(value)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Keep a value on its line where it fits; a cell of a table would have spaces behind it."""
        if self._name.cell_len + self._value.cell_len <= options.max_width:
            yield self._name + self._value
            return
        made = Table.grid()
        made.add_column(no_wrap=True)
        made.add_column(overflow="fold")
        made.add_row(self._name, self._value)
        yield made


def print_json(value: Any, *, a_line: bool = False) -> None:
    """Print a value as JSON: indented for a person at a terminal, else on one line."""
    sys.stdout.write(json_text(value, indent=2 if sys.stdout.isatty() and not a_line else None) + "\n")
    sys.stdout.flush()


def json_text(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON that standard output can carry. A terminal obeys nothing in it: it has escapes."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=indent)
    is_shown = str.isprintable if speaks_unicode() else lambda one: one.isprintable() and _is_carried(one)
    return "".join(one if one == "\n" or is_shown(one) else _json_escaped(one) for one in text)


def _json_escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def _is_carried(character: str) -> bool:
    """Tell whether standard output has a character: ASCII has few, GBK has no emoji."""
    if character.isascii() or speaks_unicode():
        return True
    try:
        character.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def speaks_unicode() -> bool:
    """Tell whether standard output can show more than ASCII."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def plain(value: Any) -> Any:  # noqa: PLR0911, one line a kind
    """Turn what the library gives into what JSON has. Times are in UTC, durations in seconds."""
    if isinstance(value, Message | Entry):
        return _message_fields(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value


def _message_fields(message: Message | Entry) -> dict[str, Any]:
    """Show the body as it is; bytes, which JSON has not, as {"base64": ...}."""
    left_out = ("raw", "cursor", "body")
    found = {
        each.name: plain(getattr(message, each.name))
        for each in dataclasses.fields(message)
        if each.name not in left_out
    } | {"body": plain(body_of(message))}
    if isinstance(message, Message):
        found |= {"attempt": message.attempt, "deliveries": message.deliveries}
    return found
