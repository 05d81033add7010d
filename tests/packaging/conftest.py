"""The package as users get it: built once a run, and installed where nothing else is."""

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packaging.place import ROOT, Place


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Keep the other workers of xdist out."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a directory that all workers of xdist share."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "packaging"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="session")
def dist(shared: Path) -> Path:
    """Build the source distribution, and the wheel from it, as `python -m build` does."""
    directory = shared / "dist"
    with one_at_a_time(shared / "dist.lock"):
        if not list(directory.glob("*.whl")):
            built = subprocess.run(
                [sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT)],
                capture_output=True,
                text=True,
                timeout=110,
                check=False,
            )
            assert built.returncode == 0, built.stdout + built.stderr
    return directory


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    [wheel] = dist.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    [sdist] = dist.glob("*.tar.gz")
    return sdist


@pytest.fixture(scope="session")
def installed(shared: Path, wheel: Path) -> Callable[[str], Place]:
    """Return an environment with the wheel and these extras."""

    def install(extras: str) -> Place:
        name = extras.strip("[]").replace(",", "-") or "plain"
        place = Place(shared / name)
        with one_at_a_time(shared / f"{name}.lock"):
            if not (shared / f"{name}.done").exists():
                subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place.directory)], check=True)
                done = subprocess.run(
                    [sys.executable, "-m", "pip", "--python", place.python, "install", "--quiet", f"{wheel}{extras}"],
                    capture_output=True,
                    text=True,
                    timeout=110,
                    check=False,
                )
                assert done.returncode == 0, done.stderr
                (shared / f"{name}.done").touch()
        return place

    return install


@pytest.fixture
def plain(installed: Callable[[str], Place]) -> Place:
    """Return an environment with the wheel and no extras."""
    return installed("")


@pytest.fixture
def full(installed: Callable[[str], Place]) -> Place:
    """Return an environment as in the README: with the command line and the embedded server."""
    return installed("[cli,embedded]")
