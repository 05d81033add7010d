"""The directory of an embedded server: the name of every file in it, and the state file of the keeper.

Locks and processes are in other modules.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

# sun_path holds 108 bytes on Linux and 104 elsewhere, with the closing NUL.
MAX_SOCKET_PATH = 107 if sys.platform.startswith("linux") else 103

Phase = Literal["starting", "ready", "failed", "stopped"]


def default_directory() -> Path:
    """Return the directory used when none is named: $DULY_HOME, else ./.duly."""
    return Path(os.environ.get("DULY_HOME") or ".duly")


def has_server(directory: str | os.PathLike[str]) -> bool:
    """Return whether a server was ever started in a directory, or its data copied there."""
    home = Home.at(directory)
    return os.path.lexists(home.config_file) or os.path.lexists(home.data_directory)


def server_above(directory: str | os.PathLike[str]) -> Path | None:
    """Return the default directory of a server in the nearest parent directory that has one."""
    places = (parent / ".duly" for parent in Path(directory).absolute().parent.parents)
    return next((place for place in places if has_server(place)), None)


@dataclass(frozen=True)
class State:
    """The last state that the keeper wrote. It is valid only while the keeper's lock is held."""

    phase: Phase
    socket: str = ""
    """Relative to the directory if possible, since a mount may show the directory at another path."""
    keeper_pid: int = 0
    server_pid: int = 0
    binary: str = ""
    failure: str = ""
    """Why the server could not be started, in the phase "failed"."""


@dataclass(frozen=True)
class Home:
    """Paths inside one directory. The kernel holds the locks, so stale lock files do no harm."""

    directory: Path
    users_lock: Path = field(init=False)
    """Shared by every process that uses the server. A keeper takes it exclusively before it stops the server."""
    keeper_lock: Path = field(init=False)
    """Held by the one keeper."""
    server_lock: Path = field(init=False)
    """Held by the server process itself: two servers never write the same data."""

    def __post_init__(self) -> None:
        for name in ("users", "keeper", "server"):
            object.__setattr__(self, f"{name}_lock", self.directory / f"{name}.lock")

    @classmethod
    def at(cls, directory: str | os.PathLike[str]) -> Home:
        """Return the home at a path. The path is made absolute, so that all processes use the same one."""
        return cls(Path(os.path.realpath(Path(directory).expanduser())))

    @property
    def keep_flag(self) -> Path:
        """If it exists, the server runs even without users."""
        return self.directory / "keep"

    @property
    def halt_flag(self) -> Path:
        """If it exists, the server was stopped by force, and its users do not start it again."""
        return self.directory / "halt"

    @property
    def state_file(self) -> Path:
        """The state of the keeper, for users and for `duly server status`."""
        return self.directory / "state.json"

    @property
    def config_file(self) -> Path:
        """Written at each start of the server."""
        return self.directory / "server.conf"

    @property
    def extra_config_file(self) -> Path:
        """The user's own settings, read at each start of the server."""
        return self.directory / "duly.conf"

    @property
    def server_log(self) -> Path:
        """The output of the server, including errors before its start."""
        return self.directory / "server.log"

    @property
    def keeper_log(self) -> Path:
        """Starts, ends and restarts of the server."""
        return self.directory / "keeper.log"

    @property
    def data_directory(self) -> Path:
        """The append-only file: your messages."""
        return self.directory / "appendonlydir"

    def make(self) -> None:
        """Create the directory, private to its owner. An existing one keeps its mode, but its files are private."""
        try:
            self.directory.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            if not self.directory.is_dir():
                raise
            return
        ignored = self.directory / ".gitignore"  # messages should not be committed
        ignored.touch(mode=0o600)
        ignored.write_text("*\n")

    def read_state(self) -> State:
        """Return the state that the keeper wrote, or "stopped" if it cannot be read."""
        try:
            fields = json.loads(self.state_file.read_bytes())
            return State(**fields)
        except (OSError, ValueError, TypeError):
            return State("stopped")

    def write_state(self, state: State) -> None:
        """Replace the state atomically. Only the holder of the keeper's lock may call this."""
        new = self.state_file.with_suffix(".new")
        new.write_text(json.dumps(asdict(state)) + "\n")
        new.replace(self.state_file)

    def choose_socket(self) -> Path:
        """Return the socket's path: in the directory, or in a private temporary one if the path is too long."""
        inside = self.directory / "server.sock"
        if len(os.fsencode(inside)) <= MAX_SOCKET_PATH:
            return inside
        return self._short_directory() / "server.sock"

    def name_socket(self, socket: Path) -> str:
        """Return the socket's path for the state file."""
        return socket.name if socket.parent == self.directory else str(socket)

    def find_socket(self, state: State) -> str:
        """Return the path to connect to, or an empty text if the state has none."""
        return str(self.directory / state.socket) if state.socket else ""

    def drop_short_directory(self, socket: Path) -> None:
        """Remove the temporary directory of the socket, if it has one and it is empty."""
        if socket.parent != self.directory:
            with contextlib.suppress(OSError):
                socket.parent.rmdir()

    def _short_directory(self) -> Path:
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        short = Path(tempfile.gettempdir()) / f"duly-{os.getuid()}-{digest}"
        short.mkdir(mode=0o700, exist_ok=True)
        # All users may write to the temporary directory: a directory or link of
        # another user could lead to a foreign server.
        found = short.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{short} is not a private directory of this user; remove it")
        if len(os.fsencode(short / "server.sock")) > MAX_SOCKET_PATH:
            raise OSError(f"{short} is too long for a unix socket; set TMPDIR to a shorter path")
        return short
