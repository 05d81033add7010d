"""Known flaws that a client of a queue can reach: scripts and blocking commands are what Duly lives by.

The numbers of versions are those of the public records of each CVE and of the releases that name it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Product = Literal["Redis", "Valkey"]
Line = tuple[int, int]


@dataclass(frozen=True)
class Flaw:
    """Flaws that were mended by the same releases."""

    cves: tuple[str, ...]
    what: str
    mended: Mapping[Product, Mapping[Line, int]]
    """For each line of releases, the first patch without it. Newer lines never had it; older ones, and those between
    that are absent, were given up."""
    since: Mapping[Product, Line]
    """The first line that has it."""

    def is_in(self, product: Product, version: tuple[int, int, int]) -> bool:
        """Tell whether a version has it, as far as its number tells."""
        line, patch, mended = version[:2], version[2], self.mended[product]
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
        {},
    ),
    Flaw(
        ("CVE-2026-23479",),
        "a blocked client that is evicted can run any code on the server",
        {
            "Redis": {(7, 2): 14, (7, 4): 9, (8, 2): 6, (8, 4): 3, (8, 6): 3},
            "Valkey": {(7, 2): 13, (8, 0): 8, (8, 1): 7, (9, 0): 4},
        },
        {"Redis": (7, 2), "Valkey": (7, 2)},
    ),
    Flaw(
        ("CVE-2024-46981",),
        "a script can run any code on the server",
        {"Redis": {(6, 2): 17, (7, 2): 7, (7, 4): 2}, "Valkey": {(7, 2): 8, (8, 0): 2}},
        {},
    ),
    Flaw(
        ("CVE-2024-31449",),
        "a script can overflow the stack of the server and run any code",
        {"Redis": {(6, 2): 16, (7, 2): 6, (7, 4): 1}, "Valkey": {(7, 2): 7, (8, 0): 1}},
        {},
    ),
    Flaw(
        ("CVE-2022-24735",),
        "a script can act as another user",
        {"Redis": {(6, 2): 7, (7, 0): 0}, "Valkey": {}},
        {},
    ),
)


def flaws_of(product: Product, version: tuple[int, int, int]) -> tuple[Flaw, ...]:
    """Name the flaws that a version has."""
    return tuple(flaw for flaw in FLAWS if flaw.is_in(product, version))


def mended_version(product: Product, version: tuple[int, int, int]) -> str:
    """Name the nearest version without any of them: of the same line, else of the first later line that has one."""
    lines = sorted({line for flaw in FLAWS for line in flaw.mended[product] if line >= version[:2]})
    for line in lines:
        patches = [flaw.mended[product][line] for flaw in FLAWS if line in flaw.mended[product]]
        candidate = (*line, max(patches))
        if not flaws_of(product, candidate):
            return ".".join(map(str, candidate))
    raise AssertionError("the newest line is mended")


def read_version(text: str) -> tuple[int, int, int]:
    """Read `7.0.15`; what is missing is 0."""
    numbers = [int(each) for each in re.findall(r"\d+", text)[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch
