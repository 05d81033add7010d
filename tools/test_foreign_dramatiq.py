"""Run Dramatiq's own tests on Duly's broker: `tools/test_foreign_dramatiq.py [--repository DIRECTORY] [VERSION ...]`.

VERSION is like `2.2`. The tests come from the source distribution, into a temporary directory with its own environment.
It lacks the tests of the middleware: `--repository` names a clone of Dramatiq, and they are taken from the tag of the
version. Fixtures of `tools/foreign` replace Dramatiq's broker for tests. A test may fail only if `KNOWN` gives the
reason. At least the number of tests in `LEAST` must pass.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from io import BytesIO
from pathlib import Path
from typing import Final

from tests.servers import Server
from tools.test_foreign import Outcome, reason_of

ROOT: Final = Path(__file__).parent.parent
FILES: Final = ("actors", "broker", "callbacks", "composition", "encoders", "generic_actors", "messages")
FILES_WITH_WORKERS: Final = ("results", "worker")
KNOWN: Final = {
    "test_actors_can_prioritize_work": (
        "assert calls == ",
        "in 2.0, it wants more messages in the worker than its prefetch allows",
    ),
    "test_event_loop_thread_run_coroutine_interrupted": (
        'assert side_effect_target["cleanup"]',
        "it uses no broker: its interrupt may come before Dramatiq waits for the coroutine",
    ),
}
"""Tests that may fail with an error that has this text, each with the reason. All others pass."""
VERSIONS: Final = ("2.0", "2.2")
"""Both ends of the range of the extra `dramatiq`."""
LEAST: Final = 85
"""The number of tests that must pass, a few below that of the versions."""
LEAST_WITH_MIDDLEWARE: Final = 135
"""The same with the tests of the middleware."""
NOT_RUN: Final = """
The tests of Dramatiq's middleware did not run: its source distribution lacks them. To run them as well:
    git clone https://github.com/Bogdanp/dramatiq CLONE
    tools/test_foreign_dramatiq.py --repository CLONE"""


def run(version: str, directory: Path, repository: Path | None) -> list[str]:
    """Run the tests of a version, print their number, and return errors: tests that fail for no known reason."""
    python = directory / "env/bin/python"
    tests = _tests_of(version, directory, repository)
    report = directory / "report.xml"
    options = ["-q", "-o", "addopts=", "--timeout=180", f"--junitxml={report}"]
    files = [f"tests/test_{name}.py" for name in FILES + FILES_WITH_WORKERS]
    if repository is not None:
        files.append("tests/middleware")
    with Server("valkey") as server:
        environment = {**os.environ, "BROKER": server.url}
        subprocess.run([str(python), "-m", "pytest", *options, *files], cwd=tests.parent, env=environment, check=False)
    found = Outcome()
    found.add(report)
    print(f"dramatiq-{version} on duly: {found}", flush=True)
    error = found.shortage(LEAST if repository is None else LEAST_WITH_MIDDLEWARE)
    unexpected = [error] if error else []
    if error:
        print(f"  {error}", flush=True)
    for test, errors in sorted(found.failed.items()):
        reason = reason_of(KNOWN, test.rpartition("::")[2], errors)
        print(f"  failed: {test}: {reason or 'NO KNOWN REASON'}", flush=True)
        if reason is None:
            unexpected.append(test)
    return unexpected


def _tests_of(version: str, directory: Path, repository: Path | None) -> Path:
    """Make an environment in a directory, put the tests there, and return their folder."""
    python = directory / "env/bin/python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wanted = f"dramatiq=={version}.*"
    venv.create(directory / "env", with_pip=True)
    tools = ["pytest", "pytest-timeout", "setuptools", "wheel", "pika", "redis", "prometheus-client", "gevent"]
    subprocess.run([*pip, "install", wanted, *tools, str(ROOT)], cwd=directory, check=True)
    fetch = ["download", "--no-deps", "--no-binary=:all:", "--no-build-isolation", wanted]
    subprocess.run([*pip, *fetch], cwd=directory, check=True)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    folder = directory / archive.name.removesuffix(".tar.gz")
    tests = folder / "tests"
    if repository is not None:
        middleware = ["git", "-C", str(repository), "archive", f"v{version}.0", "tests/middleware"]
        found = subprocess.run(middleware, capture_output=True, check=True)
        with tarfile.open(fileobj=BytesIO(found.stdout)) as packed:
            packed.extractall(folder, filter="data")
    (tests / "__init__.py").touch()
    for name in ("conftest", "common"):
        shutil.copy(ROOT / f"tools/foreign/dramatiq_{name}.py", tests / f"{name}.py")
    return tests


def main() -> int:
    """Run the tests of the versions. Return 1 if a test failed for no known reason, or if too few passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument(
        "--repository", type=Path, help="a clone of Dramatiq, whose tests of the middleware run as well"
    )
    given = parser.parse_args()
    unexpected: list[str] = []
    for version in given.versions:
        with tempfile.TemporaryDirectory(prefix="duly-foreign-") as directory:
            unexpected += run(version, Path(directory), given.repository)
    if given.repository is None:
        print(NOT_RUN, flush=True)
    return bool(unexpected)


if __name__ == "__main__":
    sys.exit(main())
