"""Processes that use a server. Tests start, command and kill them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from duly.embedded.file_locks import is_locked
from tests.warm import WarmPopen

if TYPE_CHECKING:
    from duly.embedded.home import Home

GivePid = Callable[[], int]
KillKeeper = Callable[..., None]
Wait = Callable[[], None]

DEADLINE = 60.0
OWNER = Path(__file__).with_name("owner.py")


def is_gone(home: Home) -> bool:
    return not is_locked(home.keeper_lock) and not is_locked(home.server_lock)


class Owner:
    """A process that uses the server. owner.py has its commands."""

    def __init__(self, directory: Path, popen: type[subprocess.Popen[str]] = WarmPopen) -> None:
        self.process = popen(
            [sys.executable, str(OWNER), str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid

    def tell(self, command: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, command: str) -> str:
        self.tell(command)
        return self.hear()

    def run(self, command: str) -> str:
        """Send a command to the server from this process."""
        return self.ask(f"run {command}")

    def leave(self) -> None:
        """End gracefully."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        assert self.process.wait(DEADLINE) == 0
        self.process.stdout.close()

    def kill(self) -> None:
        """End by kill -9."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.kill()
        self.process.wait(DEADLINE)
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()


class NewOwner(Protocol):
    """The type of the fixture `new_owner`."""

    def __call__(self, *, opened: bool = True, popen: type[subprocess.Popen[str]] = WarmPopen) -> Owner: ...
