"""File locks (flock): the only thing that says who is alive.

The kernel drops a lock when its last holder ends, however it ends, so nothing
here goes stale. A lock belongs to an open file, which a fork shares.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path


def open_lock_file(path: Path) -> int:
    """Open a file to lock; each call is a holder of its own, also within one process."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free now."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(fd: int) -> None:
    """Take the whole lock, waiting in the kernel until every other holder has left."""
    fcntl.flock(fd, fcntl.LOCK_EX)


def unlock(fd: int) -> None:
    """Give the lock back, also for processes that inherited it by a fork."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds the whole lock. Takes a share of it for an instant."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not try_lock(fd, shared=True)
    finally:
        os.close(fd)


def is_same_file(fd: int, path: Path) -> bool:
    """Tell whether the path still leads to the open file: False after somebody deleted the directory."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def write_pid(fd: int) -> None:
    """Note in a lock file who holds it."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)


def read_pid(path: Path) -> int:
    """Return the pid noted in a lock file, 0 if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_bytes())
    return 0


def processes_with(path: Path) -> list[int] | None:
    """Return the pids of this user's processes that have the file open; None where /proc cannot tell."""
    if not Path("/proc/self/fd").is_dir():
        return None
    wanted = path.resolve()
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _has_open(process, wanted)]


def _has_open(process: Path, wanted: Path) -> bool:
    # A process of another user, or one that ends while we look, is none of ours.
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if link.readlink() == wanted:
                    return True
    return False


class Hold:
    """One process's share of a lock. Made by `take`; a forked child must take its own."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd: int | None = fd
        self._pid = os.getpid()

    @classmethod
    def take(cls, path: Path, timeout: float) -> Hold | None:
        """Take a share, waiting while a keeper stops the server; None when the timeout is over."""
        deadline = time.monotonic() + timeout
        while True:
            fd = open_lock_file(path)
            # Between open and lock the file may have been deleted: then we hold nothing.
            if try_lock(fd, shared=True) and is_same_file(fd, path):
                return cls(path, fd)
            os.close(fd)
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)

    def is_ours(self) -> bool:
        """Tell whether this process took the share and the lock file is still the one in use."""
        return self._fd is not None and self._pid == os.getpid() and is_same_file(self._fd, self._path)

    def release(self) -> None:
        """Give the share back. Repeating it does nothing; in a forked child the parent keeps its own."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        # A fork shares the open file, and with it the lock: unlocking in the child would
        # take it from the parent, so the child only closes. The parent unlocks, because
        # closing alone would leave the lock to a child that has not closed yet.
        if self._pid == os.getpid():
            unlock(fd)
        os.close(fd)
