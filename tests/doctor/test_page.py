"""The page about the doctor names every check and every flaw."""

import re
from pathlib import Path

import pytest

from duly.doctor.checks import CHECKS
from duly.doctor.checks.network import CONNECTION
from duly.doctor.facts import Product
from duly.doctor.flaws import FLAWS, Flaw

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "heading"), [("doctor.md", "## Checks"), ("zh/doctor.md", "## 检查哪些")], ids=["en", "zh"]
)
def test_the_table_names_every_check_in_order(page: str, heading: str) -> None:
    table = (DOCS / page).read_text().partition(heading)[2].partition("\n## ")[0]

    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == [CONNECTION.name, *CHECKS]


@pytest.mark.parametrize(
    ("page", "comma", "nothing"),
    [("doctor.md", ", ", "none named"), ("zh/doctor.md", "、", "没有列出")],
    ids=["en", "zh"],
)
def test_the_page_names_every_flaw_with_the_versions_that_fix_it(page: str, comma: str, nothing: str) -> None:
    def versions(flaw: Flaw, product: Product) -> str:
        fixed = sorted(flaw.fixed.get(product, {}).items())
        return comma.join(f"{major}.{minor}.{patch}" for (major, minor), patch in fixed) or nothing

    rows = [f"| {comma.join(each.names)} | {versions(each, 'Redis')} | {versions(each, 'Valkey')} |" for each in FLAWS]
    assert re.findall(r"^\| (?:CVE-|redis#).+$", (DOCS / page).read_text(), re.MULTILINE) == rows
