"""The previous version is installed and runs: a missing part fails the tests and is not skipped."""

import subprocess
from pathlib import Path

import pytest

from tests.conftest import StartedServer
from tests.versions.pair import Peer
from tests.versions.previous import ROOT, named_commit, take_out


def test_this_version_descends_from_the_previous_one(tmp_path: Path) -> None:
    take_out(named_commit(), tmp_path)
    found = subprocess.run(["git", "-C", str(ROOT), "merge-base", "--is-ancestor", named_commit(), "HEAD"], check=False)
    assert found.returncode == 0, "tests/versions/PREVIOUS names a commit that HEAD does not descend from"


def test_a_commit_that_the_history_lacks_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="git fetch --unshallow"):
        take_out("0" * 40, tmp_path)


def test_a_process_that_imports_another_version_is_a_failure(tmp_path: Path, server: StartedServer) -> None:
    with pytest.raises(AssertionError, match="is to run"):
        Peer("a version without source", tmp_path, server("valkey").url)
