"""Adapters and `duly.testing` reach behind the public API through the internal port, `duly._port`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import duly
from duly import _port

PACKAGE = Path(duly.__file__).parent
PORT = "duly._port"
ADAPTERS = ("web", "kombu", "celery", "dramatiq", "taskiq", "importing")
OWN = frozenset({"self", "cls"})


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_imports_of(tree: ast.Module) -> Iterator[str]:
    """Yield the private modules and names of Duly that a module imports, except the port."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            is_of_port = name == PORT or name.startswith(PORT + ".")
            if name.startswith("duly.") and not is_of_port and any(map(is_private, name.split("."))):
                yield name


def private_attributes_of(tree: ast.Module) -> Iterator[str]:
    """Yield the private attributes of other objects that a module reads or sets, also by `getattr`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in OWN):
                yield f"{ast.unparse(node)} in line {node.lineno}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"getattr", "setattr"}:
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                yield f"{ast.unparse(node)} in line {node.lineno}"


@pytest.mark.parametrize(
    "path",
    sorted(path for name in ADAPTERS for path in (PACKAGE / name).rglob("*.py")),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_adapters_use_public_names_and_the_port_only(path: Path) -> None:
    tree = ast.parse(path.read_text())

    assert list(private_imports_of(tree)) == []
    assert list(private_attributes_of(tree)) == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "testing").rglob("*.py")), ids=lambda path: path.stem)
def test_the_aids_for_tests_read_no_private_attributes(path: Path) -> None:
    assert list(private_attributes_of(ast.parse(path.read_text()))) == []


def test_the_port_exports_only_names_that_are_used() -> None:
    texts = [path.read_text() for package in (*ADAPTERS, "testing") for path in (PACKAGE / package).rglob("*.py")]
    used = {
        name.id if isinstance(name, ast.Name) else name.attr
        for text in texts
        for name in ast.walk(ast.parse(text))
        if isinstance(name, ast.Name | ast.Attribute)
    }

    assert sorted(set(_port.__all__) - used) == []


@pytest.mark.parametrize(
    "text",
    [
        "import duly._core.codec",
        "from duly._core import ops",
        "from duly import _lua",
        "def f():\n    from duly._async.link import AsyncLink",
        "from duly.web.opaque import _read_receipt",
    ],
)
def test_a_private_import_is_found(text: str) -> None:
    assert list(private_imports_of(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    ["from duly import _port", "from duly._port import STATES", "import duly", "from duly.errors import DulyError"],
)
def test_a_public_import_or_the_port_is_allowed(text: str) -> None:
    assert list(private_imports_of(ast.parse(text))) == []


@pytest.mark.parametrize(
    "text", ["queue._keys", "self._queue._link", "rows[0]._record", "a._b = 1", "getattr(app, '_link', None)"]
)
def test_a_private_attribute_is_found(text: str) -> None:
    assert list(private_attributes_of(ast.parse(text)))


@pytest.mark.parametrize("text", ["self._app", "queue.keys", "type(self).__name__", "getattr(app, 'url')"])
def test_an_own_or_public_attribute_is_allowed(text: str) -> None:
    assert list(private_attributes_of(ast.parse(text))) == []
