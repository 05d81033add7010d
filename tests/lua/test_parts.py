"""The parts of a large script state what they read, change and give, and their code agrees."""

import re
from pathlib import Path

import pytest

from duly._lua.keys import KEYS
from tools import check_lua

FOLDER = check_lua.SCRIPTS / "lib/audit"
LONGEST = 260
"""Lines of a file."""

PARTS = sorted(FOLDER.glob("*.lua"))
every_part = pytest.mark.parametrize("path", PARTS, ids=lambda path: path.stem)

_WRITES = "ZADD|ZREM|HSET|HDEL|HINCRBY|DEL|UNLINK|PERSIST|PEXPIRE"
_WRITTEN = re.compile(rf"redis\.p?call\('(?:{_WRITES})', keys\.(\w+)|\b(?:leave_wake_token|keep_\w+)\(keys\.(\w+)")
_DECLARED = re.compile(r"\blocal (?:function )?([\w, ]+)|\bfor ([\w, ]+) (?:in|=)|\bfunction [\w.]*\(([\w, ]*)")
_ASSIGNED = re.compile(r"^ *(?!local\b|for\b)([\w.\[\]#+, ]+?) = ", re.MULTILINE)


def _code(path: Path) -> str:
    """Read a part without its comments and its table literals."""
    code = re.sub(r"--.*", "", path.read_text())
    return re.sub(r"= \{\n.*?^ *\}", "= {}", code, flags=re.MULTILINE | re.DOTALL)


def _stated(path: Path, section: str) -> str:
    """Read a section of the first lines: READS, CHANGES or GIVES."""
    found = re.search(rf"^-- {section} +(\S.*\n(?:--  +.*\n)*)", path.read_text(), re.MULTILINE)
    assert found, f"{path.name} does not state what it {section.lower()}"
    return found[1]


def _keys(text: str) -> set[str]:
    return set(re.findall(r"\w+", text)) & KEYS.keys()


@every_part
def test_a_part_opens_with_the_name_of_its_script(path: Path) -> None:
    assert path.read_text().startswith("-- Part of audit")


@every_part
def test_a_part_names_the_keys_that_it_uses(path: Path) -> None:
    stated = _stated(path, "READS") + _stated(path, "CHANGES")
    if "every key" not in stated:
        assert _keys(" ".join(re.findall(r"\bkeys\.(\w+)", _code(path)))) <= _keys(stated)


@every_part
def test_a_part_names_the_keys_that_it_changes(path: Path) -> None:
    stated = _stated(path, "CHANGES")
    if "every key" not in stated:
        written = {key for keys in _WRITTEN.findall(_code(path)) for key in keys if key}
        assert written <= _keys(stated)


@every_part
def test_a_part_sets_only_its_own_variables(path: Path) -> None:
    code = _code(path)
    own = {name for names in _DECLARED.findall(code) for name in re.findall(r"\w+", " ".join(names))}
    assigned = {name for names in _ASSIGNED.findall(code) for name in re.findall(r"(?:^|, )(\w+)", names)}
    assert assigned <= own


@every_part
def test_a_part_gives_the_functions_of_its_head(path: Path) -> None:
    """Names outside its block are for other parts."""
    given = re.findall(r"^local (?:function )?([\w, ]+)", path.read_text(), re.MULTILINE)
    names = {name for line in given for name in re.findall(r"\w+", line)}
    assert {name for name in names if not re.search(rf"\b{name}\b", _stated(path, "GIVES"))} == set()


@pytest.mark.parametrize("path", [check_lua.SCRIPTS / "audit.lua", *PARTS], ids=lambda path: path.stem)
def test_no_file_of_a_script_that_was_cut_is_long_again(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST
