"""All commands of the scripts are read from their text. A call that cannot be read is an error."""

import re

import pytest
import redis

from duly import _lua
from duly.acl.commands import READS, Unreadable, commands_in, commands_of_script, runs_caller_commands
from duly.acl.roles import KINDS_OF

FORMS = [(name, kind) for name, kinds in KINDS_OF.items() for kind in kinds]
EVERY_COMMAND = sorted({command for form in FORMS for command in commands_of_script(*form)})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("redis.call('HGET', KEYS[1], 'x')", {"hget"}),
        ("local a = redis.pcall(\n  'HMGET', K, 'a'\n)", {"hmget"}),
        ("return redis.call('GET', redis.call('HGET', K, 'SET'))", {"get", "hget"}),
        ("redis.call('SET', K, f(1, 'DEL'), 'PX', 5, 'GET')", {"set"}),
        ("redis.call('XGROUP', 'CREATE', K, G, '$')", {"xgroup|create"}),
        ("redis.call('MEMORY', 'USAGE', K)", {"memory|usage"}),
        ("redis.call(is_hash[x] and 'HSCAN' or 'ZSCAN', K, 0)", {"hscan", "zscan"}),
        ("local add = redis.call\nadd('XADD', K, '*', 'a', 1)\nadd('XDEL', K, id)", {"xadd", "xdel"}),
        ("local function at(command, k)\n  return redis.call(command, k)\nend\nat('XRANGE', K)\nat('XLEN', K)",
         {"xrange", "xlen"}),
        ("redis.pcall(effect.name, effect.key)", set()),
    ],
)  # fmt: skip
def test_a_command_is_found_in_every_form_of_a_call(text: str, found: set[str]) -> None:
    assert commands_in(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "redis.call(ARGV[1], KEYS[1])",
        "redis.call(command, KEYS[1])",
        "local function at(command)\n  return redis.call(command)\nend\nat('XLEN')\nat(ARGV[2])",
        "redis.call('XGROUP', ARGV[1], K)",
        "each(ids, redis.call)",
    ],
)
def test_a_command_that_the_text_does_not_name_is_an_error(text: str) -> None:
    with pytest.raises(Unreadable):
        commands_in(text)


def _unread_calls(name: str, kind: _lua.Kind) -> set[str]:
    text = _lua.script(name, kind).text
    named = {word.lower() for word in re.findall(r"redis\.p?call\(\s*'([A-Z]+)'", text)}
    return named - {command.partition("|")[0] for command in commands_of_script(name, kind)}


def test_every_script_can_be_read_and_no_call_is_unread_calls() -> None:
    assert {form: calls for form in FORMS if (calls := _unread_calls(*form))} == {}


def test_only_commit_runs_commands_of_its_caller() -> None:
    assert [name for name in _lua.names() if runs_caller_commands(name)] == ["commit"]


def test_commands_listed_as_reads_change_nothing(root: "redis.Redis") -> None:
    """Compares with the flags of the servers. Redis 6.2 has no flags for subcommands."""
    root.set_response_callback("COMMAND INFO", lambda rows, **_: rows)
    rows = root.execute_command("COMMAND INFO", *EVERY_COMMAND)  # type: ignore[no-untyped-call]
    flags = {command: row[2] for command, row in zip(EVERY_COMMAND, rows, strict=True) if row is not None}

    assert all("|" in command for command in set(EVERY_COMMAND) - set(flags))
    assert {command for command in flags if b"write" not in flags[command]} == READS & set(flags)
