"""The roles cover every script and every command of the client."""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import duly
from duly import _lua
from duly.acl.commands import READS
from duly.acl.grants import commands_of
from duly.acl.roles import ADMIN, CONSUMER, FOR_CLUSTER, FOR_FSYNC, KINDS_OF, OBSERVER, PRODUCER, ROLES, Role

SOURCE = Path(duly.__file__).parent
ARGUMENTS = {"BLOCK", "COUNT", "ID", "MATCH", "STREAMS"}
"""Words in capital letters that are not commands."""
NEVER = (
    "keys",
    "flushall",
    "flushdb",
    "config|set",
    "config",
    "client",
    "shutdown",
    "debug",
    "monitor",
    "script|flush",
)
every_role = pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)


def words_sent() -> Iterator[str]:
    """Return the words in capital letters that the client and the worker send."""
    folders = ((SOURCE / folder).rglob("*.py") for folder in ("_async", "_sync", "worker"))
    for path in (SOURCE / "_core/resp.py", *chain.from_iterable(folders)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
                word = node.value.decode("latin-1")
                if word.isalpha() and word.isupper() and len(word) > 1:
                    yield word


def test_every_script_has_a_role_and_an_admin_has_all_scripts() -> None:
    assert set(KINDS_OF) == set(_lua.names())
    assert ADMIN.scripts == KINDS_OF
    assert set().union(*(role.scripts for role in (PRODUCER, CONSUMER, OBSERVER))) < set(KINDS_OF)


def test_every_command_of_the_client_has_a_role() -> None:
    listed = {part.upper() for command in (*ADMIN.sends, *FOR_FSYNC, *FOR_CLUSTER) for part in command.split("|")}

    assert set(words_sent()) <= listed | ARGUMENTS | {"AUTH"}  # every user may log in
    assert listed <= set(words_sent())


def test_a_consumer_includes_a_producer_and_an_admin_includes_all() -> None:
    """So a call that a lesser role may make works for the greater role."""
    assert commands_of(PRODUCER) < commands_of(CONSUMER) < commands_of(ADMIN)
    assert commands_of(OBSERVER) < commands_of(ADMIN)
    for name, kinds in PRODUCER.scripts.items():
        assert set(kinds) <= set(CONSUMER.scripts[name])


def test_an_observer_has_no_command_that_changes_a_key() -> None:
    """SCAN and XREAD only read. The others use no key, or run commands that are checked again."""
    elsewhere = {
        "client|id",
        "client|setname",
        "client|unblock",
        "eval",
        "evalsha",
        "info",
        "mget",
        "role",
        "select",
        "scan",
        "xread",
    }

    assert commands_of(OBSERVER) - READS == elsewhere


@every_role
def test_no_role_has_a_category_or_a_dangerous_command(role: Role) -> None:
    commands = commands_of(role)

    assert not any(command.startswith("@") for command in commands)
    assert not commands & set(NEVER)
    assert all(script in role.scripts for script in role.read_only)


def test_a_producer_has_no_scripts_of_groups() -> None:
    assert not any({"group", "freeing"} & set(kinds) for kinds in PRODUCER.scripts.values())
    assert not commands_of(PRODUCER) & {"xack", "xclaim", "xreadgroup", "xgroup|create", "unlink", "hgetall"}
