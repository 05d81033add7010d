"""Run the tests of kombu and Celery against Duly's transport: `tools/test_foreign.py [--compare] [SUITE ...]`.

The tests come from the source distributions of the package index, into a temporary directory with its own environment
for each version. Nothing of them is stored here. `--compare` runs them on the redis transport as well, and prints its
counts beside ours. A test may fail only if `KNOWN` gives the reason.

SUITE is `kombu-5.7`, `celery-5.6` and so on; without one, all of them run. The estimate is 90 minutes.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.servers import Server

ROOT: Final = Path(__file__).parent.parent
TOOLS: Final = [
    "pytest",
    "pytest-timeout",
    "pytest-rerunfailures",
    "pytest-subtests",
    "pydantic",
    "setuptools",
    "wheel",
]
KOMBU_CLASSES: Final = ("BasicFunctionality", "BaseExchangeTypes", "BaseTimeToLive", "BasePriority", "BaseMessage")
NEWER_CLASSES: Final = ("BaseEventLoop", "BaseFailover")
"""Not in all versions."""
CELERY_FILES: Final = (
    "test_tasks",
    "test_inspect",
    "test_canvas",
    "test_group_chains",
    "test_serialization",
    "test_beat",
    "test_connection_recovery",
    "test_mem_leak_in_exception_handling",
)
KNOWN: Final = {
    "test_failover_switches_to_alternate_url": "reads the port of a URL that kombu leaves to its transport",
    "test_scheduled": "tasks with an ETA wait on the server, not in the worker",
    "test_chord_header_id_duplicated_on_rabbitmq": "expects its own failure for URLs that begin with redis alone",
    "test_chord_on_error": "fails on the redis transport as well",
    "test_disabling_flag_allow_error_cb_on_chord_header": "fails on the redis transport as well",
    "test_task_success": "fails on the redis transport as well",
    "test_task_failed": "fails on the redis transport as well",
}
"""Tests that may fail, with the reason."""
FIXTURES: Final = """
import os, kombu, pytest
from . import common
@pytest.fixture()
def connection():
    return kombu.Connection(os.environ["BROKER"])
@pytest.fixture()
def invalid_connection():
    return kombu.Connection(os.environ["DEAD_BROKER"], connect_timeout=1)
@pytest.fixture()
def failover_connection():
    return kombu.Connection(os.environ["DEAD_BROKER"] + ";" + os.environ["BROKER"], connect_timeout=1)
"""


@dataclass
class Outcome:
    """What became of the tests of one suite on one transport."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def unexpected(self) -> list[str]:
        """The failures without a known reason."""
        return [name for name in self.failed if not any(known in name for known in KNOWN)]

    def __str__(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {self.skipped} skipped"


class Suite:
    """The tests of one version of a project, in a temporary directory."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.project, _, self.version = name.partition("-")
        self._directory = directory
        self._python = directory / "env/bin/python"

    def prepare(self) -> None:
        """Make the environment, and fetch the tests."""
        venv.create(self._directory / "env", with_pip=True)
        wanted = [f"kombu[redis]=={self.version}.*", "celery"]
        if self.project == "celery":
            wanted = [f"celery[redis]=={self.version}.*"]
        self._pip("install", *wanted, *TOOLS, str(ROOT))
        self._pip("download", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "-d", ".", self._installed())
        (archive,) = self._directory.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(self._directory, filter="data")

    def run(self, server: Server, transport: str) -> Outcome:
        """Run the tests on a transport."""
        prefix = "duly+" if transport == "duly" else ""
        tests = self._directory / self._installed().replace("==", "-")
        report = self._directory / f"{transport}.xml"
        url = f"redis://{server.host}:{server.port}"
        environment = {
            **os.environ,
            "PATH": f"{self._python.parent}:{os.environ['PATH']}",
            "BROKER": f"{prefix}{url}/5",
            "DEAD_BROKER": f"{prefix}redis://{server.host}:1/5",
            "TEST_BROKER": f"{prefix}{url}/5",
            "TEST_BACKEND": f"{url}/6",
            "REDIS_HOST": server.host,
            "REDIS_PORT": str(server.port),
            "C_FORCE_ROOT": "1",
        }
        options = ["-q", "-o", "addopts=", "--timeout=180", f"--junitxml={report}"]
        if transport == "duly":
            options += ["-p", "duly.kombu"]
        command = [str(self._python), "-m", "pytest", *options, *self._tests(tests, transport)]
        subprocess.run(command, cwd=tests, env=environment, check=False)
        return _read(report)

    def _tests(self, tests: Path, transport: str) -> list[str]:
        folder = tests / "t/integration"
        if self.project == "celery":
            files = [folder / f"{name}.py" for name in CELERY_FILES]
            return ["-p", "celery.contrib.pytest", *(str(file) for file in files if file.exists())]
        common = (folder / "common.py").read_text()
        order = "" if transport == "duly" else "    PRIORITY_ORDER = 'desc'\n"
        classes = [name for name in KOMBU_CLASSES + NEWER_CLASSES if f"class {name}" in common]
        text = FIXTURES + "".join(f"class test_{name}(common.{name}):\n    pass\n{order}" for name in classes)
        (folder / "test_of_duly.py").write_text(text)
        return ["-o", "python_classes=test_*", str(folder / "test_of_duly.py")]

    def _installed(self) -> str:
        question = f"from importlib.metadata import version; print(version({self.project!r}))"
        answer = subprocess.run([self._python, "-c", question], capture_output=True, text=True, check=True)
        return f"{self.project}=={answer.stdout.strip()}"

    def _pip(self, *arguments: str) -> None:
        command = [str(self._python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
        subprocess.run(command, cwd=self._directory, check=True)


def _read(report: Path) -> Outcome:
    outcome = Outcome()
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by pytest
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            outcome.failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" in kinds:
            outcome.skipped += 1
        else:
            outcome.passed += 1
    return outcome


def _results(names: list[str], *, compare: bool) -> Iterator[tuple[str, Outcome]]:
    for name in names:
        with tempfile.TemporaryDirectory(prefix="duly-foreign-") as directory:
            suite = Suite(name, Path(directory))
            suite.prepare()
            for transport in ("duly", "redis") if compare else ("duly",):
                with Server("valkey") as server:
                    yield f"{name} on {transport}", suite.run(server, transport)


def main() -> int:
    """Run the suites, and return 1 if a test failed for no known reason."""
    suites = ["kombu-5.6", "kombu-5.7", "celery-5.5", "celery-5.6", "celery-5.7"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=suites, metavar="SUITE")
    parser.add_argument("--compare", action="store_true", help="run them on the redis transport as well")
    given = parser.parse_args()
    found = dict(_results(given.suites, compare=given.compare))
    unexpected = [name for title, outcome in found.items() if "duly" in title for name in outcome.unexpected]
    for title, outcome in found.items():
        print(f"{title}: {outcome}")
    for name in unexpected:
        print(f"failed without a known reason: {name}")
    return bool(unexpected)


if __name__ == "__main__":
    sys.exit(main())
