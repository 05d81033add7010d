"""The loader writes the values of a script's constants in place of their names."""

import pytest

from duly._lua.constants import BadConstant, with_values


@pytest.mark.parametrize(
    ("code", "written"),
    [
        ("local MOST = 100\nreturn MOST\n", "return 100\n"),
        ("local A, B = 1, 'two'\nreturn { A, B }\n", "return { 1, 'two' }\n"),
        ("local GUARD = string.rep('\\1', 3)\nreturn GUARD\n", "return '\\1\\1\\1'\n"),
        ("local function f()\n  local MOST = 5\n  return MOST\nend\n", "local function f()\n  return 5\nend\n"),
    ],
)
def test_a_constant_becomes_its_value(code: str, written: str) -> None:
    assert with_values(code) == written


@pytest.mark.parametrize("use", ["x.MOST", "'MOST'", "{ MOST = 2 }", "MOST_OF_ALL", "most"])
def test_other_words_stay(use: str) -> None:
    assert with_values(f"local MOST = 100\nreturn {use}\n") == f"return {use}\n"


@pytest.mark.parametrize("code", ["local META = KEYS[1]\n", "local RINGS = { 1, 2 }\n", "local size = 1\n"])
def test_other_names_stay(code: str) -> None:
    assert with_values(code) == code


def test_two_constants_of_one_name_are_refused() -> None:
    with pytest.raises(BadConstant, match="MOST is 1 and 2"):
        with_values("local MOST = 1\nlocal MOST = 2\n")


def test_a_constant_has_a_value() -> None:
    with pytest.raises(BadConstant, match="local A, B = 1"):
        with_values("local A, B = 1\n")
