"""One run of the server program: start it, learn of its end, end it.

Used by the keeper alone. Not here: when to start again, and when to stop.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from duly.embedded import config
from duly.embedded.locks import open_lock_file, processes_with, read_pid, try_lock, write_pid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from duly.embedded.home import Home

STOP_TIMEOUT = 120.0
"""Seconds a server may take to write its data before it is killed."""

_LOG_LIMIT = 4 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_CAN_PEEK = hasattr(os, "waitid")  # not on macOS before Python 3.13


class ServerProcess:
    """A server that was started by this keeper."""

    def __init__(self, home: Home, binary: str, socket: Path) -> None:
        """Start it. No two servers can run on one directory: the lock is held by the server itself."""
        rotate(home.server_log)
        self._log = home.server_log
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        self.started: float = time.monotonic()
        fd = open_lock_file(home.server_lock)
        try:
            _take_from_leftover(fd, home.server_lock)
            home.config_file.write_text(config.render(home.directory, socket, _read_extra(home)))
            self._popen = self._spawn(home, binary, fd)
        finally:
            os.close(fd)  # the server has its own copy, and with it the lock

    def _spawn(self, home: Home, binary: str, fd: int) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own program, no shell
                [binary, str(home.config_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home.directory,
                start_new_session=True,  # its own group: the rewrite child can be ended with it
                pass_fds=(fd,),
                # Safe beside threads: it imports nothing, takes no lock, and makes three system calls.
                preexec_fn=partial(_before_exec, fd, os.getpid(), _load_prctl()),  # noqa: PLW1509
            )

    @property
    def pid(self) -> int:
        """The process's id, and that of its group."""
        return self._popen.pid

    def has_ended(self) -> bool:
        """Tell whether the process has ended, without collecting it."""
        if not _CAN_PEEK:
            return self._popen.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # collected
            return True

    def wait(self) -> None:
        """Wait for the end without collecting it, so that the pid cannot be used again before `collect`."""
        if not _CAN_PEEK:
            self._popen.wait()
            return
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def collect(self) -> int:
        """Clear away what the ended server left running and return its exit status, negative for a signal."""
        # A background rewrite outlives a killed server, holds its lock and writes for nobody.
        self.signal_group(signal.SIGKILL)
        return self._popen.wait()

    def signal_group(self, number: int) -> None:
        """Signal the server and its background children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def read_log(self, lines: int = 15) -> str:
        """Return the last lines that this run wrote."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(self._log_start, self._log.stat().st_size - 16_384))
            return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])
        return ""


def rotate(log: Path) -> None:
    """Put a log that has grown large aside; one old copy is kept."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_suffix(".log.old"))


def _read_extra(home: Home) -> str:
    with contextlib.suppress(FileNotFoundError):
        return home.extra_config_file.read_text()
    return ""


def _take_from_leftover(fd: int, path: Path) -> None:
    """Take the server's lock, ending a server whose keeper was killed."""
    deadline = time.monotonic() + STOP_TIMEOUT
    number = signal.SIGTERM
    asked: set[int] = set()
    while not try_lock(fd):
        if time.monotonic() > deadline:
            number, deadline, asked = signal.SIGKILL, time.monotonic() + STOP_TIMEOUT, set()
        for pid in set(_holders(path)) - asked:
            print(f"ending process {pid}, left by an earlier keeper", flush=True)  # noqa: T201 - to keeper.log
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
            asked.add(pid)
        time.sleep(0.02)


def _holders(path: Path) -> list[int]:
    """Return the left server and its children: those of the group whose leader noted itself in the lock file."""
    leader = read_pid(path)
    found = processes_with(path)
    if found is None:  # the lock is held, so its writer or a child lives, and the pid was not given to another
        return [leader] if leader > 1 else []
    # Having the file open is not enough: a backup program reads it, too.
    return [pid for pid in found if _find_group(pid) == leader]


def _find_group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _load_prctl() -> Callable[[int, int], int] | None:
    """Load prctl before the fork: between fork and exec nothing may be imported."""
    if not sys.platform.startswith("linux"):
        return None
    with contextlib.suppress(OSError, AttributeError):
        prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl
        return prctl
    return None


def _before_exec(fd: int, keeper_pid: int, prctl: Callable[[int, int], int] | None) -> None:
    """Tie the server to its keeper: killed keeper, gracefully ended server."""
    write_pid(fd)
    if prctl is None:
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != keeper_pid:  # it died before the line above
        os._exit(1)
