"""The page about the doctor names every check and every flaw."""

import re
from pathlib import Path

from duly.doctor.checks import CHECKS
from duly.doctor.connecting import CONNECTION
from duly.doctor.flaws import FLAWS, Product

PAGE = (Path(__file__).parents[2] / "docs/doctor.md").read_text()


def test_the_table_names_every_check_in_order() -> None:
    table = PAGE.partition("## What it looks at")[2].partition("\n## ")[0]

    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == [CONNECTION.name, *CHECKS]


def test_the_page_names_every_flaw_with_the_versions_that_mend_it() -> None:
    def versions(product: Product, mended: dict[tuple[int, int], int]) -> str:
        return ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in sorted(mended.items()))

    for flaw in FLAWS:
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| {', '.join(flaw.cves)} |"))
        for product in ("Redis", "Valkey"):
            assert versions(product, dict(flaw.mended[product])) in row
