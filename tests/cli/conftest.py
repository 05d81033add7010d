"""A shell for each test: one server for all, and a separate namespace per test."""

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import duly
from duly.cli import main
from tests.cli.shell import Done, Shell
from tests.conftest import StartedServer

Call = Callable[..., Done]


@pytest.fixture
def shell(server: StartedServer, tmp_path: Path) -> Shell:
    return Shell(server("valkey").url, f"cli-{uuid.uuid4().hex[:12]}", tmp_path)


@pytest.fixture
def app(shell: Shell) -> Iterator[duly.Duly]:
    """Yield an app on the server and namespace of the shell."""
    with duly.Duly(shell.url, namespace=shell.namespace) as app:
        yield app


@pytest.fixture
def call(shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process, for tables of dozens of commands, where starting Python would dominate."""

    def run(*words: str, columns: int = 200) -> Done:
        more = () if "--namespace" in words else ("--namespace", shell.namespace)
        with Path("/dev/null").open() as nothing:
            monkeypatch.chdir(shell.place)
            monkeypatch.setenv("DULY_URL", shell.url)
            monkeypatch.setenv("COLUMNS", str(columns))
            monkeypatch.setattr("sys.stdin", nothing)
            monkeypatch.setattr(sys, "argv", ["duly", *words, *more])
            with pytest.raises(SystemExit) as ended:
                main()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, *capsys.readouterr())

    return run
