"""Claims of groups: each entry goes to one member of each group, in the order of the stream, and comes back in it."""

from typing import Any

import pytest

from duly._core import ops
from duly._core.effects import Effect
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Group, Queue, Refused, Topic, bodies_of, ids_of, settles_of

MS = NOW // 1000
MINUTE = 60 * SECOND
BAD = ("boom", "Traceback: boom")


def _reject(group: Group, settles: list[ops.Settle], reason: str = "bad") -> Any:
    return group.call(ops.reject(group.keys, group.options, [(settle, reason, *BAD) for settle in settles]))


def _retry(group: Group, settles: list[ops.Settle], delay: float) -> Any:
    return group.call(ops.retry(group.keys, [(settle, delay, *BAD) for settle in settles]))


def _release(group: Group, settles: list[ops.Settle]) -> Any:
    return group.call(ops.release(group.keys, settles))


# Which member gets which entries


def test_members_share_the_entries_in_the_order_of_the_stream(any_topic: Topic) -> None:
    group = any_topic.group()
    ids = any_topic.publish(*(b"%d" % number for number in range(25)))
    found = [ids_of(group.claim(7, consumer=f"c{number}")) for number in range(5)]
    assert found == [ids[0:7], ids[7:14], ids[14:21], ids[21:25], []]
    assert set(group.pending().values()) == {"c0", "c1", "c2", "c3"}
    state = group.dump()
    assert set(state.leased) == set(state.leases) == set(state.msgs) == set(ids)
    assert all(state.places(id_) == ["leased"] for id_ in ids)


def test_groups_know_nothing_of_each_other(any_topic: Topic) -> None:
    fast, slow = any_topic.group("fast"), any_topic.group("slow")
    slow.seek("0", makes=True)
    any_topic.publish(b"a", b"b")
    assert fast.drain() == [b"a", b"b"]
    any_topic.publish(b"c")
    assert fast.drain() == [b"c"]
    (first, *_) = slow.take()
    _reject(slow, [first])
    assert (set(slow.dump().dead), set(fast.dump().dead)) == ({first.id}, set())


@pytest.mark.parametrize(("start", "expected"), [("0", [b"a", b"b", b"c"]), ("$", [b"c"]), (f"{MS}-0", [b"b", b"c"])])
@pytest.mark.parametrize("makes", [True, False], ids=["made", "by claim"])
def test_a_group_begins_at_the_given_position(topic: Topic, start: str, expected: list[bytes], makes: bool) -> None:
    topic.publish(b"a", b"b")
    group = topic.group(start=start)
    if makes:
        assert (group.seek(start, makes=True), group.seek("0", makes=True)) == (True, False)
    else:
        assert group.held_bodies() == expected[:-1]
    topic.publish(b"c")
    assert group.held_bodies() == (expected if makes else [b"c"])


def test_a_group_that_is_made_before_the_stream_gets_everything(any_topic: Topic) -> None:
    group = any_topic.group(start="$")
    assert group.claim().ids == []
    any_topic.publish(b"a")
    assert group.held_bodies() == [b"a"]


def test_start_is_asked_only_when_the_group_is_made(topic: Topic) -> None:
    topic.publish(b"a", b"b")
    group = topic.group(start="0")
    assert group.held_bodies(1) == [b"a"]
    group.start = "$"
    assert group.held_bodies() == [b"b"]


def test_an_empty_claim_of_a_late_copy_takes_nothing(topic: Topic) -> None:
    group = topic.group()
    assert group.call(group.claim_call(), sequence=100)[4] == []
    topic.publish(b"a")
    assert group.call(group.claim_call(), sequence=100)[4] == []


def test_a_repeated_claim_gets_the_same_messages_without_those_settled_since(any_topic: Topic) -> None:
    group = any_topic.group()
    any_topic.publish(b"a", b"b", key="k")
    any_topic.publish(b"c")
    first = group.call(group.claim_call(), sequence=100)
    assert [bytes(id_).decode()[-1] for id_ in first[4]] == ["0", "2"]
    before = group.dump()
    again = group.call(group.claim_call(), sequence=100)
    assert again[3:6] == first[3:6]
    assert group.dump() == before
    group.call(ops.ack(group.keys, group.options, [ops.Settle(f"{MS}-2", first[3], 0)]), stream=b"other", sequence=1)
    assert group.call(group.claim_call(), sequence=100)[4] == first[4][:1]


def test_a_paused_group_reads_nothing(any_topic: Topic) -> None:
    group = any_topic.group()
    any_topic.publish(b"a")
    group.call(ops.pause(group.keys, "me"))
    claimed = group.claim(then="watch")
    assert (claimed.ids, claimed.is_paused) == ([], True)
    group.call(ops.resume(group.keys))
    assert group.held_bodies() == [b"a"]


# Leases


def test_a_stale_settle_changes_nothing(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group()
    any_topic.group("slow").seek("0", makes=True)  # the entry stays for it
    any_topic.publish(b"a")
    (stale,) = group.take(consumer="old")
    clock.freeze(NOW + MINUTE)
    claimed = group.claim(consumer="new")
    assert [(r.id, r.consumer, r.is_dead) for r in claimed.reclaimed] == [(stale.id, "old", False)]
    before = group.dump(), group.pending()
    calls = [
        ops.ack(group.keys, group.options, [stale]),
        ops.finish(group.keys, group.options, [(stale, "")]),
        ops.retry(group.keys, [(stale, 1, *BAD)]),
        ops.defer(group.keys, [(stale, 1, "")]),
        ops.release(group.keys, [stale]),
        ops.recycle(group.keys, [(stale, 1, b"")]),
        ops.reject(group.keys, group.options, [(stale, "bad", *BAD)]),
        ops.extend(group.keys, [(stale, 60)]),
    ]
    assert [group.call(call) for call in calls] == [[1]] * 8
    assert group.call(ops.commit(group.keys, group.options, stale)) == [0]
    assert (group.dump(), group.pending()) == before
    assert before[1] == {stale.id: "new"}
    assert group.ack(settles_of(claimed)) == []


def test_a_retry_may_be_longer_than_the_lease(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group()
    any_topic.publish(b"a")
    _retry(group, group.take(lease=30), delay=3600)
    clock.freeze(NOW + 60 * MINUTE - SECOND)
    claimed = group.claim()
    assert (claimed.ids, claimed.reclaimed) == ([], [])
    assert claimed.next_in == pytest.approx(1, abs=0.001)
    clock.freeze(NOW + 60 * MINUTE + 1000)
    assert group.held_bodies() == [b"a"]
    (counts,) = group.dump().counts.values()
    assert (counts.failures, counts.crashes) == (1, 0)


def test_a_crash_brings_it_back_and_the_limit_makes_it_dead(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group(crash_limit=3)
    any_topic.publish(b"poison", b"fine")
    for number in range(1, 4):
        claimed = group.claim(1, consumer=f"c{number}")
        assert list(bodies_of(claimed).values()) == [b"poison"]
        clock.freeze(NOW + number * MINUTE)
    claimed = group.claim(consumer="last")
    assert [each.is_dead for each in claimed.reclaimed] == [True]
    assert list(bodies_of(claimed).values()) == [b"fine"]
    state = group.dump()
    assert [(why.reason, why.crashes) for why in state.why.values()] == [("poison", 3)]
    assert group.consumers() == {"last"}  # consumers that died are removed
    assert state.stats["crashed"] == 3


def test_a_late_claim_takes_over_no_entries(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group()
    any_topic.publish(b"a", b"b")
    group.claim(1, consumer="first")
    group.wire.run("XREADGROUP", "GROUP", "g", "other", "COUNT", 1, "STREAMS", any_topic.keys.stream, ">")
    clock.freeze(NOW + MINUTE)

    late = group.claim_by(NOW)
    assert (late.reclaimed, late.next_in) == ([], 0)  # the caller claims again at once
    assert len(group.claim().reclaimed) == 2


def test_a_late_claim_is_repeated_at_once_if_a_take_over_is_due(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group()
    group.claim()
    any_topic.publish(b"a")
    group.wire.run("XREADGROUP", "GROUP", "g", "other", "COUNT", 1, "STREAMS", any_topic.keys.stream, ">")
    clock.freeze(NOW + MINUTE)

    assert group.claim_by(NOW).next_in == 0
    assert [each.consumer for each in group.claim().reclaimed] == ["other"]


def test_a_dead_consumer_keeps_its_name_while_it_holds_something(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    topic.publish(b"a", b"b")
    group.take(1, lease=10, consumer="slow")
    group.take(1, lease=100, consumer="slow")
    clock.freeze(NOW + 20 * SECOND)
    group.claim(consumer="other")
    assert group.consumers() == {"slow", "other"}
    assert sorted(group.pending().values()) == ["other", "slow"]


def test_more_leases_run_out_than_one_claim_takes_back(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group(crash_limit=2)
    ids = any_topic.publish(*[b"."] * 250)
    group.take(250, consumer="dead")
    clock.freeze(NOW + MINUTE)
    again: list[str] = []
    for _ in range(3):  # nothing is delivered before earlier entries are back
        claimed = group.claim(1000, consumer="c")
        again += ids_of(claimed)
        assert len(claimed.reclaimed) <= 100
    assert again == ids
    assert "dead" not in group.consumers()


# Order


def test_messages_given_back_keep_the_order_of_the_stream(any_topic: Topic) -> None:
    group = any_topic.group()
    ids = any_topic.publish(*[b"."] * 1000)
    ids += any_topic.publish(*[b"."] * 300)  # all of one millisecond, so with numbers of four digits
    assert ids[-1] == f"{MS}-1299"
    settles = group.take(1000) + group.take(1000)
    assert [settle.id for settle in settles] == ids
    shuffled = settles[::-7] + [settle for at, settle in enumerate(settles[::-1]) if at % 7]
    for first in range(0, 1300, 500):
        _release(group, shuffled[first : first + 500])
    any_topic.publish(b"behind")
    assert [settle.id for settle in group.take(700) + group.take(1000)][:1300] == ids


def test_a_crash_puts_them_back_in_the_order_of_the_stream(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group()
    ids = any_topic.publish(*[b"."] * 30)
    for number in (3, 1, 2):
        group.take(10, lease=number, consumer=f"c{number}")
    ids += any_topic.publish(b"behind")
    clock.freeze(NOW + 10 * SECOND)
    assert [settle.id for settle in group.take(100)] == ids


@pytest.mark.parametrize("verb", ["retry", "release", "crash", "redrive"])
def test_a_lane_keeps_the_order_of_the_stream(any_topic: Topic, clock: ServerClock, verb: str) -> None:
    group = any_topic.group()
    ids = any_topic.publish(*(b"%d" % number for number in range(15)), key="k")
    any_topic.publish(b"other", key="l")
    claimed = group.claim(100)
    assert list(bodies_of(claimed).values()) == [b"0", b"other"]
    assert group.dump().parked_ids("k") == ids[1:]
    assert set(group.pending()) == {ids[0], f"{MS}-15"}
    first, other = settles_of(claimed)
    now = NOW
    if verb == "retry":
        _retry(group, [first], delay=5)
        assert group.claim(100).ids == []  # the others wait for it
        now += 6 * SECOND
    elif verb == "release":
        _release(group, [first])
    elif verb == "crash":
        group.call(ops.extend(group.keys, [(other, 600)]))
        now += MINUTE
    else:
        group.options = group.options.__class__(on_dead="block")
        _reject(group, [first])
        assert group.claim(100).ids == []
        group.call(ops.redrive(group.keys, 10))
    group.ack([other])
    clock.freeze(now)
    assert group.drain() == [b"%d" % number for number in range(15)]
    assert (group.dump().lanes, group.dump().parked) == ({}, [])


def test_one_message_of_a_key_is_in_flight_across_consumers(topic: Topic) -> None:
    group = topic.group()
    topic.publish(b"k1", key="k")
    topic.publish(b"l1", key="l")
    topic.publish(b"k2", key="k")
    assert group.held_bodies(1, consumer="a") == [b"k1"]
    assert group.held_bodies(consumer="b") == [b"l1"]
    topic.publish(b"k3", key="k")
    assert group.claim(consumer="b").ids == []
    assert len(group.dump().parked_ids("k")) == 2


def test_a_lane_skips_a_dead_letter_or_waits_for_it(topic: Topic) -> None:
    goes_on, waits = topic.group("a"), topic.group("b", on_dead="block")
    topic.publish(b"1", b"2", key="k")
    for group, next_one in ((goes_on, [b"2"]), (waits, [])):
        _reject(group, group.take())
        assert group.held_bodies() == next_one
    waits.call(ops.purge(waits.keys, "dead", 10))
    assert waits.held_bodies() == [b"2"]


def test_a_redriven_one_returns_before_those_behind_it(topic: Topic) -> None:
    group = topic.group()
    ids = topic.publish(b"1", b"2", b"3", b"4", key="k")
    _reject(group, group.take())  # on_dead="continue": the second may be claimed
    group.call(ops.redrive(group.keys, 10))
    assert [settle.id for settle in group.take()] == ids[:1]
    assert group.dump().parked_ids("k") == ids[1:]


# Dead letters


def test_a_dead_letter_survives_the_stream_and_is_redriven(any_topic: Topic) -> None:
    group = any_topic.group()
    (id_,) = any_topic.publish(b"a", headers={"h": "v"}, key="k")
    _reject(group, group.take(), "broken")
    any_topic.run("XTRIM", "MAXLEN", 0)
    assert group.dump().why[id_].reason == "broken"
    assert group.call(ops.redrive(group.keys, 10)) == [1, 0]
    claimed = group.claim()
    assert bodies_of(claimed) == {id_: b"a"}
    assert group.ack(settles_of(claimed)) == []
    assert group.dump().msgs == {}


def test_dead_letters_move_to_a_queue(topic: Topic) -> None:
    group = topic.group()
    ids = topic.publish(b"a", b"b", key="k")
    _reject(group, group.take())
    _reject(group, group.take())
    died = group.dump().dead
    queue = Queue(topic.wire, f"{topic.keys.topic}-q")
    move = ops.move(group.keys, queue.keys, queue.options, [(id_, died[id_], b"") for id_ in ids])
    assert group.call(move) == [2, 0]
    assert (group.dump().dead, group.dump().msgs) == ({}, {})
    assert bodies_of(queue.claim()) == {ids[0]: b"a"}  # its key goes with it
    assert queue.dump().wake == 1


def test_bounds_of_dead_letters_hold_in_groups(topic: Topic) -> None:
    group = topic.group(dead=Keep(count=2))
    ids = topic.publish(b"a", b"b", b"c")
    _reject(group, group.take())
    assert set(group.dump().dead) == set(ids[1:])


# Filters


def test_a_filter_wants_one_of_the_values_of_each_header(any_topic: Topic) -> None:
    group = any_topic.group(wanted=["region", "eu", "region", "uk", "kind", "order"])
    rows: list[dict[str, bytes | str]] = [
        {"region": "eu", "kind": "order"}, {"region": "us", "kind": "order"}, {"region": "uk", "kind": "order"},
        {"region": "eu"}, {"kind": "order"}, {}, {"region": "eu", "kind": "visit"}, {"kind": "order", "region": "eu"},
    ]  # fmt: skip
    for number, headers in enumerate(rows):
        any_topic.publish(b"%d" % number, headers=headers)
    claimed = group.claim()
    assert list(bodies_of(claimed).values()) == [b"0", b"2", b"7"]
    assert set(group.pending()) == set(ids_of(claimed))  # the group skips the others
    assert group.dump().stats["filtered"] == 5
    assert group.dump().stats["sent"] == 3


def test_a_filter_compares_values_literally(topic: Topic) -> None:
    group = topic.group(wanted=["a", ""])
    topic.publish(b"1", headers={"a": "x"})
    topic.publish(b"2", headers={"a": ""})
    topic.run("XADD", "*", "a", "", "body", "3")  # a field, not a header
    assert group.held_bodies() == [b"2"]


def test_claims_are_bounded_when_nothing_matches(topic: Topic) -> None:
    group = topic.group(wanted=["a", "b"])
    for _ in range(5):
        topic.publish(*[b"."] * 1000)
    looks = [group.claim(limit=100, then="watch").next_in for _ in range(6)]
    assert looks == [0, 0, 0, 0, 0, None]
    assert (group.pending(), group.dump().stats["filtered"]) == ({}, 5000)


# Together with a queue


def test_a_commit_finishes_an_entry_and_sends_to_a_queue(any_topic: Topic) -> None:
    group, queue = any_topic.group(), Queue(any_topic.wire, f"{any_topic.keys.topic}-q")
    ids = any_topic.publish(b"a", b"b", key="k")
    (settle,) = group.take()
    target = ops.Target(queue.keys, queue.options, [queue.outgoing("m1"), queue.outgoing("m2")])
    counter = f"counter:{any_topic.keys.topic}".encode()
    commit = ops.commit(group.keys, group.options, settle, [target], effects=[Effect("INCR", counter, ())])
    assert len({str(group.call(commit, stream=b"other", sequence=1)) for _ in range(2)}) == 1
    assert any_topic.wire.run("GET", counter) == b"1"
    assert ids_of(queue.claim()) == ["m1", "m2"]
    assert group.pending() == {}
    assert [settle.id for settle in group.take()] == ids[1:]
    assert queue.dump().wake == 1


def test_a_commit_does_nothing_when_the_stream_was_overwritten(any_topic: Topic) -> None:
    group = any_topic.group()
    any_topic.publish(b"a")
    (settle,) = group.take()
    any_topic.wire.run("SET", any_topic.keys.stream, "mine")
    counter = f"counter:{any_topic.keys.topic}".encode()
    with pytest.raises(Refused, match="WRONGTYPE"):
        group.call(ops.commit(group.keys, group.options, settle, effects=[Effect("INCR", counter, ())]))
    assert any_topic.wire.run("EXISTS", counter) == 0


def test_counters_of_a_group_balance(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group()
    any_topic.publish(*[b"."] * 10, key="k")
    any_topic.publish(*[b"."] * 10)
    settles = group.take(5)
    group.ack(settles[:2])
    _reject(group, settles[2:3])
    group.call(ops.cancel(group.keys, settles[3].id, running=True))
    clock.freeze(NOW + MINUTE)
    group.claim(100)
    group.call(ops.purge(group.keys, "parked", 100))
    stats = ops.stats(group.keys).decode(group.call(ops.stats(group.keys)))
    live = stats.leased + stats.parked + stats.ready + stats.delayed + stats.dead
    assert stats.sent == 20 == stats.acked + stats.cancelled + stats.purged + live
    assert stats.bytes + stats.dead_bytes == sum(map(len, group.dump().msgs.values()))
