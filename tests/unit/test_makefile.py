"""Every test is run by a command: the passes of the Makefile that name folders name all that they must."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MAKEFILE = (TESTS.parent / "Makefile").read_text()


def folders_with(marker: str) -> set[str]:
    """Find the folders with tests that carry a marker."""
    found = (path for path in TESTS.rglob("test_*.py") if f"pytest.mark.{marker}" in path.read_text())
    return {f"tests/{path.relative_to(TESTS).parts[0]}" for path in found if path != Path(__file__)}


def named(pattern: str) -> set[str]:
    match = re.search(pattern, MAKEFILE, re.MULTILINE)
    assert match is not None
    return set(match.group(1).split())


@pytest.mark.parametrize(
    ("marker", "pattern"),
    [
        ("quiet", r"^QUIET = (.*)$"),
        ("measure", r"-m measure (.*)$"),
    ],
)
def test_the_pass_for_a_marker_covers_every_folder_that_uses_it(marker: str, pattern: str) -> None:
    assert folders_with(marker) == named(pattern)


def test_the_set_up_announces_itself_before_it_is_silent_for_minutes() -> None:
    recipe = MAKEFILE.partition("$(STAMP): pyproject.toml\n")[2]
    assert recipe.startswith('\t@echo "Installing into .venv; this takes a few minutes the first time"\n')
