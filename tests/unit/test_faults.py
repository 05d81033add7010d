"""The faults of an audit are the same in the table, the scripts and the page of audit findings."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from duly._core import faults
from duly._core.faults import FAULTS, fault_of
from duly.message import AuditFault

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "audit-findings.md").read_text()
CHINESE_PAGE = (DOCS / "zh/audit-findings.md").read_text()
SCRIPTS = (files("duly._lua") / "audit.lua", *(files("duly._lua") / "lib/audit").iterdir())
_TOKEN = re.compile(r"'[^']*'|[^\s']+")


def arguments_of_faults() -> Iterator[str]:
    """Return the second argument of each call of `fault` in the scripts, as it is written."""
    for path in SCRIPTS:
        text = path.read_text()
        for call in re.finditer(r"(?<!function )\bfault\(", text):
            yield _arguments(text[call.end() :])[1]


def _arguments(text: str) -> list[str]:
    """Split the arguments of a call at its commas, up to the second."""
    found, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == "'"
        depth += 0 if is_quoted else {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0 and not is_quoted:
            found.append("")
            if len(found) == 3:
                break
        else:
            found[-1] += letter
    return found


def texts_in_the_scripts() -> set[str]:
    """Name all faults of the scripts; a star stands for a part that differs."""
    texts = set()
    for argument in arguments_of_faults():
        alternatives: list[list[str]] = [[]]
        for token in _TOKEN.findall(argument):
            if token == "or":
                alternatives.append([])
            elif token == "and":
                alternatives[-1] = []
            elif token != "..":
                alternatives[-1].append(token[1:-1] if token.startswith("'") else "*")
        texts |= {"".join(each) for each in alternatives}
    return texts


def test_the_scripts_and_the_table_have_the_same_faults() -> None:
    assert texts_in_the_scripts() == {fault.what for fault in FAULTS} - {faults.WRONG_BYTES}


def test_no_fault_is_there_twice() -> None:
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_is_explained_in_sentences_and_on_the_page(fault: faults.Fault) -> None:
    for text in (fault.meaning, fault.fix):
        assert re.fullmatch(r"[A-Z].*\.", text)
    assert f"| `{fault.what}` | {fault.meaning} | {fault.fix} |" in PAGE
    assert f"| `{fault.what}` | " in CHINESE_PAGE


def test_the_page_has_no_other_faults() -> None:
    table = PAGE.split("## The faults")[1]

    assert len(re.findall(r"^\| `", table, re.MULTILINE)) == len(FAULTS)


@pytest.mark.parametrize(
    ("what", "known"),
    [
        ("in two places: leased and waiting", "in two places: * and *"),
        ("row in why of no message", "row in * of no message"),
        ("the lane a*b\nc belongs to nobody", "the lane * belongs to nobody"),
        ("damaged", "damaged"),
    ],
)
def test_a_fault_is_found_by_its_text(what: str, known: str) -> None:
    assert fault_of(what).what == known


def test_a_text_that_is_not_a_fault_is_refused() -> None:
    with pytest.raises(LookupError, match="bent"):
        fault_of("bent")


def test_an_explained_fault_equals_the_bare_one_and_reads_as_a_sentence() -> None:
    fault = faults.explained("bytes", faults.WRONG_BYTES, "it counts 1, and 2 are stored")

    assert fault == AuditFault("bytes", faults.WRONG_BYTES)
    assert str(fault).startswith("bytes: counts wrong bytes (it counts 1, and 2 are stored). Bounds by bytes would be")
