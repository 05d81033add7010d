"""Other programs must not be able to reorder or lose entries of a topic, or to block the server."""

import random

import pytest

from duly._core import codec, ops
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Group, Refused, Topic, bodies_of, ids_of, settles_of

MINUTE = 60 * SECOND
MIB = 1 << 20


def _read_by_another(group: Group, count: int, consumer: str = "other") -> None:
    stream = group.topic.keys.stream
    group.wire.run("XREADGROUP", "GROUP", group.name, consumer, "COUNT", count, "STREAMS", stream, ">")


def _one_by_one(group: Group) -> list[int]:
    """Claim one entry after the other, ack each, and return the numbers in their bodies."""
    found: list[int] = []
    while True:
        claimed = group.claim(1)
        found += [int(body) for body in bodies_of(claimed).values()]
        if claimed.ids:
            group.ack(settles_of(claimed))
        elif claimed.next_in != 0:
            return found


# The order of entries that are taken over


@pytest.mark.parametrize("key", [(), ("key", "k")], ids=["without key", "with key"])
def test_entries_from_the_future_are_taken_over_in_the_order_of_the_stream(
    any_topic: Topic, clock: ServerClock, key: tuple[str, ...]
) -> None:
    group = any_topic.group()
    group.seek("0", makes=True)
    any_topic.run("XADD", "99999999999999-0", "body", "0", *key)
    for number in range(1, 21):  # the server goes on from there: 99999999999999-1 ...
        any_topic.run("XADD", "*", "body", number, *key)
    _read_by_another(group, 100)
    clock.freeze(NOW + MINUTE)
    assert _one_by_one(group) == list(range(21))


def test_thousands_of_one_millisecond_are_taken_over_in_the_order_of_the_stream(
    topic: Topic, clock: ServerClock
) -> None:
    group = topic.group()
    group.seek("0", makes=True)
    for first in (0, 600):
        topic.publish(*(b"%d" % number for number in range(first, first + 600)), key="k")
    topic.run("XADD", f"{NOW // 1000 + 1}-0", "body", 1200, "key", "k")
    _read_by_another(group, 2000)
    clock.freeze(NOW + MINUTE)
    assert _one_by_one(group) == list(range(1201))


def test_the_next_of_a_lane_does_not_slip_past_a_suspect_that_was_taken_over(
    any_topic: Topic, clock: ServerClock
) -> None:
    group = any_topic.group(crash_limit=3)
    group.seek("0", makes=True)
    (first,) = any_topic.publish(b"1", key="k")
    _read_by_another(group, 1)
    any_topic.run("XCLAIM", group.name, "another", 0, first)
    any_topic.publish(b"2", key="k")
    any_topic.publish(b"3")
    clock.freeze(NOW + MINUTE)
    assert group.held_bodies(suspects="none") == [b"3"]
    assert ids_of(group.claim(suspects="with")) == [first]
    assert group.dump().lanes == {"k": f"+{first}"}


# Delayed publishes


@pytest.mark.parametrize("damage", ["another type", "no ids left"])
def test_a_stream_that_takes_nothing_loses_nothing_that_waits_for_its_time(
    topic: Topic, clock: ServerClock, damage: str
) -> None:
    group = topic.group()
    topic.publish_later("a", "b", delay=5, body=b"late")
    if damage == "another type":
        topic.run("SET", "x")
    else:
        topic.run("XADD", f"{2**64 - 1}-{2**64 - 1}", "bytes", "last")
    clock.freeze(NOW + MINUTE)
    if damage == "another type":
        with pytest.raises(Refused, match="WRONGTYPE"):
            group.claim()
    else:
        claimed = group.claim(then="watch")
        assert list(bodies_of(claimed).values()) == [b"last"]
        assert claimed.next_in == 1, "it claims again, and does not spin"
    assert topic.wire.run("ZCARD", topic.keys.key("waiting0")) == 2
    topic.run("DEL")
    assert group.held_bodies() == [b"late", b"late"]
    assert "buried" not in topic.stats().fields


# Bounds


def test_megabytes_in_a_key_do_not_stop_the_server(topic: Topic) -> None:
    group = topic.group()
    topic.run("XADD", "*", "body", "1", "key", b"\xff" * 8 * MIB)
    used = topic.wire.cpu_seconds()
    assert group.held_bodies() == [b"1"]
    assert topic.wire.cpu_seconds() - used < 3  # it took longer than a second a megabyte
    assert group.dump().lanes == {}


_PIECES = (
    *(b"a", b"\0", b"\0001;", b";", b"%", b"%0", b"\\", b"\xff", b"\x80", b"\xbf", b"\xc3", b"\xc0\x80", b"\xe0"),
    *(
        b"\xe0\x80",
        b"\xe0\xa0",
        b"\xed\xa0\x80",
        b"\xe2",
        b"\x82\xac",
        b"\xf0",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
    ),
    *(text.encode() for text in ("é", "好", "\ud7ff", "\uffff", "😀", "\U0010ffff")),
)


def test_bytes_that_are_not_text_are_escaped_as_in_python(topic: Topic) -> None:
    group, chance = topic.group(), random.Random(5)
    values = [b"".join(chance.choices(_PIECES, k=chance.randrange(12))) for _ in range(900)]
    for value in values:
        topic.run("XADD", "*", "body", "1", "header:h", value)
    claimed = group.claim(1000)
    found = [codec.read_record(record).envelope.headers for record in claimed.records]
    assert found == [{"h": value.decode(errors="backslashreplace")} for value in values]


def _looks_at_groups(topic: Topic) -> int:
    """Count how often scripts have read all groups of a stream."""
    lines = topic.wire.run("INFO", "commandstats").decode().splitlines()
    rows = [line for line in lines if line.startswith(("cmdstat_xinfo:", "cmdstat_xinfo|groups:"))]
    return sum(int(row.split("calls=")[1].split(",")[0]) for row in rows)


@pytest.mark.parametrize("verb", ["release", "retry", "reject", "purge", "crash", "filter", "seek"])
def test_a_call_reads_all_groups_only_a_few_times_however_much_it_settles(
    freeing: Topic, clock: ServerClock, verb: str
) -> None:
    group = freeing.group(crash_limit=5, wanted=["region", "eu"] if verb == "filter" else ())
    if verb == "seek":  # another group keeps the entries in the stream
        freeing.group("other").seek("0", makes=True)
    freeing.publish(*[b"."] * 90)
    settles = group.take(90) if verb != "filter" else []
    if verb == "seek":
        group.call(ops.retry(group.keys, [(settle, 1000, "e", "t") for settle in settles]))
        group.seek("0")
    if verb == "crash":
        clock.freeze(NOW + MINUTE)
    before = _looks_at_groups(freeing)
    if verb == "release":
        group.call(ops.release(group.keys, settles))
    elif verb == "retry":
        group.call(ops.retry(group.keys, [(settle, 1, "e", "t") for settle in settles]))
    elif verb == "reject":
        group.call(ops.reject(group.keys, group.options, [(settle, "r", "e", "t") for settle in settles]))
    elif verb == "purge":
        group.call(ops.purge(group.keys, "leased", 1000))
    else:
        group.claim(1)
    takes_point = verb in ("crash", "filter")  # the first claim of a minute reads them once more
    assert _looks_at_groups(freeing) - before <= 2 + takes_point
    if verb in ("release", "retry", "reject", "purge", "filter"):
        assert freeing.ids() == []


def test_a_read_is_bounded_in_bytes_even_for_entries_of_other_programs(topic: Topic) -> None:
    for _ in range(30):
        topic.run("XADD", "*", "body", b"." * MIB)
    assert len(topic.read().entries) <= 10
    assert [id_ for id_, _ in topic.read(limit=3).entries] == topic.ids()[:3]


@pytest.mark.parametrize("limit", [1, 9, 10, 11, 30, 31, 100])
def test_a_reading_has_neither_gaps_nor_ends_before_its_limit(topic: Topic, limit: int) -> None:
    ids = topic.publish(*[b"."] * 75)
    found: list[str] = []
    begin = "-"
    while page := topic.read(begin, limit).entries:
        assert len(page) == min(limit, len(ids) - len(found))
        found += [id_ for id_, _ in page]
        begin = f"({found[-1]}"
    assert found == ids
