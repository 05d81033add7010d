"""The page about the doctor names every check and every flaw, and its sample is a report."""

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from duly._core.address import parse
from duly.cli.doctor import _print
from duly.doctor import Report
from duly.doctor.checks import CHECKS
from duly.doctor.checks.network import CONNECTION, reachable
from duly.doctor.facts import Product
from duly.doctor.flaws import FLAWS, Flaw
from tests.doctor.healthy import changed
from tests.doctor.test_deployments import of_cluster, of_service

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "heading"), [("doctor.md", "## Checks"), ("zh/doctor.md", "## 检查项")], ids=["en", "zh"]
)
def test_the_table_names_every_check_in_order(page: str, heading: str) -> None:
    table = (DOCS / page).read_text().partition(heading)[2].partition("\n## ")[0]

    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == [CONNECTION.name, *CHECKS]


@pytest.mark.parametrize(
    ("page", "heading"), [("doctor.md", "## Several nodes"), ("zh/doctor.md", "## 多个节点")], ids=["en", "zh"]
)
def test_the_table_of_several_nodes_names_every_check_in_order(page: str, heading: str) -> None:
    table = (DOCS / page).read_text().partition(heading)[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)

    assert set(named) == of_cluster().keys() | of_service().keys()
    for found in (of_cluster(), of_service()):
        assert [name for name in named if name in found] == list(found)


@pytest.mark.parametrize("page", ["doctor.md", "zh/doctor.md"], ids=["en", "zh"])
def test_the_sample_is_the_report_of_a_server_that_evicts(page: str) -> None:
    sample = (DOCS / page).read_text().partition("```\n$ duly doctor")[2].partition("```")[0].splitlines()[1:]
    facts = changed({"maxmemory_policy": "allkeys-lru"}, {"maxmemory-policy": "allkeys-lru", "timeout": "5"})
    findings = (reachable(parse("redis://db:6379/0")), *(check(facts) for check in CHECKS.values()))
    shown = io.StringIO()
    session: Any = SimpleNamespace(console=Console(file=shown, width=200))
    _print(session, Report("redis://db:6379/0", findings))
    lines = iter(" ".join(line.split()) for line in shown.getvalue().splitlines())

    expected = [" ".join(line.split()) for line in sample if line not in ("", "...")]
    assert [line for line in expected if line not in lines] == []  # in this order


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
