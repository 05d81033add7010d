"""What a check is about: its name, why it matters, and the forms that its findings have."""

from dataclasses import dataclass

from duly.doctor.facts import Facts, Missing
from duly.doctor.report import Finding
from duly.doctor.wording import quoted


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
