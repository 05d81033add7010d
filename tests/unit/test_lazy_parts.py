"""Parts of a script that most calls do not need are made when they are first used."""

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from duly import _lua
from duly._lua import lazy
from duly._lua.lazy import BadPart, Part
from tools import check_lua

LIMITS = Part("limits", "local function room(claim)\n  return claim\nend\n")
LANES = Part(
    "lanes", "local function in_turn(claim)\n  return helped(room(claim))\nend\nlocal function helped()\nend\n"
)

LONGEST_ONLY = 14
"""The most lines of a script that only some forms have: longer ones are a separate part."""

every_kind = pytest.mark.parametrize("kind", get_args(_lua.Kind))

every_part = pytest.mark.parametrize(
    "path", sorted((check_lua.SCRIPTS / "lib/claim").glob("*.lua")), ids=lambda path: path.name
)


def test_a_call_of_a_part_goes_by_way_of_it() -> None:
    assert lazy.with_calls("local r = room(claim)\n", [LIMITS]) == "local r = lazy_part('limits').room(claim)\n"


@pytest.mark.parametrize("text", ["bathroom(x)", "keys.room(x)", "local room = 1", "local function room(x)", "'room'"])
def test_other_words_stay(text: str) -> None:
    assert lazy.with_calls(text, [LIMITS]) == text


def test_a_part_returns_the_functions_that_others_call() -> None:
    users = lazy.with_calls("in_turn(claim)\n", [LIMITS, LANES])
    written = lazy.written_parts([LIMITS, LANES], "-- shared\n", users)

    assert "return { room = room }" in written
    assert "return { in_turn = in_turn }" in written
    assert "helped(lazy_part('limits').room(claim))" in written
    assert written.index("-- shared") < written.index("limits = function()") < written.index("lanes = function()")


def test_a_name_belongs_to_one_part() -> None:
    with pytest.raises(BadPart, match="room is a function of limits and of lanes"):
        lazy.with_calls("", [LIMITS, Part("lanes", LIMITS.text)])


def test_a_helper_that_only_parts_call_is_made_with_them() -> None:
    before = "local function a()\nend\nlocal function b()\n  a()\nend\nlocal function c()\nend\n"
    part = Part("limits", "local function room()\n  b()\n  c()\nend\n")
    behind = lazy.with_calls("c()\nroom()\n", [part])
    found, moved = lazy.with_helpers(lazy.cut(before + lazy.written_parts([part], "", behind) + behind))

    assert moved == "local function a()\nend\nlocal function b()\n  a()\nend\n"
    assert found.before == "local function c()\nend\n"
    assert found.behind == "c()\nlazy_part('limits').room()\n"
    assert f"if not makers then\n{moved}" in found.with_names(moved, lambda _: "")


def test_a_part_that_is_made_alone_has_its_own_helpers_and_names() -> None:
    helpers = "local function turn()\nend\n"
    alone = LANES._replace(alone=helpers)
    behind = lazy.with_calls("in_turn(claim)\nroom()\n", [LIMITS, alone])
    found = lazy.cut(lazy.written_parts([LIMITS, alone], "-- shared\n", behind) + behind)

    assert found.alone.startswith(helpers)
    assert "in_turn" not in found.lazy
    assert "room" in found.lazy
    written = found.with_names("-- of all\n", lambda text: "-- its own\n" if text == found.alone else "")
    assert f"if name == 'lanes' then\n-- its own\n{helpers}" in written
    assert written.index("functions = { in_turn = in_turn }\nelse") < written.index("makers then\n-- of all\n-- shared")


def test_a_claim_of_messages_with_keys_makes_no_helper_of_other_parts() -> None:
    code = lazy.cut(_lua.script("claim").text)

    assert re.findall(r"^local function (\w+)\(", code.alone, re.MULTILINE)[-2:] == ["in_turn", "in_its_turn"]
    for name in ("flaw_of", "hand_on", "keys = {"):
        assert name in code.lazy
        assert name not in code.alone


def test_a_call_of_claim_makes_no_name_that_only_parts_use() -> None:
    code = lazy.cut(_lua.script("claim").text)

    for name in ("HISTORY", "SCHEDULES", "waiting_by_priority", "count_leased", "keys = {"):
        assert name in code.block
        assert name not in code.always


@every_kind
@pytest.mark.parametrize("name", ["claim", "finish"])
def test_parts_share_the_functions_of_their_script(name: str, kind: _lua.Kind) -> None:
    """A file that both include is there once. A second copy would cost every call, unless its part is made alone."""
    code = lazy.cut(_lua.script(name, kind).text)
    functions = Counter(re.findall(r"^local function (\w+)\(", code.always + code.lazy, re.MULTILINE))

    assert [name for name, times in functions.items() if times > 1] == []


def test_parts_of_a_script_stand_together() -> None:
    for path in check_lua.SCRIPTS.glob("*.lua"):
        for kind in check_lua.kinds_of(path):
            assert len(lazy.LAZY.findall(_lua._in_form(path.read_text(), kind))) <= 1, path.name


def _longest_mark(path: Path) -> int:
    blocks = re.findall(r"^ *-- @only \w+\n(.*?)^ *-- @end\n", path.read_text(), re.MULTILINE | re.DOTALL)
    return max((block.count("\n") for block in blocks), default=0)


def test_a_mark_of_a_form_marks_lines_and_not_pages() -> None:
    assert [path for path in check_lua.SCRIPTS.rglob("*.lua") if _longest_mark(path) > LONGEST_ONLY] == []


@every_part
def test_a_part_of_claim_is_short_and_lists_its_reads_and_changes(path: Path) -> None:
    text = path.read_text()
    head = " ".join(line.removeprefix("-- ") for line in text.partition("\n\n")[0].splitlines())

    assert text.count("\n") <= 120
    assert head.startswith("Part of claim")
    assert re.search(r"Reads (claim\.|the store)|Changes nothing", head)


@every_part
def test_a_part_of_claim_changes_what_its_head_names_and_no_variable_of_another(path: Path) -> None:
    head, _, code = path.read_text().partition("\n\n")
    changed = re.findall(r"\bclaim\.(\w+)(?:\[[^]]*\])?(?:, [\w.]+)* = ", code)
    assigned = re.findall(r"^ *((?!local |for )[a-z_][\w, ]*) = (?!.*,(?: --.*)?$)", code, re.MULTILINE)
    declared = re.findall(r"\blocal (?!function)([\w, ]+)|\bfor ([\w, ]+)|\bfunction \w+\(([\w, ]*)\)", code)

    assert set(changed) <= set(re.findall(r"\w+", head))
    assert set(re.findall(r"\w+", " ".join(assigned))) <= set(re.findall(r"\w+", str(declared)))
