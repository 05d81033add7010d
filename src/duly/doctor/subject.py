"""What a check is about: its name, why it matters, and the forms that its findings have."""

import re
import shlex
from dataclasses import dataclass
from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.report import Finding

_PLAIN: Final = re.compile(rb"[\w:{}@~%./+\-]+")


@dataclass(frozen=True)
class Subject:
    """One check."""

    name: str
    why: str

    def ok(self, found: str) -> Finding:
        """Say that all is well."""
        return Finding(self.name, "ok", found, self.why)

    def warn(self, found: str, mend: str, why: str = "") -> Finding:
        """Say that it will hurt one day."""
        return Finding(self.name, "warn", found, why or self.why, mend)

    def bad(self, found: str, mend: str, why: str = "") -> Finding:
        """Say that messages can be lost, or that nothing works."""
        return Finding(self.name, "bad", found, why or self.why, mend)

    def unknown(self, facts: Facts, missing: Missing, instead: str = "") -> Finding:
        """Say why it cannot be told, and which right is missing, or what to look at instead."""
        return Finding(self.name, "unknown", missing.reason, self.why, instead or _way_to_know(facts, missing))


def _way_to_know(facts: Facts, missing: Missing) -> str:
    if not missing.right:
        return "# the server does not offer it: see the settings that its provider shows"
    allow = f"ACL SETUSER {quoted(facts.user.encode())} {missing.right}"
    return f"{allow}\n# as a user who may; or examine as one who has the right"


def setting_mend(facts: Facts, *settings: tuple[str, str]) -> str:
    """Set what the server runs with, and say where it must be written to last."""
    where = f"{facts.place}/duly.conf" if facts.kind == "embedded" else "the server's configuration file"
    lines = [f"CONFIG SET {name} {value}" for name, value in settings]
    return "\n".join([*lines, f"# and in {where}, so that it lasts: {', '.join(f'{n} {v}' for n, v in settings)}"])


def quoted(text: bytes) -> str:
    """Write an argument as redis-cli reads it."""
    if _PLAIN.fullmatch(text):
        return text.decode()
    inner = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in text)
    return f'"{inner}"'


def in_shell(text: str) -> str:
    """Write an argument as a shell reads it."""
    return shlex.quote(text)


def number(text: str) -> float:
    """Read a number of INFO or CONFIG; what is none is 0."""
    try:
        return float(text)
    except ValueError:
        return 0.0


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
