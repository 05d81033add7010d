"""Which commands a script runs, read from its text.

The server checks every command inside a script against the user who calls it, so these are what the user needs.
A command is written as rules have it: `hget`, `xgroup|create`. What cannot be read here is an error, never left out.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from duly import _lua

OF_THE_USER: Final = "effect.name"
"""Where `commit` runs what its caller gives, on keys of the caller's own."""

_CONTAINERS: Final = frozenset({"MEMORY", "XGROUP", "XINFO"})
"""Commands of which each subcommand is a right of its own."""

_CALL: Final = re.compile(r"\bredis\.p?call\b")
_ALIAS: Final = re.compile(r"\blocal (\w+) = redis\.p?call\b(?!\s*\()")
_LITERAL: Final = re.compile(r"'([A-Z]+)'")
_WORD: Final = re.compile(r"\w+")
_FUNCTION: Final = re.compile(r"\blocal function (\w+)\(([^)]*)\)")

READS: Final = frozenset({
    "exists", "get", "hexists", "hget", "hgetall", "hlen", "hmget", "hscan", "hstrlen", "llen", "memory|usage", "pttl",
    "strlen", "time", "type", "xinfo|consumers", "xinfo|groups", "xinfo|stream", "xlen", "xpending", "xrange",
    "xrevrange", "zcard", "zcount", "zmscore", "zrange", "zrangebylex", "zrangebyscore", "zrank", "zrevrange", "zscan",
    "zscore",
})  # fmt: skip
"""The commands of scripts that change nothing, whatever they are given."""


class Unreadable(Exception):
    """A script runs a command that its text does not name."""


@cache
def commands_of_script(name: str, kind: _lua.Kind = "queue") -> frozenset[str]:
    """Name what a script runs in the form that it has for a kind of store."""
    try:
        return commands_in(_lua.script(name, kind).text)
    except Unreadable as problem:
        raise Unreadable(f"{name}.lua for a {kind}: {problem}") from None


def runs_commands_of_the_user(name: str) -> bool:
    """Tell whether a script runs commands that its caller gives."""
    return OF_THE_USER in _lua.script(name).text


def commands_in(text: str) -> frozenset[str]:
    """Name what a text without comments runs."""
    return frozenset(command for at in _calls(text) for command in _commands_at(text, at))


def _calls(text: str) -> Iterator[int]:
    """Find where the arguments of each call of a command begin."""
    aliases = list(_ALIAS.finditer(text))
    names = "|".join([_CALL.pattern, *(rf"\b{alias.group(1)}\b(?=\()" for alias in aliases)])
    for match in re.finditer(names, text):
        if text[match.end() : match.end() + 1] == "(":
            yield match.end() + 1
        elif not any(alias.end() == match.end() for alias in aliases):
            raise Unreadable(f"a call is handed on: {text[match.start() : match.end() + 40]!r}")


def _commands_at(text: str, at: int) -> Iterator[str]:
    first, second = [*_arguments(text, at), "", ""][:2]
    if first == OF_THE_USER:
        return
    names = _LITERAL.findall(first) or (_passed(text, at, first) if _WORD.fullmatch(first) else [])
    if not names:
        raise Unreadable(f"which command is {first!r}?")
    for name in names:
        if name not in _CONTAINERS:
            yield name.lower()
        elif subcommand := _LITERAL.fullmatch(second):
            yield f"{name}|{subcommand.group(1)}".lower()
        else:
            raise Unreadable(f"which part of {name} is {second!r}?")


def _passed(text: str, at: int, parameter: str) -> list[str]:
    """Name the commands that are passed to the function around a place, as one of its parameters."""
    functions = list(_FUNCTION.finditer(text, 0, at))
    if not functions:
        return []
    name, parameters = functions[-1].groups()
    names = [each.strip() for each in parameters.split(",")]
    if parameter not in names:
        return []
    given = [
        [*_arguments(text, match.end())][names.index(parameter)]
        for match in re.finditer(rf"(?<!function )\b{name}\(", text)
    ]
    found = [_LITERAL.fullmatch(each) for each in given]
    return [match.group(1) for match in found if match] if all(found) else []


def _arguments(text: str, at: int) -> Iterator[str]:
    """Take the arguments of a call apart, from behind its bracket on."""
    begin, depth, quote = at, 0, ""
    for here in range(at, len(text)):
        letter = text[here]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}" and depth:
            depth -= 1
        elif letter == ")" or (letter == "," and not depth):
            yield text[begin:here].strip()
            begin = here + 1
            if letter == ")":
                return
