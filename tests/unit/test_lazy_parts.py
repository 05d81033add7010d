"""Parts of a script that most calls do not need are made when they are first used."""

import pytest

from duly import _lua
from duly._lua import lazy
from duly._lua.lazy import BadPart, Part
from tools import check_lua

LIMITS = Part("limits", "local function room(claim)\n  return claim\nend\n")
LANES = Part(
    "lanes", "local function in_turn(claim)\n  return helped(room(claim))\nend\nlocal function helped()\nend\n"
)


def test_a_call_of_a_part_goes_by_way_of_it() -> None:
    assert lazy.with_calls("local r = room(claim)\n", [LIMITS]) == "local r = lazy_part('limits').room(claim)\n"


@pytest.mark.parametrize("text", ["bathroom(x)", "keys.room(x)", "local room = 1", "local function room(x)", "'room'"])
def test_other_words_stay(text: str) -> None:
    assert lazy.with_calls(text, [LIMITS]) == text


def test_a_part_returns_what_others_call() -> None:
    users = lazy.with_calls("in_turn(claim)\n", [LIMITS, LANES])
    written = lazy.made_when_used([LIMITS, LANES], "-- shared\n", users)

    assert "return { room = room }" in written
    assert "return { in_turn = in_turn }" in written
    assert "helped(lazy_part('limits').room(claim))" in written
    assert written.index("-- shared") < written.index("limits = function()") < written.index("lanes = function()")


def test_a_name_belongs_to_one_part() -> None:
    with pytest.raises(BadPart, match="room is a function of limits and of lanes"):
        lazy.with_calls("", [LIMITS, Part("lanes", LIMITS.text)])


def test_parts_of_a_script_stand_together() -> None:
    for path in check_lua.SCRIPTS.glob("*.lua"):
        for kind in check_lua.kinds_of(path):
            assert len(lazy.LAZY.findall(_lua._in_form(path.read_text(), kind))) <= 1, path.name
