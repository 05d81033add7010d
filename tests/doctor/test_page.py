"""The page about the doctor names every check and every flaw."""

import re
from pathlib import Path

from duly.doctor.checks import CHECKS
from duly.doctor.connecting import CONNECTION
from duly.doctor.flaws import FLAWS, Flaw
from duly.doctor.product import Product

PAGE = (Path(__file__).parents[2] / "docs/doctor.md").read_text()


def test_the_table_names_every_check_in_order() -> None:
    table = PAGE.partition("## What it looks at")[2].partition("\n## ")[0]

    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == [CONNECTION.name, *CHECKS]


def test_the_page_names_every_flaw_with_the_versions_that_mend_it() -> None:
    def versions(flaw: Flaw, product: Product) -> str:
        mended = sorted(flaw.mended.get(product, {}).items())
        return ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in mended) or "none named"

    table = PAGE.partition("## Known flaws")[2].partition("\n## ")[0]
    rows = [f"| {', '.join(each.cves)} | {versions(each, 'Redis')} | {versions(each, 'Valkey')} |" for each in FLAWS]
    assert re.findall(r"^\| CVE.+$", table, re.MULTILINE) == rows
