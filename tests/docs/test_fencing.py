"""The recipes that pass a fence on: what a late consumer writes is refused, in SQL and in Redis."""

import importlib.util
import re
import sqlite3
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

import duly
from tests.conftest import StartedServer
from tests.matrix import SERVERS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/exactly-once.md", ROOT / "docs/zh/exactly-once.md"]


@pytest.fixture
def recipes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fencing", ROOT / "examples/35_fencing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fences(backend: str, queue_name: str) -> tuple[int, int]:
    """Return the fences of two deliveries of a message: the lease of the first expired."""
    with duly.Duly(backend) as app:
        queue = app.queue(queue_name, lease=0.1)
        queue.send("lamp")
        (slow,), (quick,) = queue.receive(wait=10), queue.receive(wait=10)
        quick.ack()
    return slow.fence, quick.fence


def block(page: Path, language: str) -> str:
    """Return the only block of a language on a page."""
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return found[0]


def statements(text: str) -> list[str]:
    """Return the lines of a recipe, without comments."""
    return [line for line in text.strip().splitlines() if not line.startswith("--")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_pages_show_the_recipes_that_are_tested(recipes: Any, page: Path) -> None:
    assert statements(block(page, "sql")) == statements(recipes.WRITE_ROW)
    assert statements(block(page, "lua")) == statements(recipes.WRITE_HASH)


def test_a_late_consumer_cannot_undo_a_row(recipes: Any, fences: tuple[int, int]) -> None:
    slow, quick = fences
    db = sqlite3.connect(":memory:")
    db.execute(recipes.TABLE)

    assert recipes.write_row(db, "lamp", "packed", slow)  # it is in time
    assert recipes.write_row(db, "lamp", "sent", quick)
    assert not recipes.write_row(db, "lamp", "packed", slow)
    assert recipes.write_row(db, "lamp", "sent again", quick)
    assert recipes.write_row(db, "pen", "packed", slow)  # another row
    rows = db.execute("SELECT item, state, fence FROM shipments ORDER BY item").fetchall()
    assert rows == [("lamp", "sent again", quick), ("pen", "packed", slow)]
    db.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_late_consumer_cannot_undo_a_hash(
    recipes: Any, fences: tuple[int, int], server: StartedServer, kind: Any, queue_name: str
) -> None:
    slow, quick = fences
    key = f"{queue_name}:lamp"
    with redis.Redis.from_url(server(kind).url) as client:
        assert recipes.write_hash(client, key, "packed", slow)
        assert recipes.write_hash(client, key, "sent", quick)
        assert not recipes.write_hash(client, key, "packed", slow)
        assert not recipes.write_hash(client, key, "packed", quick - 1)
        assert recipes.write_hash(client, key, "sent again", quick)
        assert client.hgetall(key) == {b"fence": b"%d" % quick, b"value": b"sent again"}
        client.delete(key)


def test_fences_are_exact_in_lua(fences: tuple[int, int]) -> None:
    assert max(fences) < 2**53
