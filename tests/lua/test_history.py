"""The history of a queue: points of its counters, and sums of times."""

from typing import Any

import pytest

from duly._core import ops
from duly._core.history import COUNTED, RINGS, Sample, Sums, read_sample
from duly.message import Stats
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, Topic, fill, free

MINUTE = 60 * SECOND
WEEK = RINGS[-1].seconds
KEPT_MS = 8 * 86400 * 1000


def stats(queue: Queue, seconds: float = 3600) -> Stats:
    call = ops.stats(queue.keys, seconds)
    return call.decode(queue.call(call))


def measure(queue: Queue, lateness: str = "5,1", handling: str = "7,0,2") -> int:
    answer: int = queue.call(ops.measure(queue.keys, lateness, handling))
    return answer


def points(queue: Queue, ring: str = "m") -> list[Sample]:
    """Return the points of a ring, the oldest first."""
    stored = [read_sample(value) for place, value in queue.dump().history.items() if place[0] == ring]
    return sorted((point for point in stored if point is not None), key=lambda point: point.at)


def counted(point: Sample) -> dict[str, int]:
    return {name: value for name, value in zip(COUNTED, point.counted, strict=True) if value}


def test_the_first_send_of_a_queue_takes_a_point_before_its_effects(queue: Queue) -> None:
    queue.send("a")
    (point,) = points(queue)
    assert point == Sample(NOW, (0,) * 7, 0, -1, Sums(), Sums())
    assert set(queue.dump().history) == {"m0", "t48", "h32"}
    assert KEPT_MS - 10_000 < queue.wire.run("PTTL", queue.keys.key("history")) <= KEPT_MS


def test_later_calls_of_the_minute_take_none(queue: Queue, clock: ServerClock) -> None:
    queue.send("a")
    before = queue.dump().history
    clock.freeze(NOW + MINUTE - SECOND)
    queue.send("b")
    queue.send("c", ttl=60)
    queue.claim()
    assert queue.dump().history == before


@pytest.mark.parametrize("first", ["send", "send_checked", "claim", "measure", "commit"])
def test_the_first_call_of_a_minute_takes_a_point(queue: Queue, clock: ServerClock, first: str) -> None:
    (settle,) = queue.hold("a")
    queue.send("late")
    clock.freeze(NOW + MINUTE)
    if first == "send":
        queue.send("b")
    elif first == "send_checked":
        queue.send("b", ttl=60)
    elif first == "claim":
        queue.claim(limit=1)
    elif first == "measure":
        measure(queue)
    else:
        target = ops.Target(queue.keys, queue.options, [queue.outgoing("b")])
        queue.call(ops.commit(queue.keys, queue.options, settle, [target]))
    assert [point.at for point in points(queue)] == [NOW, NOW + MINUTE]
    last = points(queue)[-1]
    assert (last.depth, last.oldest_age) == (1, MINUTE - 2)
    expected = {"sent": 2, "delivered": 1} | ({"acked": 1} if first == "commit" else {})
    assert counted(last) == expected


def test_a_claim_of_a_queue_that_was_never_used_writes_nothing(queue: Queue) -> None:
    queue.claim()
    assert measure(queue) == 0
    assert queue.wire.run("EXISTS", queue.keys.key("history"), queue.keys.key("meta")) == 0


def test_a_plain_send_does_not_claim_to_know_a_backlog_of_several_priorities(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", priority=5)
    clock.freeze(NOW + MINUTE)
    queue.send("b")
    assert (points(queue)[-1].depth, points(queue)[-1].oldest_age) == (-1, -1)
    clock.freeze(NOW + 2 * MINUTE)
    queue.claim(limit=1)
    assert (points(queue)[-1].depth, points(queue)[-1].oldest_age) == (2, 2 * MINUTE)


@pytest.mark.parametrize("due", [0, 1, 2, 5, 6])
def test_only_due_messages_count_as_backlog(queue: Queue, clock: ServerClock, due: int) -> None:
    for number in range(6):
        queue.send(f"m{number}", delay=30 if number < due else 600)
    for minute, first in ((1, queue.send), (2, queue.claim)):
        clock.freeze(NOW + minute * MINUTE)
        if first == queue.send:
            queue.send("last", delay=600)
        else:
            queue.claim(limit=1)
        assert points(queue)[-1].depth == due


def test_parked_messages_count_as_backlog(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", "b", "c", key="k")
    queue.claim(limit=3)
    clock.freeze(NOW + MINUTE)
    measure(queue)
    assert (points(queue)[-1].depth, points(queue)[-1].oldest_age) == (2, -1)


def test_a_plain_send_knows_the_backlog_of_a_queue_with_keys(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", "b", "c", key="k")
    queue.claim(limit=3)
    clock.freeze(NOW + SECOND)
    queue.send("other", key="l")
    clock.freeze(NOW + MINUTE)
    queue.send("d", key="k")
    clock.freeze(NOW + 2 * MINUTE)
    queue.send("e")
    known = [(point.depth, point.oldest_age) for point in points(queue)]
    assert known == [(0, -1), (3, MINUTE - SECOND), (4, 2 * MINUTE - SECOND)]


def test_parked_messages_of_another_type_stop_no_send(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", key="k")
    queue.wire.run("SET", queue.keys.key("parked"), "x")
    clock.freeze(NOW + MINUTE)
    queue.send("b", key="k")
    assert (points(queue)[-1].depth, points(queue)[-1].oldest_age) == (1, MINUTE)


def outage(queue: Queue, clock: ServerClock, *, minutes: int) -> None:
    """Send one message per minute, of two priorities in turn, after the only consumer has received the first."""
    queue.send("first", priority=5)
    queue.claim(limit=1, lease=86400)
    for minute in range(1, minutes + 1):
        clock.freeze(NOW + minute * MINUTE)
        queue.send(f"m{minute}", priority=minute % 2 * 5)


def ages(queue: Queue) -> list[float | None]:
    """Return the ages in whole minutes."""
    return [age if age is None else round(age / 60, 3) for age in (each.oldest_age for each in stats(queue).history)]


def test_ages_grow_while_only_sends_to_several_priorities_run(queue: Queue, clock: ServerClock) -> None:
    """The oldest message was sent in minute 1. Points of sends have no age, so it follows from the present."""
    outage(queue, clock, minutes=4)
    assert [(point.depth, point.oldest_age) for point in points(queue)] == [(-1, -1)] * 5
    assert ages(queue) == [None, 0, 1, 2, 3]
    assert [point.depth for point in stats(queue).history] == [None] * 5


def test_ages_follow_from_the_first_claim_after_an_outage(queue: Queue, clock: ServerClock) -> None:
    outage(queue, clock, minutes=3)
    clock.freeze(NOW + 4 * MINUTE)
    queue.claim(limit=3)
    assert ages(queue) == [None, 0, 1, 2, 3]
    assert [point.depth for point in stats(queue).history] == [None] * 4 + [3]


def test_ages_follow_from_no_point_before_which_messages_were_delivered(queue: Queue, clock: ServerClock) -> None:
    outage(queue, clock, minutes=3)
    queue.claim(limit=1)
    clock.freeze(NOW + 4 * MINUTE)
    queue.send("last", priority=5)
    assert ages(queue) == [None] * 4 + [2]


@pytest.mark.parametrize("settle", ["ack", "retry", "reject"])
def test_ages_follow_from_no_point_before_which_a_message_was_settled(
    queue: Queue, clock: ServerClock, settle: str
) -> None:
    """The end of a delivery may return messages to the queue that were due before."""
    (held,) = queue.hold("a", priority=5)
    clock.freeze(NOW + MINUTE)
    queue.send("b")
    calls: dict[str, Any] = {
        "ack": ops.ack(queue.keys, queue.options, [held]),
        "retry": ops.retry(queue.keys, [(held, 0.0, "e", "t")]),
        "reject": ops.reject(queue.keys, queue.options, [(held, "r", "e", "t")]),
    }
    queue.call(calls[settle])
    assert ages(queue) == [None, None]


def test_nothing_was_due_before_the_oldest_message(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", priority=5, delay=150)
    for minute in (1, 2, 3, 4):
        clock.freeze(NOW + minute * MINUTE)
        queue.send(f"m{minute}", delay=600)
    assert ages(queue) == [0, 0, 0, 0.5, 1.5]


def test_a_group_counts_unread_entries(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    topic.publish(b"1", b"2", b"3")
    group.claim(limit=1, lease=600)
    clock.freeze(NOW + MINUTE)
    topic.publish(b"4")
    group.claim(limit=1)
    assert (points(group)[-1].depth, points(group)[-1].oldest_age) == (3, MINUTE)
    call = ops.stats(group.keys, 3600)
    history = call.decode(group.call(call)).history
    assert [(point.sent, point.delivered, point.depth) for point in history] == [(1, 1, 0), (1, 1, 3)]


def test_delayed_publishes_of_a_topic_have_no_history(topic: Topic) -> None:
    topic.publish_later("a", delay=60)
    assert topic.wire.run("EXISTS", topic.keys.key("history")) == 0


def test_rings_are_bounded(queue: Queue, clock: ServerClock) -> None:
    for minute in range(0, WEEK // 60 + 600, 7):
        clock.freeze(NOW + minute * MINUTE)
        queue.send(f"m{minute}")
    history = queue.dump().history
    assert len(history) <= sum(ring.size for ring in RINGS)
    for ring in RINGS:
        assert sum(place[0] == ring.name for place in history) <= ring.size
    assert len([place for place in history if place[0] == "h"]) == 168


def test_the_series_has_what_happened_in_each_minute(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", "b")
    queue.claim(limit=1, lease=600)
    clock.freeze(NOW + 3 * MINUTE)
    queue.send("c")
    history = stats(queue).history
    assert [(point.sent, point.delivered, point.depth, point.oldest_age) for point in history] == [
        (2, 1, 0, 0.0),
        (0, 0, 1, pytest.approx(60, abs=0.1)),
        (0, 0, 1, pytest.approx(120, abs=0.1)),
        (1, 0, 1, pytest.approx(180, abs=0.1)),
    ]
    assert [point.start.minute for point in history] == [0, 1, 2, 3]
    assert all((point.end - point.start).total_seconds() == 60 for point in history)


@pytest.mark.parametrize(("seconds", "step"), [(3600, 60), (7200, 600), (86400, 600), (86401, 3600), (WEEK, 3600)])
def test_no_message_is_missing_in_a_coarser_series(queue: Queue, clock: ServerClock, seconds: int, step: int) -> None:
    for at in range(0, seconds, step):
        clock.freeze(NOW - NOW % (3600 * SECOND) + at * SECOND + 7 * SECOND)
        queue.send(f"a{at}", f"b{at}")
    history = stats(queue, seconds).history
    assert [point.sent for point in history] == [2] * (seconds // step)
    assert {(point.end - point.start).total_seconds() for point in history} == {step}


def test_sums_are_added_and_shown_by_minute(queue: Queue, clock: ServerClock) -> None:
    queue.send("a")
    assert measure(queue, "1500,0,1", "0") == 1
    clock.freeze(NOW + MINUTE)
    assert measure(queue, "500,1", "3000,0,0,4") == 1
    assert queue.dump().history["lateness"] == b"2000,1,1"
    shown = stats(queue)
    assert (shown.lateness_times.count, shown.lateness_times.total) == (2, 0.002)
    assert [(point.lateness.count, point.handling.count) for point in shown.history] == [(1, 0), (1, 4)]
    assert shown.history[1].handling.quantile(0.95) == 0.01


def test_a_call_with_many_buckets_stores_a_bounded_number(queue: Queue) -> None:
    queue.send("a")
    measure(queue, ",".join(["1"] * 1000), "1")
    assert queue.dump().history["lateness"] == b",".join([b"1"] * 32)


def test_delete_removes_the_history(queue: Queue) -> None:
    queue.send("a")
    queue.call(ops.delete(queue.keys))
    assert queue.wire.run("EXISTS", queue.keys.key("history")) == 0


def test_a_queue_that_an_older_version_has_deleted_begins_again(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", "b")
    measure(queue)
    queue.wire.run("DEL", queue.keys.key("meta"), queue.keys.key("msgs"), queue.keys.key("waiting0"))
    assert (stats(queue).history, stats(queue).lateness_times.count) == ((), 0)
    clock.freeze(NOW + 5 * MINUTE)
    queue.send("c")
    assert [(point.start.minute, point.sent) for point in stats(queue).history] == [(5, 1)]
    assert stats(queue).lateness_times.count == 0


@pytest.mark.parametrize("stored", ["SET", "RPUSH"])
def test_a_history_of_another_type_stops_no_call(queue: Queue, clock: ServerClock, stored: str) -> None:
    queue.send("a")
    queue.wire.run("DEL", queue.keys.key("history"))
    queue.wire.run(stored, queue.keys.key("history"), "x")
    for minute in (1, 2, 3):
        clock.freeze(NOW + minute * MINUTE)
        queue.send(f"m{minute}")
        queue.send(f"c{minute}", ttl=600)
        queue.claim(limit=1)
    assert stats(queue).sent == 7
    assert measure(queue) == 0


def test_a_clock_that_stands_still_takes_no_point(queue: Queue, clock: ServerClock) -> None:
    queue.send("a")
    clock.freeze(NOW - 3600 * SECOND)
    queue.send("b")
    queue.claim()
    assert [point.at for point in points(queue)] == [NOW]


def test_a_full_server_takes_points_with_claims(queue: Queue, clock: ServerClock) -> None:
    queue.send("a")
    fill(queue.wire)
    try:
        clock.freeze(NOW + MINUTE)
        queue.claim()
        assert measure(queue) == 1
    finally:
        free(queue.wire)
    assert len(points(queue)) == 2
