"""The source of the version that landed before this one, as the history of the repository has it."""

import io
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_NAMED: Final = Path(__file__).with_name("PREVIOUS")


def named_commit() -> str:
    """Read the version of the project."""
    (named,) = [line for line in _NAMED.read_text().splitlines() if line and not line.startswith("#")]
    return named


def previous_commit() -> str:
    """Return the version to test with. `DULY_TEST_PREVIOUS` names another commit, a release for example."""
    return os.environ.get("DULY_TEST_PREVIOUS") or named_commit()


def take_out(commit: str, parent: Path) -> Path:
    """Write the package of a commit into its own directory, and return the directory for PYTHONPATH.

    Several processes of a test run may ask for the same one: it is there as a whole, or not at all.
    """
    home = parent / f"duly-{commit}"
    if not home.exists():
        draft = parent / f"{home.name}.{os.getpid()}"
        with zipfile.ZipFile(io.BytesIO(_archive(commit))) as archive:
            archive.extractall(draft)
        try:
            draft.rename(home)
        except OSError:
            assert home.exists()  # another process was faster
    return home / "src"


def _archive(commit: str) -> bytes:
    command = ["git", "-C", str(ROOT), "archive", "--format=zip", commit, "src/duly"]
    try:
        found = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.fail("git is missing: the previous version comes from the history of the repository")
    if found.returncode != 0:
        pytest.fail(
            f"the history has no commit {commit}, which tests/versions/PREVIOUS names. In a shallow clone, run "
            f"`git fetch --unshallow`; otherwise name the version that landed last. "
            f"git: {found.stderr.decode(errors='replace').strip()}"
        )
    return found.stdout
