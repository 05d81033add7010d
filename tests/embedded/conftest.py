"""Real processes on a real directory; every test ends with proof that nothing was left running."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from duly.embedded.file_locks import is_locked
from duly.embedded.home import Home
from tests.embedded.processes import NewOwner, Owner, is_gone
from tests.waiting import wait_until
from tests.warm import WarmPopen

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home.at(tmp_path / "d")
    yield home
    home.keep_flag.unlink(missing_ok=True)
    wait_until(lambda: is_gone(home), "keeper and server have ended")


@pytest.fixture
def new_owner(home: Home) -> Iterator[NewOwner]:
    """Start owners of the directory. The remaining ones are killed at the end."""
    owners: list[Owner] = []

    def start(*, opened: bool = True, popen: type[subprocess.Popen[str]] = WarmPopen) -> Owner:
        owner = Owner(home.directory, popen)
        owners.append(owner)
        if opened:
            assert owner.ask("open") == str(home.directory / "server.sock")
        return owner

    yield start
    for owner in owners:
        owner.kill()


@pytest.fixture
def server_pid(home: Home) -> Callable[[], int]:
    """Return the pid of the running server."""
    return lambda: home.read_state().server_pid


@pytest.fixture
def kill_server(home: Home) -> Callable[[], int]:
    """Kill -9 the running server; return its pid."""

    def kill() -> int:
        pid = home.read_state().server_pid
        os.kill(pid, signal.SIGKILL)
        return pid

    return kill


@pytest.fixture
def ended(home: Home) -> Callable[[], None]:
    """Wait until keeper and server have ended."""
    return lambda: wait_until(lambda: is_gone(home), "keeper and server have ended")


@pytest.fixture
def kill_keeper(home: Home) -> Callable[..., None]:
    """Kill -9 the keeper and, by default, wait until the kernel has released its lock."""

    def kill(*, wait: bool = True) -> None:
        os.kill(home.read_state().keeper_pid, signal.SIGKILL)
        if wait:
            wait_until(lambda: not is_locked(home.keeper_lock), "the keeper is dead")

    return kill
