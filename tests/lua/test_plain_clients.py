"""Programs that use the same stream with plain commands: they add, hold, claim, trim and remove entries."""

import struct
from typing import Any

import pytest

from duly._core import codec, ops, topic_ops
from duly._core.publishing import opened
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Group, Refused, Topic, bodies_of, ids_of, settles_of

MS = NOW // 1000
MINUTE = 60 * SECOND


def _read_plain(group: Group, consumer: str | bytes = "plain", count: int = 10) -> list[str]:
    """Read as a plain consumer of the same group does."""
    run = group.topic.wire.run
    found = run("XREADGROUP", "GROUP", group.name, consumer, "COUNT", count, "STREAMS", group.topic.keys.stream, ">")
    return [id_.decode() for id_, _ in found[0][1]] if found else []


# Entries that they add


def test_fields_without_a_body_are_the_body(any_topic: Topic) -> None:
    group = any_topic.group()
    any_topic.run("XADD", "*", "temperature", "21.5", "raw", b"\xff\0", "key", "k", "header:a", "b", "sent", "5")
    (record,) = group.claim().records
    found = codec.read_record(record)
    assert found.envelope.content == codec.CONTENT_FIELDS
    body = {"temperature": "21.5", "raw": b"\xff\0", "key": "k", "sent": "5"}
    assert codec.decoder_of(None)(found.envelope.content, found.envelope.body) == body
    assert (found.key, found.envelope.headers, found.sent) == (None, {"a": "b"}, NOW)
    ((_, fields),) = any_topic.read().entries
    shown = opened(fields)  # as a read without a group returns it
    assert shown == (codec.CONTENT_FIELDS, found.envelope.body, None, {"a": "b"}, None)


def test_headers_alone_are_an_entry_with_nothing_in_it(topic: Topic) -> None:
    group = topic.group()
    topic.run("XADD", "*", "header:a", "b")
    (record,) = group.claim().records
    found = codec.read_record(record).envelope
    assert (codec.read_fields(found.body), found.headers) == ({}, {"a": "b"})


def test_a_filter_compares_the_headers_of_the_message(any_topic: Topic) -> None:
    group = any_topic.group(wanted=["region", "eu", "region", "\\xff", "kind", "a"])
    entries: list[list[str | bytes]] = [
        ["temperature", "1", "header:region", "eu", "header:kind", "a"],
        ["temperature", "2", "header:region", "us", "header:kind", "a"],
        ["body", "3", "header:region", b"\xff", "header:kind", "a"],
        ["body", "4", "header:region", "us", "header:region", "eu", "header:kind", "a"],
        ["body", "5", "header:region", "eu", "header:region", "us", "header:kind", "a"],
        ["body", "6", "header:region", "eu"],
        ["body", "7", "region", "eu", "kind", "a"],
        ["temperature", "8", "region", "eu", "kind", "a"],
    ]
    ids = [any_topic.run("XADD", "*", *fields).decode() for fields in entries]
    claimed = group.claim()
    assert ids_of(claimed) == [ids[0], ids[2], ids[3]]
    regions = [(codec.read_record(record).envelope.headers or {})["region"] for record in claimed.records]
    assert regions == ["eu", "\\xff", "eu"]
    assert group.dump().stats["filtered"] == 5


@pytest.mark.parametrize(("field", "content"), [("body", codec.CONTENT_JSON), ("bytes", codec.CONTENT_BYTES)])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, 70_000])
def test_a_body_of_any_size_is_unchanged(topic: Topic, field: str, content: int, size: int) -> None:
    group = topic.group()
    topic.run("XADD", "*", field, b"\xfe" * size)
    topic.run("XADD", "*", field, b"\xfe" * size, "header:h", "v", "key", "k")
    plain, rich = (codec.read_record(record) for record in group.claim().records)
    assert plain.envelope == codec.Envelope(content, b"\xfe" * size)
    assert rich.envelope == codec.Envelope(content, b"\xfe" * size, {"h": "v"})
    assert rich.key == "k"


@pytest.mark.parametrize(
    ("key", "lane"),
    [
        (b"", None), (b"a\0b", None), (b"a\nb", None), (b"\x7f", None), (b"x" * 1025, None), (b"x" * 70_000, None),
        (b"x" * 1024, "x" * 1024), (b"k\xff", "k\\xff"), ("schlüssel €😀".encode(), "schlüssel €😀"),
        (b"\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82", "\\xc0\\x80\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xe2\\x82"),
    ],
    ids=lambda value: repr(value)[:12],
)  # fmt: skip
def test_any_key_can_be_borne(topic: Topic, clock: ServerClock, key: bytes, lane: str | None) -> None:
    group = topic.group()
    for number in range(3):
        topic.run("XADD", "*", "bytes", b"%d" % number, "key", key)
    claimed = group.claim()
    assert len(claimed.ids) == (3 if lane is None else 1)
    assert codec.read_record(claimed.records[0]).key == lane
    assert set(group.dump().lanes) == ({lane} if lane else set())
    look = ops.pending(group.keys, 0, 10)
    assert [row.id for row in look.decode(group.call(look))] == ids_of(claimed)
    group.call(ops.retry(group.keys, [(settle, 0, "boom", "") for settle in settles_of(claimed)]))
    clock.freeze(NOW + MINUTE)
    assert group.drain() == [b"0", b"1", b"2"]


def test_a_header_that_is_not_text_is_escaped_as_in_a_read(topic: Topic) -> None:
    group = topic.group()
    values = [b"\xff", b"a\x80b\xc3", "ü€😀".encode(), b"\xe2\x82\xac\xe2\x82", b"\xf0\x9f\x98"]
    fields = [text for at, value in enumerate(values) for text in (b"header:%d\xfe" % at, value)]
    topic.run("XADD", "*", "body", "1", *fields)
    (record,) = group.claim().records
    ((_, found),) = topic.read().entries
    assert codec.read_record(record).envelope.headers == opened(found).headers
    assert codec.read_record(record).envelope.headers == {
        "0\\xfe": "\\xff",
        "1\\xfe": "a\\x80b\\xc3",
        "2\\xfe": "ü€😀",
        "3\\xfe": "€\\xe2\\x82",
        "4\\xfe": "\\xf0\\x9f\\x98",
    }


@pytest.mark.parametrize("sent", ["nan", "inf", "-1", "1e300", "0x10", "x", "", "9" * 30])
def test_an_invalid_time_is_replaced_by_that_of_the_entry(topic: Topic, sent: str) -> None:
    group = topic.group()
    topic.run("XADD", "*", "bytes", "a", "sent", sent)
    claimed = group.claim()
    assert codec.read_record(claimed.records[0]).sent == NOW
    ((_, fields),) = topic.read().entries
    assert opened(fields).sent is None
    group.call(ops.release(group.keys, settles_of(claimed)))
    assert group.held_bodies() == [b"a"]


@pytest.mark.parametrize("id_", ["1-1", "5", f"{MS + 10**9}-7", "18446744073709551614-18446744073709551614"])
def test_an_entry_may_have_any_id(any_topic: Topic, clock: ServerClock, id_: str) -> None:
    group = any_topic.group()
    real = any_topic.run("XADD", id_, "bytes", "a").decode()
    claimed = group.claim()
    assert ids_of(claimed) == [real]
    group.call(ops.release(group.keys, settles_of(claimed)))
    assert ids_of(group.claim()) == [real]
    clock.freeze(NOW + MINUTE)
    claimed = group.claim()
    assert ids_of(claimed) == [real]
    assert struct.unpack_from("<d", claimed.records[0])[0] == pytest.approx(int(real.partition("-")[0]) * 1000)
    assert group.ack(settles_of(claimed)) == []


def test_an_entry_may_have_thousands_of_fields(topic: Topic) -> None:
    group = topic.group()
    topic.run("XADD", "*", *(text for number in range(10_000) for text in (f"f{number}", "v")))
    topic.run("XADD", "*", "body", "1", *(text for number in range(10_000) for text in (f"header:{number}", "v")))
    fields, headers = (codec.read_record(record).envelope for record in group.claim().records)
    assert len(codec.read_fields(fields.body)) == 10_000
    assert headers.headers is not None
    assert len(headers.headers) == 10_000


# Entries that they hold


def test_no_consumer_gets_an_entry_of_another(any_topic: Topic) -> None:
    group = any_topic.group()
    ids = any_topic.publish(*[b"."] * 30)
    ours, theirs = ids_of(group.claim(10)), _read_plain(group, count=10)
    assert (ours, theirs) == (ids[:10], ids[10:20])
    assert ids_of(group.claim(100)) == ids[20:]
    assert any_topic.run("XACK", group.name, *theirs) == 10
    assert set(group.pending()) == set(ours) | set(ids[20:])
    page = any_topic.call(topic_ops.foreign_pending(group.keys, "-", 100))
    assert page.rows == []


def test_entries_that_others_hold_are_listed_in_pages(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    ids = topic.publish(*[b"."] * 12)
    group.claim(2)
    _read_plain(group, b"p\xff", 3)
    _read_plain(group, "q", 100)
    clock.freeze(NOW + 3 * SECOND)
    rows, begin = [], "-"
    while True:
        page = topic.call(topic_ops.foreign_pending(group.keys, begin, 5))
        rows += page.rows
        if not page.last:
            break
        begin = f"({page.last}"
    assert [(row.id, row.idle, row.deliveries) for row in rows] == [(id_, 3.0, 1) for id_ in ids[2:]]
    assert [row.consumer for row in rows] == ["p\\xff"] * 3 + ["q"] * 7
    assert topic.call(topic_ops.foreign_pending(topic.group("none").keys, "-", 5)).rows == []


def test_a_silent_consumer_is_taken_over_after_the_lease_and_not_before(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group(crash_limit=3)
    group.claim()
    ids = any_topic.publish(b"a", b"b")
    assert _read_plain(group) == ids
    behind = any_topic.publish(b"behind")
    clock.freeze(NOW + 30 * SECOND - 1000)
    assert ids_of(group.claim()) == behind
    assert set(group.pending().values()) == {"plain", "c"}
    clock.freeze(NOW + 50 * SECOND)
    claimed = group.claim(1, consumer="d")
    assert [(each.id, each.consumer, each.is_dead) for each in claimed.reclaimed] == [
        (ids[0], "plain", False), (ids[1], "plain", False)
    ]  # fmt: skip
    assert claimed.reclaimed[0].overdue == pytest.approx(20, abs=0.01)
    assert ids_of(claimed) == ids[:1]
    assert codec.read_counts(claimed.counts[0]).crashes == 1
    assert "plain" not in group.consumers()
    assert group.dump().stats["crashed"] == 2
    assert ids_of(group.claim(consumer="d")) == ids[1:]
    assert group.ack(settles_of(claimed)) == []


def test_a_consumer_may_have_any_name(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    group.claim()
    topic.publish(b"a")
    run = topic.wire.run
    run("XREADGROUP", "GROUP", group.name, b"p\xff \0", "STREAMS", topic.keys.stream, ">")
    clock.freeze(NOW + MINUTE)
    claimed = group.claim()
    assert [each.consumer for each in claimed.reclaimed] == ["p\\xff \0"]
    assert group.ack(settles_of(claimed)) == []
    assert group.consumers() == {"c"}


def test_a_group_of_another_program_may_have_any_name(topic: Topic) -> None:
    topic.run("XGROUP CREATE", b"p\xff", "0", "MKSTREAM")
    topic.publish(b"a")
    bound = Topic(topic.wire, topic.keys.topic, keep=Keep(count=0))
    bound.sequence = 100
    bound.tidy()
    found = topic.stats()
    assert [(row.name, row.missed) for row in found.groups] == [("p\\xff", 1)]
    assert found.fields["missed:p\\xff"] == "1"


def test_a_consumer_that_is_not_silent_is_left_alone(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    group.claim()
    (id_,) = topic.publish(b"a")
    _read_plain(group)
    for number in range(1, 6):
        clock.freeze(NOW + number * 20 * SECOND)
        topic.run("XCLAIM", group.name, "plain", 0, id_, "JUSTID")
        assert group.claim().ids == []
    assert group.pending() == {id_: "plain"}


def test_an_entry_that_was_delivered_too_often_is_dead(topic: Topic, clock: ServerClock) -> None:
    group = topic.group(crash_limit=3)
    group.claim()
    (id_,) = topic.publish(b"a", key="k")
    topic.publish(b"b", key="k")
    _read_plain(group, count=1)
    for _ in range(2):
        topic.run("XCLAIM", group.name, "plain", 0, id_)
    clock.freeze(NOW + MINUTE)
    claimed = group.claim()
    assert [(each.id, each.is_dead) for each in claimed.reclaimed] == [(id_, True)]
    assert list(bodies_of(claimed).values()) == [b"b"]
    assert group.dump().why[id_].reason == "poison"
    group.call(ops.redrive(group.keys, 1))
    group.ack(settles_of(claimed))
    assert group.drain() == [b"a"]


def test_taking_over_is_bounded_and_continues_at_once(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group()
    group.claim()
    ids = any_topic.publish(*[b"."] * 1000) + any_topic.publish(*[b"."] * 234)
    _read_plain(group, count=2000)
    clock.freeze(NOW + MINUTE)
    found: list[str] = []
    for _ in range(13):
        claimed = group.claim(1000)
        assert len(claimed.reclaimed) <= 100
        found += ids_of(claimed)
        assert claimed.next_in == 0 or len(found) == 1234
    assert found == ids
    assert "plain" not in group.consumers()


def test_leases_of_duly_do_not_hide_entries_that_others_hold(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    topic.publish(*[b"."] * 1000)
    topic.publish(*[b"."] * 500)
    group.take(1000, lease=3600)
    group.take(400, lease=3600)
    theirs = _read_plain(group, count=1000)
    assert len(theirs) == 100
    clock.freeze(NOW + MINUTE)
    found = [settle.id for _ in range(4) for settle in group.take(100)]
    assert found == theirs


def test_entries_of_a_silent_consumer_that_were_trimmed_are_not_taken_over(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    group.claim()
    topic.publish(b"a", b"b")
    _read_plain(group)
    topic.run("XTRIM", "MAXLEN", 1)
    clock.freeze(NOW + MINUTE)
    assert group.held_bodies() == [b"b"]
    assert len(group.pending()) == 1
    assert group.consumers() == {"c"}


def test_entries_that_were_taken_over_are_not_read_again_after_a_seek(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    group.claim()
    ids = topic.publish(b"a", b"b", b"c")
    _read_plain(group, count=2)
    clock.freeze(NOW + MINUTE)
    (first,) = group.take(1)  # and the second waits
    group.seek("0")
    assert ids_of(group.claim()) == ids[1:]
    assert group.ack([first]) == []


def test_a_waiting_message_that_others_read_again_is_not_stuck(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    (id_,) = topic.publish(b"a")
    group.call(ops.retry(group.keys, [(settle, 3600, "boom", "") for settle in group.take()]))
    topic.run("XGROUP SETID", group.name, "0")
    assert _read_plain(group) == [id_]
    clock.freeze(NOW + MINUTE)
    assert group.claim().ids == []
    assert (group.pending(), "plain" in group.consumers()) == ({}, False)
    assert group.dump().places(id_) == ["waiting0"]


@pytest.mark.parametrize("command", ["XCLAIM", "XAUTOCLAIM"])
@pytest.mark.parametrize("acks", [False, True], ids=["holds", "acks"])
def test_a_leased_entry_that_another_program_claims_can_still_be_settled(
    any_topic: Topic, command: str, acks: bool
) -> None:
    group = any_topic.group()
    (id_,) = any_topic.publish(b"a")
    (settle,) = group.take()
    any_topic.run(command, group.name, "thief", 0, id_)
    assert group.pending() == {id_: "thief"}
    if acks:
        any_topic.run("XACK", group.name, id_)
    assert group.call(ops.extend(group.keys, [(settle, 60)])) == []
    assert group.pending() == ({} if acks else {id_: "c"})
    assert group.ack([settle]) == []
    assert (group.pending(), group.dump().msgs) == ({}, {})


def test_a_lease_that_other_programs_claimed_is_reclaimed(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group()
    (id_,) = any_topic.publish(b"a")
    group.take()
    any_topic.run("XCLAIM", group.name, "thief", 0, id_)
    clock.freeze(NOW + MINUTE)
    claimed = group.claim(consumer="d")
    assert ids_of(claimed) == [id_]
    assert group.ack(settles_of(claimed)) == []


# Entries and groups that they remove


@pytest.mark.parametrize("damage", ["XDEL", "XTRIM", "DEL", "DESTROY"])
@pytest.mark.parametrize("settle", ["ack", "retry", "release", "crash", "reject", "purge", "extend"])
def test_nothing_that_was_read_is_lost(any_topic: Topic, clock: ServerClock, damage: str, settle: str) -> None:
    group = any_topic.group()
    ids = any_topic.publish(b"leased", b"waits", b"dead")
    leased, waits, dead = group.take()
    group.call(ops.retry(group.keys, [(waits, 5, "boom", "")]))
    group.call(ops.reject(group.keys, group.options, [(dead, "bad", "", "")]))
    any_topic.publish(b"k1", b"k2", key="k")
    (lane,) = group.take()
    calls: dict[str, Any] = {
        "XDEL": lambda: any_topic.run("XDEL", *ids),
        "XTRIM": lambda: any_topic.run("XTRIM", "MAXLEN", 0),
        "DEL": lambda: any_topic.run("DEL"),
        "DESTROY": lambda: any_topic.run("XGROUP DESTROY", group.name),
    }
    calls[damage]()
    if settle == "crash":
        clock.freeze(NOW + MINUTE)
    else:
        held = [leased]
        verbs: dict[str, Any] = {
            "ack": ops.ack(group.keys, group.options, held),
            "retry": ops.retry(group.keys, [(leased, 1, "boom", "")]),
            "release": ops.release(group.keys, held),
            "reject": ops.reject(group.keys, group.options, [(leased, "bad", "", "")]),
            "purge": ops.purge(group.keys, "dead", 10),
            "extend": ops.extend(group.keys, [(leased, 1)]),
        }
        answer = group.call(verbs[settle])
        assert answer == ([1, 0] if settle == "purge" else [])
        assert group.ack([lane]) == []
        clock.freeze(NOW + 10 * SECOND)
    again = group.drain()
    wanted = {b"waits", b"k2"}
    if settle in ("retry", "release", "crash", "extend"):
        wanted.add(b"leased")
    if settle == "crash":
        wanted.add(b"k1")
    assert wanted <= set(again)
    group.call(ops.redrive(group.keys, 10))
    again += group.drain()  # a removed group starts over with all entries, even those that were dead
    assert (b"dead" in again) == (settle != "purge" or damage == "DESTROY")
    assert (b"leased" in again) or settle in ("ack", "purge")
    any_topic.publish(b"new")
    assert b"new" in group.drain()


def test_a_group_that_begins_at_the_end_is_made_again_where_it_was(topic: Topic) -> None:
    group = topic.group(start="$")
    group.claim()
    topic.publish(b"a")
    group.ack(group.take())
    topic.publish(b"b")
    topic.run("XGROUP DESTROY", group.name)
    topic.publish(b"c")
    assert group.drain() == [b"b", b"c"]
    topic.run("DEL")
    topic.publish(b"d")
    assert group.drain() == [b"d"]


def test_a_position_that_others_move_is_followed(topic: Topic) -> None:
    group = topic.group()
    ids = topic.publish(b"a", b"b", b"c", b"d")
    (first, second) = group.take(2)
    group.ack([first])
    topic.run("XGROUP SETID", group.name, "0")
    assert ids_of(group.claim()) == [ids[0], *ids[2:]]  # the second is in flight
    assert group.pending() == dict.fromkeys(ids, "c")
    topic.run("XGROUP SETID", group.name, "$")
    assert group.ack([second]) == []


def test_a_stream_of_another_type_is_refused_and_held_messages_stay(any_topic: Topic) -> None:
    group = any_topic.group()
    (id_,) = any_topic.publish(b"a")
    (settle,) = group.take()
    any_topic.run("DEL")
    any_topic.wire.run("SET", any_topic.keys.stream, "mine")
    before = group.dump()
    for call in (group.claim_call(), ops.ack(group.keys, group.options, [settle]), ops.release(group.keys, [settle])):
        with pytest.raises(Refused, match="WRONGTYPE"):
            group.call(call)
    assert group.dump().leases == before.leases
    assert group.dump().msgs == before.msgs
    any_topic.run("DEL")
    assert group.ack([settle]) == []
    assert group.dump().places(id_) == []
    any_topic.wire.run("SET", any_topic.keys.stream, "mine")
    assert group.call(ops.delete(group.keys)) > 0
    assert any_topic.wire.run("GET", any_topic.keys.stream) == b"mine"


def test_a_large_entry_that_is_taken_over_sets_the_field_large(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    group.claim()  # creates the group
    topic.run("XADD", "*", "body", b'"' + b"x" * 10_000 + b'"')
    _read_plain(group)
    clock.freeze(NOW + 5 * MINUTE)

    assert len(ids_of(group.claim())) == 1

    assert group.dump().meta["large"] == "1"
