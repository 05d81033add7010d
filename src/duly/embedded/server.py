"""The user's side: `open_server` and the handle that it returns.

A handle holds a share of users.lock. While it does, somebody's keeper runs the server;
whoever finds no keeper starts one. Nothing here stops or signals a server.
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

from duly.embedded.binary import find_binary
from duly.embedded.home import Home, default_directory, has_server, server_above
from duly.embedded.locks import Hold, is_locked
from duly.embedded.probe import Answer, ping
from duly.embedded.process import STOP_TIMEOUT
from duly.embedded.run_keeper import BUSY
from duly.errors import Unavailable

START_TIMEOUT = 60.0
"""Seconds without a sign of life before a start has failed. Loading data is a sign of life."""

_LOG = logging.getLogger("duly")
_noted: set[Path] = set()
"""Directories whose use was logged: an app has several links, and one line is enough."""

_handles: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


class Halted(Unavailable):
    """The server was stopped by `duly server stop --force`, and nothing has started it since."""


def open_server(directory: str | os.PathLike[str], *, is_default: bool = False) -> EmbeddedServer:
    """Return a handle on the running server of a directory, starting it if need be. Blocks until it answers.

    Any thread may call this. Processes that name the same directory share one server.
    A process that uses the directory for the first time also starts a server that was stopped by force;
    a process that has a handle already gets Halted.
    With `is_default`, a new server below a directory that has one is warned of: one of them was hardly meant.
    Raises Unavailable, with the end of the server's log, when it does not start.
    """
    home = Home.at(directory)
    was_there = has_server(directory)
    try:
        home.make()
        # An app has several links: a second handle of a process must not undo a stop that was meant for the first.
        is_first_here = not any(handle._home == home for handle in list(_handles))
        server = EmbeddedServer(home)
        if is_first_here:
            home.halt_flag.unlink(missing_ok=True)
        server.ensure_running()
    except OSError as error:
        raise Unavailable(_explain_unusable(home, error)) from error
    server.is_new = server.has_started_keeper and not was_there
    if home.directory not in _noted:
        _noted.add(home.directory)
        _LOG.info("using the embedded server in %s", home.directory)
    if server.is_new and is_default and (other := server_above(directory)):
        _LOG.warning(
            "started a new, empty embedded server in %s, though there is one in %s: they share no messages. To use "
            "the same server in all directories, set DULY_HOME to its directory, or DULY_URL to its address",
            home.directory,
            other,
        )
    return server


class EmbeddedServer:
    """A share in the server of one directory; the server runs at least as long as the share is held.

    Safe to use from threads. After a fork the child has no share until it uses the handle.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._hold: Hold | None = None
        self._socket = ""
        self._lock = threading.RLock()
        self.has_started_keeper: bool = False
        """Whether the keeper was started through this handle, and not by another process or for another handle."""
        self.is_new = False
        """Whether this handle started the first server of the directory. Of several processes, one has that."""
        _handles.add(self)

    @property
    def directory(self) -> Path:
        """Where the data lies."""
        return self._home.directory

    @property
    def socket_path(self) -> str:
        """The path to connect to. Read it for each new connection: a forked child takes its share here."""
        if not self._is_held():
            self.ensure_running()
        return self._socket

    def ensure_running(self) -> None:
        """Return when the server answers, starting a keeper if there is none. Cheap when all is well.

        Raises Unavailable when the server cannot be started, and Halted when it was stopped by force.
        """
        with self._lock:
            try:
                self._take_hold()
                self._socket = self._wait_for_server()
            except OSError as error:
                self.release()
                raise Unavailable(_explain_unusable(self._home, error)) from error
            except Unavailable:
                self.release()
                raise

    def release(self) -> None:
        """Give the share back; the last one out lets the server stop. Repeating it does nothing."""
        with self._lock:
            if self._hold is not None:
                self._hold.release()
                self._hold = None

    def _is_held(self) -> bool:
        return self._hold is not None and self._hold.is_ours()

    def _take_hold(self) -> None:
        if self._is_held():
            return
        self.release()
        self._home.make()
        hold = Hold.take(self._home.users_lock, timeout=START_TIMEOUT + STOP_TIMEOUT)
        if hold is None:
            raise Unavailable(_explain(self._home, "an earlier server is still being stopped; try again later"))
        self._hold = hold
        # A handle that is dropped gives its share back, too; so does the end of the process.
        weakref.finalize(self, hold.release)

    def _wait_for_server(self) -> str:
        """Return the socket of a server that answers and that a keeper looks after."""
        deadline = time.monotonic() + START_TIMEOUT
        pause = 0.002
        is_ours = False
        while True:
            answer, socket = self._look()
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

    def _look(self) -> tuple[Answer, str]:
        if not is_locked(self._home.keeper_lock):
            return Answer.SILENT, ""
        state = self._home.read_state()
        socket = self._home.find_socket(state)
        answer = ping(socket)
        if answer is Answer.READY and state.phase != "ready":
            # What answers may be a server that a new keeper is about to replace.
            return Answer.SILENT, socket
        return answer, socket

    def _raise_failure(self, *, is_ours: bool) -> None:
        """Raise what a keeper of our own left behind. Another's may be old, and repaired by now."""
        failure = self._home.read_state().failure
        if is_ours and failure:
            raise Unavailable(_explain(self._home, failure))

    def _forget_after_fork(self) -> None:
        # Another thread of the parent may have held the lock; here that thread does not exist.
        self._lock = threading.RLock()
        self.release()


def start_keeper(home: Home) -> bool:
    """Start a keeper, detached from this process. True when it got the office, False when another has it."""
    binary = find_binary()
    program = Path(__file__).with_name("run_keeper.py")
    home.keeper_log.touch(mode=0o600)
    with home.keeper_log.open("ab") as log:
        # -I and -S: nothing of the caller's environment, path or site packages is needed there.
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
    """Say whether the server of a directory was stopped by force, and does not run. Starts nothing."""
    home = Home.at(directory)
    return home.halt_flag.exists() and not is_locked(home.keeper_lock)


def explain_halt(directory: str | os.PathLike[str]) -> str:
    """Say that the server was stopped by force, and how to start it."""
    home = Home.at(directory)
    option = "" if home == Home.at(default_directory()) else f" --dir {home.directory}"
    return _explain(home, f"it was stopped by force; start it with: duly server start{option}")


def _explain(home: Home, reason: str) -> str:
    return f"embedded server in {home.directory}: {reason}"


def _explain_unusable(home: Home, error: OSError) -> str:
    advice = "Set DULY_HOME to a directory that can be written, or DULY_URL to a server"
    return _explain(home, f"the directory cannot be used: {error}. {advice}")


def _forget_holds_after_fork() -> None:
    for handle in list(_handles):
        handle._forget_after_fork()


os.register_at_fork(after_in_child=_forget_holds_after_fork)
