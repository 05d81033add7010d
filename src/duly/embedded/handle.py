"""The client side: `open_server` and the handle that it returns.

A handle holds a share of users.lock. As long as it does, a keeper runs the server. A handle that finds no keeper starts
one. Nothing here stops or signals a server.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

from duly.embedded import default_homes
from duly.embedded.binary import find_binary
from duly.embedded.file_locks import SharedLock, is_locked
from duly.embedded.home import Home, default_directory, has_server, server_above
from duly.embedded.probe import Answer, ping
from duly.embedded.run_keeper import BUSY
from duly.embedded.server_process import STOP_TIMEOUT
from duly.errors import Unavailable

START_TIMEOUT = 60.0
"""Seconds without an answer after which a start has failed. A server that loads data answers."""

_LOG = logging.getLogger("duly")
_logged: set[Path] = set()
"""Directories whose use was logged. An app has several links, and one line is enough."""

_handles: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


class Halted(Unavailable):
    """The server was stopped by `duly server stop --force`, and has not been started since."""


def open_server(directory: str | os.PathLike[str], *, is_default: bool = False) -> EmbeddedServer:
    """Return a handle on the server of a directory. Starts the server if necessary, and blocks until it answers.

    Any thread may call this. Processes that name the same directory share one server.
    The first handle of a process also starts a server that was stopped by force. Later handles raise Halted.
    With `is_default`, a new server is logged as a warning if a parent directory has one, or if another one of this
    user runs in a default directory.
    Raises Unavailable, with the end of the server's log, if the server does not start.
    """
    home = Home.at(directory)
    was_there = has_server(directory)
    try:
        home.make()
        # An app has several links: the second handle of a process must not undo a stop of the first.
        is_first_here = not any(handle._home == home for handle in list(_handles))
        server = EmbeddedServer(home)
        if is_first_here:
            home.halt_flag.unlink(missing_ok=True)
        server.ensure_running()
    except OSError as error:
        raise Unavailable(_explain_unusable(home, error)) from error
    server.is_new = server.has_started_keeper and not was_there
    running = None
    if home.directory not in _logged:
        _logged.add(home.directory)
        _LOG.info("using the embedded server in %s", home.directory)
        running = default_homes.record(home) if is_default else None
    if server.is_new and is_default and (other := server_above(directory) or running):
        _LOG.warning(
            "started a new, empty embedded server in %s, although there is one in %s: they share no messages. To use "
            "the same server in all directories, set DULY_HOME to its directory, or DULY_URL to its address",
            home.directory,
            other,
        )
    return server


class EmbeddedServer:
    """A share of the server of one directory. The server runs at least as long as the share is held.

    Safe to use from threads. After a fork the child has no share until it uses the handle.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._share: SharedLock | None = None
        self._socket = ""
        self._lock = threading.RLock()
        self.has_started_keeper: bool = False
        """Whether this handle started the keeper, and not another process or handle."""
        self.is_new = False
        """Whether this handle started the first server of the directory. True for only one of several processes."""
        _handles.add(self)

    @property
    def directory(self) -> Path:
        """The directory of the data."""
        return self._home.directory

    @property
    def socket_path(self) -> str:
        """The path to connect to. Read it for each new connection, since a forked child takes its share here."""
        if not self._has_share():
            self.ensure_running()
        return self._socket

    def ensure_running(self) -> None:
        """Return when the server answers. Starts a keeper if there is none. Cheap if the server runs.

        Raises Unavailable if the server cannot be started, and Halted if it was stopped by force.
        """
        with self._lock:
            try:
                self._take_share()
                self._socket = self._wait_for_server()
            except OSError as error:
                self.release()
                raise Unavailable(_explain_unusable(self._home, error)) from error
            except Unavailable:
                self.release()
                raise

    def release(self) -> None:
        """Release the share. The server stops after the last share is released. Safe to repeat."""
        with self._lock:
            if self._share is not None:
                self._share.release()
                self._share = None

    def _has_share(self) -> bool:
        return self._share is not None and self._share.is_ours()

    def _take_share(self) -> None:
        if self._has_share():
            return
        self.release()
        self._home.make()
        share = SharedLock.take(self._home.users_lock, timeout=START_TIMEOUT + STOP_TIMEOUT)
        if share is None:
            raise Unavailable(_explain(self._home, "an earlier server is still being stopped; try again later"))
        self._share = share
        # A handle that is garbage-collected releases its share, and so does the end of the process.
        weakref.finalize(self, share.release)

    def _wait_for_server(self) -> str:
        """Return the socket of a server that answers and has a keeper."""
        deadline = time.monotonic() + START_TIMEOUT
        pause = 0.002
        is_ours = False
        while True:
            answer, socket = self._probe()
            if answer is Answer.READY:
                return socket
            if self._home.halt_flag.exists():
                raise Halted(explain_halt(self._home.directory))
            if not is_locked(self._home.keeper_lock):
                self._raise_failure(is_ours=is_ours)
                is_ours = start_keeper(self._home) or is_ours
                self.has_started_keeper |= is_ours
            if answer is Answer.LOADING:
                deadline = time.monotonic() + START_TIMEOUT
            elif time.monotonic() > deadline:
                logs = f"{self._home.server_log} and {self._home.keeper_log}"
                raise Unavailable(_explain(self._home, f"it does not answer; see {logs}"))
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)

    def _probe(self) -> tuple[Answer, str]:
        if not is_locked(self._home.keeper_lock):
            return Answer.SILENT, ""
        state = self._home.read_state()
        socket = self._home.find_socket(state)
        answer = ping(socket)
        if answer is Answer.READY and state.phase != "ready":
            # This may be a server that a new keeper is about to replace.
            return Answer.SILENT, socket
        return answer, socket

    def _raise_failure(self, *, is_ours: bool) -> None:
        """Raise the failure of a keeper that this handle started. Other failures may be old, and fixed by now."""
        failure = self._home.read_state().failure
        if is_ours and failure:
            raise Unavailable(_explain(self._home, failure))

    def _drop_share_after_fork(self) -> None:
        # Another thread of the parent may have held the lock. It does not exist in the child.
        self._lock = threading.RLock()
        self.release()


def start_keeper(home: Home) -> bool:
    """Start a keeper, detached from this process. False if the directory has a keeper already."""
    binary = find_binary()
    program = Path(__file__).with_name("run_keeper.py")
    home.keeper_log.touch(mode=0o600)
    with home.keeper_log.open("ab") as log:
        # -I and -S: the keeper does not need the caller's environment, path or site packages.
        done = subprocess.run(  # noqa: S603 - our own program, no shell
            [sys.executable, "-I", "-S", str(program), str(home.directory), binary],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            check=False,
        )
    if done.returncode not in (0, BUSY):
        raise Unavailable(_explain(home, f"its keeper could not be started:\n{_read_tail(home.keeper_log)}"))
    return done.returncode == 0


def _read_tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    return ""


def is_halted(directory: str | os.PathLike[str]) -> bool:
    """Return whether the server of a directory was stopped by force and does not run. Starts nothing."""
    home = Home.at(directory)
    return home.halt_flag.exists() and not is_locked(home.keeper_lock)


def explain_halt(directory: str | os.PathLike[str]) -> str:
    """Return a text that the server was stopped by force, and how to start it."""
    home = Home.at(directory)
    option = "" if home == Home.at(default_directory()) else f" --dir {home.directory}"
    return _explain(home, f"it was stopped by force; start it with: duly server start{option}")


def _explain(home: Home, reason: str) -> str:
    return f"embedded server in {home.directory}: {reason}"


def _explain_unusable(home: Home, error: OSError) -> str:
    advice = "Set DULY_HOME to a directory that can be written, or DULY_URL to a server"
    return _explain(home, f"the directory cannot be used: {error}. {advice}")


def _drop_shares_after_fork() -> None:
    for handle in list(_handles):
        handle._drop_share_after_fork()


os.register_at_fork(after_in_child=_drop_shares_after_fork)
