"""The scripts: every change of state of a queue is one of them.

One transition a file, shared helpers in lib/. A file's header is a grammar (`header.py`) that this loader reads. The
names under KEYS and ARGV tell the core how a call is put together, and become names in the script (`naming.py`).
Scripts are known by the hash of their text, so that two versions of Duly can share a server.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Final, Literal

from duly._lua import lazy
from duly._lua.header import Header, parsed
from duly._lua.naming import beginning, keys_function, named, with_rows

Kind = Literal["queue", "topic", "group", "freeing"]
"""Whose store a script works on: a queue's; a topic's, for what enters the stream later; a group's; or a group's of a
topic that frees what every group has acked."""

REPLACED: Final[dict[Kind, dict[str, str]]] = {
    "queue": {},
    "topic": {"lib/wake.lua": "lib/bell.lua", "lib/audit/store.lua": "lib/audit/delayed_store.lua"},
    "group": {"lib/wake.lua": "lib/bell.lua"},
    "freeing": {"lib/wake.lua": "lib/bell.lua"},
}
"""What a form of the scripts includes instead of what queues include."""

_ONLY: Final = re.compile(r"^ *-- @only (queue|topic|group|freeing)\n(.*?)^ *-- @end\n", re.MULTILINE | re.DOTALL)
"""Lines that only some scripts have: those of queues, of topics, of groups, or of groups that free entries."""
_INCLUDE: Final = re.compile(r"^ *-- @include (lib/(?:\w+/)?\w+\.lua)\n", re.MULTILINE)
_KEYS_OF: Final = re.compile(r"^ *-- @keys (\w+) of (\w+)\n", re.MULTILINE)
"""A function that names the keys of another script."""


@dataclass(frozen=True, slots=True)
class Script:
    """One transition, ready to be sent."""

    name: str
    text: str
    sha: str
    keys: tuple[str, ...]
    """Names of KEYS. `waiting*` stands for one key a priority; `others*`, the last, for keys that the call brings."""
    argv: tuple[str, ...]
    """Names of ARGV. A last name with a star repeats."""


@cache
def _read(path: str) -> str:
    return (files(__package__) / path).read_text(encoding="utf-8")


def expanded(text: str, kind: Kind = "queue", seen: set[str] | None = None) -> str:
    """Put included files in place, each once, depth first, in the form of a kind."""
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
    """Put parts that are made when they are used in place, and all else that a script includes."""
    paths = lazy.PATH.findall(found[0])
    texts = [_in_form(_read(path), kind) for path in paths]
    parts = [
        lazy.Part(PurePosixPath(path).stem, _INCLUDE.sub("", text)) for path, text in zip(paths, texts, strict=True)
    ]
    before = expanded(text[: found.start()], kind, seen)
    includes = "".join(line[0] for text in texts for line in _INCLUDE.finditer(text))
    shared = expanded(includes, kind, {*seen, *paths})
    behind = lazy.with_calls(expanded(text[found.end() :], kind, seen), parts)
    return before + lazy.made_when_used(parts, shared, behind) + behind


def form_of(kind: Kind) -> str:
    """Tell which of the marked lines a kind has."""
    return "group" if kind in ("group", "freeing") else kind


def _in_form(text: str, kind: Kind) -> str:
    """Leave out what only other kinds have."""
    forms = (form_of(kind), kind)
    return _ONLY.sub(lambda match: match.group(2) if match.group(1) in forms else "", text)


_WORD: Final = re.compile(r"\w+")
_HELPER: Final = re.compile(r"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)


def without_unused(code: str) -> str:
    """Leave out helpers that nothing calls: a script makes all of its functions anew at every call."""
    counts = Counter(_WORD.findall(code))
    helpers = list(_HELPER.finditer(code))
    unused: list[re.Match[str]] = []
    while found := [helper for helper in helpers if counts[helper.group(1)] == 1]:
        for helper in found:
            counts.subtract(_WORD.findall(helper.group()))
        unused += found
    for helper in sorted(unused, key=lambda helper: helper.start(), reverse=True):
        code = code[: helper.start()] + code[helper.end() :]
    return code


def _code(text: str) -> str:
    """Cut line comments off."""
    return re.sub(r"--.*", "", text)


def _tidied(text: str) -> str:
    return re.sub(r"[ \t]*\n\s*\n+", "\n", text).strip() + "\n"


def header_of(name: str, kind: Kind = "queue") -> Header:
    """Read the header of a script, in the form that it has for a kind of store."""
    return parsed(_in_form(_read(f"{name}.lua"), kind))


def opening(name: str, kind: Kind = "queue") -> str:
    """Write what the header of a script says as Lua, includes not yet in place."""
    known, of_group = header_of(name, kind), form_of(kind) == "group"
    begins = beginning(known)
    code = with_rows(_assembled(begins + _body(name), kind), known, of_group=of_group)
    return named(known, code, of_group=of_group) + begins


def _assembled(text: str, kind: Kind) -> str:
    """Put included files in place, and leave out comments and helpers that nothing calls."""
    return without_unused(_code(expanded(text, kind)))


def _body(name: str) -> str:
    text = _read(f"{name}.lua")
    return text[text.index("]]") + 2 :]


@cache
def script(name: str, kind: Kind = "queue") -> Script:
    """Load one script by the name of its transition, in the form that it has for a kind of store."""
    known = header_of(name, kind)
    text = _assembled(opening(name, kind) + _body(name), kind)
    text = _tidied(with_rows(text, known, of_group=form_of(kind) == "group"))
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    keys = tuple("waiting*" if key == "waiting" else key for key in known.keys)
    return Script(name, text, sha, keys, known.argv)


def names() -> list[str]:
    """List the transitions there are."""
    return sorted(path.name[:-4] for path in files(__package__).iterdir() if path.name.endswith(".lua"))
