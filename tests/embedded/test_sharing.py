"""Which processes keep the server running, and when it stops."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from duly.embedded import open_server
from duly.embedded.file_locks import is_locked
from tests.waiting import wait_until

if TYPE_CHECKING:
    from duly.embedded.home import Home
    from tests.embedded.processes import GivePid, NewOwner, Wait

pytestmark = pytest.mark.fault


def count_starts(home: Home) -> int:
    return home.keeper_log.read_text().count(" started")


def test_two_processes_share_one_server(home: Home, new_owner: NewOwner) -> None:
    first, second = new_owner(), new_owner()

    first.run("SET greeting hello")

    assert second.run("GET greeting") == "$5 hello"
    assert count_starts(home) == 1


def test_the_server_stops_with_its_last_user_and_keeps_the_data(home: Home, new_owner: NewOwner, ended: Wait) -> None:
    first, second = new_owner(), new_owner()
    first.run("SET a 1")
    first.leave()
    assert second.run("GET a") == "$1 1"
    assert count_starts(home) == 1

    second.leave()
    ended()

    assert new_owner().run("GET a") == "$1 1"
    assert count_starts(home) == 2


def test_a_killed_owner_does_not_affect_another(home: Home, new_owner: NewOwner, server_pid: GivePid) -> None:
    victim, survivor = new_owner(), new_owner()
    before = server_pid()

    victim.kill()

    assert survivor.run("SET a 1") == "+OK"
    assert server_pid() == before


def test_the_server_stops_when_all_owners_are_killed(home: Home, new_owner: NewOwner, ended: Wait) -> None:
    owners = [new_owner() for _ in range(3)]
    owners[0].run("SET a 1")

    for owner in owners:
        owner.kill()
    ended()

    assert new_owner().run("GET a") == "$1 1"


def test_release_may_be_repeated_and_the_handle_used_again(home: Home, ended: Wait) -> None:
    server = open_server(home.directory)
    server.release()
    server.release()
    ended()

    assert server.socket_path
    server.ensure_running()
    server.release()


def test_threads_may_open_and_release_concurrently(home: Home, ended: Wait) -> None:
    with ThreadPoolExecutor(8) as threads:
        servers = list(threads.map(open_server, [home.directory] * 8))
        shared = servers[0]
        assert len(set(threads.map(lambda _: shared.socket_path, range(50)))) == 1
        list(threads.map(lambda server: server.release(), servers * 2))

    assert count_starts(home) == 1
    ended()


def test_a_garbage_collected_handle_releases_its_share(home: Home, ended: Wait) -> None:
    open_server(home.directory)
    ended()


def test_eight_processes_at_once_start_one_server(home: Home, new_owner: NewOwner) -> None:
    owners = [new_owner(opened=False) for _ in range(8)]
    for owner in owners:
        owner.tell("open")

    assert {owner.hear() for owner in owners} == {str(home.directory / "server.sock")}
    assert count_starts(home) == 1
    assert {owner.run("INCR n") for owner in owners} == {f":{n}" for n in range(1, 9)}


def test_owners_that_come_and_go_lose_no_write(home: Home, new_owner: NewOwner) -> None:
    """Users arrive while keepers decide to stop. Each must get a running server."""
    owners = [new_owner(opened=False) for _ in range(4)]
    for number, owner in enumerate(owners):
        owner.tell(f"cycle set{number} 30")

    assert [owner.hear() for owner in owners] == ["done"] * 4

    reader = new_owner()
    assert [reader.run(f"SCARD set{number}") for number in range(4)] == [":30"] * 4
    assert count_starts(home) >= 1


def test_an_owner_that_reopens_at_once_meets_the_stopping_keeper(home: Home, new_owner: NewOwner) -> None:
    owner = new_owner(opened=False)

    def has_met_it() -> bool:
        assert owner.ask("cycle alone 30") == "done"
        return count_starts(home) > 1

    wait_until(has_met_it, "the stop was really run into: how often depends on who is faster")

    assert new_owner().run("SCARD alone") == ":30"


def test_a_forked_child_takes_its_own_share_and_keeps_the_parents(
    home: Home, new_owner: NewOwner, server_pid: GivePid
) -> None:
    owner = new_owner()
    before = server_pid()

    assert owner.ask("fork SET child 1") == "+OK"

    assert is_locked(home.keeper_lock)
    assert owner.run("GET child") == "$1 1"
    assert server_pid() == before


def test_a_forked_child_uses_the_server_after_the_parent_ended(home: Home, new_owner: NewOwner) -> None:
    owner = new_owner()
    owner.ask("release")

    assert owner.ask("fork SET child 1") == "+OK"
    assert new_owner().run("GET child") == "$1 1"


def test_an_idle_forked_child_does_not_keep_the_server_of_a_killed_parent(
    home: Home, new_owner: NewOwner, ended: Wait
) -> None:
    owner = new_owner()
    child = int(owner.ask("fork-and-stay"))
    try:
        owner.process.kill()
        ended()
        os.kill(child, 0)  # it still runs, and holds no share
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_everything_is_private_to_the_user(home: Home, new_owner: NewOwner) -> None:
    new_owner()

    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in home.directory.rglob("*")}

    assert stat.S_IMODE(home.directory.stat().st_mode) == 0o700
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert (home.directory / ".gitignore").read_text() == "*\n"
