"""Start, stop and inspect an embedded server: the actions of `duly server`, without printing."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from duly.embedded import probe
from duly.embedded.file_locks import is_locked, open_lock_file, processes_with, try_lock
from duly.embedded.handle import open_server
from duly.embedded.home import Home
from duly.embedded.server_process import STOP_TIMEOUT
from duly.errors import ServerError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_HALT_TIMEOUT = 10.0


class InUse(ServerError):
    """The server was not stopped: processes use it. It stops when the last of them ends."""


@dataclass(frozen=True)
class User:
    """A process that uses the server."""

    pid: int
    command: str
    """Its whole command line."""
    name: str
    """Its program without interpreter and directories: "duly worker shop:app"."""


@dataclass(frozen=True)
class Status:
    """The state of a directory and its server. Fields are None if the server does not run or refuses to answer."""

    directory: Path
    is_running: bool
    is_kept: bool
    """Whether it runs without users, until `duly server stop`."""
    pid: int | None = None
    keeper_pid: int | None = None
    version: str | None = None
    socket: str | None = None
    since: datetime | None = None
    users: tuple[User, ...] | None = None
    """None if the system has no /proc."""
    memory_bytes: int | None = None
    data_bytes: int = 0


def start(directory: str | os.PathLike[str]) -> Status:
    """Start the server and keep it running without users. Safe to repeat."""
    server = open_server(directory)
    try:
        # Written while this process holds a share: the keeper checks it when the last share is released.
        Home.at(directory).keep_flag.touch(mode=0o600)
        return status(directory)
    finally:
        server.release()


def stop(directory: str | os.PathLike[str], *, force: bool = False) -> None:
    """Stop the server after it has written its data. Raises InUse, without stopping it, while processes use it.

    With `force` it stops in any case. Calls of its users then wait, for up to their patience, until `duly server start`
    or another process that opens the directory starts it again. Safe to repeat.
    """
    home = Home.at(directory)
    with _explaining(home):
        _stop(home, force=force)


def restart(directory: str | os.PathLike[str]) -> Status:
    """Stop the server, even while processes use it, and start it again as `start` does. Its users wait for it."""
    stop(directory, force=True)
    return start(directory)


def _stop(home: Home, *, force: bool) -> None:
    with contextlib.suppress(NotADirectoryError):
        home.keep_flag.unlink(missing_ok=True)
    if not is_locked(home.keeper_lock):
        return
    if force:
        _halt(home)
    elif _is_in_use(home):
        raise InUse(
            f"embedded server in {home.directory}: still used by {describe(find_users(home))}; "
            "it stops when the last of them ends. To stop it now: duly server stop --force"
        )
    _wait_until_gone(home)


def status(directory: str | os.PathLike[str]) -> Status:
    """Return the status of the server of a directory, without starting or creating anything."""
    home = Home.at(directory)
    with _explaining(home):
        return _read_status(home)


def _read_status(home: Home) -> Status:
    state = home.read_state()
    socket = home.find_socket(state)
    is_running = is_locked(home.keeper_lock) and probe.ping(socket) is not probe.Answer.SILENT
    if not is_running:
        return Status(home.directory, is_running=False, is_kept=False, data_bytes=_measure(home))
    info = probe.read_info(socket)
    return Status(
        directory=home.directory,
        is_running=True,
        is_kept=home.keep_flag.exists(),
        pid=state.server_pid or None,
        keeper_pid=state.keeper_pid or None,
        version=_name_version(info),
        socket=socket,
        since=_find_start(info),
        users=find_users(home),
        memory_bytes=int(info["used_memory"]) if "used_memory" in info else None,
        data_bytes=_measure(home),
    )


def find_users(home: Home) -> tuple[User, ...] | None:
    """Return the processes that use the server. None if the system cannot list them."""
    pids = processes_with(home.users_lock)
    if pids is None:
        return None
    others = {os.getpid(), home.read_state().keeper_pid}
    return tuple(_user(pid) for pid in sorted(pids) if pid not in others)


def describe(users: tuple[User, ...] | None) -> str:
    """Return one line that names the users."""
    if not users:
        return "other processes" if users is None else "no other process"
    return ", ".join(f"{user.pid} ({user.name[:60]})" for user in users)


@contextlib.contextmanager
def _explaining(home: Home) -> Iterator[None]:
    """Turn errors of the file system into an error that names the directory."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"embedded server in {home.directory}: the directory cannot be used: {error}") from error


def _is_in_use(home: Home) -> bool:
    """Return whether a process has a share: then the lock can be shared, but not taken exclusively."""
    fd = open_lock_file(home.users_lock)
    try:
        return not try_lock(fd) and try_lock(fd, shared=True)
    finally:
        os.close(fd)


def _halt(home: Home) -> None:
    """End the server although it has users. The flag is written first: the keeper checks it before a restart."""
    home.halt_flag.touch(mode=0o600)
    deadline = time.monotonic() + _HALT_TIMEOUT
    while is_locked(home.keeper_lock):
        try:
            return probe.shut_down(home.find_socket(home.read_state()))
        except OSError as error:  # the keeper may be pausing before a restart
            if time.monotonic() > deadline:
                home.halt_flag.unlink(missing_ok=True)
                raise ServerError(
                    f"embedded server in {home.directory}: it refuses to stop ({error}); "
                    f"check {home.server_log}, then end process {home.read_state().server_pid}"
                ) from error
        time.sleep(0.05)
    return None


def _wait_until_gone(home: Home) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT + 10
    while is_locked(home.keeper_lock):
        if time.monotonic() > deadline or (_is_in_use(home) and not home.halt_flag.exists()):
            raise InUse(f"embedded server in {home.directory}: opened again by {describe(find_users(home))}")
        time.sleep(0.02)


def _name_version(info: dict[str, str]) -> str | None:
    for name, key in (("Valkey", "valkey_version"), ("Redis", "redis_version")):
        if key in info:
            return f"{name} {info[key]}"
    return None


def _find_start(info: dict[str, str]) -> datetime | None:
    if "uptime_in_seconds" not in info:
        return None
    now = datetime.now(UTC).replace(microsecond=0)
    return now - timedelta(seconds=int(info["uptime_in_seconds"]))


def _measure(home: Home) -> int:
    total = 0
    # Redis 6.2 has one file instead of the folder.
    for path in (*home.data_directory.glob("*"), *home.directory.glob("*.aof")):
        with contextlib.suppress(OSError):  # a rewrite may remove files at the same time
            total += path.stat().st_size
    return total


def _user(pid: int) -> User:
    words: list[str] = []
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    return User(pid, " ".join(words).strip(), name_of_command(words))


def name_of_command(words: list[str]) -> str:
    """Return the program of a command line: the script or module with its arguments, without the interpreter."""
    program, *rest = words or [""]
    if re.fullmatch(r"python[\d.]*", Path(program).name):
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
            rest = rest[1:]
        if rest[:1] == ["-m"]:
            rest = rest[1:]
        program, *rest = rest or [program]
    return " ".join([Path(program).name, *rest]).strip()
