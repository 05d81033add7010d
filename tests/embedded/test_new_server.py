"""A new server below a directory that has one is logged, and is new for one process only."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import duly
from duly.embedded import open_server
from duly.embedded.home import Home
from tests.embedded.processes import is_gone
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.fault


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory in which a server was used, with a directory `jobs/nightly` below it."""
    monkeypatch.delenv("DULY_URL", raising=False)
    monkeypatch.delenv("DULY_HOME", raising=False)
    (tmp_path / "jobs" / "nightly").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with duly.Duly() as app:
        app.queues()
    yield tmp_path
    homes = [Home.at(directory) for directory in tmp_path.rglob(".duly")]
    wait_until(lambda: all(map(is_gone, homes)), "keepers and servers have ended")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "duly" and each.levelno >= logging.WARNING]


def test_an_accidental_second_server_is_logged_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(caplog) == []  # there is none above the first
    monkeypatch.chdir(project / "jobs" / "nightly")
    for _ in range(2):
        with duly.Duly() as app:
            app.queues()
    (warning,) = warnings(caplog)
    assert f"in {project}/jobs/nightly/.duly, although there is one in {project}/.duly" in warning
    assert "DULY_HOME" in warning
    assert "DULY_URL" in warning


@pytest.mark.parametrize("how", ["the program", "DULY_URL", "DULY_HOME"])
def test_a_new_server_in_a_named_directory_is_not_logged(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    place = project / "jobs" / ".duly"
    monkeypatch.chdir(place.parent)
    if how != "the program":
        monkeypatch.setenv(how, f"embedded://{place}" if how == "DULY_URL" else str(place))
    with duly.Duly(f"embedded://{place}" if how == "the program" else None) as app:
        app.queues()
    assert place.is_dir()
    assert warnings(caplog) == []


def test_of_several_concurrent_starts_only_one_is_new(home: Home) -> None:
    with ThreadPoolExecutor(4) as pool:
        servers = list(pool.map(open_server, [home.directory] * 4))
    later = open_server(home.directory)
    try:
        assert sorted(server.is_new for server in servers) == [False, False, False, True]
        assert not later.is_new
    finally:
        for server in (*servers, later):
            server.release()
