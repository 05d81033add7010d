"""Output: no control characters, valid JSON, and tables that fit the terminal."""

import io
import json
import sys
import unicodedata
from datetime import UTC, datetime

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import duly
from duly._core.measures import span
from duly._core.rates import Rates, sparkline
from duly.cli import output
from duly.message import WorkerInfo
from tests.cli.conftest import Call
from tests.cli.shell import Shell, given_dead

NASTY = "\x1b[31mred\x07\r\n\t\x9b2J\u202eabc\u2066\u2028\x00\x7f é漢"
"""Colours, a bell, a second line, cursor movement, a reversed line; and plain words."""

SLY = "".join(one for one in NASTY if unicodedata.category(one) != "Cc")
"""The parts that are valid in keys and ids."""


def unshown(text: str) -> list[str]:
    """Return control characters. A line break may only end a line."""
    return [one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


@given(st.text(st.characters()))
def test_control_characters_are_escaped(text: str) -> None:
    shown = output.visible(text)

    assert unshown(shown) == []
    assert "\n" not in shown
    assert unshown(output.body_text(text)) == []
    assert unshown(output.whole_body({"body": [text]})) == []
    assert unshown(output.json_text([text])) == []
    assert json.loads(output.json_text([text])) == [text]


def test_plain_words_are_not_escaped() -> None:
    assert output.visible("plain \\ é 漢字 🙂") == "plain \\ é 漢字 🙂"
    assert output.visible("a\nb\tc\rd\x1b") == "a\\nb\\tc\\rd\\x1b"


def test_show_breaks_no_line_in_a_pipe_and_fits_a_terminal(shell: Shell, app: duly.Duly) -> None:
    body = "long " * 500
    id_ = app.queue("q").send(body, key="k")

    piped = shell.ok("show", "q", id_).lines
    narrow = shell.ok("show", "q", id_, COLUMNS="60").lines

    assert f"body      {body}".rstrip() in [line.rstrip() for line in piped]
    assert f"id        {id_}" in piped
    assert max(map(len, narrow)) <= 60
    assert "".join(line[10:].strip().replace(" ", "") for line in narrow).count("long") == 500


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (0.0123, "12ms"),
        (0.35, "350ms"),
        (0.9996, "1s"),
        (1, "1s"),
        (12.34, "12.3s"),
        (59.94, "59.9s"),
        (59.96, "1m"),
        (320, "5m 20s"),
        (3599.9, "1h"),
        (11520, "3h 12m"),
        (86400, "1d"),
        (187200, "2d 4h"),
        (-90, "-1m 30s"),
    ],
)
def test_spans_are_readable(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


@given(st.floats(min_value=-1e9, max_value=1e9))
def test_every_span_is_short(seconds: float) -> None:
    assert 2 <= len(span(seconds)) <= 11


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200 + "..."),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (b"\x00\xff", "bytes, 2: 00 ff"),
        (["é" * 500], '["' + "é" * 198 + "..."),
    ],
)
def test_bodies_are_cut_on_a_line(body: object, text: str) -> None:
    assert output.body_text(body) == text


def test_bars_show_the_largest_as_the_highest_and_zero_as_the_lowest() -> None:
    assert sparkline([0, 1, 8], 3) == "▁▂█"
    assert sparkline([5], 3) == "  █"
    assert sparkline([0, 0], 2, is_unicode=False) == "__"
    assert Rates().of("unknown").sent.maxlen == 60


@pytest.fixture
def nasty(app: duly.Duly, shell: Shell) -> dict[str, str]:
    """Fill a queue, a topic and a schedule with control characters, in every field that accepts text."""
    queue = app.queue("orders")
    dead = given_dead(queue, NASTY, NASTY, key=SLY, headers={NASTY: NASTY})
    ready = queue.send(NASTY, id=f"own{SLY}", headers={"h": NASTY})
    queue.send({"delayed": [NASTY, "\U000e0001"]}, delay=600)
    queue.send(b"\x1b\xff")
    topic = app.topic("events")
    topic.group("team").create()
    entry = topic.publish(NASTY, key=SLY, headers={"h": NASTY})
    app.schedule("report", "orders", NASTY, every=600)
    with redis.Redis.from_url(shell.url) as client:
        client.xreadgroup("team", f"consumer{NASTY}", {topic.stream: ">"})
    return {"dead": dead, "ready": ready, "entry": entry}


def commands(nasty: dict[str, str]) -> list[tuple[str, ...]]:
    return [
        ("stats",),
        ("queues",),
        ("workers",),
        ("list", "orders", "ready"),
        ("list", "orders", "delayed"),
        ("list", "orders", "dead"),
        ("show", "orders", nasty["ready"]),
        ("show", "orders", nasty["dead"]),
        ("explain", "orders", nasty["ready"]),
        ("pending", "orders"),
        ("pending", "events/team"),
        ("dead", "ls", "orders"),
        ("dead", "show", "orders", nasty["dead"]),
        ("schedule", "ls"),
        ("topic", "ls"),
        ("topic", "groups", "events"),
        ("topic", "pending", "events", "team"),
        ("topic", "read", "events"),
        ("audit",),
        ("promote", "orders", nasty["ready"]),
        ("receive", "orders", "--limit", "9", "--release"),
    ]


def test_no_command_lets_a_control_character_through(call: Call, nasty: dict[str, str]) -> None:
    for words in commands(nasty):
        done = call(*words)
        assert done.status == 0, (words, done)
        assert unshown(done.out + done.err) == [], words
        as_json = call(*words, "--json")
        assert as_json.status == 0, words
        assert unshown(as_json.out + as_json.err) == [], words
        assert isinstance(json.loads(as_json.out), dict), words  # an object, so that fields can be added


def test_errors_let_no_control_character_through(call: Call, nasty: dict[str, str]) -> None:
    for words in (
        ("show", "orders", NASTY),
        ("stats", NASTY),
        ("send", "q", "x", "--delay", NASTY),
        ("send", "q", f"@{NASTY.replace(chr(0), '')}"),
        ("topic", "seek", "events", NASTY, "end"),
        ("schedule", "rm", NASTY),
        ("stats", "--url", f"redis://{NASTY}:x"),
    ):
        done = call(*words)
        assert done.status in (1, 2), words
        assert unshown(done.err) == [], (words, done.err)


def test_an_ascii_terminal_gets_ascii_and_json_stays_json(shell: Shell, nasty: dict[str, str]) -> None:
    table = shell.run_in_ascii("list", "orders", "ready", "--limit", "9")
    fields = shell.run_in_ascii("list", "orders", "ready", "--json")
    taken = shell.run_in_ascii("receive", "orders", "--limit", "9")

    assert (table.status, fields.status, taken.status) == (0, 0, 0), (table, fields, taken)
    assert max(map(len, table.lines)) <= 60
    assert [each["body"] for each in fields.json["messages"]] == [NASTY, {"base64": "G/8="}]
    assert "\\x1b[31mred" in taken.out


def test_characters_outside_the_encoding_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "gbk"))

    assert output.visible("订单😀") == "订单\\U0001f600"
    assert output.json_text({"订单": "好😀"}) == '{"订单": "好\\ud83d\\ude00"}'


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_tables_fit_the_terminal_and_ids_are_whole(
    call: Call, app: duly.Duly, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    queue = app.queue("a-queue-with-a-long-name." + "x" * 60)
    dead = given_dead(queue, {"long": "body " * 50}, "error " * 30, key="key-" * 10)
    ready = queue.send("漢字 " * 60, key="key-" * 10)
    held = queue.send("held")
    queue.receive(2, 0)
    later = queue.send("later", delay=1e7)
    topic = app.topic("a-topic-with-a-long-name")
    topic.group("a-group-with-a-long-name").create()
    entry = topic.publish("entry " * 40, key="key-" * 10)
    app.schedule("a-schedule-with-a-long-name", queue.name, "body " * 40, cron="0 3 * * 1-5", tz="Asia/Shanghai")
    worker = WorkerInfo("w", "host" * 10, 123456, ("queue",) * 20, 10, 3, 10**9, datetime.now(UTC), 1.0, 1.0, "0.1.0")
    monkeypatch.setattr(duly.Duly, "workers", lambda _: [worker])

    tables = {
        ("stats",): "1",
        ("list", queue.name, "leased"): ready,
        ("list", queue.name, "delayed"): later,
        ("list", queue.name, "dead"): dead,
        ("dead", "ls", queue.name): dead,
        ("pending", queue.name): held,
        ("show", queue.name, dead): dead,
        ("topic", "ls"): "a-topic",
        ("topic", "groups", topic.name): "a-group",
        ("topic", "read", topic.name): entry,
        ("schedule", "ls"): "a-sche",
        ("workers",): "123456",
        ("audit",): "right",
    }
    for words, told in tables.items():
        done = call(*words, columns=columns)
        assert done.status == 0, (words, done)
        assert told in done.out, words
        assert max(cell_len(line) for line in done.out.splitlines()) <= columns, (words, done.out)


def test_a_pipe_gets_whole_rows(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send("word " * 30)

    assert "word " * 30 in shell.ok("list", "orders", "ready").out
