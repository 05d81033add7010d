"""Retention of entries: until every group has acked them, or by number, age and size; and missed entries."""

import itertools

import pytest

from duly._core import ops
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.conftest import MakeTopic
from tests.lua.harness import NOW, SECOND, Group, Topic

MINUTE = 60 * SECOND


def _missed(topic: Topic) -> dict[str, int]:
    return {row.name: row.missed for row in topic.stats().groups}


def _unread(topic: Topic) -> dict[str, int]:
    return {row.name: row.unread for row in topic.stats().groups}


# Freed when acked


def test_nothing_is_freed_while_there_is_no_group(freeing: Topic) -> None:
    ids = freeing.publish(b"a", b"b")
    freeing.tidy()
    assert freeing.ids() == ids


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_an_entry_is_freed_by_the_last_ack_and_not_before(freeing: Topic, order: tuple[int, ...]) -> None:
    groups = [freeing.group(f"g{number}") for number in range(3)]
    for group in groups:
        group.seek("0", makes=True)
    ids = freeing.publish(b"a", b"b", b"c")
    held = [group.take() for group in groups]
    for number in order[:2]:
        groups[number].ack(held[number])
        assert freeing.ids() == ids
    last = groups[order[2]]
    last.ack(held[order[2]][1:2])  # from the middle
    assert freeing.ids() == ids
    last.ack(held[order[2]][:1])
    assert freeing.ids() == ids[2:]
    last.ack(held[order[2]][2:])
    assert freeing.ids() == []


def test_groups_of_other_programs_count(freeing: Topic) -> None:
    group = freeing.group()
    freeing.run("XGROUP CREATE", "plain", "0", "MKSTREAM")
    ids = freeing.publish(b"a", b"b")
    assert group.drain() == [b"a", b"b"]
    assert freeing.ids() == ids
    freeing.wire.run("XREADGROUP", "GROUP", "plain", "p", "STREAMS", freeing.keys.stream, ">")
    freeing.tidy()
    assert freeing.ids() == ids
    freeing.run("XACK", "plain", ids[0])
    freeing.tidy()
    assert freeing.ids() == ids[1:]
    freeing.run("XACK", "plain", ids[1])
    freeing.tidy()
    assert freeing.ids() == []


def test_claims_free_entries_that_a_group_of_another_program_acks_last(freeing: Topic, clock: ServerClock) -> None:
    group = freeing.group()
    group.claim()
    freeing.run("XGROUP CREATE", "plain", "0")
    ids = freeing.publish(b"a", b"b")
    assert group.drain() == [b"a", b"b"]
    freeing.wire.run("XREADGROUP", "GROUP", "plain", "p", "STREAMS", freeing.keys.stream, ">")
    freeing.run("XACK", "plain", *ids)
    clock.freeze(NOW + 15 * SECOND - 1)
    group.claim(lease=30)
    assert freeing.ids() == ids  # not before the next sweep of a claim
    clock.freeze(NOW + 15 * SECOND + 1000)
    group.call(ops.pause(group.keys, "me"))
    group.claim(lease=30)
    assert freeing.ids() == []


def test_a_group_that_begins_at_the_end_does_not_free_older_entries_at_once(freeing: Topic, clock: ServerClock) -> None:
    freeing.publish(b"a")
    group = freeing.group(start="$")
    group.claim()
    clock.freeze(NOW + 10 * SECOND)
    group.claim()
    assert freeing.group("other").drain() == [b"a"]  # it was created later


def test_claims_free_nothing_that_is_kept(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    ids = topic.publish(b"a")
    group.drain()
    clock.freeze(NOW + MINUTE)
    group.claim()
    assert topic.ids() == ids


def test_a_claim_frees_nothing_that_it_delivers_again(freeing: Topic, clock: ServerClock) -> None:
    group = freeing.group()
    ids = freeing.publish(b"a", b"b")
    group.take(1)
    clock.freeze(NOW + MINUTE)
    assert group.held_bodies() == [b"a", b"b"]
    assert (set(group.pending()), freeing.ids()) == (set(ids), ids)


def test_a_group_that_was_moved_back_reads_the_entries_before_its_pending_ones(freeing: Topic) -> None:
    group, other = freeing.group(), freeing.group("other")
    other.seek("0", makes=True)
    ids = freeing.publish(b"a", b"b", b"c", b"d")
    settles = group.take()
    group.ack(settles[:2])
    group.seek(ids[0])  # after the first; the last two are pending
    assert other.drain() == [b"a", b"b", b"c", b"d"]
    assert freeing.ids() == ids[1:]
    assert group.held_bodies() == [b"b"]


def test_a_group_that_is_deleted_holds_nothing_back(freeing: Topic) -> None:
    group, slow = freeing.group(), freeing.group("slow")
    slow.seek("0", makes=True)
    freeing.publish(b"a")
    group.drain()
    assert len(freeing.ids()) == 1
    slow.call(ops.delete(slow.keys))
    assert freeing.ids() == []


def test_waiting_parked_and_dead_messages_are_in_the_store_of_the_group(freeing: Topic, clock: ServerClock) -> None:
    group = freeing.group()
    freeing.publish(b"1", b"2", key="k")
    freeing.publish(b"3", b"4")
    one, three, four = group.take()
    group.call(ops.retry(group.keys, [(one, 5, "boom", "")]))
    group.call(ops.reject(group.keys, group.options, [(three, "bad", "", "")]))
    assert freeing.ids() == [four.id]
    group.ack([four])
    assert freeing.ids() == []
    clock.freeze(NOW + 6 * SECOND)
    group.call(ops.redrive(group.keys, 1))
    assert sorted(group.drain()) == [b"1", b"2", b"3"]


def test_entries_that_a_filter_skips_are_freed(freeing: Topic) -> None:
    group = freeing.group(wanted=["a", "b"])
    freeing.publish(*[b"."] * 10)
    group.claim()
    assert freeing.ids() == []


def test_memory_returns_to_the_baseline(freeing: Topic) -> None:
    groups = [_at(freeing.group(f"g{number}"), 0) for number in range(3)]

    def through(count: int) -> None:
        for number in range(count // 1000):
            freeing.publish(*[b"." * 100] * 980)
            freeing.publish(*[b"." * 100] * 10, key=f"k{number}")
            freeing.publish(*[b"." * 100] * 10, key=f"l{number}")
        for group in groups:
            assert len(group.drain()) == count

    through(1000)
    baseline = freeing.memory()
    through(10_000)
    assert freeing.ids() == []
    assert freeing.memory() <= baseline + 200


# Bounds


def test_a_number_of_entries_is_kept_exactly(make_topic: MakeTopic) -> None:
    topic = make_topic(keep=Keep(count=5))
    ids = [id_ for _ in range(4) for id_ in topic.publish(b"a", b"b", b"c")]
    assert topic.ids() == ids[-5:]
    assert topic.publish(*[b"."] * 8)[-5:] == topic.ids()
    assert topic.stats().fields["trimmed"] == "15"
    make_topic(keep=Keep(count=0)).tidy()
    assert topic.ids() == []


def test_an_age_is_kept_exactly(make_topic: MakeTopic, clock: ServerClock) -> None:
    topic = make_topic(keep=Keep(age=60))
    old = topic.publish(b"old")
    clock.freeze(NOW + 10 * SECOND)
    young = topic.publish(b"young")
    clock.freeze(NOW + 60 * SECOND)
    topic.tidy()
    assert topic.ids() == old + young
    clock.freeze(NOW + 61 * SECOND + 1000)
    topic.tidy()
    assert topic.ids() == young
    clock.freeze(NOW + 71 * SECOND + 1000)
    assert topic.publish(b"new") == topic.ids()  # a publish trims as well


def test_a_size_is_kept(make_topic: MakeTopic) -> None:
    topic = make_topic(keep=Keep(bytes=100_000))
    ids: list[str] = []
    for _ in range(150):
        ids += topic.publish(b"." * 1000)
        assert topic.run("XLEN") == 1 or topic.wire.run("MEMORY", "USAGE", topic.keys.stream) <= 100_000
    kept = topic.ids()
    assert kept == ids[-len(kept) :]
    assert 60 <= len(kept) <= 100  # not far less than what fits


def test_a_bound_that_nothing_fits_keeps_nothing_and_ends(make_topic: MakeTopic) -> None:
    topic = make_topic(keep=Keep(bytes=1))
    topic.publish(*[b"."] * 500)
    topic.tidy()
    assert topic.run("XLEN") == 0


def test_leased_entries_that_are_trimmed_are_not_lost(make_topic: MakeTopic, clock: ServerClock) -> None:
    topic = make_topic(keep=Keep(count=1))
    group = topic.group(crash_limit=3)
    group.claim()
    topic.publish(b"a")
    (held,) = group.take()
    topic.publish(b"b")
    topic.publish(b"c")
    assert len(topic.ids()) == 1
    clock.freeze(NOW + MINUTE)
    assert group.held_bodies() == [b"a", b"c"]
    assert _missed(topic) == {"g": 1}
    assert group.ack([held]) == [1]


# Missed entries


def _at(group: Group, count: int) -> Group:
    """Let a group read a number of entries."""
    group.seek("0", makes=True)
    while count > 0:
        count -= len(group.take(min(count, 1000)))
    return group


def test_unread_entries_of_a_group_are_counted_as_missed(make_topic: MakeTopic) -> None:
    everything = make_topic(keep=None)
    everything.publish(*[b"."] * 10)
    for read in (0, 3, 4, 5, 10):
        _at(everything.group(f"read{read}"), read)
    trimming = make_topic(keep=Keep(count=6))
    trimming.sequence = 100
    trimming.tidy()  # 4 go
    assert _missed(trimming) == {"read0": 4, "read3": 1, "read4": 0, "read5": 0, "read10": 0}
    trimming.publish(b".", b".")  # 2 more
    assert _missed(trimming) == {"read0": 6, "read3": 3, "read4": 2, "read5": 1, "read10": 0}
    assert _unread(trimming) == {"read0": 6, "read3": 6, "read4": 6, "read5": 6, "read10": 2}
    make_topic(keep=Keep(count=0)).tidy()
    assert _missed(trimming) == {"read0": 12, "read3": 9, "read4": 8, "read5": 7, "read10": 2}
    group = everything.group("read3")
    group.sequence = 100
    stats = ops.stats(group.keys)
    assert stats.decode(group.call(stats)).missed == 9


def test_entries_missed_by_age_and_size_are_counted(make_topic: MakeTopic, clock: ServerClock) -> None:
    topic = make_topic(keep=Keep(age=60))
    topic.publish(b"a", b"b", b"c")
    _at(topic.group("one"), 1)
    clock.freeze(NOW + 2 * MINUTE)
    topic.publish(b"d")
    assert _missed(topic) == {"one": 2}
    sized = make_topic(keep=Keep(bytes=1))
    sized.sequence = 100
    sized.tidy()
    assert _missed(topic) == {"one": 3}


# Unread entries


def test_unread_is_exact_where_that_is_cheap(topic: Topic) -> None:
    ids = [id_ for _ in range(3) for id_ in topic.publish(*[b"."] * 1000)]
    for read in (0, 1, 700, 2500, 3000):
        _at(topic.group(f"read{read}"), read)
    assert _unread(topic) == {"read0": 3000, "read1": 2999, "read700": 2300, "read2500": 500, "read3000": 0}
    topic.run("XDEL", ids[2990])  # now no server reports the lag of a group
    assert _unread(topic) == {"read0": 2999, "read1": 2998, "read700": 2299, "read2500": 499, "read3000": 0}
    topic.run("XGROUP SETID", "read0", ids[9])
    assert _unread(topic)["read0"] == 2989
    topic.run("XTRIM", "MAXLEN", 0)
    assert set(_unread(topic).values()) == {0}


def test_unread_is_estimated_where_counting_is_dear(topic: Topic, clock: ServerClock) -> None:
    for number in range(10):
        clock.freeze(NOW + number * SECOND)
        topic.publish(*[b"."] * 1000)
    group = topic.group()
    group.seek(f"{(NOW + 5 * SECOND) // 1000 - 1}", makes=True)
    topic.run("XGROUP SETID", "g", f"{(NOW + 5 * SECOND) // 1000 - 1}")
    assert 4000 <= _unread(topic)["g"] <= 6000


def test_counting_reads_no_more_than_a_few_large_entries(topic: Topic) -> None:
    """Redis 6.2 never reports the lag of a group, and counting means copying bodies."""
    ids = topic.publish(*[b"." * 1_000_000] * 20)
    topic.run("XDEL", ids[12])
    for name, at in (("first", 1), ("middle", 9), ("last", 16)):
        topic.group(name).seek(ids[at], makes=True)
        topic.run("XGROUP SETID", name, ids[at])
    found = _unread(topic)
    assert (found["first"], found["last"]) == (17, 3)
    assert found["middle"] == 4  # no more were counted, and entries of one millisecond cannot be estimated by time


def test_a_position_behind_all_that_can_come_is_none_to_fail_on(topic: Topic) -> None:
    topic.publish(b"a")
    group = topic.group()
    group.seek("0", makes=True)
    topic.run("XGROUP SETID", "g", "18446744073709551615-18446744073709551615")
    assert _unread(topic) == {"g": 0}
    make = Topic(topic.wire, topic.keys.topic, keep=Keep(count=0))
    make.sequence = 100
    make.tidy()
    assert _missed(topic) == {"g": 0}


def test_a_group_counts_unread_as_ready(topic: Topic) -> None:
    group = topic.group()
    topic.publish(*[b"."] * 10)
    group.ack(group.take(4))
    stats = ops.stats(group.keys)
    found = stats.decode(group.call(stats))
    assert (found.ready, found.unread, found.leased) == (6, 6, 0)
