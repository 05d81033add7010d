"""Headers of scripts follow a grammar, and static checks find some mistakes in scripts."""

import re
from importlib.resources import files
from typing import Any

import pytest

from duly import _lua
from duly._core import ops, replies, topic_ops, views
from duly._core.call import Call, CallStream
from duly._core.effects import Effect
from duly._core.keys import GroupKeys, LockKeys, OnceKeys, QueueKeys, RegistryKeys, ScheduleKeys, TopicKeys
from duly._core.schedules import Choice, Plan, written_plan
from duly._lua.keys import KEYS as DESCRIBED
from duly.message import Counted
from duly.options import Keep, QueueOptions, Send
from tools import check_lua

KEYS = QueueKeys("duly", "orders")
OTHER = QueueKeys("duly", "other")
REGISTRY = RegistryKeys("duly")
LOCK = LockKeys("duly", "stock:42")
EFFECT = OnceKeys("duly", "charge-17")
SCHEDULES = ScheduleKeys("duly")
TOPIC = TopicKeys("duly", "events")
GROUPS = [GroupKeys(TOPIC, "archive", frees=frees) for frees in (False, True)]
PLAIN = topic_ops.Publication(("body", b"1"))
PUBLICATIONS = [PLAIN, topic_ops.Publication(("bytes", b"x", "key", b"k"), "x", 60), PLAIN]
ROW = bytes(25) + written_plan(Plan(None, 1, "UTC", "one", b""))
OPTIONS = QueueOptions()
KEPT = QueueOptions(done=Keep(count=1), dead=Keep(count=1, age=1, bytes=1), max_length=1)
SETTLE = ops.Settle("id", 1, has_key=False)
KEYED = ops.Settle("id", 1, has_key=True)
VIEWER = views.Viewer("orders", lambda _content, body: body)

INVARIANTS = {f"I{number}" for number in range(1, 13)}


def _outgoing(**options: Any) -> Any:
    from duly._core.outgoing import Encoder

    return Encoder("orders", OPTIONS).outgoing(Send(b"body", **options), "id", 0)


def built() -> list[Call[Any]]:
    """Build a call of every operation, with one row and with two."""
    rows = [1, 2]
    calls: list[Call[Any]] = [
        *(ops.send(KEYS, [_outgoing(priority=3)] * n, OPTIONS, "each") for n in rows),
        *(ops.send(KEYS, [_outgoing(dedup="x")] * n, OPTIONS, "all") for n in rows),
        ops.send(KEYS, [_outgoing()], KEPT, "drop"),
        ops.claim(KEYS, KEPT, limit=1, lease=1.0, consumer="c", then="watch"),
        ops.claim(KEYS, KEPT, limit=1, lease=1.0, consumer="c", then="stay", suspects="alone"),
        *(ops.ack(KEYS, OPTIONS, [SETTLE] * n) for n in rows),
        *(ops.ack(KEYS, options, [KEYED] * n) for n in rows for options in (OPTIONS, KEPT)),
        *(ops.finish(KEYS, KEPT, [(KEYED, "jnull")] * n) for n in rows),
        ops.commit(KEYS, OPTIONS, SETTLE),
        ops.commit(
            KEYS,
            KEPT,
            SETTLE,
            [ops.Target(KEYS, OPTIONS, [_outgoing()] * 2)],
            [ops.Publishes(TOPIC, Keep(count=1), PUBLICATIONS)],
            [Effect("INCR", b"k", ())],
            result_in=1,
        ),
        *(ops.keep_results(KEYS, [(SETTLE, "j1")] * n) for n in rows),
        *(ops.retry(KEYS, [(SETTLE, 1.0, "e", "t")] * n) for n in rows),
        *(ops.defer(KEYS, [(SETTLE, 1.0, "")] * n) for n in rows),
        *(ops.release(KEYS, [SETTLE] * n) for n in rows),
        *(ops.recycle(KEYS, [(SETTLE, 1.0, b"")] * n) for n in rows),
        *(ops.reject(KEYS, KEPT, [(SETTLE, "r", "e", "t")] * n) for n in rows),
        *(ops.extend(KEYS, [(SETTLE, 1.0)] * n) for n in rows),
        *(ops.of_rows("progress", KEYS, [(SETTLE, "0.4", "loading")] * n) for n in rows),
        ops.cancel(KEYS, "id"),
        ops.reschedule(KEYS, "id", "0"),
        ops.redrive(KEYS, 1),
        *(ops.redrive(KEYS, n, [("id", 1, b"")] * n, at_end=True) for n in rows),
        *(ops.move(KEYS, OTHER, KEPT, [("id", 1, b"")] * n) for n in rows),
        ops.letters(KEYS, VIEWER, 1, None),
        ops.pause(KEYS, "me"),
        ops.resume(KEYS),
        ops.purge(KEYS, "dead", 1),
        *(ops.purge_letters(KEYS, [("id", 1)] * n) for n in rows),
        ops.delete(KEYS),
        ops.get(KEYS, VIEWER, "id"),
        ops.list_(KEYS, VIEWER, "ready", 1, None),
        ops.list_(KEYS, VIEWER, "ready", 1, "id"),
        ops.explain(KEYS, VIEWER, "id"),
        ops.await_end(KEYS, VIEWER, "id", 1.0),
        ops.stats(KEYS),
        ops.stats(KEYS, 3600),
        ops.forecast(KEYS, 3600),
        ops.measure(KEYS, "1,1", "1,1"),
        ops.pending(KEYS, 0, 1),
        ops.audit_step(KEYS, "msgs", "0", repair=False),
        *(ops.correct(KEYS, dict.fromkeys("ab"[:n], 1)) for n in rows),
        ops.wake(KEYS),
        *(ops.take_tokens(KEYS, [KEYS.key("wake"), OTHER.key("wake")][:n], 1) for n in rows),
        *(ops.occupied([KEYS] * n) for n in rows),
        *(ops.tidy(KEYS, options) for options in (OPTIONS, KEPT)),
        ops.beat(REGISTRY, "c", b"{}", 60.0),
        ops.depart(REGISTRY, "c"),
        ops.workers(REGISTRY),
        ops.schedule(KEYS, "report", b"plan"),
        ops.unschedule(KEYS, "report"),
        ops.pause_schedule(KEYS, "report"),
        ops.resume_schedule(KEYS, "report"),
        *(ops.schedules(each, name=name) for each in (KEYS, SCHEDULES) for name in ("", "report")),
        *(ops.fire(KEYS, "report", ROW, Choice([1] * n, 1, 2), [_outgoing(priority=3)] * n) for n in rows),
        ops.register(SCHEDULES, "report", "orders"),
        ops.unregister(SCHEDULES, "report", b"entry"),
        ops.lock(LOCK, "token", 30.0, "me", 120.0),
        ops.unlock(LOCK, "token", 120.0),
        ops.prolong(LOCK, "token", 30.0, 120.0),
        ops.wake(LOCK),
        ops.once(EFFECT, ops.Asking("orders", "id", 1, 2, 1, 0, 0), 60.0),
        *(topic_ops.publish(TOPIC, [PLAIN] * n, None) for n in rows),
        *(topic_ops.publish(TOPIC, PUBLICATIONS[:n], Keep(count=1, age=1, bytes=1)) for n in (1, 2, 3)),
        ops.send(TOPIC, [_outgoing()], OPTIONS, "all"),
        ops.cancel(TOPIC, "id"),
        topic_ops.read(TOPIC, "-", 1),
        topic_ops.stats(TOPIC),
        *(topic_ops.tidy(TOPIC, keep) for keep in (None, Keep(count=1))),
        topic_ops.delete(TOPIC),
        *(call for keys in GROUPS for call in _built_for(keys)),
    ]
    return calls


def _built_for(keys: GroupKeys) -> list[Call[Any]]:
    """Build calls of the scripts that have a separate form for groups."""
    target, effect = ops.Target(OTHER, OPTIONS, [_outgoing()] * 2), Effect("INCR", b"k", ())
    return [
        *(
            ops.claim(keys, KEPT, limit=1, lease=1.0, consumer="c", then="watch", feed=["0", *feed])
            for feed in ((), ("a", "b"), ("a", "b", "a", "c"))
        ),
        ops.ack(keys, OPTIONS, [SETTLE]),
        ops.ack(keys, OPTIONS, [KEYED]),
        ops.commit(keys, OPTIONS, SETTLE, [target], [ops.Publishes(TOPIC, None, [PLAIN])], [effect]),
        ops.retry(keys, [(SETTLE, 1.0, "e", "t")]),
        ops.reject(keys, KEPT, [(SETTLE, "r", "e", "t")]),
        ops.extend(keys, [(SETTLE, 1.0)]),
        ops.move(keys, OTHER, KEPT, [("id", 1, b"")]),
        ops.delete(keys),
        ops.stats(keys),
        topic_ops.seek(keys, "0", makes=True),
        topic_ops.foreign_pending(keys, "-", 1),
        topic_ops.leave_group(keys, "c"),
    ]


CALLS = built()
every_script = pytest.mark.parametrize("name", _lua.names())
FORMS = [(path.stem, kind) for path in sorted(check_lua.SCRIPTS.glob("*.lua")) for kind in check_lua.kinds_of(path)]
SCRIPTS = {form: _lua.script(*form) for form in FORMS}
FILES = sorted(str(path.relative_to(check_lua.SCRIPTS).with_suffix("")) for path in check_lua.SCRIPTS.rglob("*.lua"))


def _text(path: str) -> str:
    return (files("duly._lua") / f"{path}.lua").read_text()


def _header(name: str) -> str:
    text = _text(name)
    return text[: text.index("]]")]


def _code(path: str) -> str:
    """Read a script without its header and its comments."""
    text = _text(path)
    return re.sub(r"--.*", "", text[text.index("]]") + 2 if text.startswith("--[[") else 0 :])


def test_every_script_has_an_operation() -> None:
    assert {call.script.name for call in CALLS} == set(_lua.names())


@every_script
def test_a_header_names_its_script_its_keys_and_its_invariants(name: str) -> None:
    header = _header(name)
    assert header.startswith(f"--[[\n{name} -- ")
    assert re.search(r"^RETURNS  \S", header, re.MULTILINE)
    keeps = re.search(r"^KEEPS    (.*)", header, re.MULTILINE)
    assert keeps
    assert set(re.findall(r"I\d+", keeps[1])) <= INVARIANTS
    assert re.match(r"I\d|writes nothing|no message is touched", keeps[1])


@every_script
def test_only_the_last_key_and_the_last_argument_repeat(name: str) -> None:
    script = _lua.script(name)
    keys = script.keys[:-1] if script.keys[-1] == "others*" else script.keys
    assert not any(key.endswith("*") for key in (*keys[:-1], *script.argv[:-1]))
    assert script.argv[:1] == ("sequence",) or script.keys[0] != "call"
    # These scripts use all priorities, one, or none.
    without = ("delete", "delete_topic", "occupied", "publish", "read_topic", "take_tokens", "tidy_topic")
    assert ("digits" in script.argv) == (script.keys[-1] in ("waiting*", "others*")) or name in without


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.script.name)
def test_a_call_has_the_keys_and_arguments_that_the_header_names(call: Call[Any]) -> None:
    command = call.command(b"EVALSHA", b"sha", CallStream(b"stream", 7))
    key_count = int(str(command[2]))
    keys, args = command[3 : 3 + key_count], command[3 + key_count :]
    fixed = [key for key in call.script.keys if not key.endswith("*")]
    others = len(call.extra_keys) + len(call.keys.tail)
    assert len(keys) == len(fixed) + (len(call.digits) if "waiting*" in call.script.keys else 0) + others
    assert tuple(keys[len(keys) - len(call.keys.tail) :]) == call.keys.tail
    assert keys[: len(fixed)] == [call.keys.call(b"stream") if key == "call" else call.keys.key(key) for key in fixed]
    argv = call.script.argv
    if argv[-1:] in (("target_rows*",), ("entries*",)):  # rows of several kinds
        assert len(args) >= len(argv) - 1
    elif argv[-1:] and argv[-1].endswith("*"):
        stride = _stride(call.script.name, call.keys.kind)
        assert (len(args) - len(argv) + 1) % stride == 0
        may_be_none = "none:" in _header(call.script.name)
        assert len(args) >= len(argv) - 1 + (0 if may_be_none else stride)
    else:
        assert len(args) == len(argv)
    if "digits" in argv:
        assert args[argv.index("digits")] == call.digits


def _stride(name: str, kind: _lua.Kind = "queue") -> int:
    """Count the columns of the argument that repeats."""
    return _lua.header_of(name, kind).arguments[-1].size


@pytest.mark.parametrize(
    ("name", "stride"),
    [("send", 3), ("send_checked", 3), ("ack", 2), ("retry", 5), ("defer", 4), ("release", 2), ("recycle", 4),
     ("reject", 5), ("extend", 3), ("progress", 4), ("finish", 2), ("redrive", 3), ("purge", 2), ("move", 3),
     ("correct", 2), ("fire", 3)],
)  # fmt: skip
def test_the_columns_of_a_repeated_argument_are_read_from_the_header(name: str, stride: int) -> None:
    assert _stride(name) == stride


def test_the_outcomes_of_a_send_are_those_that_replies_knows() -> None:
    rows = re.findall(r"^         (\d)  (\w+):", _header("send_checked"), re.MULTILINE)
    codes = {int(code): word for code, word in rows}
    assert codes == {replies.DUPLICATE: "duplicate", replies.FULL: "full", replies.REPLACED: "replaced"}
    code = _code("lib/send_plan")
    assert "local DUPLICATE, FULL, REPLACED = 1, 2, 3" in code


def test_the_outcomes_of_a_commit_are_those_that_replies_knows() -> None:
    codes = [replies.COMMIT_LOST, replies.COMMIT_DONE, replies.COMMIT_NO_ROOM, replies.COMMIT_IMPOSSIBLE]
    codes.append(replies.COMMIT_UNPUBLISHABLE)
    shown = re.findall(r"^(?:RETURNS|       )  \{ (\d)", _header("commit"), re.MULTILINE)
    assert [int(code) for code in shown] == codes
    assert "local LOST, COMMITTED, NO_ROOM, IMPOSSIBLE, UNPUBLISHABLE = 0, 1, 2, 3, 4" in _code("commit")


@pytest.mark.parametrize("script", [_lua.script("send_checked"), _lua.script("publish", "topic")])
def test_a_commit_names_the_keys_of_its_targets_and_topics_as_their_own_scripts_do(script: _lua.Script) -> None:
    named = [key.rstrip("*") for key in script.keys if key != "call"]
    functions = re.findall(r"function \w+_keys\(.*?^end$", _lua.script("commit").text, re.MULTILINE | re.DOTALL)
    assert named in [re.findall(r"^    (\w+) = ", function, re.MULTILINE) for function in functions]


def test_every_key_that_is_described_is_used() -> None:
    named = {key for name, kind in FORMS for key in _lua.header_of(name, kind).keys}
    assert named == set(DESCRIBED)


def test_the_types_of_keys_are_the_same_wherever_they_are_named() -> None:
    types = dict(re.findall(r"^  (\w+) = '(\w+)',$", _code("lib/types"), re.MULTILINE))
    assert types.items() <= {name: key.type for name, key in DESCRIBED.items()}.items()


def _name_of_a_row_in(text: str) -> re.Match[str] | None:
    rows = [row for row in check_lua.rows_of_all() if not re.search(rf"\blocal [\w, ]*\b{row}\b", text)]
    return re.search(rf"(?<![.\w])(?:{'|'.join([*rows, 'KEYS', 'others'])})\.\w", text)


def test_no_name_of_a_row_is_left_in_the_text_that_is_sent() -> None:
    assert {form: found for form, script in SCRIPTS.items() if (found := _name_of_a_row_in(script.text))} == {}


@pytest.mark.parametrize("name", ["cancel", "reschedule", "schedule", "unschedule", "fire"])
def test_a_yes_or_no_is_one_or_zero(name: str) -> None:
    assert re.search(r"^RETURNS  1  .*\n         0  ", _header(name), re.MULTILINE)


def test_an_audit_knows_every_counter() -> None:
    counters = {name for name, number in views.NUMBERS.items() if isinstance(number, Counted)}
    listed = re.search(r"local COUNTERS = \{(.*?)\}", _code("lib/audit/fields"), re.DOTALL)
    assert listed is not None
    assert counters <= set(re.findall(r"'(\w+)'", listed[1]))


def test_every_counter_that_a_script_raises_is_one_that_stats_knows() -> None:
    counters = {*views.NUMBERS, "repairs"}  # a field of stats that repairs read
    for form, script in SCRIPTS.items():
        raised = set(re.findall(r"'HINCRBY', (?:META|keys\.meta|meta), '(\w+)'", script.text))
        assert raised <= counters, form


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"[~=]=\s*nil", "a nil of the server is false: write `if not x`"),
        (r"\b(if|elseif|while|until)\s+(not\s+)?#\w+\s+(then|do|and|or)\b", "0 is true: write `#t > 0`"),
        (r"\bunpack\(\s*ARGV", "ARGV may be longer than the stack"),
        (r"\bos\.|\bio\.|\bloadstring\b|math\.random", "not for scripts"),
        (r"'TIME'(?!\))", "time is read in one place"),
        (r"'KEYS'|'SCAN'|'FLUSH|'SORT'|'LREM'|'SMEMBERS'", "not bounded"),
        (r"\.\.\s*(now|clock|due|deadline|expiry|fence)\b(?!\()", "a clock number: write %.0f"),
        (r"\b(now|clock|due|deadline|expiry|fence)\s*\.\.(?!\.)", "a clock number: write %.0f"),
        (r"tostring\((now|clock|due|deadline|expiry|fence)", "a clock number: write %.0f"),
        (r"\bKEYS\[", "the loader names keys"),
        (r"\bARGV\[[^]]*\d", "the loader names arguments and columns"),
        (r"\blocal keys = \{", "the loader makes the table of keys"),
        (r"\b(FIRST|STRIDE)\w* = \d|_STRIDE = \d", "the header defines where rows begin, and how long they are"),
        (r"\brepeated = \w+\(", "the loader writes how a script begins"),
    ],
    ids=[
        "nil",
        "if #",
        "unpack",
        "globals",
        "TIME",
        "unbounded",
        ".. clock",
        "clock ..",
        "tostring",
        "KEYS[",
        "ARGV[1]",
        "keys = {",
        "FIRST_ROW",
        "prologue",
    ],
)
def test_scripts_are_free_of_known_mistakes(pattern: str, why: str) -> None:
    assert {path: found for path in FILES if (found := re.search(pattern, _code(path)))} == {}, why


def _has_dashes_in_a_text(line: str) -> bool:
    before, dashes, _ = line.partition("--")
    return bool(dashes) and not before.count("'") % 2 == before.count('"') % 2 == 0


def test_no_string_contains_the_beginning_of_a_comment() -> None:
    """The loader cuts every line at its first `--`, so no string may contain it."""
    assert [(path, line) for path in FILES for line in _text(path).splitlines() if _has_dashes_in_a_text(line)] == []


def test_only_the_clock_asks_for_the_time_and_only_once_in_a_script() -> None:
    assert [form for form, script in SCRIPTS.items() if script.text.count("redis.call('TIME')") > 1] == []


@pytest.mark.parametrize("mark", ["@include", "@lazy", "@alone", "@only"])
def test_no_mark_of_the_loader_is_left_in_the_text_that_is_sent(mark: str) -> None:
    assert [form for form, script in SCRIPTS.items() if mark in script.text] == []


def test_no_script_begins_with_a_line_that_redis_6_cannot_read() -> None:
    assert [form for form, script in SCRIPTS.items() if script.text.startswith("#!")] == []


@every_script
def test_marks_of_forms_are_closed(name: str) -> None:
    marks = re.findall(r"^ *-- @(only \w+|end)$", _text(name), re.MULTILINE)
    assert marks[0::2] == [mark for mark in marks if mark in ("only group", "only queue", "only topic", "only freeing")]
    assert marks[1::2] == ["end"] * (len(marks) // 2)
    assert _text(name).count("@only") + _text(name).count("-- @end") == len(marks)


def test_only_scripts_of_groups_know_of_a_topic() -> None:
    knows = [form for form, script in SCRIPTS.items() if "KEYS[#KEYS" in script.text or "TOPIC_" in script.text]
    assert [form for form in knows if form[1] not in ("group", "freeing")] == []
