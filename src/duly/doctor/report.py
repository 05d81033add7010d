"""The report of an examination: findings, and how values are written in them."""

import re
import shlex
from dataclasses import dataclass
from typing import Final, Literal

from duly.doctor.facts import Facts, Missing

Verdict = Literal["ok", "warn", "bad", "unknown"]
"""bad: messages can be lost, or calls fail. warn: a risk or a slowdown. unknown: the server hides the facts."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: the observation, why it matters, and how to fix it."""

    name: str
    verdict: Verdict
    found: str
    why: str = ""
    fix: str = ""
    """How to fix it: server commands, one per line. Lines with `duly` are for a shell, lines with `#` are comments."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The server commands of `fix`, in the syntax of redis-cli."""
        return tuple(line for line in self.fix.splitlines() if not line.startswith(("#", "duly ")))

    @property
    def mend(self) -> str:
        """The former name of `fix`."""
        return self.fix


@dataclass(frozen=True)
class Report:
    """All findings, in the order of the checks."""

    server: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no check is bad."""
        return all(each.verdict != "bad" for each in self.findings)

    def finding(self, name: str) -> Finding:
        """Return the finding of a check."""
        for each in self.findings:
            if each.name == name:
                return each
        raise KeyError(name)


@dataclass(frozen=True)
class Subject:
    """The name of a check and why it matters. Makes the findings of the check."""

    name: str
    why: str

    def ok(self, found: str) -> Finding:
        """Report that there is nothing to fix."""
        return Finding(self.name, "ok", found, self.why)

    def warn(self, found: str, fix: str) -> Finding:
        """Report a risk or a slowdown."""
        return Finding(self.name, "warn", found, self.why, fix)

    def bad(self, found: str, fix: str) -> Finding:
        """Report that messages can be lost, or that calls fail."""
        return Finding(self.name, "bad", found, self.why, fix)

    def unknown(self, facts: Facts, missing: Missing, instead: str = "") -> Finding:
        """Report why the check could not be made, and the missing permission or the place to check `instead`."""
        return Finding(self.name, "unknown", missing.reason, self.why, instead or _grant_hint(facts, missing))


def _grant_hint(facts: Facts, missing: Missing) -> str:
    if not missing.rule:
        return "# the server does not offer it: check the settings that its provider shows"
    allow = f"ACL SETUSER {quoted(facts.user.encode())} {missing.rule}"
    return f"{allow}\n# run this as an administrator, or run the doctor as a user with this permission"


def setting_fix(facts: Facts, *settings: tuple[str, str]) -> str:
    """Return commands that change settings, and the file that keeps the change across restarts."""
    where = f"{facts.place}/duly.conf" if facts.kind == "embedded" else "the server's configuration file"
    lines = [f"CONFIG SET {name} {value}" for name, value in settings]
    return "\n".join(
        [*lines, f"# and in {where}, to keep it after a restart: {', '.join(f'{n} {v}' for n, v in settings)}"]
    )


_PLAIN: Final = re.compile(rb"[\w:{}@~%./+\-]+")


def quoted(text: bytes) -> str:
    """Quote an argument for redis-cli."""
    if _PLAIN.fullmatch(text):
        return text.decode()
    inner = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in text)
    return f'"{inner}"'


def in_shell(text: str) -> str:
    """Quote an argument for a shell."""
    return shlex.quote(text)


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def milliseconds(seconds: float) -> str:
    """Format a short time."""
    return f"{seconds * 1000:.2f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"


def listed(names: list[str], most: int = 5) -> str:
    """Join the first names, and count the rest."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
