"""A new server below a directory that has one is logged, and is new for one process only."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

import duly
from duly.embedded import open_server
from duly.embedded.home import Home
from tests.embedded.processes import DEADLINE, is_gone
from tests.waiting import wait_until
from tests.warm import WarmPopen

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


def start(place: Path, state: Path, **variables: str) -> tuple[subprocess.Popen[str], str]:
    """Start a program that uses the default server of a directory. Return it, and what its standard error has."""
    place.mkdir(exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DULY")}
    own = {"HOME": str(state), "XDG_STATE_HOME": str(state)}
    program = WarmPopen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
        env={**kept, **own, **variables},
    )
    assert program.stderr
    return program, "".join(iter(program.stderr.readline, "started\n"))


_PROGRAM: Final = """
import sys
import duly
with duly.Duly() as app:
    app.queues()
    print("started", file=sys.stderr, flush=True)
    sys.stdin.read()
"""


def end(program: subprocess.Popen[str]) -> None:
    program.communicate(timeout=DEADLINE)
    assert program.returncode == 0


def test_a_new_server_while_another_one_runs_is_noted_on_standard_error(tmp_path: Path) -> None:
    api, worker, third, state = (tmp_path / name for name in ("api", "worker", "third", "state"))

    first, alone = start(api, state)
    named, chosen = start(third, state, DULY_HOME=str(tmp_path / "named"))
    second, noted = start(worker, state)
    links = {str(each.readlink()) for each in (state / "duly" / "servers").iterdir()}
    end(second)
    again, known = start(worker, state)
    for each in (first, named, again):
        end(each)
    wait_until(lambda: all(is_gone(Home.at(each / ".duly")) for each in (api, worker)), "both servers have ended")
    last, later = start(third, state)
    end(last)

    assert (alone, chosen, known, later) == ("", "", "", "")
    assert noted.count("\n") == 1
    assert f"in {worker}/.duly, although there is one in {api}/.duly" in noted
    assert "DULY_HOME" in noted
    assert "DULY_URL" in noted
    assert links == {f"{api}/.duly", f"{worker}/.duly"}
    assert [str(each.readlink()) for each in (state / "duly" / "servers").iterdir()] == [f"{third}/.duly"]
    homes = [Home.at(each) for each in (third / ".duly", tmp_path / "named")]
    wait_until(lambda: all(map(is_gone, homes)), "keepers and servers have ended")


@pytest.mark.parametrize("state", ["/proc/nothing", "file"])
def test_a_server_starts_although_it_cannot_be_recorded(tmp_path: Path, state: str) -> None:
    (tmp_path / "file").touch()
    program, noted = start(tmp_path / "api", tmp_path / state)
    end(program)

    assert noted == ""
    wait_until(lambda: is_gone(Home.at(tmp_path / "api" / ".duly")), "keeper and server have ended")


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
