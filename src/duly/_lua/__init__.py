"""The Lua scripts and their loader. Every change of a queue's state is one script.

Each transition has one file, and lib/ has shared code. The loader reads the header of a file, which follows a grammar
(`header.py`). The core builds calls from the names under KEYS and ARGV, and the script uses the same names
(`header_writer.py`). A server knows a script by the hash of its text, so two versions of Duly can share a server.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Final, Literal

from duly._lua import constants, lazy
from duly._lua.header import Header, parsed
from duly._lua.header_writer import BadName, declarations, declared, keys_function, prologue, with_rows

Kind = Literal["queue", "topic", "group", "freeing"]
"""The kind of store that a script works on: that of a queue; that of a topic, which has delayed publishes; that of a
group; or that of a group whose topic frees entries when every group has acked them."""

REPLACED: Final[dict[Kind, dict[str, str]]] = {
    "queue": {},
    "topic": {"lib/wake.lua": "lib/bell.lua", "lib/audit/store.lua": "lib/audit/delayed_store.lua"},
    "group": {"lib/wake.lua": "lib/bell.lua"},
    "freeing": {"lib/wake.lua": "lib/bell.lua"},
}
"""Libraries that a kind of store includes in place of those of a queue."""

_ONLY: Final = re.compile(r"^ *-- @only (queue|topic|group|freeing)\n(.*?)^ *-- @end\n", re.MULTILINE | re.DOTALL)
"""Lines that are only in the scripts of some kinds of stores."""
_INCLUDE: Final = re.compile(r"^ *-- @include (lib/(?:\w+/)?\w+\.lua)\n", re.MULTILINE)
_KEYS_OF: Final = re.compile(r"^ *-- @keys (\w+) of (\w+)\n", re.MULTILINE)
"""A line that becomes a function, which names the keys of another script."""


@dataclass(frozen=True, slots=True)
class Script:
    """One transition, ready to be sent."""

    name: str
    text: str
    sha: str
    keys: tuple[str, ...]
    """Names of KEYS. `waiting*` stands for one key per priority; `others*`, the last, for keys that the call adds."""
    argv: tuple[str, ...]
    """Names of ARGV. If the last name has a star, it repeats."""


@cache
def _read(path: str) -> str:
    return (files(__package__) / path).read_text(encoding="utf-8")


def expanded(text: str, kind: Kind = "queue", seen: set[str] | None = None) -> str:
    """Replace includes by the files, each once and depth first, in the form for a kind of store."""
    seen = set() if seen is None else seen

    def included(match: re.Match[str]) -> str:
        path = REPLACED[kind].get(match.group(1), match.group(1))
        if path in seen:
            return ""
        seen.add(path)
        return expanded(_read(path), kind, seen)

    text = _KEYS_OF.sub(lambda match: keys_function(match[1], header_of(match[2])), _in_form(text, kind))
    if found := lazy.LAZY.search(text):
        return _with_parts(text, found, kind, seen)
    return _INCLUDE.sub(included, text)


def _with_parts(text: str, found: re.Match[str], kind: Kind, seen: set[str]) -> str:
    """Replace includes and lazy parts of a script that has lazy parts."""
    ways = [way for way, _ in lazy.PATH.findall(found[0])]
    paths = [path for _, path in lazy.PATH.findall(found[0])]
    texts = [_in_form(_read(path), kind) for path in paths]
    before = expanded(text[: found.start()], kind, seen)
    includes = ["".join(line[0] for line in _INCLUDE.finditer(text)) for text in texts]
    parts = [
        lazy.Part(
            PurePosixPath(path).stem,
            _INCLUDE.sub("", text),
            expanded(included, kind, {*seen}) if way == "alone" else None,
        )
        for way, path, text, included in zip(ways, paths, texts, includes, strict=True)
    ]
    shared = "".join(included for way, included in zip(ways, includes, strict=True) if way == "lazy")
    shared = expanded(shared, kind, {*seen, *paths})
    behind = lazy.with_calls(expanded(text[found.end() :], kind, seen), parts)
    return before + lazy.written_parts(parts, shared, behind) + behind


def form_of(kind: Kind) -> str:
    """Return which of the marked lines a kind of store has."""
    return "group" if kind in ("group", "freeing") else kind


def _in_form(text: str, kind: Kind) -> str:
    """Remove lines that are only for other kinds of stores."""
    forms = (form_of(kind), kind)
    return _ONLY.sub(lambda match: match.group(2) if match.group(1) in forms else "", text)


_WORD: Final = re.compile(r"\w+")


def without_unused(code: str) -> str:
    """Remove helpers that nothing calls: every call of a script creates all of its functions."""
    counts = Counter(_WORD.findall(code))
    helpers = list(lazy.HELPER.finditer(code))
    unused: list[re.Match[str]] = []
    while found := [helper for helper in helpers if counts[helper.group(1)] == 1]:
        for helper in found:
            counts.subtract(_WORD.findall(helper.group()))
        unused += found
    for helper in sorted(unused, key=lambda helper: helper.start(), reverse=True):
        code = code[: helper.start()] + code[helper.end() :]
    return code


def _code(text: str) -> str:
    """Remove line comments."""
    return re.sub(r"--.*", "", text)


def _tidied(text: str) -> str:
    return re.sub(r"[ \t]*\n\s*\n+", "\n", text).strip() + "\n"


def header_of(name: str, kind: Kind = "queue") -> Header:
    """Read the header of a script, in the form for a kind of store."""
    return parsed(_in_form(_read(f"{name}.lua"), kind))


def preamble(name: str, kind: Kind = "queue") -> str:
    """Write the header of a script as Lua. Includes are not replaced yet."""
    known = header_of(name, kind)
    prologue_code = prologue(known)
    code, helpers = _cut(prologue_code + _body(name), known, kind)
    inner = helpers + code.block
    return declarations(known, code.always, of_group=form_of(kind) == "group", inner=inner) + prologue_code


def _cut(text: str, known: Header, kind: Kind) -> tuple[lazy.Cut, str]:
    """Assemble a text, and take those helpers out that only its parts call."""
    code = with_rows(_assembled(text, kind), known, of_group=form_of(kind) == "group")
    return lazy.with_helpers(lazy.cut(code))


def _assembled(text: str, kind: Kind) -> str:
    """Replace includes by the files and constants by values, and remove comments and helpers that nothing calls."""
    return without_unused(constants.with_values(_code(expanded(text, kind))))


def source(name: str, kind: Kind = "queue") -> str:
    """Return a script with its includes, without comments, before its constants are replaced."""
    return _code(expanded(_body(name), kind))


def _body(name: str) -> str:
    text = _read(f"{name}.lua")
    return text[text.index("]]") + 2 :]


@cache
def script(name: str, kind: Kind = "queue") -> Script:
    """Load one script by the name of its transition, in the form for a kind of store."""
    known = header_of(name, kind)
    first = preamble(name, kind)
    code, helpers = _cut(first + _body(name), known, kind)
    if code.block:
        names = declarations(known, helpers + code.lazy, of_group=form_of(kind) == "group", but=declared(first))
        if misused := declared(names) & set(_WORD.findall(helpers)):
            raise BadName(f"a helper of {name} that only parts call uses {sorted(misused)}")
        helpers += _assembled(names, kind)

    def names_alone(text: str) -> str:
        names = declarations(known, text, of_group=form_of(kind) == "group", but=declared(first))
        return _assembled(names, kind)

    text = _tidied(code.with_names(helpers, names_alone))
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    keys = tuple("waiting*" if key == "waiting" else key for key in known.keys)
    return Script(name, text, sha, keys, known.argv)


def names() -> list[str]:
    """List the names of all scripts."""
    return sorted(path.name[:-4] for path in files(__package__).iterdir() if path.name.endswith(".lua"))
