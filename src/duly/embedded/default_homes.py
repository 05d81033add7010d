"""The servers of this user that run in default directories, so that an accidental second one is noticed.

Each has a symbolic link to its directory, below the state directory of the user. A link whose server has ended is
removed at the next start. A server starts even if none of this is possible.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from duly.embedded.file_locks import is_locked
from duly.embedded.home import Home


def record(home: Home) -> Path | None:
    """Record a server in a default directory. Return the directory of another one that runs, if there is any."""
    name = hashlib.sha256(os.fsencode(home.directory)).hexdigest()[:16]
    with contextlib.suppress(OSError):
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(home.directory)
        # Written before it reads: of two servers that start at once, at least one notices the other.
        return next((each.readlink() for each in folder.iterdir() if each.name != name and _runs(each)), None)
    return None


def _runs(link: Path) -> bool:
    """Return whether the server of a link runs. If not, remove the link."""
    with contextlib.suppress(OSError):
        if is_locked(Home.at(link).keeper_lock):
            return True
        link.unlink()
    return False


def _folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    if Path(state).is_absolute():  # the XDG specification: ignore relative paths
        return Path(state) / "duly" / "servers"
    try:
        return Path.home() / ".local" / "state" / "duly" / "servers"
    except RuntimeError:  # this user has no home
        return Path(tempfile.gettempdir()) / f"duly-{os.getuid()}-servers"
