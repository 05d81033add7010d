"""The tests of other projects: the pages name each one that may fail, and a suite that does not run fails."""

import subprocess
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tools import test_foreign as of_celery
from tools import test_foreign_dramatiq as of_dramatiq

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("language", [".", "zh"])
@pytest.mark.parametrize(("page", "tests"), [("celery", of_celery.KNOWN), ("dramatiq", of_dramatiq.KNOWN)])
def test_a_page_names_exactly_the_tests_that_may_fail(language: str, page: str, tests: Iterable[str]) -> None:
    lines = (DOCS / language / f"{page}.md").read_text().splitlines()
    named = {line.split("`")[1] for line in lines if line.startswith("| `test_")}

    assert named == {test.rpartition("::")[2] for test in tests}


def outcome_of(passed: int) -> of_celery.Outcome:
    return of_celery.Outcome(passed={f"test_{number}" for number in range(passed)})


def passed_on_page(page: str) -> dict[str, int]:
    """Return the numbers of passed tests, by project and version."""
    lines = (DOCS / page).read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith(("| Celery 5", "| kombu 5"))]
    return {row[0].lower().replace(" ", "-"): int(row[1]) for row in rows}


@pytest.mark.parametrize(("passed", "least", "is_enough"), [(0, 1, False), (39, 40, False), (40, 40, True)])
def test_a_suite_needs_a_number_of_passed_tests(passed: int, least: int, is_enough: bool) -> None:
    assert (outcome_of(passed).shortage(least) is None) == is_enough


@pytest.mark.parametrize("page", ["celery.md", "zh/celery.md"])
def test_the_least_numbers_are_a_few_below_those_of_the_page(page: str) -> None:
    passed = passed_on_page(page)

    assert passed.keys() == of_celery.LEAST.keys()
    for suite, least in of_celery.LEAST.items():
        assert 0.9 * passed[suite] <= least < passed[suite], suite


@pytest.mark.parametrize(("passed", "status"), [(0, 1), (1000, 0)])
def test_the_command_fails_if_too_few_tests_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], passed: int, status: int
) -> None:
    monkeypatch.setattr(of_celery.Suite, "prepare", lambda _: None)
    monkeypatch.setattr(of_celery.Suite, "run", lambda *_: outcome_of(passed))
    monkeypatch.setattr(sys, "argv", ["test_foreign.py", "kombu-5.7", "celery-5.7"])

    assert of_celery.main() == status

    assert capsys.readouterr().out.count("did they run?") == 2 * status


def reporting(passed: int) -> Any:
    """Return a replacement of `subprocess.run` whose pytest passes this number of tests."""
    cases = "".join(f'<testcase classname="tests" name="test_{number}"/>' for number in range(passed))

    def run(command: list[str], **_: Any) -> None:
        (option,) = (each for each in command if each.startswith("--junitxml="))
        Path(option.partition("=")[2]).write_text(f"<testsuite>{cases}</testsuite>")

    return run


@pytest.mark.parametrize("repository", [None, "clone"])
@pytest.mark.parametrize("is_enough", [False, True])
def test_the_command_of_dramatiq_fails_if_too_few_tests_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], repository: str | None, is_enough: bool
) -> None:
    least = of_dramatiq.LEAST if repository is None else of_dramatiq.LEAST_WITH_MIDDLEWARE
    monkeypatch.setattr(of_dramatiq, "_tests_of", lambda _version, directory, _repository: directory / "tests")
    monkeypatch.setattr(of_dramatiq, "Server", lambda _: nullcontext(Mock(url="redis://localhost:1/0")))
    monkeypatch.setattr(subprocess, "run", reporting(least if is_enough else least - 1))
    options = [] if repository is None else ["--repository", repository]
    monkeypatch.setattr(sys, "argv", ["test_foreign_dramatiq.py", *options])

    assert of_dramatiq.main() == (not is_enough)

    output = capsys.readouterr().out
    assert output.count("did they run?") == (0 if is_enough else len(of_dramatiq.VERSIONS))
    assert ("middleware did not run" in output) == (repository is None)
    assert ("--repository CLONE" in output.splitlines()[-1]) == (repository is None)
