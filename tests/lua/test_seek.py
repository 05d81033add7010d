"""Moving a group: entries that it reads again or skips, and messages that it holds in the meantime."""

import pytest

from duly._core import ops, topic_ops
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Topic, bodies_of, ids_of, settles_of

MINUTE = 60 * SECOND


def test_a_group_reads_again_from_the_beginning(topic: Topic) -> None:
    group = topic.group()
    topic.publish(b"a", b"b")
    assert group.drain() == [b"a", b"b"]
    assert group.seek("0") is True
    topic.publish(b"c")
    assert group.drain() == [b"a", b"b", b"c"]


def test_a_seek_forward_skips_unread_entries(any_topic: Topic) -> None:
    group = any_topic.group()
    any_topic.publish(b"a", b"b")
    assert group.held_bodies(1) == [b"a"]
    group.seek("$")
    any_topic.publish(b"c")
    assert group.held_bodies() == [b"c"]


def test_a_group_reads_behind_an_id_or_from_a_time_on(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    ids = topic.publish(b"a", b"b", b"c")
    clock.freeze(NOW + MINUTE)
    topic.publish(b"d")
    assert len(group.drain()) == 4
    group.seek(ids[1])
    assert group.drain() == [b"c", b"d"]
    group.seek(f"{(NOW + MINUTE) // 1000 - 1}-18446744073709551615")
    assert group.drain() == [b"d"]


@pytest.mark.parametrize("way", ["made", "moved", "claimed"])
@pytest.mark.parametrize("to", [f"{NOW // 1000 + 60_000}-0", f"{NOW // 1000 + 60_000}", f"{2**64 - 1}-{2**64 - 1}"])
@pytest.mark.parametrize("is_there", [True, False], ids=["stream", "no stream"])
def test_a_position_that_is_still_to_come_is_the_end(any_topic: Topic, way: str, to: str, is_there: bool) -> None:
    ids = any_topic.publish(b"a", b"b") if is_there else ["0-0"]
    group = any_topic.group(start=to)
    if way == "claimed":
        assert group.claim().ids == []
    else:
        group.seek(to if way == "made" else "0", makes=True)
        assert way == "made" or group.seek(to)
    assert any_topic.stats().groups[0].last_id == ids[-1]
    any_topic.publish(b"c")
    assert group.held_bodies() == [b"c"]


def test_the_last_id_is_not_a_future_position(topic: Topic) -> None:
    ids = topic.publish(b"a", b"b")
    topic.run("XDEL", ids[1])
    group = topic.group()
    group.seek(ids[1], makes=True)
    assert topic.stats().groups[0].last_id == ids[1]
    group.seek(ids[0])
    assert topic.stats().groups[0].last_id == ids[0]


def test_a_repeat_moves_it_once(topic: Topic) -> None:
    group = topic.group()
    topic.publish(b"a")
    group.drain()
    call = topic_ops.seek(group.keys, "0", makes=False)
    group.call(call, stream=b"slow", sequence=1)
    assert group.drain() == [b"a"]
    group.call(call, stream=b"slow", sequence=1)
    assert group.drain() == []


def test_a_live_message_of_the_store_is_not_delivered_twice_at_the_same_time(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    ids = topic.publish(b"acked", b"leased", b"waits", b"dead")
    topic.publish(b"lane", b"parked", b"parked too", key="k")
    acked, leased, waits, dead, lane = group.take(consumer="holder")
    group.ack([acked])
    group.call(ops.retry(group.keys, [(waits, 5, "boom", "")]))
    group.call(ops.reject(group.keys, group.options, [(dead, "bad", "boom", "")]))
    before = group.dump()
    group.seek("0")
    claimed = group.claim(consumer="other")
    assert list(bodies_of(claimed).values()) == [b"acked", b"dead"]
    after = group.dump()
    assert all(len(after.places(id_)) == 1 for id_ in topic.ids())
    assert {id_: after.places(id_) for id_ in ids} == {
        ids[0]: ["leased"], ids[1]: ["leased"], ids[2]: ["waiting0"], ids[3]: ["leased"]
    }  # fmt: skip
    assert (after.parked, after.lanes) == (before.parked, before.lanes)
    assert (after.dead, after.why.get(ids[3])) == ({}, None)  # it starts over
    assert group.pending() == {
        ids[0]: "other", ids[1]: "holder", ids[3]: "other", lane.id: "holder"
    }  # fmt: skip
    assert group.ack([leased, lane]) == []
    assert group.ack(settles_of(claimed)) == []
    clock.freeze(NOW + 10 * SECOND)
    assert sorted(group.drain()) == [b"parked", b"parked too", b"waits"]
    stats = ops.stats(group.keys)
    found = stats.decode(group.call(stats))
    assert (found.bytes, found.dead_bytes) == (0, 0)
    # Eight entries, one of them for the second time: a dead one that starts over is counted as redriven.
    assert (found.sent, found.acked, found.buried, found.redriven) == (8, 8, 1, 1)


def test_a_lane_that_waits_for_a_dead_letter_continues_with_it(topic: Topic) -> None:
    group = topic.group(on_dead="block")
    topic.publish(b"1", b"2", b"3", key="k")
    group.call(ops.reject(group.keys, group.options, [(group.take()[0], "bad", "", "")]))
    assert group.claim().ids == []
    group.seek("0")
    assert group.drain() == [b"1", b"2", b"3"]
    assert (group.dump().lanes, group.dump().parked) == ({}, [])


def test_a_dead_letter_stays_where_a_new_filter_does_not_want_it(topic: Topic) -> None:
    group = topic.group()
    (id_,) = topic.publish(b"a")
    group.call(ops.reject(group.keys, group.options, [(group.take()[0], "bad", "", "")]))
    group.wanted = ["region", "eu"]
    topic.publish(b"b", headers={"region": "eu"})
    group.seek("0")
    assert group.held_bodies() == [b"b"]
    state = group.dump()
    assert (state.places(id_), state.why[id_].reason) == (["dead"], "bad")
    assert state.stats["dead_bytes"] == len(state.msgs[id_])


@pytest.mark.parametrize("to", ["0", "$"])
def test_a_paused_group_can_be_moved(topic: Topic, to: str) -> None:
    group = topic.group()
    topic.publish(b"a")
    group.drain()
    topic.publish(b"b")
    group.call(ops.pause(group.keys, "me"))
    group.seek(to)
    assert group.claim().ids == []
    group.call(ops.resume(group.keys))
    assert group.drain() == ([b"a", b"b"] if to == "0" else [])


def test_repeated_seeks_change_nothing_for_held_messages(any_topic: Topic) -> None:
    any_topic.group("slow").seek("0", makes=True)
    group = any_topic.group()
    ids = any_topic.publish(*[b"."] * 250)
    held = group.take(250)
    for _ in range(3):
        group.seek("0")
        claimed = group.claim(100)
        assert (ids_of(claimed), claimed.next_in) != ([], None)
    assert set(group.pending()) == set(ids)
    assert group.ack(held) == []
    assert group.pending() == {}
