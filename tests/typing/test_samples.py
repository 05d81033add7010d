"""Type checkers find the errors of programs that use Duly, and know the type of everything public.

A line of a sample that must fail ends with `# E`. Both checkers must find an error there, and nowhere else, in their
strict modes. Each of them runs once, over all samples.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SAMPLES = sorted((HERE / "samples").glob("*.py"))

Errors = dict[tuple[str, int], str]
"""The message of an error, by file and line."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # checkers take ten seconds of a processor each


def run(*command: str) -> str:
    """Run a checker with this Python first on the PATH: pyright searches there for the packages that it checks."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout


def errors_of_mypy() -> Errors:
    lines = map(json.loads, run("mypy", "--output=json", *map(str, SAMPLES)).splitlines())
    return {(Path(line["file"]).name, line["line"]): line["message"] for line in lines if line["severity"] == "error"}


def errors_of_pyright() -> Errors:
    report = json.loads(run("pyright", "--outputjson", "--project", str(HERE)))
    assert report["summary"]["filesAnalyzed"] == len(SAMPLES)
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in report["generalDiagnostics"]
    }


def lines_that_must_fail() -> set[tuple[str, int]]:
    return {
        (sample.name, number)
        for sample in SAMPLES
        for number, line in enumerate(sample.read_text().splitlines(), 1)
        if line.endswith("# E")
    }


@pytest.mark.parametrize("errors_of", [errors_of_mypy, errors_of_pyright])
def test_a_checker_finds_the_errors_of_the_samples_and_no_others(errors_of: Any) -> None:
    errors, marked = errors_of(), lines_that_must_fail()

    assert {place: text for place, text in errors.items() if place not in marked} == {}
    assert marked - errors.keys() == set()
    assert len(marked) > 50


def test_the_type_of_everything_public_is_known() -> None:
    report = json.loads(run("pyright", "--outputjson", "--verifytypes", "duly", "--ignoreexternal"))
    symbols = [each for each in report["typeCompleteness"]["symbols"] if each["isExported"]]

    assert len(symbols) > 3000
    assert [each["name"] for each in symbols if not is_known(each)] == []


def is_known(symbol: dict[str, Any]) -> bool:
    return bool(symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"])
