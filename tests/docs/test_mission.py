"""docs/mission.md may claim only what a test holds."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"- \[(?P<tick>[ x])\] (?P<id>\S+) (?P<fact>.*)")
TEST = re.compile(r"(tests/[\w/]+\.py)((?:::\w+)+)")


def problems(text: str, root: Path = ROOT) -> list[str]:
    """Return the mistakes of the list: doubled ids, ticks without a test, tests that do not exist."""
    lines = [match for line in text.splitlines() if (match := LINE.match(line))]
    ids = [line["id"] for line in lines]
    found = [f"{one}: more than one line" for one in sorted(set(ids)) if ids.count(one) > 1]
    for line in lines:
        if line["tick"] == "x":
            tests = TEST.findall(line["fact"].rpartition(" — ")[2])
            found += [] if tests else [f"{line['id']}: ticked, but names no test"]
            found += [f"{line['id']}: no {path}{name}" for path, name in tests if not exists(root / path, name)]
    return found


def exists(path: Path, name: str) -> bool:
    """Whether the file defines `::function`, `::Class::method`, or a state machine's `::TestName = ...`."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body if path.exists() else []
    for part in name.split("::")[1:]:
        match = [node for node in body if part in names(node)]
        if not match:
            return False
        body = match[0].body if isinstance(match[0], ast.ClassDef) else []
    return part.lower().startswith("test")


def names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def test_every_ticked_line_names_a_test_that_exists() -> None:
    assert problems((ROOT / "docs/mission.md").read_text()) == []


def test_no_line_of_the_mission_is_missing() -> None:
    expected = {"000": 15, "001": 16, "002": 13, "003": 22, "004": 14, "new": 20}
    ids = {f"{article}-{n}" for article, count in expected.items() for n in range(1, count + 1)}
    ids |= {f"I{n}" for n in range(1, 13)}

    text = (ROOT / "docs/mission.md").read_text()

    assert {match["id"] for line in text.splitlines() if (match := LINE.match(line))} == ids


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("- [ ] 000-1 Not yet.", None),
        ("- [x] 000-1 Fact. — tests/a.py::test_a", None),
        ("- [x] 000-1 Fact. — tests/a.py::test_a, tests/a.py::TestB::test_b, tests/a.py::TestMachine", None),
        ("- [x] 000-1 Fact.", "000-1: ticked, but names no test"),
        ("- [x] 000-1 Fact. — tests/a.py::test_gone", "000-1: no tests/a.py::test_gone"),
        ("- [x] 000-1 Fact. — tests/a.py::test_a, tests/a.py::TestB::test_a", "000-1: no tests/a.py::TestB::test_a"),
        ("- [x] 000-1 Fact. — tests/gone.py::test_a", "000-1: no tests/gone.py::test_a"),
        ("- [x] 000-1 Fact. — tests/a.py::prepare", "000-1: no tests/a.py::prepare"),
        ("- [ ] 000-1 Fact.\n- [ ] 000-1 Fact.", "000-1: more than one line"),
    ],
)
def test_a_false_tick_is_found(tmp_path: Path, line: str, problem: str | None) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/a.py").write_text(
        "async def test_a(): ...\nclass TestB:\n    def test_b(self): ...\nTestMachine = TestB\ndef prepare(): ...\n"
    )

    assert problems(line, tmp_path) == ([problem] if problem else [])
