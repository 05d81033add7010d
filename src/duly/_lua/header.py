"""The comment that opens a script, as data: the keys and arguments that it is given.

    KEYS     call, msgs, leases, wake, meta
             others*: the keys of the other queue
    ARGV     sequence  text
             limit     number  messages at the most
             renews    flag    a later deadline stays
             keep      row     count, age: microseconds, bytes; -1: no bound
             settles*  rows    id, fence, delay: microseconds, reason
    DRAINS   leases
    REPEATS  with the messages as they are now
    RETURNS  { position ... } of those whose lease was lost
    KEEPS    I1 I5

KEYS lists names that `keys.py` describes. A note after a colon explains the last one. An argument has a type. The
columns of a row are in order. A note after a colon explains one column, a note after a semicolon the whole row.
`rows` repeat to the end of ARGV. A second argument of this type follows the first or is part of it, and the script
computes where it begins. A line that is indented further continues the line above.

DRAINS names a hash, by which a full server runs the script (see lib/drain.lua). The reason may follow a colon. With
REPEATS, the script itself answers a repeated call.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from duly._lua.keys import KEYS

TYPES: Final = ("text", "number", "flag", "row", "rows")

_SECTION: Final = re.compile(r"([A-Z]+) +(\S.*)")
_INDENT: Final = " " * 9
_KEYS: Final = re.compile(r"(\w+\*?(?:, \w+\*?)*),?(?:: .*)?")
_ARGUMENT: Final = re.compile(rf"(\w+)(\*?) +({'|'.join(TYPES)})(?: +(.*))?")
_COLUMN: Final = re.compile(r"(\w+)(?::.*)?")


class BadHeader(Exception):
    """A header does not follow the grammar."""


class Argument(NamedTuple):
    """One argument, or a row of several."""

    name: str
    type: str
    columns: tuple[str, ...]
    """The columns of a row, in order."""
    at: int
    """Position in ARGV, from 1; for a row, that of its first column; 0: the script computes it."""

    @property
    def size(self) -> int:
        """How many elements of ARGV it takes."""
        return len(self.columns) if self.is_row else 1

    @property
    def is_row(self) -> bool:
        """Whether it has columns."""
        return self.type in ("row", "rows")


@dataclass(frozen=True, slots=True)
class Header:
    """The keys and arguments of a script."""

    keys: tuple[str, ...]
    arguments: tuple[Argument, ...]
    drains: str = ""
    """The hash by which a full server runs the script; empty for none."""
    answers_repeats: bool = False
    """Whether the script itself answers a repeated call, and not the loader's code."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Name every element of ARGV. Rows that repeat have one name, with a star."""
        names: list[str] = []
        for argument in self.arguments:
            if argument.type == "rows":
                return (*names, f"{argument.name}*")
            names += [f"{argument.name}.{column}" for column in argument.columns] or [argument.name]
        return tuple(names)


def parsed(text: str) -> Header:
    """Parse the comment that opens a script. The caller has removed lines for other kinds of stores."""
    sections = _sections(text[: text.index("]]")])
    keys = tuple(name for line in sections.get("KEYS", []) for name in _keys(line))
    drains = sections.get("DRAINS", [""])[0].partition(":")[0]
    if drains and drains not in keys:
        raise BadHeader(f"DRAINS names {drains!r}, which is not among KEYS")
    return Header(keys, _arguments(sections.get("ARGV", [])), drains, "REPEATS" in sections)


def _sections(header: str) -> dict[str, list[str]]:
    """Collect the lines of each section. Continuation lines are joined."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in header.splitlines():
        if opening := _SECTION.fullmatch(line):
            lines = sections.setdefault(opening[1], [])
            lines.append(opening[2])
        elif lines and line.startswith(_INDENT + " "):
            lines[-1] += " " + line.strip()
        elif lines and line.startswith(_INDENT):
            lines.append(line.strip())
    return sections


def _keys(line: str) -> list[str]:
    found = _KEYS.fullmatch(line)
    if not found:
        raise BadHeader(f"KEYS {line!r} is not a list of names")
    names = found[1].split(", ")
    if unknown := [name for name in names if name not in KEYS]:
        raise BadHeader(f"KEYS {unknown} are not described in keys.py")
    return names


def _arguments(lines: list[str]) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    at = 1
    for line in lines:
        found = _ARGUMENT.fullmatch(line)
        if not found or bool(found[2]) != (found[3] == "rows"):
            raise BadHeader(f"ARGV {line!r} is not a name, a type and a description; only rows have a star")
        name, _, kind, rest = found.groups()
        columns = _columns(name, rest or "") if kind in ("row", "rows") else ()
        argument = Argument(name, kind, columns, at)
        if at == 0 and kind != "rows":
            raise BadHeader(f"ARGV {name}: only rows can follow rows")
        at = 0 if kind == "rows" else at + argument.size
        arguments.append(argument)
    return tuple(arguments)


def _columns(name: str, rest: str) -> tuple[str, ...]:
    columns = [_COLUMN.fullmatch(column.strip()) for column in rest.partition(";")[0].split(",")]
    if not all(columns):
        raise BadHeader(f"ARGV {name}: {rest!r} does not name the columns")
    return tuple(column[1] for column in columns if column)
