"""Run the tests of kombu and Celery against Duly's transport: `tools/test_foreign.py [--compare] [SUITE ...]`.

The tests come from the source distributions of the package index, into a directory with its own environment for each
version. Nothing of them is stored here. `--compare` runs them on the redis transport as well, and lists the tests that
pass there and fail here. A test may fail only if `KNOWN` gives the reason. A suite whose tests did not run fails:
`LEAST` has the number of tests that must pass.

Most of these tests wait for a worker. So the tests of a suite are dealt to several processes, each with its own
server and worker. SUITE is `kombu-5.7`, `celery-5.6` and so on; without one, all of them run.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
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
LEAST: Final = {
    "kombu-5.5.2": 37,
    "kombu-5.6": 37,
    "kombu-5.7": 43,
    "celery-5.5.0": 205,
    "celery-5.6": 215,
    "celery-5.7": 356,
}
"""The suites: the oldest version that the extra `celery` allows, and the newest of each series. With the number of
tests that must pass, which is a few below that of the page."""
KOMBU_CLASSES: Final = ("BasicFunctionality", "BaseExchangeTypes", "BaseTimeToLive", "BasePriority", "BaseMessage")
NEWER_CLASSES: Final = ("BaseEventLoop", "BaseFailover")
"""Not in all versions."""
CELERY_FILES: Final = (
    "test_mem_leak_in_exception_handling",  # first: it measures its process, which has no worker then
    "test_tasks",
    "test_inspect",
    "test_canvas",
    "test_group_chains",
    "test_serialization",
    "test_beat",
    "test_connection_recovery",
)
KNOWN: Final = {
    "test_of_duly::test_BaseFailover::test_failover_switches_to_alternate_url": (
        "conn.port == dead.port",
        "it reads the port of a URL, which kombu leaves to a transport that parses URLs itself",
    ),
    "test_inspect::test_Inspect::test_scheduled": (
        "assert [] ==",
        "a task with an ETA waits on the server, not in the worker",
    ),
    "test_tasks::test_task_replacement::test_replaced_task_nesting_level_0": (
        "assert assertion_result",
        "it resets its result after it has sent the task, so it fails on any transport if the worker is faster",
    ),
    "test_canvas::test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication": (
        "has length of 1, but expected to be of length 2",
        "it publishes an object that is not JSON, and expects to fail only if the URL begins with redis",
    ),
    "test_canvas::test_chord::test_mutable_errback_called_by_chord_from_group_fail_multiple_on_body_failure": (
        "was never incremented",
        "it reads 42 counters as soon as the first one has changed, so it fails on any transport if the worker is slow",
    ),
    "test_canvas::test_chord::test_enabling_flag_allow_error_cb_on_chord_header": (
        "ChordError: Dependency",
        "it expects the error of the header, and on any transport gets that of the chord if both fail before it waits",
    ),
    "test_mem_leak_in_exception_handling::test_mem_leak_unhandled_exceptions": (
        "Memory leak still exists",
        "it takes the caches that the first exception fills for a leak, on any transport",
    ),
}
"""Tests that may fail with an error that has this text, each with the reason. All others pass."""
_FAILURES: Final = {"failure", "error"}
OF_SUBTESTS: Final = "contains "
"""The beginning of the error of a test whose subtests have failed."""
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
    """The outcomes of one suite on one transport."""

    passed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    failed: dict[str, list[str]] = field(default_factory=dict)
    """With the errors. A test and its subtests have one name."""

    def add(self, report: Path) -> None:
        """Read a report of pytest."""
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by pytest
            place = (case.get("classname") or "").removeprefix("t.integration.").replace(".", "::")
            name = f"{place}::{case.get('name')}"
            kinds = {child.tag for child in case}
            if kinds & _FAILURES:
                errors = [f"{each.get('message')}\n{each.text}" for each in case if each.tag in _FAILURES]
                self.failed.setdefault(name, []).extend(errors)
            elif "skipped" in kinds:
                self.skipped.add(name)
            else:
                self.passed.add(name)
        self.passed -= self.failed.keys()

    def shortage(self, least: int) -> str | None:
        """Return an error if fewer tests passed, which happens if pytest did not find or collect them."""
        passed = len(self.passed)
        return f"{passed} tests passed, and at least {least} must pass: did they run?" if passed < least else None

    def __str__(self) -> str:
        return f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


class Suite:
    """The tests of one version of a project, in a directory."""

    def __init__(self, name: str, directory: Path, python: Path | None = None) -> None:
        """Take an interpreter that has the project and Duly, or None to make an environment."""
        self.name = name
        self.project, _, self.version = name.partition("-")
        self._directory = directory
        self._python = python or directory / "env/bin/python"

    def prepare(self) -> None:
        """Make the environment and fetch the tests, unless the directory has them. Put this version of Duly there."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self._python.exists():
            venv.create(self._directory / "env", with_pip=True)
            wanted = [f"kombu[redis]=={self.version}.*", "celery"]
            if self.project == "celery":
                wanted = [f"celery[redis]=={self.version}.*"]
            self._pip("install", *wanted, *TOOLS, str(ROOT))
            # Older versions install redis-py 5.3, whose subscriptions deadlock in a forked process. Version 8 ends
            # blocking reads of their tests after its default timeout.
            self._pip("install", "--upgrade", "redis>=6,<8")
        self._pip("install", "--force-reinstall", "--no-deps", str(ROOT))
        self.fetch()

    def fetch(self) -> None:
        """Fetch the tests of the installed version, unless the directory has them."""
        if not list(self._directory.glob("*.tar.gz")):
            self._pip("download", "--no-deps", "--no-binary=:all:", "-d", ".", self._installed())
        (archive,) = self._directory.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(self._directory, filter="data")

    def run(self, transport: str, jobs: int) -> Outcome:
        """Run the tests on a transport, in as many processes."""
        tests = self._directory / self._installed().replace("==", "-")
        options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "--timeout=300"]
        if transport == "duly":
            options += ["-p", "duly.kombu"]
        files = self._files(tests, transport)
        collected = self._pytest(tests, [*options, *files, "--collect-only"], self._environment(transport, None))
        lines = collected.communicate()[0].decode().splitlines()
        names = [line.rpartition(":: ")[2] for line in lines if "::" in line and not line.startswith(" ")]
        outcome = Outcome()
        with ExitStack() as servers:
            running = []
            for job in range(jobs):
                part = self._directory / f"{transport}-{job}"
                part.with_suffix(".txt").write_text("\n".join(names[job::jobs]))
                environment = self._environment(transport, servers.enter_context(Server("valkey")))
                chosen = [*files[:2], f"@{part}.txt", f"--junitxml={part}.xml"]
                running.append((part, self._pytest(tests, [*options, *chosen], environment)))
            for part, process in running:
                part.with_suffix(".log").write_bytes(process.communicate()[0])
                outcome.add(part.with_suffix(".xml"))
        return outcome

    def _pytest(self, tests: Path, arguments: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        command = [str(self._python), "-m", "pytest", *arguments]
        return subprocess.Popen(command, cwd=tests, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def _environment(self, transport: str, server: Server | None) -> dict[str, str]:
        prefix = "duly+" if transport == "duly" else ""
        host, port = (server.host, server.port) if server is not None else ("127.0.0.1", 1)
        url = f"redis://{host}:{port}"
        return {
            **os.environ,
            "PATH": f"{self._python.parent}:{os.environ['PATH']}",
            "BROKER": f"{prefix}{url}/5",
            "DEAD_BROKER": f"{prefix}redis://{host}:1/5",
            "TEST_BROKER": f"{prefix}{url}/5",
            "TEST_BACKEND": f"{url}/0",  # the tests read it there
            "REDIS_HOST": host,
            "REDIS_PORT": str(port),
            "C_FORCE_ROOT": "1",
            "WORKER_LOGLEVEL": "INFO",  # some tests read the log
        }

    def _files(self, tests: Path, transport: str) -> list[str]:
        """Return the options and files of pytest for the project: two words of options, then files."""
        folder = Path("t/integration")
        if self.project == "celery":
            files = [folder / f"{name}.py" for name in CELERY_FILES]
            return ["-p", "celery.contrib.pytest", *(str(file) for file in files if (tests / file).exists())]
        common = (tests / folder / "common.py").read_text()
        order = "" if transport == "duly" else "    PRIORITY_ORDER = 'desc'\n"
        classes = [name for name in KOMBU_CLASSES + NEWER_CLASSES if f"class {name}" in common]
        text = FIXTURES + "".join(f"class test_{name}(common.{name}):\n    pass\n{order}" for name in classes)
        (tests / folder / "test_of_duly.py").write_text(text)
        return ["-o", "python_classes=test_*", str(folder / "test_of_duly.py")]

    def _installed(self) -> str:
        question = f"from importlib.metadata import version; print(version({self.project!r}))"
        answer = subprocess.run([self._python, "-c", question], capture_output=True, text=True, check=True)
        return f"{self.project}=={answer.stdout.strip()}"

    def _pip(self, *arguments: str) -> None:
        command = [str(self._python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
        subprocess.run(command, cwd=self._directory, check=True)


def reason_of(excuses: Mapping[str, tuple[str, str]], test: str, errors: list[str]) -> str | None:
    """Return why a test may fail with these errors, or None. `excuses`: the text of an error, and the reason."""
    known, reason = excuses.get(test.partition("[")[0], ("", None))
    return reason if all(known in error or error.startswith(OF_SUBTESTS) for error in errors) else None


def _results(names: list[str], directory: Path, jobs: int, *, compare: bool) -> Iterator[bool]:
    """Run suites, print their outcomes, and yield whether each is as expected."""
    for name in names:
        suite = Suite(name, directory / name)
        suite.prepare()
        here = suite.run("duly", jobs)
        print(f"{name} on duly: {here}", flush=True)
        for test, errors in sorted(here.failed.items()):
            print(f"  failed: {test}: {reason_of(KNOWN, test, errors) or 'NO KNOWN REASON'}", flush=True)
        if compare:
            there = suite.run("redis", jobs)
            print(f"{name} on redis: {there}", flush=True)
            for test in sorted(there.failed):
                print(f"  failed on redis: {test}", flush=True)
            for test in sorted(here.failed.keys() & there.passed):
                print(f"  failed on duly alone: {test}", flush=True)
        if error := here.shortage(LEAST.get(name, 1)):
            print(f"  {name}: {error}", flush=True)
        yield not error and all(reason_of(KNOWN, test, errors) for test, errors in here.failed.items())


def main() -> int:
    """Run the suites, and return 1 if a test failed for no known reason, or if too few passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=list(LEAST), metavar="SUITE")
    parser.add_argument("--compare", action="store_true", help="run them on the redis transport as well")
    parser.add_argument("--jobs", type=int, default=4, help="the number of processes per suite")
    parser.add_argument("--directory", type=Path, help="where environments and logs are kept for the next run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="duly-foreign-") as temporary:
        directory = (given.directory or Path(temporary)).resolve()
        outcomes = list(_results(list(given.suites), directory, given.jobs, compare=given.compare))
    return not all(outcomes)


if __name__ == "__main__":
    sys.exit(main())
