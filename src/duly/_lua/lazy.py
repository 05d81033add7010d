"""Parts of a script that most calls do not need, made when they are first used.

A server runs a script from its first line at every call, and so makes all of its functions at every call, used or not.
A script names parts that it seldom needs with `-- @lazy lib/NAME.lua` in place of `-- @include`. Their functions are
called like any others:

    -- @lazy lib/claim/limits.lua
    local limits = room(claim)

In place of these lines the loader writes one function, `lazy_part`. It holds the parts, each in a function of its own,
and before them the files that they include. `room(claim)` becomes `lazy_part('limits').room(claim)`. The first call of
`lazy_part` makes the functions of the included files, and the first call for a part makes those of the part.
docs/decisions/0023 has what this saves.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

LAZY: Final = re.compile(r"(?:^-- @lazy lib/[\w/]+\.lua\n)+", re.MULTILINE)
"""The lines that name the parts of a script. They stand together."""
PATH: Final = re.compile(r"^-- @lazy (lib/[\w/]+\.lua)$", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^local function (\w+)\(", re.MULTILINE)


class BadPart(Exception):
    """Two parts of a script have a function of the same name."""


class Part(NamedTuple):
    """One file."""

    name: str
    text: str
    """Without what it includes."""

    @property
    def functions(self) -> list[str]:
        """Name its functions."""
        return _FUNCTION.findall(self.text)


def with_calls(text: str, parts: Iterable[Part]) -> str:
    """Let calls of functions of parts go by way of `lazy_part`."""
    owner: dict[str, str] = {}
    for part in parts:
        for function in part.functions:
            if owner.setdefault(function, part.name) != part.name:
                raise BadPart(f"{function} is a function of {owner[function]} and of {part.name}")
    if not owner:
        return text
    called = re.compile(rf"(?<![.\w])(?<!function )({'|'.join(owner)})\(")
    return called.sub(lambda match: f"lazy_part('{owner[match[1]]}').{match[1]}(", text)


def made_when_used(parts: list[Part], shared: str, users: str) -> str:
    """Write `lazy_part`: `shared` is what the parts include, `users` the text that calls them."""
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
