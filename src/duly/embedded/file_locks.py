"""File locks (flock), which show which processes are alive.

The kernel releases a lock when its last holder ends, for any reason, so locks never go stale. A lock belongs to an open
file, which a fork shares.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path


def open_lock_file(path: Path) -> int:
    """Open a file to lock. Each call is a separate holder, even within one process."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free now."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(fd: int) -> None:
    """Take the lock exclusively. Blocks until every other holder has released it."""
    fcntl.flock(fd, fcntl.LOCK_EX)


def unlock(fd: int) -> None:
    """Release the lock, even for processes that inherited it by a fork."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock exclusively. Takes a share of it for an instant."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not try_lock(fd, shared=True)
    finally:
        os.close(fd)


def is_same_file(fd: int, path: Path) -> bool:
    """Return whether the path still leads to the open file. False if the directory was deleted."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def write_pid(fd: int) -> None:
    """Write the pid of the holder into a lock file."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)


def read_pid(path: Path) -> int:
    """Return the pid in a lock file, or 0."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_bytes())
    return 0


def processes_with(path: Path) -> list[int] | None:
    """Return the pids of this user's processes that have the file open. None if there is no /proc."""
    if not Path("/proc/self/fd").is_dir():
        return None
    wanted = path.resolve()
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _has_open(process, wanted)]


def _has_open(process: Path, wanted: Path) -> bool:
    # Processes of other users, and processes that have just ended, are ignored.
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if link.readlink() == wanted:
                    return True
    return False


class SharedLock:
    """A process's share of a lock. Made by `take`. A forked child must take its own share."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd: int | None = fd
        self._pid = os.getpid()

    @classmethod
    def take(cls, path: Path, timeout: float) -> SharedLock | None:
        """Take a share, waiting while a keeper stops the server. None after the timeout."""
        deadline = time.monotonic() + timeout
        while True:
            fd = open_lock_file(path)
            # If the file was deleted between open and lock, the lock is worthless.
            if try_lock(fd, shared=True) and is_same_file(fd, path):
                return cls(path, fd)
            os.close(fd)
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)

    def is_ours(self) -> bool:
        """Return whether this process took the share, and the lock file is still in use."""
        return self._fd is not None and self._pid == os.getpid() and is_same_file(self._fd, self._path)

    def release(self) -> None:
        """Release the share. Safe to repeat. In a forked child, the parent keeps its share."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        # A fork shares the open file and the lock. Unlocking in the child would release
        # the parent's lock, so the child only closes. The parent unlocks, because after
        # closing alone a child with the file open would still hold the lock.
        if self._pid == os.getpid():
            unlock(fd)
        os.close(fd)
