"""What an examination says."""

from dataclasses import dataclass
from typing import Literal

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
