"""The comment that opens a script is a grammar, which is written as Lua."""

import pytest

from duly._lua import header_writer
from duly._lua.header import BadHeader, Header, parsed
from duly._lua.header_writer import BadName


def header(*lines: str) -> Header:
    return parsed("\n".join(["--[[", "take -- take due messages.", "", *lines, "]]", ""]))


SETTLES = header(
    "KEYS     call, msgs, leases, meta",
    "ARGV     sequence  text",
    "         keep      row     count, age: microseconds, bytes; -1: no bound",
    "         settles*  rows    id, fence, delay: microseconds",
)
STORE = header(
    "KEYS     msgs, leased, dead, waiting*",
    "         others*: those of another queue",
    "ARGV     digits    text",
    "         limit     number",
    "         is_last   flag",
)


FUNCTION = "local function f(limit)\n  g(limit)\nend\n"


# The grammar.


def test_a_header_names_keys_and_arguments() -> None:
    assert SETTLES.keys == ("call", "msgs", "leases", "meta")
    assert SETTLES.argv == ("sequence", "keep.count", "keep.age", "keep.bytes", "settles*")
    assert [argument.at for argument in SETTLES.arguments] == [1, 2, 5]


def test_keys_may_take_several_lines_and_have_a_note() -> None:
    assert STORE.keys == ("msgs", "leased", "dead", "waiting*", "others*")
    wrapped = header("KEYS     msgs, leased,", "         dead: those that died", "           before", "         wake")
    assert wrapped.keys == ("msgs", "leased", "dead", "wake")


def test_a_line_that_is_indented_further_belongs_to_the_one_above() -> None:
    lines = ("ARGV     rows*  rows  id, when: 0 now,", "                      part: a body; limit number")
    found = header(*lines).arguments

    assert [argument.name for argument in found] == ["rows"]
    assert found[0].columns == ("id", "when", "part")


def test_rows_behind_the_first_have_no_fixed_position() -> None:
    found = header("ARGV     targets*  rows  is_own, size", "         messages*  rows  id, part")

    assert [argument.at for argument in found.arguments] == [1, 0]
    assert found.argv == ("targets*",)


def test_the_other_sections_may_be_absent() -> None:
    assert header("RETURNS  1") == Header((), ())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("KEYS     msgs  hash  id -> record", "not a list of names"),
        ("KEYS     msgs, letters", "not described"),
        ("ARGV     limit", "not a name, a type"),
        ("ARGV     limit  integer  messages", "not a name, a type"),
        ("ARGV     limit*  number  messages", "not a name, a type"),
        ("ARGV     settles  rows  id, fence", "not a name, a type"),
        ("ARGV     settles*  rows  id, of whom", "does not name the columns"),
        ("ARGV     settles*  rows", "does not name the columns"),
        ("ARGV     settles*  rows  id\n         limit  number", "only rows can follow rows"),
        ("KEYS     msgs\nDRAINS   leases", "not among KEYS"),
    ],
)  # fmt: skip
def test_a_header_that_does_not_follow_the_grammar_is_refused(line: str, why: str) -> None:
    with pytest.raises(BadHeader, match=why):
        header(*line.splitlines())


# Names of keys and arguments.


def declared(of: Header, code: str, *, of_group: bool = False) -> list[str]:
    return header_writer.declarations(of, code, of_group=of_group).splitlines()


def test_only_used_keys_and_arguments_have_names() -> None:
    assert declared(STORE, "return 1") == []
    assert declared(STORE, "return f(LEASED)") == ["local LEASED = KEYS[2]"]
    assert declared(STORE, "return f(MSGS, DEAD)") == ["local MSGS, _, DEAD = unpack(KEYS, 1, 3)"]


@pytest.mark.parametrize("code", ["x.limit = 1", "{ limit = 1 }", "f('limit')", FUNCTION])
def test_a_field_a_text_and_a_parameter_do_not_use_a_name(code: str) -> None:
    assert declared(STORE, code) == []


def test_a_function_with_a_local_name_does_not_hide_other_uses() -> None:
    code = FUNCTION + "local function h()\n  local is_last = 1\n  g(is_last)\nend\nf(limit)"

    assert declared(STORE, code) == ["local limit = ARGV[2]", "limit = tonumber(limit)"]


def test_numbers_and_flags_are_read_as_such() -> None:
    assert declared(STORE, "f(limit, is_last)") == [
        "local limit, is_last = unpack(ARGV, 2, 3)",
        "limit, is_last = tonumber(limit), is_last == '1'",
    ]


def test_keys_of_all_priorities_are_found_by_priority_and_others_behind_them() -> None:
    assert declared(STORE, "f(WAITING[0], OTHERS)") == [
        "local digits = ARGV[1]",
        "-- @include lib/waiting.lua",
        "local WAITING = waiting_by_priority(4, digits)",
        "local OTHERS = { unpack(KEYS, 4 + #digits) }",
    ]


def test_the_table_of_keys_has_those_that_are_asked_for() -> None:
    assert declared(STORE, "f(keys) g(x.dead, DEAD)") == ["local DEAD = KEYS[3]", "local keys = { dead = DEAD }"]
    assert declared(STORE, "f(keys) local function g(keys, name)\n  return keys[name]\nend") == [
        "local digits = ARGV[1]",
        "-- @include lib/waiting.lua",
        "local keys = { msgs = KEYS[1], leased = KEYS[2], dead = KEYS[3], waiting = waiting_by_priority(4, digits) }",
    ]


def test_names_of_an_enclosing_text_are_not_written_again() -> None:
    first = "local MSGS, _, DEAD = unpack(KEYS, 1, 3)\n"

    assert header_writer.declared(first) == {"MSGS", "DEAD"}
    assert header_writer.declarations(STORE, "f(MSGS, LEASED, keys.dead)", of_group=False, but={"MSGS", "DEAD"}) == (
        "local LEASED = KEYS[2]\nlocal keys = { dead = DEAD }\n"
    )


def test_the_table_of_keys_has_those_that_an_inner_text_asks_for() -> None:
    written = header_writer.declarations(STORE, "f(keys)", of_group=False, inner="g(keys.dead, LEASED)")

    assert written == "local keys = { dead = KEYS[3] }\n"


def test_the_key_of_a_priority_is_found_by_its_digit() -> None:
    assert header_writer.with_rows("f(waiting.key(digit), keys.waiting)", STORE, of_group=False) == (
        "f(KEYS[3 + string.find(digits, digit, 1, true)], keys.waiting)"
    )


def test_a_function_that_is_given_keys_needs_no_table() -> None:
    assert declared(STORE, "local function f(keys)\n  return keys.dead\nend\nreturn f") == []


def test_a_group_has_names_for_the_keys_of_its_topic() -> None:
    assert declared(SETTLES, "f(TOPIC_META, STREAM)", of_group=True) == [
        "local TOPIC_META, STREAM = unpack(KEYS, #KEYS - 1, #KEYS)"
    ]
    assert declared(STORE, "f(OTHERS)", of_group=True)[-1] == "local OTHERS = { unpack(KEYS, 4 + #digits, #KEYS - 7) }"


def test_the_record_of_a_call_is_kept_for_an_hour_or_as_long_as_the_caller_asks() -> None:
    lock = header("KEYS     call", "ARGV     sequence  text", "         kept_ms   number")

    assert declared(SETTLES, "f(kept_ms)") == ["local kept_ms = 3600000"]
    assert "local kept_ms = ARGV[2]" in declared(lock, "f(kept_ms)")


# Rows.


def with_rows(code: str, *, of_group: bool = False) -> str:
    return header_writer.with_rows(code, SETTLES, of_group=of_group)


@pytest.mark.parametrize(
    ("code", "replaced"),
    [
        ("for at = settles.first, settles.last, settles.stride do", "for at = 5, #ARGV, 3 do"),
        ("settles.id(at), settles.delay(each.at)", "ARGV[at], ARGV[each.at + 2]"),
        ("f(keep.count, keep.bytes)", "f(ARGV[2], ARGV[4])"),
        ("keep.first, keep.last, keep.stride, keep.age(at)", "2, 4, 3, ARGV[at + 1]"),
        ("unpack(KEYS, KEYS.first, KEYS.last)", "unpack(KEYS, 2, #KEYS)"),
        ("held.settles.id, x_settles.id", "held.settles.id, x_settles.id"),
    ],
)
def test_the_names_of_rows_are_replaced(code: str, replaced: str) -> None:
    assert with_rows(code) == replaced


def test_the_keys_of_a_group_end_before_those_of_its_topic() -> None:
    assert with_rows("KEYS.last", of_group=True) == "#KEYS - 7"


def test_the_keys_that_a_call_brings_are_found_by_position() -> None:
    assert (
        header_writer.with_rows("f(others.first, others.key(at))", STORE, of_group=False) == "f(4 + #digits, KEYS[at])"
    )


@pytest.mark.parametrize("code", ["settles.reason(at)", "settles.id", "keep.size"])
def test_a_column_that_the_header_does_not_have_is_refused(code: str) -> None:
    with pytest.raises(BadName, match="the header has no"):
        with_rows(code)


def test_rows_that_the_script_must_find_have_no_first() -> None:
    two = header("ARGV     targets*  rows  is_own", "         messages*  rows  id")

    with pytest.raises(BadName, match=r"messages\.first"):
        header_writer.with_rows("messages.first", two, of_group=False)


def test_a_row_is_not_a_value() -> None:
    with pytest.raises(BadName, match="not a value"):
        declared(SETTLES, "f(settles)")


# How a script begins.


def test_a_script_lets_a_full_server_drain_and_answers_a_repeated_call() -> None:
    assert header_writer.prologue(header("KEYS     call, leases", "DRAINS   leases: acks go on")).splitlines() == [
        "redis.call('HDEL', LEASES, '') -- see lib/drain.lua",
        "-- @include lib/repeated.lua",
        "if repeated then",
        "  return repeated",
        "end",
    ]


def test_a_script_may_answer_a_repeated_call() -> None:
    assert header_writer.prologue(header("KEYS     call, leases", "REPEATS  the messages are read again")) == ""
    assert header_writer.prologue(header("KEYS     leases")) == ""


def test_a_function_names_the_keys_of_another_script() -> None:
    assert header_writer.keys_function("settling_keys", SETTLES).splitlines() == [
        "local function settling_keys(first)",
        "  return {",
        "    msgs = KEYS[first + 0],",
        "    leases = KEYS[first + 1],",
        "    meta = KEYS[first + 2],",
        "  }, first + 3",
        "end",
    ]
