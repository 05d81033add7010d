"""`_core` is pure: it opens no socket, starts and locks no thread, logs nothing, and reads no clock."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import duly._core

CORE = Path(duly._core.__file__).parent
IMPURE = frozenset(
    {"asyncio", "logging", "multiprocessing", "random", "redis", "secrets", "select", "selectors", "signal", "socket"}
    | {"ssl", "subprocess", "threading", "time", "uuid", "weakref"}
)
"""Modules of clocks, chance, processes, threads, connections and logs."""
CLOCKS = frozenset({"now", "today", "utcnow"})
"""Methods of `datetime` and `date` that read a clock; as attributes of other things they are not called."""


def imports_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def clocks_read_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS:
            yield f"{ast.unparse(node.func)}() in line {node.lineno}"


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: path.stem)
def test_a_module_of_the_core_is_pure(path: Path) -> None:
    tree = ast.parse(path.read_text())

    assert sorted(set(imports_of(tree)) & IMPURE) == []
    assert list(clocks_read_in(tree)) == []


@pytest.mark.parametrize(
    "text", ["import time", "from threading import Lock", "import logging.config", "def f():\n    import socket"]
)
def test_an_impure_import_is_found(text: str) -> None:
    assert set(imports_of(ast.parse(text))) & IMPURE


@pytest.mark.parametrize("text", ["datetime.now(UTC)", "datetime.datetime.utcnow()", "date.today()"])
def test_a_read_of_the_clock_is_found(text: str) -> None:
    assert list(clocks_read_in(ast.parse(text)))
