"""A claim costs what it hands out: not what the stream holds, nor what is in its entries."""

import statistics
import time

from duly._core import ops
from tests.lua.harness import Group, Topic, bodies_of, settles_of

MIB = 1 << 20


def test_large_entries_come_a_few_at_a_time(any_topic: Topic) -> None:
    group = any_topic.group()
    any_topic.publish(*[b"." * MIB] * 25)
    any_topic.publish(*[b"." * MIB] * 25)
    seen = 0
    while seen < 50:
        claimed = group.claim(100)
        assert 0 < sum(map(len, claimed.records)) <= 4.5 * MIB
        seen += len(claimed.ids)
        assert claimed.next_in == 0 or seen == 50
        group.ack(settles_of(claimed))
    assert group.claim().ids == []


def test_large_entries_of_other_programs_come_a_few_at_a_time(topic: Topic) -> None:
    group = topic.group()
    for _ in range(30):
        topic.run("XADD", "*", "body", b"." * MIB)
    for _ in range(3):
        assert 0 < sum(map(len, group.claim(100).records)) <= 4.5 * MIB


def test_large_entries_that_a_filter_passes_over_are_bounded_too(any_topic: Topic) -> None:
    group = any_topic.group(wanted=["a", "b"])
    any_topic.publish(*[b"." * MIB] * 20)
    for _ in range(4):
        before = group.dump().stats.get("filtered", 0)
        assert group.claim(100).next_in == 0
        assert 0 < group.dump().stats["filtered"] - before <= 5


def test_large_entries_that_were_given_back_come_a_few_at_a_time(topic: Topic) -> None:
    group = topic.group()
    topic.publish(*[b"." * MIB] * 8)
    settles = [settle for _ in range(3) for settle in group.take(100)]
    assert len(settles) == 8
    group.call(ops.release(group.keys, settles))
    assert sum(map(len, group.claim(100).records)) <= 4.5 * MIB


def test_small_entries_behind_a_large_one_come_together(topic: Topic) -> None:
    group = topic.group()
    topic.publish(b"." * 6 * MIB)
    topic.publish(*[b"small"] * 200)
    assert [len(body) for body in bodies_of(group.claim(100)).values()] == [6 * MIB]
    assert len(group.claim(100).ids) == 100


def _cost(group: Group, rounds: int = 15) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        claimed = group.claim(10)
        times.append(time.perf_counter() - began)
        assert len(claimed.ids) == 10
        group.ack(settles_of(claimed))
    return statistics.median(times)


def _grow(topic: Topic, count: int, **options: str) -> None:
    for _ in range(count // 1000):
        topic.publish(*[b"."] * 1000, **options)


def test_a_long_stream_makes_no_claim_slow(topic: Topic) -> None:
    group = topic.group()
    _grow(topic, 1000)
    short = _cost(group)
    _grow(topic, 99_000)
    assert _cost(group) < 10 * short + 0.002


def test_a_long_stream_that_is_freed_makes_no_claim_slow(freeing: Topic) -> None:
    group = freeing.group()
    _grow(freeing, 1000)
    short = _cost(group)
    _grow(freeing, 30_000)
    assert _cost(group) < 10 * short + 0.002


def test_a_long_lane_makes_no_claim_slow(topic: Topic) -> None:
    group = topic.group()
    _grow(topic, 1000)
    short = _cost(group)
    _grow(topic, 10_000, key="k")
    _grow(topic, 1000)
    while topic.stats().groups[0].unread > 900:
        group.claim(100)
    assert len(group.dump().parked) == 9999
    assert _cost(group, 5) < 10 * short + 0.002


def test_many_pending_entries_make_no_claim_slow(topic: Topic) -> None:
    group = topic.group()
    for _ in range(20):
        topic.publish(*[b"."] * 1000)
    short = _cost(group)
    for _ in range(15):
        group.take(1000, lease=3600)
    assert _cost(group) < 10 * short + 0.002
