"""The text of the server's configuration file. Pure: it reads and writes no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# The settings of a durable queue. All of them must exist in Redis 6.2.
_DEFAULTS = """\
port 0
databases 16
appendonly yes
appendfsync everysec
aof-use-rdb-preamble yes
save ""
maxmemory-policy noeviction
"""


def render(directory: Path, socket: Path, extra: str = "") -> str:
    """Return the configuration: defaults, the user's own lines, then the settings that the keeper needs."""
    fixed = (
        f"dir {_quote(directory)}",
        f"unixsocket {_quote(socket)}",
        "unixsocketperm 700",
        "daemonize no",
        "supervised no",
        'logfile ""',  # standard output; the keeper redirects it to server.log, with all early errors
    )
    return "\n".join([_DEFAULTS, "# from duly.conf", extra, "# kept by Duly", *fixed, ""])


def _quote(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{text}"'
