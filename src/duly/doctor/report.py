"""The report of an examination: its findings, and the forms in which they are written."""

import re
import shlex
from dataclasses import dataclass
from typing import Final, Literal

from duly.doctor.facts import Facts, Missing

Verdict = Literal["ok", "warn", "bad", "unknown"]
"""bad: messages can be lost, or nothing works. warn: it will hurt one day. unknown: the server did not tell."""


@dataclass(frozen=True)
class Finding:
    """One check: what was found, why it matters, and what mends it."""

    name: str
    verdict: Verdict
    found: str
    why: str = ""
    mend: str = ""
    """Lines: commands for the server; those that begin with `duly` are for a shell, those with `#` for people."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The lines of `mend` that are commands for the server, as redis-cli takes them."""
        return tuple(line for line in self.mend.splitlines() if not line.startswith(("#", "duly ")))


@dataclass(frozen=True)
class Report:
    """All findings, in the order of the checks."""

    server: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found that loses messages."""
        return all(each.verdict != "bad" for each in self.findings)

    def finding(self, name: str) -> Finding:
        """Look a check up by its name."""
        for each in self.findings:
            if each.name == name:
                return each
        raise KeyError(name)


# What a check is about: its name, why it matters, and the forms that its findings have.


@dataclass(frozen=True)
class Subject:
    """One check."""

    name: str
    why: str

    def ok(self, found: str) -> Finding:
        """Say that all is well."""
        return Finding(self.name, "ok", found, self.why)

    def warn(self, found: str, mend: str) -> Finding:
        """Say that it will hurt one day."""
        return Finding(self.name, "warn", found, self.why, mend)

    def bad(self, found: str, mend: str) -> Finding:
        """Say that messages can be lost, or that nothing works."""
        return Finding(self.name, "bad", found, self.why, mend)

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


# How things are written: for people, for redis-cli, and for a shell.

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
