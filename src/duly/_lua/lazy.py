"""Lazy parts of a script: their functions are created when a call first uses them.

A server runs a script from its first line at every call, and so creates all of its functions at every call, used or
not. A script includes parts that few calls need with `-- @lazy lib/NAME.lua` in place of `-- @include`. It calls their
functions like any others:

    -- @lazy lib/claim/limits.lua
    local limits = room(claim)

In place of these lines the loader writes one function, `lazy_part`. It contains the files that the parts include, and
one function per part. `room(claim)` becomes `lazy_part('limits').room(claim)`. The first call of `lazy_part` creates
the functions of the included files, and the first call for a part creates those of the part. docs/decisions/0023 has
figures.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

LAZY: Final = re.compile(r"(?:^-- @lazy lib/[\w/]+\.lua\n)+", re.MULTILINE)
"""The lines that name the parts of a script, one after the other."""
PATH: Final = re.compile(r"^-- @lazy (lib/[\w/]+\.lua)$", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^local function (\w+)\(", re.MULTILINE)


class BadPart(Exception):
    """Two parts of a script have a function of the same name."""


class Part(NamedTuple):
    """One file."""

    name: str
    text: str
    """Without its includes."""

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
    texts = {part.name: with_calls(part.text, [other for other in parts if other != part]) for part in parts}
    makers = []
    for part in parts:
        others = users + "".join(text for name, text in texts.items() if name != part.name)
        used = [name for name in part.functions if f"lazy_part('{part.name}').{name}(" in others]
        returned = ", ".join(f"{name} = {name}" for name in used)
        makers.append(f"{part.name} = function()\n{texts[part.name]}return {{ {returned} }}\nend,\n")
    return (
        "local lazy_part, made, makers\n"
        "lazy_part = function(name)\n"
        "if not makers then\n"
        f"{shared}"
        f"made, makers = {{}}, {{\n{''.join(makers)}}}\n"
        "end\n"
        "local functions = made[name]\n"
        "if not functions then\n"
        "functions = makers[name]()\n"
        "made[name] = functions\n"
        "end\n"
        "return functions\n"
        "end\n"
    )
