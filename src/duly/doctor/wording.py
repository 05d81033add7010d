"""How things are written: for people, for redis-cli, and for a shell."""

import re
import shlex
from typing import Final

_PLAIN: Final = re.compile(rb"[\w:{}@~%./+\-]+")


def quoted(text: bytes) -> str:
    """Write an argument as redis-cli reads it."""
    if _PLAIN.fullmatch(text):
        return text.decode()
    inner = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in text)
    return f'"{inner}"'


def in_shell(text: str) -> str:
    """Write an argument as a shell reads it."""
    return shlex.quote(text)


def size(count: float) -> str:
    """Write bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def milliseconds(seconds: float) -> str:
    """Write a short time for people."""
    return f"{seconds * 1000:.2f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"


def listed(names: list[str], most: int = 5) -> str:
    """Name some, and count the rest."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
