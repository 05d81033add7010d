"""`duly server start|stop|restart|status`, through real processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from duly import Duly, Unavailable
from duly.embedded import control
from duly.embedded.file_locks import is_locked
from tests.waiting import wait_until
from tests.warm import run

if TYPE_CHECKING:
    from pathlib import Path

    from duly.embedded.home import Home
    from tests.embedded.processes import GivePid, NewOwner, Wait

pytestmark = pytest.mark.fault


Command = Callable[..., "subprocess.CompletedProcess[str]"]


def run_python(*words: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, *words], timeout=60)


@pytest.fixture
def duly(home: Home) -> Command:
    """Run `duly server VERB` on the directory."""
    return lambda verb, *options: run_python("-m", "duly.cli", "server", verb, "--dir", str(home.directory), *options)


def test_start_keeps_the_server_without_users_until_stop(
    home: Home, duly: Command, new_owner: NewOwner, ended: Wait
) -> None:
    assert duly("start").returncode == 0
    owner = new_owner()
    owner.run("SET a 1")
    owner.leave()
    found = json.loads(duly("status", "--json").stdout)
    assert found["state"] == "running"
    assert found["users"] == []
    assert found["kept"] is True

    assert duly("stop").returncode == 0

    assert not is_locked(home.keeper_lock)
    assert "stopped" in duly("status").stdout


def test_status_shows_the_running_server(home: Home, duly: Command, new_owner: NewOwner, server_pid: GivePid) -> None:
    owner = new_owner()

    found = json.loads(duly("status", "--json").stdout)

    assert found["pid"] == server_pid()
    assert found["keeper_pid"] == home.read_state().keeper_pid
    assert found["version"].startswith(("Valkey ", "Redis "))
    assert found["socket"] == str(home.directory / "server.sock")
    assert [user["pid"] for user in found["users"]] == [owner.pid]
    assert found["memory"] > 0
    assert found["data"] > 0
    assert found["since"].endswith("+00:00")
    assert found["kept"] is False


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/srv/shop/.venv/bin/python3", "/srv/shop/.venv/bin/duly", "worker", "shop:app"], "duly worker shop:app"),
        (["python3.12", "-u", "-X", "-m", "uvicorn", "shop:api"], "uvicorn shop:api"),
        (["/usr/bin/python", "-c", "import duly"], "-c import duly"),
        (["/usr/bin/python3"], "python3"),
        (["/opt/gunicorn", "shop:api"], "gunicorn shop:api"),
        ([], ""),
    ],
)
def test_a_user_is_named_by_its_program(words: list[str], name: str) -> None:
    assert control.name_of_command(words) == name


def test_status_and_stop_name_the_script_of_a_user(home: Home, duly: Command, new_owner: NewOwner) -> None:
    owner = new_owner(popen=subprocess.Popen)  # with its own command line

    assert f"{owner.pid} (owner.py {home.directory}"[:40] in duly("status").stdout
    assert f"{owner.pid} (owner.py " in duly("stop").stderr


@pytest.mark.parametrize("verb", ["status", "stop"])
def test_a_directory_without_a_server_is_named_and_not_created(home: Home, duly: Command, verb: str) -> None:
    result = duly(verb)
    found = json.loads(duly(verb, "--json").stdout)

    assert result.returncode == 0
    assert result.stdout == f"no embedded server here: none was started in {home.directory}\n"
    assert (found["state"], found["directory"], found["data"]) == ("stopped", str(home.directory), 0)
    assert not home.directory.exists()


@pytest.mark.parametrize("verb", ["start", "stop", "status"])
def test_a_closed_output_is_refused_before_any_action(home: Home, verb: str) -> None:
    command = [sys.executable, "-m", "duly.cli", "server", verb, "--dir", str(home.directory)]

    result = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, text=True, timeout=60, check=False
    )

    assert result.returncode == 2
    assert result.stderr == "duly: standard output is closed: redirect it, for example to /dev/null\n"
    assert not home.directory.exists()


def test_control_characters_in_the_name_of_a_directory_are_escaped(tmp_path: Path) -> None:
    result = run_python("-m", "duly.cli", "server", "status", "--dir", str(tmp_path / "d\x1b[2J"))

    assert result.returncode == 0
    assert "d\\x1b[2J" in result.stdout
    assert "\x1b" not in result.stdout


def test_control_characters_in_the_command_of_a_user_are_escaped(home: Home, duly: Command) -> None:
    duly("start")
    use = f"app = duly.Duly('embedded://{home.directory}'); app.queues(); print(flush=True); input()"
    user = subprocess.Popen(
        ["\x1b[2J", "-c", f"import duly; {use}"],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert user.stdout is not None
    with user:
        assert user.stdout.readline() == b"\n"
        status = duly("status")
        stopped = duly("stop", "--force")
        user.kill()

    for printed in (status.stdout, stopped.stderr):
        assert f"{user.pid} (\\x1b[2J -c import" in printed
        assert "\x1b" not in printed


def test_stop_refuses_while_the_server_is_used_and_names_the_users(
    home: Home, duly: Command, new_owner: NewOwner
) -> None:
    owner = new_owner()

    result = duly("stop")

    assert result.returncode == 1
    assert str(owner.pid) in result.stderr
    assert "Traceback" not in result.stderr
    assert owner.run("SET a 1") == "+OK"


def test_stop_by_force_ends_a_server_with_users(home: Home, duly: Command, new_owner: NewOwner) -> None:
    owner = new_owner()
    owner.run("SET a 1")

    result = duly("stop", "--force")

    assert result.returncode == 0, result.stderr
    assert str(owner.pid) in result.stderr
    assert not is_locked(home.server_lock)
    assert owner.ask("ensure").startswith("Halted")
    assert new_owner().run("GET a") == "$1 1"  # a new process that opens it starts it
    assert owner.ask("ensure") == "running"


def test_a_send_waits_for_a_server_that_was_stopped_by_force(home: Home, duly: Command) -> None:
    with Duly(f"embedded://{home.directory}", patience=60) as app, ThreadPoolExecutor() as threads:
        app.queue("orders").send(1)
        assert duly("stop", "--force").returncode == 0
        sent = threads.submit(app.queue("orders").send, 2)
        wait_until(lambda: app._link.is_down, "the app has noticed that the server is away")

        assert duly("start").returncode == 0

        sent.result(60)
        assert app.queue("orders").stats().sent == 2
        duly("stop", "--force")


def test_the_use_of_a_server_is_logged_once_per_process(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "duly"), Duly(f"embedded://{home.directory}") as app:
        app.queues()
        asyncio.run(app.aio.queues())
        with Duly(f"embedded://{home.directory}") as other:
            other.queues()

    lines = [each.getMessage() for each in caplog.records if "using the embedded server" in each.getMessage()]
    assert lines == [f"using the embedded server in {home.directory}"]


def test_a_send_fails_after_its_patience_if_the_server_stays_stopped(home: Home, duly: Command) -> None:
    with Duly(f"embedded://{home.directory}", patience=0.3) as app:
        app.queue("orders").send(1)
        duly("stop", "--force")

        with pytest.raises(Unavailable, match=r"stopped by force; start it with: duly server start --dir .*d"):
            app.queue("orders").send(2)
        with pytest.raises(Unavailable, match="stopped by force"):  # a second link of the process starts nothing
            asyncio.run(app.aio.queue("orders").send(3))
        assert not is_locked(home.server_lock)


@pytest.mark.parametrize("command", [["stats"], ["send", "orders", "1"], ["doctor"]])
def test_a_command_reports_a_server_that_was_stopped_by_force_and_does_not_start_it(
    home: Home, duly: Command, command: list[str]
) -> None:
    duly("start")
    duly("stop", "--force")

    result = run_python("-m", "duly.cli", *command, "--url", f"embedded://{home.directory}")

    assert result.returncode == 1
    assert f"it was stopped by force; start it with: duly server start --dir {home.directory}" in result.stderr
    assert not is_locked(home.keeper_lock)


def test_restart_replaces_a_server_with_users(
    home: Home, duly: Command, new_owner: NewOwner, server_pid: GivePid
) -> None:
    owner = new_owner()
    owner.run("SET a 1")
    before = server_pid()

    result = duly("restart", "--json")

    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["kept"] is True
    assert found["pid"] != before
    assert owner.run("GET a") == "$1 1"
    owner.leave()
    assert duly("stop").returncode == 0


def test_start_and_stop_may_be_repeated(home: Home, duly: Command) -> None:
    assert [duly(verb).returncode for verb in ("start", "start", "stop", "stop")] == [0, 0, 0, 0]


def test_misuse_is_2_and_failure_is_1(home: Home, duly: Command, tmp_path: Path) -> None:
    assert duly("status", "--no-such-option").returncode == 2
    (tmp_path / "d").touch()

    failed = duly("start")

    assert failed.returncode == 1
    assert failed.stderr.startswith("duly: embedded server in ")
    assert duly("status").returncode == 0
    (tmp_path / "d").unlink()


def test_without_typer_the_command_names_the_extra() -> None:
    code = "import sys; sys.modules['typer'] = None; from duly.cli import main; main()"

    command = [sys.executable, "-c", code]  # a Python that has not imported it yet
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert result.returncode == 1
    assert result.stderr.strip() == 'duly: the command line needs its extra: pip install "duly[cli]"'
