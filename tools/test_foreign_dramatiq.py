"""Run Dramatiq's own tests on Duly's broker: `tools/test_foreign_dramatiq.py [VERSION ...]`, like `2.2`.

The tests come from the source distribution, into a temporary directory with its own environment. Fixtures of
`tools/foreign` replace Dramatiq's broker for tests. A test may fail only if `KNOWN` gives the reason.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.servers import Server

ROOT: Final = Path(__file__).parent.parent
FILES: Final = ("actors", "broker", "callbacks", "composition", "encoders", "generic_actors", "messages")
FILES_WITH_WORKERS: Final = ("results", "worker")
KNOWN: Final = {
    "test_actors_can_be_sent_messages": "it reads the queue of Dramatiq's broker for tests, which is in memory",
    "test_actors_can_prioritize_work": "in 2.0, it wants more messages in the worker than its prefetch allows",
    "test_worker_handles_non_numeric_eta_and_logs_warning": "it writes into the queue in memory",
    "test_worker_handles_none_eta": "it writes into the queue in memory",
}
"""Tests that may fail, each with the reason."""


def run(version: str, directory: Path) -> list[str]:
    """Run the tests of a version, and return those that fail for no known reason."""
    python = directory / "env/bin/python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wanted = f"dramatiq=={version}.*"
    venv.create(directory / "env", with_pip=True)
    tools = ["pytest", "pytest-timeout", "setuptools", "wheel", "pika", "redis", "prometheus-client"]
    subprocess.run([*pip, "install", wanted, *tools, str(ROOT)], cwd=directory, check=True)
    fetch = ["download", "--no-deps", "--no-binary=:all:", "--no-build-isolation", wanted]
    subprocess.run([*pip, *fetch], cwd=directory, check=True)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    tests = directory / archive.name.removesuffix(".tar.gz") / "tests"
    (tests / "__init__.py").touch()
    for name in ("conftest", "common"):
        shutil.copy(ROOT / f"tools/foreign/dramatiq_{name}.py", tests / f"{name}.py")
    report = directory / "report.xml"
    options = ["-q", "-o", "addopts=", "--timeout=180", f"--junitxml={report}"]
    files = [f"tests/test_{name}.py" for name in FILES + FILES_WITH_WORKERS]
    with Server("valkey") as server:
        environment = {**os.environ, "BROKER": server.url}
        subprocess.run([str(python), "-m", "pytest", *options, *files], cwd=tests.parent, env=environment, check=False)
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - written by pytest
    failed = [str(case.get("name")) for case in cases if {child.tag for child in case} & {"failure", "error"}]
    return [name for name in failed if name not in KNOWN]


def main() -> int:
    """Run the tests of both ends of the range, and return 1 if one failed for no known reason."""
    unexpected = []
    for version in sys.argv[1:] or ("2.0", "2.2"):
        with tempfile.TemporaryDirectory(prefix="duly-foreign-") as directory:
            unexpected += [f"{name} of {version}" for name in run(version, Path(directory))]
    for name in unexpected:
        print(f"failed without a known reason: {name}")
    return bool(unexpected)


if __name__ == "__main__":
    sys.exit(main())
