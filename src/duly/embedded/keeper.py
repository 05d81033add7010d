"""The keeper: the process that starts the server, restarts it, and stops it when it has no users.

Invariant: the keeper stops the server only while it holds users.lock exclusively. So a process with a share has a
server, or one that is being restarted. Standard library only: `run_keeper.py` starts this without the rest of the
package.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from enum import Enum
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from duly.embedded.file_locks import is_same_file, lock, open_lock_file, try_lock, unlock, write_pid
from duly.embedded.home import Home, Phase, State
from duly.embedded.probe import Answer, ping
from duly.embedded.server_process import STOP_TIMEOUT, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A server that has worked before gets several tries (its machine may be short of memory for
# a moment: 0.1 + 0.2 + 0.4 + 0.8 s). One that never worked would fail again.
_TRIES_AFTER_SUCCESS = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_HEALTHY_AFTER = 10.0
_KEEP_CHECK_PAUSE = 0.5
_SOCKET_CHECK_PAUSE = 5.0


class Event(Enum):
    """An event that a watching thread reports to the keeper."""

    UNUSED = "the server has no users; the keeper holds users.lock"
    READY = "the server answers"
    ENDED = "the server process has ended"


class Keeper:
    """The keeper of one directory. `keeper_fd` is keeper.lock, which is already held."""

    def __init__(self, home: Home, binary: str, socket: Path, keeper_fd: int) -> None:
        self._home = home
        self._binary = binary
        self._socket = socket
        self._keeper_fd = keeper_fd
        self._users_fd = open_lock_file(home.users_lock)
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._stop_requested = False
        self._is_ready = False
        """Whether the current run of the server has answered."""
        self._was_ever_ready = False
        self._failed_tries = 0
        self._short_runs = 0

    def run(self) -> None:
        """Run the server until it has no users, is halted, or cannot be started."""
        write_pid(self._keeper_fd)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request_stop)
        _watch(self._wait_until_unused)
        while (server := self._start()) and self._supervise(server):
            pass
        self._home.drop_short_directory(self._socket)
        # In this order: a process that gets a share of users.lock now must find no keeper.
        unlock(self._keeper_fd)
        unlock(self._users_fd)

    def _supervise(self, server: ServerProcess) -> bool:
        """Supervise one run of the server until its end. Returns whether to start it again."""
        while True:
            try:
                event = self._events.get(timeout=_SOCKET_CHECK_PAUSE)
            except Empty:
                self._replace_if_unreachable(server)
                continue
            if event is Event.READY:
                self._note_ready(server)
            elif event is Event.ENDED:
                return self._should_restart(server)
            else:
                self._stop(server)
                return False

    def _replace_if_unreachable(self, server: ServerProcess) -> None:
        """End a server whose socket was deleted, since clients cannot connect to it."""
        if self._is_ready and self._owns_directory() and not self._socket.exists():
            _log(f"the socket {self._socket} is gone; starting the server again")
            server.signal_group(signal.SIGTERM)

    def _start(self) -> ServerProcess | None:
        self._is_ready = False
        self._write("starting")
        try:
            server = ServerProcess(self._home, self._binary, self._socket)
        except (OSError, RuntimeError) as error:
            self._write("failed", failure=f"{self._binary} could not be started: {error}")
            return None
        _log(f"server {server.pid} started")
        _watch(self._wait_until_ready, server)
        return server

    def _note_ready(self, server: ServerProcess) -> None:
        self._is_ready = self._was_ever_ready = True
        self._failed_tries = 0
        self._write("ready", server_pid=server.pid)

    def _should_restart(self, server: ServerProcess) -> bool:
        lasted = time.monotonic() - server.started
        status = server.collect()
        _log(f"server {server.pid} ended with status {status} after {lasted:.1f} s")
        if self._home.halt_flag.exists() or not self._owns_directory():
            self._write("stopped")
            return False
        self._failed_tries += 0 if self._is_ready else 1
        if self._failed_tries >= (_TRIES_AFTER_SUCCESS if self._was_ever_ready else 1):
            self._write("failed", failure=self._explain(server, status))
            return False
        self._write("starting")
        return self._pause(lasted)

    def _pause(self, lasted: float) -> bool:
        """Wait longer after each short run. Returns False if the server has no users any more."""
        self._short_runs = 0 if lasted > _HEALTHY_AFTER else self._short_runs + 1
        # The first restart is immediate; ten doublings are far beyond the longest pause.
        doublings = min(self._short_runs, 12) - 2
        seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**doublings) if doublings >= 0 else 0.001
        try:
            return self._events.get(timeout=seconds) is not Event.UNUSED  # the only event while no server runs
        except Empty:
            return True

    def _stop(self, server: ServerProcess) -> None:
        # If the directory was deleted, there is no data to write, and a graceful end would
        # remove the socket of a server that may have been started there since.
        server.signal_group(signal.SIGTERM if self._owns_directory() else signal.SIGKILL)
        deadline = time.monotonic() + STOP_TIMEOUT
        while not server.has_ended():
            if time.monotonic() > deadline:
                server.signal_group(signal.SIGKILL)
            time.sleep(0.005)
        _log(f"server {server.pid} stopped with status {server.collect()}")
        self._write("stopped")

    def _explain(self, server: ServerProcess, status: int) -> str:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return (
            f"{self._binary} ended with {how}. If another server or version wrote this directory, use that one: the "
            "data is not damaged then, and a repair such as redis-check-aof --fix would cut off good data. "
            f"The last lines of {self._home.server_log}:\n{server.read_log()}"
        )

    def _write(self, phase: Phase, *, server_pid: int = 0, failure: str = "") -> None:
        if not self._owns_directory():
            return
        state = State(phase, self._home.name_socket(self._socket), os.getpid(), server_pid, self._binary, failure)
        try:
            self._home.write_state(state)
        except OSError as error:  # a full disk must not end a working server
            _log(f"cannot write {self._home.state_file}: {error}")

    def _owns_directory(self) -> bool:
        return is_same_file(self._keeper_fd, self._home.keeper_lock)

    def _request_stop(self, *_: object) -> None:
        """On SIGTERM: stop as soon as the server has no users. They may need it for their own shutdown."""
        self._stop_requested = True

    def _is_kept(self) -> bool:
        return self._home.keep_flag.exists() and not self._stop_requested

    def _wait_until_unused(self) -> None:
        """Take users.lock exclusively. The kernel blocks the call until the last user has released its share."""
        lock(self._users_fd)
        while self._is_kept():
            unlock(self._users_fd)
            while self._is_kept():
                time.sleep(_KEEP_CHECK_PAUSE)
            lock(self._users_fd)
        self._events.put(Event.UNUSED)

    def _wait_until_ready(self, server: ServerProcess) -> None:
        pause = 0.002
        while not server.has_ended() and ping(self._socket) is not Answer.READY:
            time.sleep(pause)
            pause = min(0.2, pause * 1.5)
        if not server.has_ended():
            self._events.put(Event.READY)
        server.wait()
        self._events.put(Event.ENDED)


def become_keeper(home: Home, binary: str) -> Keeper | None:
    """Become the keeper of a directory, and replace the state of an earlier keeper. None if there is a keeper."""
    fd = open_lock_file(home.keeper_lock)
    # Other processes test the lock by taking a share for an instant: try more than once.
    for _ in range(20):
        if try_lock(fd) and is_same_file(fd, home.keeper_lock):
            socket = home.choose_socket()
            home.write_state(State("starting", home.name_socket(socket), binary=binary))
            return Keeper(home, binary, socket, fd)
        time.sleep(0.005)
    os.close(fd)
    return None


def _watch(target: Callable[..., None], *args: object) -> None:
    threading.Thread(target=target, args=args, daemon=True).start()


def _log(text: str) -> None:
    # Standard output is keeper.log.
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} keeper {os.getpid()}: {text}", flush=True)  # noqa: T201
