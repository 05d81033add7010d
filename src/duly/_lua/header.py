"""The comment that opens a script, as data: the keys and arguments that it is given.

    KEYS     call, msgs, leases, wake, meta
             others*: the keys of the other queue
    ARGV     sequence  text
             limit     number  messages at the most
             renews    flag    a later deadline stays
             keep      row     count, age: microseconds, bytes; -1 is no bound
             settles*  rows    id, fence, delay: microseconds, reason
    DRAINS   leases
    REPEATS  each message is read again
    RETURNS  { position ... } of those whose lease was lost
    KEEPS    I1 I5

KEYS lists names that `keys.py` describes. A note behind a colon says what this script does with the last one. An
argument has a type. The columns of a row stand in order; what follows a colon explains one of them, and what follows
a semicolon all of them. `rows` repeat to the end of ARGV. A second one begins where the script says: it follows the
first or is part of it. Lines that are indented further belong to the line above.

DRAINS names a hash: a full server still runs the script (see lib/drain.lua); a colon may introduce why. REPEATS says
that the script answers a repeated call in a way of its own.
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
    """Of a row, in their order."""
    at: int
    """Position in ARGV, from 1; of a row that of its first column; 0: the script finds it."""

    @property
    def size(self) -> int:
        """How many positions of ARGV it takes."""
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
    """The hash that lets a full server run the script."""
    repeats_itself: bool = False
    """Whether the script answers a repeated call in a way of its own."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Name every position of ARGV; rows that repeat have one name, with a star."""
        names: list[str] = []
        for argument in self.arguments:
            if argument.type == "rows":
                return (*names, f"{argument.name}*")
            names += [f"{argument.name}.{column}" for column in argument.columns] or [argument.name]
        return tuple(names)


def parsed(text: str) -> Header:
    """Read the comment that opens a script. Lines that other forms of the script have are left out before."""
    sections = _sections(text[: text.index("]]")])
    keys = tuple(name for line in sections.get("KEYS", []) for name in _keys(line))
    drains = sections.get("DRAINS", [""])[0].partition(":")[0]
    if drains and drains not in keys:
        raise BadHeader(f"DRAINS names {drains!r}, which is not among KEYS")
    return Header(keys, _arguments(sections.get("ARGV", [])), drains, "REPEATS" in sections)


def _sections(header: str) -> dict[str, list[str]]:
    """Collect the lines of each section, each with those that belong to it."""
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
            raise BadHeader(f"ARGV {line!r} is not a name, a type, and what it is; only rows have a star")
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
