"""Writes a header as Lua: local names of keys and arguments, and the first lines of every script.

The names come first, so that the script and the files that it includes can use them:

- A key has its name in capitals, `MSGS`. `WAITING` has the keys of all priorities, by priority. `OTHERS` is a list.
- The table `keys` has all of them as fields, for functions that take several: `keys.msgs`, `keys.waiting`.
- An argument has its name. A number is a number, and a flag is true or false.
- A row is not a value. Its name is replaced in the text: `settles.first`, `settles.last` and `settles.stride` by
  positions in ARGV, and `settles.fence(at)` by the element of ARGV for that column of the row that begins at `at`. For
  a row that does not repeat, `keep.count` is replaced by an element of ARGV.
- `KEYS.first` is replaced by the position of the first key after `call`, and `KEYS.last` by that of the last key
  before those of a group's topic. `others.first` is replaced by the position of the first of `others*`, and
  `others.key(at)` by an element of KEYS.

Unused names are not written, because every call would pay for them: see docs/decisions/0022.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from duly._lua.header import Argument, Header
from duly._lua.keys import OF_THE_TOPIC

_KEPT_MS: Final = "local kept_ms = 3600000"
"""How long the record of a call is kept, unless an argument sets it."""

_FUNCTION: Final = re.compile(r"^( *)local function \w+\((.*?)\)\n(.*?)^\1end$", re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(r"\.(\w+)")
_DECLARED: Final = re.compile(r"\blocal ([\w, ]+)")
_WORD: Final = re.compile(r"(?<![.\w])[A-Za-z_]\w*\b(?! =[^=])")
_STRING: Final = re.compile(r"'(?:\\.|[^'\\\n])*'")
_ASSIGNED: Final = re.compile(r"^local ([\w, ]+) =", re.MULTILINE)
_LAST: Final = f", #KEYS - {len(OF_THE_TOPIC)}"
_WIDEST_GAP: Final = 1
"""How many unused elements an assignment may include: each takes one of the 200 local names of a function."""


class BadName(Exception):
    """A script uses a name in a way that its header does not allow."""


def prologue(header: Header) -> str:
    """Write the first lines of every script: let a full server drain, and answer a repeated call."""
    lines: list[str] = []
    if header.drains:
        lines.append(f"redis.call('HDEL', {header.drains.upper()}, '') -- see lib/drain.lua")
    if header.keys[:1] == ("call",) and not header.answers_repeats:
        lines += ["-- @include lib/repeated.lua", "if repeated then", "  return repeated", "end"]
    return _text(lines)


def declared(names: str) -> set[str]:
    """Return the names that `declarations` has written."""
    return {name for line in _ASSIGNED.findall(names) for name in line.split(", ")} - {"_"}


def declarations(header: Header, code: str, *, of_group: bool, but: Collection[str] = (), inner: str = "") -> str:
    """Write those names that a text without comments uses, `but` those that an enclosing text has written.

    `inner` is a text that has its own names, but reads fields of the table `keys` of this one.
    """
    code = _STRING.sub("''", code)
    used = _used(code).difference(but)
    if misused := {argument.name for argument in header.arguments if argument.is_row} & used:
        raise BadName(f"{sorted(misused)}: a row of ARGV is not a value")
    places = _places(header, of_group=of_group)
    keys = _keys(header, places, used, of_group=of_group)
    if "keys" in used:
        keys.append(_table(places, used.union(but), code + inner, of_group=of_group))
    used |= _used("\n".join(keys)).difference(but)
    arguments = _arguments(header, used, but)
    if any("waiting_by_priority" in line for line in keys):
        arguments.append("-- @include lib/waiting.lua")
    return _text([*arguments, *keys])


def keys_function(name: str, header: Header) -> str:
    """Write a function that names the keys of a script, except `call`, which begin at a position of KEYS."""
    fixed = [key for key in header.keys if key not in ("call", "waiting*")]
    fields = [f"    {key} = KEYS[first + {at}]," for at, key in enumerate(fixed)]
    behind = f"first + {len(fixed)}"
    if "waiting*" in header.keys:
        fields.append(f"    waiting = waiting_by_priority({behind}, digits),")
        behind += " + #digits"
    parameters = "first, digits" if "waiting*" in header.keys else "first"
    return _text([f"local function {name}({parameters})", "  return {", *fields, f"  }}, {behind}", "end"])


def with_rows(text: str, header: Header, *, of_group: bool) -> str:
    """Replace the names of rows and of positions in KEYS."""
    rows = {argument.name: argument for argument in header.arguments if argument.is_row}
    places = {
        "KEYS.first": "2" if header.keys[:1] == ("call",) else "1",
        "KEYS.last": f"#KEYS - {len(OF_THE_TOPIC)}" if of_group else "#KEYS",
        "others.first": _place(header, "others*") if "others*" in header.keys else "",
    }

    def replaced(match: re.Match[str]) -> str:
        name, word, at = match.groups()
        if name in rows:
            return _in_row(rows[name], word, at)
        if name == "waiting":
            return f"KEYS[{header.keys.index('waiting*')} + string.find(digits, {at}, 1, true)]" if at else match[0]
        return f"KEYS[{at}]" if word == "key" else places.get(f"{name}.{word}") or match[0]

    return re.sub(
        rf"(?<![.\w])({'|'.join(['KEYS', 'waiting', 'others', *rows])})\.(\w+)(?:\(([^()]*)\))?", replaced, text
    )


def _in_row(row: Argument, word: str, at: str | None) -> str:
    if word in row.columns:
        column = row.columns.index(word)
        if at is not None:
            return f"ARGV[{at} + {column}]" if column else f"ARGV[{at}]"
        if row.type == "row":
            return f"ARGV[{row.at + column}]"
    elif word == "stride":
        return str(row.size)
    elif row.at and word == "first":
        return str(row.at)
    elif row.at and word == "last":
        return "#ARGV" if row.type == "rows" else str(row.at + row.size - 1)
    raise BadName(f"the header has no {row.name}.{word}")


def _used(code: str) -> set[str]:
    """Find the words of a text, except the local names of its functions."""
    used = set(_WORD.findall(_FUNCTION.sub("", code)))
    for function in _FUNCTION.finditer(code):
        declared = [function[2], *_DECLARED.findall(function[3])]
        used |= set(_WORD.findall(function[3])) - {name for names in declared for name in re.findall(r"\w+", names)}
    return used


def _places(header: Header, *, of_group: bool) -> dict[str, str]:
    """Write an expression for each key."""
    places = {key: f"KEYS[{_place(header, key)}]" for key in header.keys if not key.endswith("*")}
    if "waiting*" in header.keys:
        places["waiting"] = f"waiting_by_priority({_place(header, 'waiting*')}, digits)"
    if "others*" in header.keys:
        places["others"] = f"{{ unpack(KEYS, {_place(header, 'others*')}{_LAST if of_group else ''}) }}"
    return places


def _place(header: Header, key: str) -> str:
    """Write the position of a key. After `waiting*` it depends on the number of priorities."""
    index = header.keys.index(key)
    return f"{index} + #digits" if "waiting*" in header.keys[:index] else str(index + 1)


def _from_end(at: int) -> str:
    """Write the position of a key of a group's topic, counted from 1. These keys are the last."""
    left = len(OF_THE_TOPIC) - at
    return f"#KEYS - {left}" if left else "#KEYS"


def _keys(header: Header, places: dict[str, str], used: set[str], *, of_group: bool) -> list[str]:
    """Write the local names of keys."""
    star = next((at for at, key in enumerate(header.keys) if key.endswith("*")), len(header.keys))
    head, behind = header.keys[:star], [key for key in places if key not in header.keys[:star]]
    lines = _assigned([key.upper() for key in head], used, "KEYS")
    lines += [f"local {key.upper()} = {places[key]}" for key in behind if key.upper() in used]
    if of_group:
        others = used - {key.upper() for key in header.keys}
        lines += _assigned([key.upper() for key in OF_THE_TOPIC], others, "KEYS", _from_end)
    return lines


def _table(places: dict[str, str], used: set[str], code: str, *, of_group: bool) -> str:
    """Write the table `keys`: those that the text reads from it, or all if the text computes a name."""
    is_any_asked_for = re.search(r"\bkeys\[", code)
    asked = set(_FIELD.findall(code))
    fields = {key: place for key, place in places.items() if is_any_asked_for or key in asked}
    if of_group:
        fields |= {key: f"KEYS[{_from_end(at)}]" for at, key in enumerate(OF_THE_TOPIC, 1) if key in asked}
    written = [
        f"{key} = {key.upper() if key.upper() in used else place}"
        for key, place in fields.items()
        if key not in ("call", "others")
    ]
    return f"local keys = {{ {', '.join(written)} }}"


def _arguments(header: Header, used: set[str], but: Collection[str]) -> list[str]:
    single = [argument for argument in header.arguments if argument.at and not argument.is_row]
    names = [""] * (single[-1].at if single else 0)
    for argument in single:
        names[argument.at - 1] = argument.name
    lines = _assigned(names, used, "ARGV")
    read = {"number": "tonumber({0})", "flag": "{0} == '1'"}
    converted = [each for each in single if each.type in read and each.name in used]
    if converted:
        values = ", ".join(read[each.type].format(each.name) for each in converted)
        lines.append(f"{', '.join(each.name for each in converted)} = {values}")
    if header.keys[:1] == ("call",) and "kept_ms" in used and "kept_ms" not in {*names, *but}:
        lines.append(_KEPT_MS)
    return lines


def _assigned(names: Sequence[str], used: set[str], table: str, place: Callable[[int], str] = str) -> list[str]:
    """Write assignments to the used names. One assignment of several names costs less than several of one."""
    runs: list[list[int]] = []
    for at, name in enumerate(names, 1):
        if name not in used:
            continue
        if runs and at - runs[-1][-1] <= 1 + _WIDEST_GAP:
            runs[-1].append(at)
        else:
            runs.append([at])
    return [_run(names, run, table, place) for run in runs]


def _run(names: Sequence[str], run: list[int], table: str, place: Callable[[int], str]) -> str:
    first, last = run[0], run[-1]
    if first == last:
        return f"local {names[first - 1]} = {table}[{place(first)}]"
    wanted = ", ".join(names[at - 1] if at in run else "_" for at in range(first, last + 1))
    return f"local {wanted} = unpack({table}, {place(first)}, {place(last)})"


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
