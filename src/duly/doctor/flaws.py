"""Known flaws that a client of a queue can reach: scripts and blocking commands are what Duly lives by.

Flaws that need other rights are not here: RESTORE (CVE-2026-25243), CLIENT KILL over TLS (CVE-2026-56684), a replica
that takes writes (CVE-2026-23631). The numbers are those of the records of each CVE and of the notes of the releases
that name it. Five were not found in such notes and follow from the releases around them; they are marked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from duly.doctor.facts import Product, Version

Line = tuple[int, int]


@dataclass(frozen=True)
class Flaw:
    """Flaws that were mended by the same releases."""

    names: tuple[str, ...]
    """Numbers of CVEs; a flaw without one is named by the changes that fixed it."""
    what: str
    mended: Mapping[Product, Mapping[Line, int]]
    """For each line of releases, the first patch without it. Newer lines never had it; older ones, and those between
    that are absent, were given up. A product that is absent is not named in the record: Valkey began after the older
    ones were mended."""
    since: Mapping[Product, Line] = field(default_factory=dict)
    """The first line that has it."""

    def is_in(self, product: Product, version: Version) -> bool:
        """Tell whether a version has it, as far as its number tells."""
        line, patch, mended = version[:2], version[2], self.mended.get(product, {})
        if line in mended:
            return patch < mended[line]
        return self.since.get(product, (0, 0)) <= line < max(mended, default=(0, 0))


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
            # 7.2.14 follows: 7.2.13 is older than the flaw's record, and 7.2.15 mended the flaws after it.
            "Redis": {(7, 2): 14, (7, 4): 9, (8, 2): 6, (8, 4): 3, (8, 6): 3},
            # 8.0.8 was to mend it, and was revoked on the day it came out.
            "Valkey": {(7, 2): 13, (8, 0): 9, (8, 1): 7, (9, 0): 4},
        },
        {"Redis": (7, 2), "Valkey": (7, 2)},
    ),
    Flaw(
        ("redis#14164", "valkey#2117"),
        "a program that sends CLIENT UNBLOCK while writes are paused (CLIENT PAUSE, a planned fail-over) aborts the "
        "server. Duly does not",
        {
            # The notes of Redis name 7.4.6 and 8.2.0. Lines that they do not name still had it when we looked.
            "Redis": {(7, 4): 6, (8, 2): 0},
            # 7.2.10 and 8.0.4 follow: they are the next releases after it was decided to fix every line.
            "Valkey": {(7, 2): 10, (8, 0): 4, (8, 1): 2},
        },
    ),
    Flaw(
        ("CVE-2025-67733",),
        "a script can forge answers to other calls on its connection",
        # The record of the CVE says 9.0.2, the notes of the releases 9.0.3: the later one is safe either way. Redis
        # mended something like it at the same time without a number, so nothing is claimed of it.
        {"Valkey": {(7, 2): 12, (8, 0): 7, (8, 1): 6, (9, 0): 3}},
    ),
    Flaw(
        ("CVE-2024-46981",),
        "a script can run any code on the server",
        # 7.2.8 follows: its release was that of the line in the month of 8.0.2, and the mend went into both.
        {"Redis": {(6, 2): 17, (7, 2): 7, (7, 4): 2}, "Valkey": {(7, 2): 8, (8, 0): 2}},
    ),
    Flaw(
        ("CVE-2024-31449",),
        "a script can overflow the stack of the server and run any code",
        # 7.2.7 follows: the mend went into the line on the day of 8.0.1, one release before 7.2.8.
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
    """Name the flaws that a version has."""
    return tuple(flaw for flaw in FLAWS if flaw.is_in(product, version))


def mended_version(product: Product, version: Version) -> str:
    """Name the nearest version without any of them: of the same line, else of the first later line that has one."""
    mends = [flaw.mended.get(product, {}) for flaw in FLAWS]
    for line in sorted({line for mended in mends for line in mended if line >= version[:2]}):
        candidate = (*line, max(mended[line] for mended in mends if line in mended))
        if not flaws_of(product, candidate):
            return ".".join(map(str, candidate))
    raise AssertionError("the newest line is mended")
