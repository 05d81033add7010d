"""The commands that a script runs, read from its text.

The server checks every command inside a script against the user who calls it, so the user needs these commands.
Names are written as in ACL rules: `hget`, `xgroup|create`. A call that cannot be read is an error, never ignored.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from duly import _lua

CALLER_COMMAND: Final = "effect.name"
"""The expression by which `commit` runs a command of its caller, on the caller's own keys."""

_CONTAINERS: Final = frozenset({"MEMORY", "XGROUP", "XINFO"})
"""Commands whose subcommands have separate rules."""

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
"""The commands of scripts that change nothing with any arguments."""


class Unreadable(Exception):
    """A script runs a command that its text does not name."""


@cache
def commands_of_script(name: str, kind: _lua.Kind = "queue") -> frozenset[str]:
    """Return the commands of a script, in its form for a kind of store."""
    try:
        return commands_in(_lua.script(name, kind).text)
    except Unreadable as problem:
        raise Unreadable(f"{name}.lua for a {kind}: {problem}") from None


def runs_caller_commands(name: str) -> bool:
    """Return whether a script runs commands of its caller."""
    return CALLER_COMMAND in _lua.script(name).text


def commands_in(text: str) -> frozenset[str]:
    """Return the commands of a text without comments."""
    return frozenset(command for at in _calls(text) for command in _commands_at(text, at))


def _calls(text: str) -> Iterator[int]:
    """Return where the arguments of each call of a command begin."""
    aliases = list(_ALIAS.finditer(text))
    names = "|".join([_CALL.pattern, *(rf"\b{alias.group(1)}\b(?=\()" for alias in aliases)])
    for match in re.finditer(names, text):
        if text[match.end() : match.end() + 1] == "(":
            yield match.end() + 1
        elif not any(alias.end() == match.end() for alias in aliases):
            raise Unreadable(f"redis.call is passed as a value: {text[match.start() : match.end() + 40]!r}")


def _commands_at(text: str, at: int) -> Iterator[str]:
    first, second = [*_arguments(text, at), "", ""][:2]
    if first == CALLER_COMMAND:
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
    """Return the commands that callers pass to the function around a place, as one of its parameters."""
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
    """Split the arguments of a call. `at` is behind its opening bracket."""
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
