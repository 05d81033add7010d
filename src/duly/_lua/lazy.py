"""Lazy parts of a script: their functions are created when a call first uses them.

A server runs a script from its first line at every call, and so creates all of its functions at every call, used or
not. A script includes parts that few calls need with `-- @lazy lib/NAME.lua` in place of `-- @include`. It calls their
functions like any others:

    -- @lazy lib/claim/limits.lua
    local limits = room(claim)

A part that many calls need is named with `-- @alone`. It has its own copies of the functions that it includes, so that
its first call does not create those of all other parts.

In place of these lines the loader writes one function, `lazy_part`. It contains the files that the parts include, and
one function per part. `room(claim)` becomes `lazy_part('limits').room(claim)`. The first call for a part creates its
functions, and, for a part under `-- @lazy`, first those of the included files. docs/decisions/0023 has
figures.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

LAZY: Final = re.compile(r"(?:^-- @(?:alone|lazy) lib/[\w/]+\.lua\n)+", re.MULTILINE)
"""The lines that name the parts of a script, one after the other."""
PATH: Final = re.compile(r"^-- @(alone|lazy) (lib/[\w/]+\.lua)$", re.MULTILINE)
HELPER: Final = re.compile(r"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
_FUNCTION: Final = re.compile(r"^local function (\w+)\(", re.MULTILINE)
_FIRST_LINE: Final = "local lazy_part, made, makers\n"
_ALONE: Final = re.compile(r"^(if name == '\w+' then\n)(.*?)^functions = .*\nelse", re.MULTILINE | re.DOTALL)
_SHARED: Final = "if not makers then\n"
_LAST_LINES: Final = "return functions\nend\n"
_BLOCK: Final = re.compile(rf"^{_FIRST_LINE}.*?^{_LAST_LINES}", re.MULTILINE | re.DOTALL)


class BadPart(Exception):
    """Two parts of a script have a function of the same name, or are both alone."""


class Part(NamedTuple):
    """One file."""

    name: str
    text: str
    """Without its includes."""
    alone: str | None = None
    """The files that it includes, if it has its own copies of their functions."""

    @property
    def functions(self) -> list[str]:
        """Name its functions."""
        return _FUNCTION.findall(self.text)


def with_calls(text: str, parts: Iterable[Part]) -> str:
    """Replace calls of functions of parts by calls through `lazy_part`."""
    owner: dict[str, str] = {}
    for part in parts:
        for function in part.functions:
            if owner.setdefault(function, part.name) != part.name:
                raise BadPart(f"{function} is a function of {owner[function]} and of {part.name}")
    if not owner:
        return text
    called = re.compile(rf"(?<![.\w])(?<!function )({'|'.join(owner)})\(")
    return called.sub(lambda match: f"lazy_part('{owner[match[1]]}').{match[1]}(", text)


def written_parts(parts: list[Part], shared: str, users: str) -> str:
    """Write `lazy_part`. `shared` has the files that the parts include, `users` is the text that calls the parts."""
    if sum(part.alone is not None for part in parts) > 1:
        raise BadPart("only one part of a script can be alone")
    texts = {part.name: with_calls(part.text, [other for other in parts if other != part]) for part in parts}
    makers, alone = "", ""
    for part in parts:
        others = users + "".join(text for name, text in texts.items() if name != part.name)
        used = [name for name in part.functions if f"lazy_part('{part.name}').{name}(" in others]
        returned = ", ".join(f"{name} = {name}" for name in used)
        if part.alone is None:
            makers += f"{part.name} = function()\n{texts[part.name]}return {{ {returned} }}\nend,\n"
        else:
            code = part.alone + texts[part.name]
            alone += f"if name == '{part.name}' then\n{code}functions = {{ {returned} }}\nelse"
    return (
        f"{_FIRST_LINE}"
        "lazy_part = function(name)\n"
        "made = made or {}\n"
        "local functions = made[name]\n"
        "if not functions then\n"
        f"{alone or 'do'}\n"
        f"{_SHARED}{shared}"
        f"makers = {{\n{makers}}}\n"
        "end\n"
        "functions = makers[name]()\n"
        "end\n"
        f"made[name] = functions\nend\n{_LAST_LINES}"
    )


class Cut(NamedTuple):
    """A script around its `lazy_part`."""

    before: str
    block: str
    """`lazy_part`; empty: the script has no parts."""
    behind: str

    @property
    def always(self) -> str:
        """The text that every call runs."""
        return self.before + self.behind

    @property
    def alone(self) -> str:
        """The text of the parts that share nothing with others."""
        return "".join(match[2] for match in _ALONE.finditer(self.block))

    @property
    def lazy(self) -> str:
        """The text of all other parts."""
        return _ALONE.sub("", self.block)

    def with_names(self, shared: str, alone: Callable[[str], str]) -> str:
        """Write the script, with more that the parts share, and the names of each part that shares nothing."""
        block = self.block.replace(_SHARED, _SHARED + shared, 1)
        block = _ALONE.sub(lambda match: match[1] + alone(match[2]) + match[0][len(match[1]) :], block)
        return self.before + block + self.behind


def cut(code: str) -> Cut:
    """Find `lazy_part` in a script without comments."""
    found = _BLOCK.search(code)
    if found is None:
        return Cut(code, "", "")
    return Cut(code[: found.start()], found[0], code[found.end() :])


def with_helpers(code: Cut) -> tuple[Cut, str]:
    """Take helpers out that only parts call. Returns the rest, and these helpers."""
    before, moved = code.before, ""
    while found := [each for each in HELPER.finditer(before) if _is_unused(each[1], before + code.alone + code.behind)]:
        last = found[-1]
        before, moved = before[: last.start()] + before[last.end() :], last[0] + moved
    return code._replace(before=before), moved


def _is_unused(name: str, code: str) -> bool:
    return len(re.findall(rf"\b{name}\b", code)) == 1
