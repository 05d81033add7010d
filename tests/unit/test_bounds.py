"""The scripts state the numbers of the protocol in Lua: they are those of the core."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from duly import _lua
from duly._core import bounds, codec, replies

_STATEMENT = re.compile(r"^\s*local ([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*) = ([^\n]*?)(?: --.*)?$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


def in_scripts() -> dict[str, dict[str, set[int]]]:
    """Name the numbers that scripts state, each with its values and their files."""
    found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    root = Path(_lua.__file__).parent
    for path in root.rglob("*.lua"):
        for names, values in _STATEMENT.findall(path.read_text()):
            for name, value in zip(names.split(", "), values.split(", "), strict=False):
                if _NUMBER.fullmatch(value):
                    found[name][str(path.relative_to(root))].add(int(value))
    return found


IN_SCRIPTS = in_scripts()
BOUNDS = {name: value for name, value in vars(bounds).items() if name.isupper()}
CODES = {
    name: value
    for module in (codec, replies)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, int) and name in IN_SCRIPTS
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_of_the_core_is_in_the_scripts(name: str) -> None:
    assert name in IN_SCRIPTS


@pytest.mark.parametrize("name", [*BOUNDS, *CODES])
def test_scripts_and_core_have_the_same_number(name: str) -> None:
    differing = {file: values for file, values in IN_SCRIPTS[name].items() if values != {(BOUNDS | CODES)[name]}}
    assert not differing


def test_flags_and_states_are_compared() -> None:
    assert {"FLAG_KEY", "FLAG_TTL", "PASSED_OVER", "LIMITED", "DUPLICATE", "CONTENT_JSON"} <= set(CODES)
