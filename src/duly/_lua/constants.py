"""Constants of a script: the loader writes their values in place of their names.

A server runs a script from its first line at every call. A constant that is a local name costs an assignment at every
call, and each function that uses it costs more to create.
"""

import re
from collections.abc import Mapping
from typing import Final

_VALUE: Final = r"(?:\d+|'(?:\\.|[^'\\\n])*'|string\.rep\('(?:\\.|[^'\\\n])*', \d+\))"
_DECLARED: Final = re.compile(
    rf"^ *local ([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*) = ({_VALUE}(?:, {_VALUE})*) *\n", re.MULTILINE
)
_EACH: Final = re.compile(_VALUE)
_REPEATED: Final = re.compile(r"string\.rep\('(.*)', (\d+)\)")
_TOKEN: Final = re.compile(r"'(?:\\.|[^'\\\n])*'|(?<![.\w])[A-Z][A-Z0-9_]*\b(?! =[^=])")
"""A text, which stays, or a name that is not a field."""


class BadConstant(Exception):
    """A script has two constants of the same name, or one without a value."""


def with_values(code: str) -> str:
    """Replace constants by their values: numbers and texts. The code has no comments."""
    return replaced(_DECLARED.sub("", code), values_of(code))


def values_of(code: str) -> dict[str, str]:
    """Find the constants that a text declares."""
    values: dict[str, str] = {}
    for match in _DECLARED.finditer(code):
        names, written = match[1].split(", "), _EACH.findall(match[2])
        if len(names) != len(written):
            raise BadConstant(match[0].strip())
        for name, value in zip(names, written, strict=True):
            if values.setdefault(name, _literal(value)) != _literal(value):
                raise BadConstant(f"{name} is {values[name]} and {value}")
    return values


def replaced(code: str, values: Mapping[str, str]) -> str:
    """Write values in place of names."""
    return _TOKEN.sub(lambda match: values.get(match[0], match[0]), code)


def _literal(value: str) -> str:
    """Write a repeated text as one text."""
    return _REPEATED.sub(lambda match: f"'{match[1] * int(match[2])}'", value)
