"""Publishing and reading without a group: order, ids, repeats, dedup windows, delayed publishes."""

from collections.abc import Callable
from typing import Any

import pytest

from duly._core import ops, topic_ops
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Refused, Topic, Wire, bodies_of, fill
from tests.lua.test_pending_list import VERBS

MS = NOW // 1000


def _read_bodies(topic: Topic, begin: str = "-", limit: int = 100) -> list[bytes]:
    return [fields[1] for _, fields in topic.read(begin, limit).entries]


# Now


def test_entries_have_the_order_of_the_call_and_ids_of_the_server(topic: Topic) -> None:
    ids = topic.publish(*(b"%d" % number for number in range(120)))
    assert ids == [f"{MS}-{number}" for number in range(120)]
    assert topic.ids() == ids
    assert _read_bodies(topic, limit=1000) == [b"%d" % number for number in range(120)]
    assert topic.stats().fields["published"] == "120"


def test_fields_are_those_that_were_given(topic: Topic) -> None:
    (id_,) = topic.publish(b"\xff\0", key="k", headers={"region": "eu", "": "x"})
    fields = [b"bytes", b"\xff\0", b"key", b"k", b"header:region", b"eu", b"header:", b"x"]
    assert topic.run("XRANGE", "-", "+") == [[id_.encode(), fields]]


def test_a_repeat_of_a_lost_reply_stores_nothing_twice(topic: Topic) -> None:
    call = topic.publish_call(b"a", b"b", dedup="x")
    ids = topic.call(call, sequence=5)
    assert topic.call(call, sequence=5) == ids
    assert topic.ids() == ids[:1]
    assert topic.stats().fields["published"] == "1"
    with pytest.raises(Refused, match="OVERTAKEN"):
        topic.call(call, sequence=4)
    assert topic.ids() == ids[:1]


def test_a_dedup_value_gives_the_first_id_until_its_window_ends(topic: Topic, clock: ServerClock) -> None:
    first = topic.publish(b"a", dedup="x", dedup_for=10)
    assert topic.publish(b"b", b"c", dedup="x") == first * 2
    clock.freeze(NOW + 10 * SECOND - 1)
    assert topic.publish(b"d", dedup="x") == first
    clock.freeze(NOW + 10 * SECOND)
    again = topic.publish(b"e", dedup="x")
    assert topic.ids() == [*first, *again]
    assert topic.stats().fields["duplicates"] == "3"
    assert topic.publish(b"f", dedup="y") != first  # another value


def test_a_dedup_window_is_shared_with_delayed_publishes(topic: Topic) -> None:
    assert topic.publish_later("late", delay=5, dedup="x") == ["late"]
    assert topic.publish(b"now", dedup="x") == ["late"]
    (first,) = topic.publish(b"now", dedup="y")
    assert topic.publish_later("late2", delay=5, dedup="y") == [first]
    assert topic.ids() == [first]
    assert topic.stats().delayed == 1


def test_ended_dedup_windows_are_closed(topic: Topic, clock: ServerClock) -> None:
    for number in range(5):
        topic.publish(b"a", dedup=f"x{number}", dedup_for=1)
    clock.freeze(NOW + 2 * SECOND)
    assert topic.tidy() is False
    assert topic.wire.run("EXISTS", topic.keys.key("dedup"), topic.keys.key("dedup_ends")) == 0


def test_an_entry_with_too_many_fields_is_refused_before_anything_is_written(topic: Topic) -> None:
    fine = topic_ops.Publication(["bytes", b"fine"])
    many = topic_ops.Publication(["bytes", b"x", *(f"header:{number}" for number in range(20_000))])
    with pytest.raises(Refused, match="10001 fields"):
        topic.call(topic_ops.publish(topic.keys, [fine, many], topic.keep))
    assert topic.ids() == []
    most = topic_ops.Publication(["bytes", b"x", *(f"header:{number}" for number in range(6_900))])
    topic.call(topic_ops.publish(topic.keys, [fine, most], topic.keep))
    assert len(topic.ids()) == 2


def test_a_stream_of_another_type_refuses_and_nothing_is_written(topic: Topic) -> None:
    topic.wire.run("SET", topic.keys.stream, "mine")
    with pytest.raises(Refused, match="WRONGTYPE"):
        topic.publish(b"a", dedup="x")
    assert topic.wire.run("KEYS", topic.keys.prefix + b"*") == [topic.keys.stream]


def test_bodies_alone_take_the_short_way_to_the_same(topic: Topic) -> None:
    plain = [topic_ops.Publication(("body", b"%d" % number)) for number in range(3)]
    call = topic_ops.publish(topic.keys, plain, topic.keep)
    ids = topic.call(call)
    assert topic.call(call, sequence=topic.sequence) == ids
    assert topic.run("XRANGE", "-", "+") == [[id_.encode(), [b"body", b"%d" % at]] for at, id_ in enumerate(ids)]
    assert topic.stats().fields["published"] == "3"
    topic.call(topic_ops.publish(topic.keys, [topic_ops.Publication(("body", b"." * 5_000_000))], topic.keep))
    assert int(topic.stats().fields["largest"]) >= 5_000_000


def test_a_repeat_of_a_delete_keeps_entries_that_were_published_since(topic: Topic) -> None:
    topic.publish(b"a")
    call = topic_ops.delete(topic.keys)
    removed = topic.call(call, stream=b"slow", sequence=1)
    ids = topic.publish(b"b")
    assert topic.call(call, stream=b"slow", sequence=1) == removed
    assert topic.ids() == ids


# Later


def test_a_delayed_publish_enters_at_its_due_time_and_not_before(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    topic.publish_later("late", delay=5, body=b"late", key="k", headers={"a": "b", "c": "d"})
    due = int(float(topic.wire.run("ZSCORE", topic.keys.key("waiting0"), "late")))
    assert due == NOW + 5 * SECOND
    assert group.claim().next_in == pytest.approx(5, abs=0.001)
    clock.freeze(due - 1000)
    assert (topic.read().entries, topic.tidy(), group.claim().ids) == ([], False, [])
    assert topic.publish(b"now") == topic.ids()
    clock.freeze(due)
    claimed = group.claim()
    assert list(bodies_of(claimed).values()) == [b"now", b"late"]
    (entry,) = topic.run("XRANGE", f"{(NOW + 5 * SECOND) // 1000}", "+")
    fields = dict(zip(entry[1][0::2], entry[1][1::2], strict=True))
    assert fields == {b"bytes": b"late", b"key": b"k", b"sent": b"%d" % NOW, b"header:a": b"b", b"header:c": b"d"}
    assert topic.stats().delayed == 0
    assert topic.wire.run("EXISTS", topic.keys.key("msgs"), topic.keys.key("waiting0")) == 0


@pytest.mark.parametrize("by", ["publish", "read", "tidy", "claim"])
def test_the_first_call_adds_a_due_publish(topic: Topic, clock: ServerClock, by: str) -> None:
    topic.publish_later("late", delay=5)
    clock.freeze(NOW + 6 * SECOND)
    calls: dict[str, Callable[[], Any]] = {
        "publish": lambda: topic.publish(b"x"), "read": topic.read, "tidy": topic.tidy, "claim": topic.group().claim
    }  # fmt: skip
    calls[by]()
    assert len(topic.ids()) == 1 + (by == "publish")
    assert topic.stats().fields["entered"] == "1"
    assert topic.stats().fields["bytes"] == "0"


def test_delayed_publishes_enter_in_the_order_of_their_times(topic: Topic, clock: ServerClock) -> None:
    for number, delay in enumerate((3, 1, 2, 1)):
        topic.publish_later(f"id{9 - number}", delay=delay, body=b"%d" % number)
    clock.freeze(NOW + 10 * SECOND)
    assert _read_bodies(topic) == [b"1", b"3", b"2", b"0"]


@pytest.mark.parametrize("kind", ["plain", "rich"])
def test_due_publishes_enter_before_the_entries_of_the_call(topic: Topic, clock: ServerClock, kind: str) -> None:
    topic.publish_later("late", delay=5, body=b"due")
    clock.freeze(NOW + 6 * SECOND)
    field = "body" if kind == "plain" else "bytes"
    later = topic_ops.publish(topic.keys, [topic_ops.Publication((field, b"later"))], topic.keep)
    (id_,) = topic.call(later)
    assert _read_bodies(topic) == [b"due", b"later"]
    assert topic.ids()[1] == id_


def test_a_refused_publish_adds_no_due_publishes(topic: Topic, clock: ServerClock) -> None:
    topic.publish_later("late", delay=5)
    clock.freeze(NOW + 6 * SECOND)
    many = topic_ops.Publication(["bytes", b"x", *(f"header:{number}" for number in range(20_000))])
    with pytest.raises(Refused, match="10001 fields"):
        topic.call(topic_ops.publish(topic.keys, [many], topic.keep))
    assert (topic.ids(), topic.stats().delayed) == ([], 1)


def test_a_call_adds_a_bounded_number_of_due_publishes(topic: Topic, clock: ServerClock) -> None:
    def publish_later() -> None:
        for first in (0, 1000, 2000):
            topic.publish_later(*(f"id{number:04}" for number in range(first, min(first + 1000, 2500))), delay=1)

    publish_later()
    clock.freeze(NOW + 2 * SECOND)
    assert [len(topic.read(limit=5000).entries) for _ in range(4)] == [1000, 2000, 2500, 2500]
    publish_later()
    clock.freeze(NOW + 4 * SECOND)
    assert (topic.read(limit=1).next_in, topic.tidy(), topic.tidy(), topic.tidy()) == (0, True, False, False)


def test_how_large_it_is_is_known_when_it_enters(topic: Topic, clock: ServerClock) -> None:
    topic.publish_later("small", delay=1, body=b"." * 100, key="k", headers={"a": "b"})
    topic.publish(b"." * 300)
    topic.publish_later("large", delay=2, body=b"." * 1000, key="k", headers={"a": "b"})
    found = []
    for microseconds in (1_500_000, 3_000_000):
        clock.freeze(NOW + microseconds)
        topic.tidy()
        found.append(int(topic.stats().fields["largest"]))
    assert found == [305, 1005 + 4 + 20 + 9]  # the field, its value; key; sent; header
    topic.publish(b"." * 300)
    assert int(topic.stats().fields["largest"]) == found[1]


@pytest.mark.parametrize("by", ["publish", "tidy"])
def test_a_stream_that_takes_nothing_loses_nothing(topic: Topic, clock: ServerClock, by: str) -> None:
    topic.publish_later("a", "b", delay=1)
    topic.wire.run("SET", topic.keys.stream, "mine")
    clock.freeze(NOW + 2 * SECOND)
    if by == "tidy":
        with pytest.raises(Refused, match="WRONGTYPE"):
            topic.tidy()
    else:
        with pytest.raises(Refused, match="WRONGTYPE"):
            topic.publish(b"c")
    assert topic.wire.run("ZCARD", topic.keys.key("waiting0")) == 2
    assert topic.wire.run("HEXISTS", topic.keys.key("meta"), "buried") == 0
    topic.run("DEL")
    assert _read_bodies(topic) == [b"body", b"body"]


def test_a_call_adds_a_bounded_number_of_bytes_of_due_publishes(topic: Topic, clock: ServerClock) -> None:
    for number in range(10):
        topic.publish_later(f"id{number}", delay=1, body=b"." * 1_000_000)
    clock.freeze(NOW + 2 * SECOND)
    assert topic.tidy() is True
    assert len(topic.ids()) == 5
    assert topic.tidy() is False
    assert len(topic.ids()) == 10


def test_delayed_publishes_can_be_cancelled(topic: Topic, clock: ServerClock) -> None:
    topic.publish_later("a", "b", delay=5, key="k")
    topic.publish_later("c", delay=5, dedup="x")
    cancel = ops.cancel(topic.keys, "a")
    assert (topic.call(cancel), topic.call(cancel)) == (True, False)
    assert topic.call(ops.cancel(topic.keys, "c")) is True
    assert len(topic.publish(b"again", dedup="x")) == 1  # its value is free again
    clock.freeze(NOW + 6 * SECOND)
    assert _read_bodies(topic) == [b"again", b"body"]


@pytest.mark.parametrize("body", [b"", b"." * 255, b"." * 256, b"." * 65536])
def test_bodies_of_any_size_survive_the_wait(topic: Topic, clock: ServerClock, body: bytes) -> None:
    topic.publish_later("late", delay=1, body=body, headers={"name": "w" * 300}, dedup="x", key="k")
    clock.freeze(NOW + 2 * SECOND)
    (entry,) = topic.read().entries
    assert entry[1][:4] == [b"bytes", body, b"key", b"k"]
    assert entry[1][-2:] == [b"header:name", b"w" * 300]


@pytest.mark.parametrize("damage", [b"short", b"." * 19, b"." * 40, b"\0" * 19 + b"\x92\x01\xc4\xff."], ids=len)
def test_a_damaged_record_does_not_stop_other_publishes(topic: Topic, clock: ServerClock, damage: bytes) -> None:
    topic.publish_later("bad", "good", delay=1)
    topic.wire.run("HSET", topic.keys.key("msgs"), "bad", damage)
    clock.freeze(NOW + 2 * SECOND)
    assert _read_bodies(topic) == [b"body"]
    assert topic.group().held_bodies() == [b"body"]
    assert topic.stats().fields["buried"] == "1"
    assert topic.wire.run("HKEYS", topic.keys.key("msgs")) == [b"bad"]  # the rest of the record can be inspected


# Reading


def test_a_read_removes_nothing_and_begins_at_the_given_position(topic: Topic) -> None:
    ids = topic.publish(b"a", b"b", b"c")
    assert _read_bodies(topic) == _read_bodies(topic) == [b"a", b"b", b"c"]
    assert _read_bodies(topic, f"({ids[0]}") == [b"b", b"c"]
    assert _read_bodies(topic, ids[1]) == [b"b", b"c"]
    assert _read_bodies(topic, limit=1) == [b"a"]
    assert _read_bodies(topic, "$") == []
    assert topic.read("$").position[0].decode() == ids[2]


def test_a_reading_is_bounded_in_bytes(topic: Topic) -> None:
    topic.publish(*[b"." * 1_000_000] * 10)
    assert len(topic.read().entries) == 4


# A full server


def _everything(topic: Topic) -> list[Any]:
    run, key = topic.wire.run, topic.keys.key
    waiting = run("ZRANGE", key("waiting0"), 0, -1)
    return [topic.ids(), waiting, sorted(run("HKEYS", key("msgs"))), run("HGETALL", key("meta"))]


def test_a_full_server_refuses_publishes_and_nothing_else(fillable: Wire, queue_name: str) -> None:
    topic = Topic(fillable, queue_name, keep=None)
    answered = topic.publish_call(b"a", b"b", b"c")
    ids = topic.call(answered, stream=b"other", sequence=1)
    topic.publish_later("late", "bad", delay=0.000001)
    fillable.run("HSET", topic.keys.key("msgs"), "bad", b"damaged")
    before = _everything(topic)
    fill(fillable)
    for refused in (topic.publish_call(b"d"), topic.publish_call(b"d", dedup="x")):
        with pytest.raises(Refused, match="OOM"):
            topic.call(refused, sequence=topic.sequence + 1)
    assert topic.call(answered, stream=b"other", sequence=1) == ids
    assert _everything(topic) == before
    assert [fields[1] for _, fields in topic.read().entries] == [b"a", b"b", b"c", b"body"]
    assert topic.stats().fields["buried"] == "1"


def test_a_full_server_drains(fillable: Wire, queue_name: str) -> None:
    topic = Topic(fillable, queue_name, keep=None)
    topic.publish(b"a", b"b", key="k")
    topic.publish(b"c")
    topic.publish_later("late", delay=0.000001, body=b"d")
    fill(fillable)
    assert len(topic.read().entries) == 4  # due publishes enter even so: they add no data
    assert topic.tidy() is False
    group = topic.group()
    (a, c, d) = group.take()
    group.call(ops.retry(group.keys, [(c, 0, "boom", "")]))
    assert group.ack([a, d]) == []
    assert group.drain() == [b"b", b"c"]
    assert topic.ids() == []


def test_every_verb_of_a_group_works_on_a_full_server(fillable: Wire, queue_name: str) -> None:
    held = []
    for verb in VERBS:
        topic = Topic(fillable, f"{queue_name}-{verb}", keep=None)
        topic.publish(b"a", b"b")
        group = topic.group()
        held.append((verb, group, group.take(1)[0]))
    fill(fillable)
    for verb, group, settle in held:
        call = VERBS[verb](group, settle)
        answer = group.call(call, sequence=50)
        after = group.dump()
        assert group.call(call, sequence=50) == answer
        assert group.dump() == after
        assert (settle.id in after.leased) == (verb in ("extend", "progress", "pause"))
        group.call(group.claim_call(), sequence=51)
