"""Writes docs/conformance.md, the list of what the public API is held to: `python -m tests.client.conformance`.

The name of a test is the fact. A docstring that begins with invariants (I5) or lines of the mission
(000-8) names those that it holds.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/client"
PAGE = ROOT / "docs/conformance.md"

_HEAD = """\
# Conformance

What the public API is held to, by operation. Each test runs on `memory://` and Valkey 9.1, and in
`make test-all` also on Redis 6.2, on Redis 7.0, with Sentinel and on a cluster, with the async client and
with the sync one that is generated from it; where that makes no sense the test states why. Tests that need
one slot run in a namespace in braces on a cluster. The invariants I1 to I12 are those of
the protocol, numbers such as 000-8 are lines of [the mission](mission.md). Written by
`python -m tests.client.conformance` from `tests/client/_async`; a test fails when this page is stale.
"""
_HELD = re.compile(r"\b(?:I\d+|\d{3}-\d+)\b")


class Case(NamedTuple):
    """One test function."""

    fact: str
    name: str
    held: str


def cases(source: str) -> Iterator[Case]:
    """Find the test functions of a file."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            held = ", ".join(_HELD.findall(ast.get_docstring(node) or ""))
            yield Case(node.name.removeprefix("test_").replace("_", " "), node.name, held)


def page() -> str:
    """Write the page."""
    sections = [_HEAD]
    for path in (*sorted((FOLDER / "_async").glob("test_*.py")), FOLDER / "test_async_counterpart.py"):
        source = path.read_text()
        title = (ast.get_docstring(ast.parse(source)) or path.stem).splitlines()[0]
        rows = [f"| {case.fact} | `{case.name}` | {case.held} |" for case in cases(source)]
        table = ["| fact | test | holds |", "| --- | --- | --- |", *rows]
        sections.append(f"\n## {title.rstrip('.')}\n\n`{path.relative_to(ROOT)}`\n\n" + "\n".join(table) + "\n")
    return "".join(sections)


if __name__ == "__main__":
    PAGE.write_text(page())
