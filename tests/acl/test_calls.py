"""The table of docs/acl.md is true: each call is made as a user of each role."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duly
from duly._core.call import Call
from duly._sync.link import Link
from duly.acl.commands import commands_of_script
from duly.acl.grants import commands_of
from duly.acl.roles import ROLES, Role
from duly.errors import ServerError
from tests.acl.calls import CALLS, World, build
from tests.acl.conftest import NewUser
from tests.binaries import Kind
from tests.conftest import StartedServer

PAGE = Path(__file__).parents[2] / "docs/acl.md"
ROW = re.compile(r"^\| (`[a-z]+\.[a-z_]+.*) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")
OBJECTS = {
    "app": duly.Duly,
    "queue": duly.Queue,
    "topic": duly.Topic,
    "group": duly.Group,
    "d": duly.Delivery,
    "lock": duly.Lock,
}
WITHOUT_THE_SERVER = {
    "app": {"queue", "topic", "task", "connect", "close", "run"}
    | {"on_start", "on_stop", "before", "after", "on_error", "on_dead"},
    "queue": {"handler", "on_dead"},
    "topic": {"handler", "on_dead", "group"},
    "group": {"handler", "on_dead"},
    "d": {"decode"},
    "lock": set[str](),
}
"""Calls that send nothing to the server. A running worker is a consumer: tests/acl/test_worker.py."""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Record which scripts are run."""
    noted: list[tuple[str, Any]] = []
    ask = Link._ask

    def noting(link: Link, pool: Any, wire: Any, stream: Any, call: Call[Any]) -> Any:
        noted.append((call.script.name, call.keys.kind))
        return ask(link, pool, wire, stream, call)

    monkeypatch.setattr(Link, "_ask", noting)
    return noted


def said() -> dict[str, dict[str, str]]:
    """Parse the table: the result of each call for each role."""
    found: dict[str, dict[str, str]] = {}
    for calls, *cells in ROW.findall(PAGE.read_text()):
        for name in NAME.findall(calls):
            assert name not in found, f"{name} is in two rows"
            found[name] = dict(zip(ROLES, cells, strict=True))
    return found


def happens(role: Role, name: str, world: World, scripts: list[tuple[str, Any]]) -> str:
    """Make a call: is it refused, is the role for it, or do the role's commands happen to suffice, always or partly?"""
    scripts.clear()
    try:
        CALLS[name](world)
    except ServerError:
        return "no"
    if all(role.runs(*script) for script in scripts):
        return "yes"
    has = commands_of(role)
    return "also" if all(commands_of_script(*script) <= has for script in scripts) else "partly"


def public_calls() -> Iterator[str]:
    for title, kind in OBJECTS.items():
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and name not in WITHOUT_THE_SERVER[title]:
                yield f"{title}.{name}"


def test_every_call_is_in_the_table() -> None:
    plain = {name for name in CALLS if "(" not in name}

    assert plain == {*public_calls(), "duly.once"}
    assert set(said()) == set(CALLS)


@pytest.mark.parametrize("role", ROLES)
def test_each_call_behaves_for_each_role_as_in_the_table(
    role: str,
    new_user: NewUser,
    server: StartedServer,
    kind: Kind,
    queue_name: str,
    scripts: list[tuple[str, Any]],
) -> None:
    found: dict[str, str] = {}
    with duly.Duly(server(kind).url) as root, duly.Duly(new_user(role)) as app:
        for number, name in enumerate(CALLS):
            world = build(root, app, f"{queue_name}-{number}")
            found[name] = happens(ROLES[role], name, world, scripts)
            if found[name] == "no":
                assert root.queue(world.queue.name).audit().ok
                assert root.topic(world.topic.name).group("archive").audit().ok
            root.unschedule(world.queue.name)

    assert found == {name: cells[role] for name, cells in said().items()}
