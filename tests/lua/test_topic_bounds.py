"""The cost of a claim depends on its deliveries, not on the length of the stream or the fields of entries."""

import struct
import time
from collections import Counter

from duly._core import ops
from duly._core.replies import AuditStep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Group, Topic, bodies_of, settles_of

MIB = 1 << 20
SANE = 1.0  # seconds of the server's processor


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


def test_large_entries_that_a_filter_skips_are_bounded_as_well(any_topic: Topic) -> None:
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
    """Return the time of the quickest of several claims: other processes may slow some down."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        claimed = group.claim(10)
        times.append(time.perf_counter() - began)
        assert len(claimed.ids) == 10
        group.ack(settles_of(claimed))
    return min(times)


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


# Audits of delayed publishes, which search the stream for them


def _audit_steps(topic: Topic, source: str) -> list[AuditStep]:
    steps: list[AuditStep] = []
    cursor = "0"
    while not steps or cursor != "0":
        used = topic.wire.cpu_seconds()
        steps.append(topic.call(ops.audit_step(topic.keys, source, cursor, repair=False)))
        assert topic.wire.cpu_seconds() - used < SANE
        cursor = steps[-1].cursor
    return steps


def test_many_that_are_overdue_before_large_entries_of_others_make_no_audit_slow(
    topic: Topic, clock: ServerClock
) -> None:
    for number in range(120):
        topic.publish_later(f"m{number}", delay=1 + number * 0.01)
    clock.freeze(NOW + 5 * SECOND)
    entry = ["XADD", topic.keys.stream, "*", "body", b"." * 50_000]
    topic.wire.post([entry] * 400)

    for source in ("msgs", "waiting0"):
        steps = _audit_steps(topic, source)
        assert sum(step.checked for step in steps) == 120
        assert [step.faults for step in steps if step.faults] == []


def test_entries_far_apart_in_the_stream_are_searched_in_several_calls_and_each_id_once(
    topic: Topic, clock: ServerClock
) -> None:
    late = [f"m{number}" for number in range(12)]
    for second, id_ in enumerate(late, 1):
        topic.publish_later(id_, delay=second, body=id_.encode())
    clock.freeze(NOW + 60 * SECOND)
    for second, id_ in enumerate(late, 1):
        ms = NOW // 1000 + second * 1000
        stream = topic.keys.stream
        topic.wire.post([["XADD", stream, f"{ms}-{number}", "body", "1"] for number in range(1100)])
        if second % 2:
            sent = struct.unpack_from("<d", topic.wire.run("HGET", topic.keys.key("msgs"), id_))[0]
            topic.run("XADD", f"{ms}-1100", "bytes", id_, "sent", f"{sent:.0f}")
            topic.run(
                "XDEL", *[f"{ms}-{number}" for number in range(200)]
            )  # the searched entries are within the bounds

    for source in ("msgs", "waiting0"):
        steps = _audit_steps(topic, source)
        found = Counter((fault.id, fault.what) for step in steps for fault in step.faults)
        assert found == Counter((id_, "waits, but has entered the stream") for id_ in late[::2])
        assert sum(step.checked for step in steps) == len(late)
        assert len(steps) > 1
