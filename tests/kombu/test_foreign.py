"""A selection of kombu's own tests on the transport. `make test-foreign` runs all of them, and those of Celery."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import test_foreign as foreign

SELECTION = ("BasicFunctionality", "BaseExchangeTypes", "BaseMessage")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # pip may wait for the package index


def test_basic_tests_of_kombu_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "KOMBU_CLASSES", SELECTION)
    monkeypatch.setattr(foreign, "NEWER_CLASSES", ())
    suite = foreign.Suite("kombu", tmp_path, Path(sys.executable))
    try:
        suite.fetch()
    except subprocess.CalledProcessError:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no package index answers")

    found = suite.run("duly", jobs=2)

    assert found.failed == {}
    assert len(found.passed) > 15
