"""Known flaws of servers that a client of a queue can reach, since it may run scripts and blocking commands.

Flaws that need other permissions are left out: RESTORE (CVE-2026-25243), CLIENT KILL over TLS (CVE-2026-56684), a
replica that accepts writes (CVE-2026-23631). The versions are from the record of each CVE and from release notes that
name it. Five versions are in neither, and are inferred from the releases around them; comments mark them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from duly.doctor.facts import Product, Version

Line = tuple[int, int]


@dataclass(frozen=True)
class Flaw:
    """Flaws that were fixed by the same releases."""

    names: tuple[str, ...]
    """CVE numbers. A flaw without one is named by the changes that fixed it."""
    what: str
    fixed: Mapping[Product, Mapping[Line, int]]
    """The first patch without the flaw, for each release line. Newer lines never had it. Older lines, and absent lines
    in between, were never fixed. A product is absent if the record does not name it: Valkey began after the older flaws
    were fixed."""
    since: Mapping[Product, Line] = field(default_factory=dict)
    """The first release line with the flaw."""

    def is_in(self, product: Product, version: Version) -> bool:
        """Return whether a version has the flaw, judged by its number."""
        line, patch, fixed = version[:2], version[2], self.fixed.get(product, {})
        if line in fixed:
            return patch < fixed[line]
        return self.since.get(product, (0, 0)) <= line < max(fixed, default=(0, 0))


FLAWS: Final = (
    Flaw(
        ("CVE-2025-49844", "CVE-2025-46817", "CVE-2025-46818", "CVE-2025-46819"),
        "a script can run any code on the server, or act as another user",
        {
            "Redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
            "Valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
        },
    ),
    Flaw(
        ("CVE-2026-23479",),
        "a blocked client that is evicted can run any code on the server",
        {
            # 7.2.14 is inferred: 7.2.13 is older than the flaw's record, and 7.2.15 fixed the flaws after it.
            "Redis": {(7, 2): 14, (7, 4): 9, (8, 2): 6, (8, 4): 3, (8, 6): 3},
            # 8.0.8 should have fixed it, and was revoked on the day of its release.
            "Valkey": {(7, 2): 13, (8, 0): 9, (8, 1): 7, (9, 0): 4},
        },
        {"Redis": (7, 2), "Valkey": (7, 2)},
    ),
    Flaw(
        ("redis#14164", "valkey#2117"),
        "a program that sends CLIENT UNBLOCK while writes are paused (CLIENT PAUSE, a planned fail-over) aborts the "
        "server. Duly does not",
        {
            # The release notes of Redis name 7.4.6 and 8.2.0. Other lines still had the flaw when this was written.
            "Redis": {(7, 4): 6, (8, 2): 0},
            # 7.2.10 and 8.0.4 are inferred: the next releases after the decision to fix every line.
            "Valkey": {(7, 2): 10, (8, 0): 4, (8, 1): 2},
        },
    ),
    Flaw(
        ("CVE-2025-67733",),
        "a script can forge answers to other calls on its connection",
        # The CVE record names 9.0.2, the release notes 9.0.3: the later one is safe. Redis fixed a similar flaw at the
        # same time without a CVE, so it is not listed.
        {"Valkey": {(7, 2): 12, (8, 0): 7, (8, 1): 6, (9, 0): 3}},
    ),
    Flaw(
        ("CVE-2024-46981",),
        "a script can run any code on the server",
        # 7.2.8 is inferred: it was released in the month of 8.0.2, and both got the fix.
        {"Redis": {(6, 2): 17, (7, 2): 7, (7, 4): 2}, "Valkey": {(7, 2): 8, (8, 0): 2}},
    ),
    Flaw(
        ("CVE-2024-31449",),
        "a script can overflow the stack of the server and run any code",
        # 7.2.7 is inferred: the line got the fix on the day of 8.0.1, one release before 7.2.8.
        {"Redis": {(6, 2): 16, (7, 2): 6, (7, 4): 1}, "Valkey": {(7, 2): 7, (8, 0): 1}},
    ),
    Flaw(
        ("CVE-2022-24834",),
        "a script can overflow the heap of the server by cjson or cmsgpack and run any code",
        {"Redis": {(6, 2): 13, (7, 0): 12}},
    ),
    Flaw(
        ("CVE-2022-24735", "CVE-2022-24736"),
        "a script can act as another user, or end the server",
        {"Redis": {(6, 2): 7, (7, 0): 0}},
    ),
    Flaw(
        ("CVE-2021-32626",),
        "a script can overflow the stack of its engine and run any code",
        {"Redis": {(6, 2): 6}},
    ),
)


def flaws_of(product: Product, version: Version) -> tuple[Flaw, ...]:
    """Return the flaws of a version."""
    return tuple(flaw for flaw in FLAWS if flaw.is_in(product, version))


def fixed_version(product: Product, version: Version) -> str:
    """Return the nearest version without flaws: of the same line, or else of the first later line that has one."""
    fixes = [flaw.fixed.get(product, {}) for flaw in FLAWS]
    for line in sorted({line for fixed in fixes for line in fixed if line >= version[:2]}):
        candidate = (*line, max(fixed[line] for fixed in fixes if line in fixed))
        if not flaws_of(product, candidate):
            return ".".join(map(str, candidate))
    raise AssertionError("the newest line has a fix")
