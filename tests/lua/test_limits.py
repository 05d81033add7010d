"""rate and max_in_flight: exact, shared by all consumers, and no consumer spins or sleeps too long."""

import math
import random
from dataclasses import replace
from typing import Any, Final

import pytest

from duly._core import ops
from duly._core.replies import Claimed
from duly.options import Keep, interval_of
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, ids_of

TOLERANCE: Final = 100_000
LATE: Final = 90_000
"""Microseconds by which a consumer may be late without losing any of its rate."""


def settles_of(claimed: Claimed) -> list[ops.Settle]:
    return [ops.Settle(id_, claimed.fence, has_key=False) for id_ in ids_of(claimed)]


def send_many(queue: Queue, count: int, first: int = 0) -> None:
    for start in range(first, first + count, 1000):
        queue.send(*(f"m{n:06}" for n in range(start, min(start + 1000, first + count))))


def take_token(queue: Queue) -> None:
    queue.wire.run("DEL", queue.keys.key("wake"))


def limited(queue: Queue) -> str | None:
    return queue.dump().meta.get("limited")


class Consumer:
    """Claims at the returned times, but late, and finishes at once; records when it got how many messages."""

    def __init__(self, queue: Queue, clock: ServerClock, *, late: int, seed: int = 0, limit: int = 1000) -> None:
        self._queue, self._clock, self._late, self._limit = queue, clock, late, limit
        self._chance = random.Random(seed)
        self.now = NOW + SECOND
        self.taken: list[tuple[int, int]] = []

    def run_until(self, end: int) -> None:
        """Run until a time, and claim at exactly that time."""
        while self.now < end:
            self.now = min(self._look(), end)
        while self._look() == self.now:
            pass

    def _look(self) -> int:
        """Claim, and return when to claim again: at once, or late."""
        self._clock.freeze(self.now)
        claimed = self._queue.claim(self._limit)
        if claimed.ids:
            self._queue.call(ops.ack(self._queue.keys, self._queue.options, settles_of(claimed)))
        self.taken.append((self.now, len(claimed.ids)))
        assert claimed.next_in is not None
        if claimed.next_in == 0:
            assert len(claimed.ids) == self._limit
            return self.now
        assert claimed.is_limited  # there is always more
        return self.now + math.ceil(claimed.next_in * SECOND) + self._chance.randrange(self._late)

    def count(self) -> int:
        return sum(count for _, count in self.taken)


@pytest.mark.parametrize(
    ("rate", "seconds", "count"),
    [
        ("100/s", 60, 6000),
        ("6000/m", 60, 6000),
        ("3/s", 60, 180),
        ("5/s", 60, 300),
        ("1/m", 60, 1),
        ("1/m", 600, 10),
        ("1000/s", 5, 5000),
    ],
)
def test_a_rate_is_exact_for_a_consumer_that_claims_late(
    make_queue: Any, clock: ServerClock, rate: str, seconds: int, count: int
) -> None:
    queue: Queue = make_queue(rate=rate)
    send_many(queue, count + 1500)
    consumer = Consumer(queue, clock, late=LATE)
    consumer.run_until(NOW + 2 * SECOND)
    before = consumer.count()
    consumer.run_until(NOW + (2 + seconds) * SECOND)
    assert consumer.count() - before == count


@pytest.mark.parametrize(("rate", "limit"), [("100/s", 1), ("100/s", 3), ("1000/s", 7), ("20000/s", 1000)])
def test_a_consumer_that_takes_few_at_a_time_loses_nothing_of_its_rate(
    make_queue: Any, clock: ServerClock, rate: str, limit: int
) -> None:
    queue: Queue = make_queue(rate=rate)
    a_second = round(SECOND / interval_of(rate))
    send_many(queue, 2 * a_second + 10)
    consumer = Consumer(queue, clock, late=LATE, limit=limit)
    consumer.run_until(NOW + 2 * SECOND)
    assert consumer.count() == a_second + 1
    consumer.run_until(NOW + 3 * SECOND)
    assert consumer.count() == 2 * a_second + 1


@pytest.mark.parametrize("rate", ["1000/s", "2000/s"])
def test_a_high_rate_is_reached_with_a_claim_each_ten_milliseconds(
    make_queue: Any, clock: ServerClock, rate: str
) -> None:
    queue: Queue = make_queue(rate=rate)
    a_second = round(SECOND / interval_of(rate))
    send_many(queue, 2 * a_second + 10)
    consumer = Consumer(queue, clock, late=1)
    consumer.run_until(NOW + 3 * SECOND)
    assert consumer.count() == 2 * a_second + 1
    assert [count for _, count in consumer.taken[:4]] == [1, *[a_second // 100] * 3]
    assert len(consumer.taken) <= 2 * 100 + 2


@pytest.mark.parametrize("rate", ["5/s", "3/s", "10/s", "100/s", "30/m"])
def test_deliveries_come_evenly_from_the_first_one_on(make_queue: Any, clock: ServerClock, rate: str) -> None:
    queue: Queue = make_queue(rate=rate)
    send_many(queue, 200)
    consumer = Consumer(queue, clock, late=1)
    consumer.run_until(NOW + 2 * SECOND)
    pace = math.ceil(interval_of(rate))
    expected = range(NOW + SECOND, NOW + 2 * SECOND + 1, pace)
    assert [at for at, count in consumer.taken if count] == list(expected)
    assert all(count <= 1 for _, count in consumer.taken)


@pytest.mark.parametrize("rate", ["100/s", "7/s", "400/s"])
def test_no_time_from_the_first_delivery_on_has_more_than_its_share_and_one(
    make_queue: Any, clock: ServerClock, rate: str
) -> None:
    queue: Queue = make_queue(rate=rate)
    send_many(queue, 4000)
    consumer = Consumer(queue, clock, late=LATE, seed=1)
    consumer.run_until(NOW + 9 * SECOND)
    total = 0
    for at, count in consumer.taken:
        total += count
        assert total <= 1 + (at - NOW - SECOND) / interval_of(rate)


@pytest.mark.parametrize("rate", ["100/s", "7/s", "400/s"])
def test_no_interval_has_more_than_its_share_and_its_arrears(make_queue: Any, clock: ServerClock, rate: str) -> None:
    queue: Queue = make_queue(rate=rate)
    send_many(queue, 4000)
    consumer = Consumer(queue, clock, late=400_000, seed=1)
    consumer.run_until(NOW + 9 * SECOND)
    interval = interval_of(rate)
    for i, (start, _) in enumerate(consumer.taken):
        total = 0
        for at, count in consumer.taken[i:]:
            total += count
            assert total <= 1 + (TOLERANCE + at - start) / interval


@pytest.mark.parametrize("options", [{"rate": "1/m"}, {"max_in_flight": 1}])
def test_a_claim_of_no_message_keeps_the_mark_of_a_limit(make_queue: Any, options: dict[str, Any]) -> None:
    queue: Queue = make_queue(**options)
    queue.send("a", "b")
    assert queue.claim().is_limited
    mark = limited(queue)
    assert mark is not None
    queue.options = replace(queue.options, rate=None, max_in_flight=None)
    queue.claim(0, then="leave")
    assert limited(queue) == mark


@pytest.mark.parametrize("rate", ["1/m", "3/s", "10/s", "100/s", "1000/s", "1000000/s"])
@pytest.mark.parametrize("idle", [0, 3600 * SECOND])
def test_the_first_of_many_comes_alone(make_queue: Any, clock: ServerClock, rate: str, idle: int) -> None:
    queue: Queue = make_queue(rate=rate)
    if idle:
        queue.send("long ago")
        queue.call(ops.ack(queue.keys, queue.options, settles_of(queue.claim(1000))))
        clock.freeze(NOW + idle)
    send_many(queue, 200)
    claimed = queue.claim(1000)
    assert (ids_of(claimed), claimed.is_limited) == (["m000000"], True)


@pytest.mark.parametrize(
    ("late", "count"), [(0, 1), (9_990, 1), (10_000, 2), (90_000, 10), (99_990, 10), (100_000, 11), (60 * SECOND, 11)]
)
def test_messages_held_back_catch_up_by_at_most_a_tenth_of_a_second(
    make_queue: Any, clock: ServerClock, late: int, count: int
) -> None:
    queue: Queue = make_queue(rate="100/s")
    send_many(queue, 200)
    queue.claim(1000, lease=3600)
    free_at = int(limited(queue) or 0)
    clock.freeze(free_at + late)
    claimed = queue.claim(1000, lease=3600)
    assert (len(claimed.ids), claimed.is_limited) == (count, True)
    assert queue.claim(1000, lease=3600).ids == []


def test_messages_that_were_not_held_back_do_not_catch_up(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(rate="100/s")
    send_many(queue, 2)
    assert len(queue.claim(1000).ids) == 1
    clock.freeze(int(limited(queue) or 0))
    assert len(queue.claim(1000).ids) == 1  # the last one
    assert limited(queue) is None
    clock.freeze(NOW + SECOND)
    send_many(queue, 20, first=2)
    assert len(queue.claim(1000).ids) == 1


def test_a_claim_with_a_lower_limit_does_not_stop_others_from_catching_up(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(rate="100/s")
    send_many(queue, 20)
    queue.claim(1000)
    free_at = int(limited(queue) or 0)
    clock.freeze(free_at + 50_000)
    first = queue.claim(2)
    assert (len(first.ids), first.is_limited, first.next_in) == (2, False, 0)
    assert limited(queue) == str(free_at + 20_000)
    take_token(queue)
    queue.send("during")
    assert queue.dump().wake == 1  # it is due: there is a message to claim
    assert len(queue.claim(1000).ids) == 4


def test_a_rate_is_shared(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(rate="100/s")
    send_many(queue, 100)
    queue.claim(1000)
    clock.freeze(int(limited(queue) or 0) + TOLERANCE)
    first = ids_of(queue.claim(4, consumer="one"))
    call = queue.claim_call(100, consumer="other")
    second = call.decode(queue.call(call, stream=b"other"))
    assert (len(first), len(ids_of(second))) == (4, 7)


@pytest.mark.parametrize(
    ("rate", "wait"), [("1/m", 60_000_000), ("3/s", 333_334), ("5/s", 200_000), ("100/s", 10_000), ("50/s", 20_000)]
)
def test_a_limited_claim_returns_when_more_may_be_claimed(
    make_queue: Any, clock: ServerClock, rate: str, wait: int
) -> None:
    queue: Queue = make_queue(rate=rate)
    send_many(queue, 200)
    claimed = queue.claim(1000, lease=3600)
    assert claimed.next_in == pytest.approx(wait / SECOND, abs=2e-6)
    free_at = claimed.now + round((claimed.next_in or 0) * SECOND)
    assert limited(queue) == str(free_at)
    clock.freeze(free_at - 1)
    early = queue.claim(1000, lease=3600)
    assert (early.ids, early.is_limited, round((early.next_in or 0) * SECOND)) == ([], True, 1)
    clock.freeze(free_at)
    assert len(queue.claim(1000, lease=3600).ids) == 1


def test_a_claim_is_limited_only_when_something_is_kept_back(make_queue: Any) -> None:
    queue: Queue = make_queue(rate="100/s")
    queue.send("first")
    queue.send("later", delay=5)
    claimed = queue.claim(1000)
    assert (len(claimed.ids), claimed.is_limited, limited(queue)) == (1, False, None)
    assert claimed.next_in == pytest.approx(5, abs=0.001)
    queue.send("now")
    claimed = queue.claim(1000)
    assert (claimed.ids, claimed.is_limited) == ([], True)
    assert 0 < (claimed.next_in or 0) < 0.011


def test_a_queue_without_limits_stores_nothing_about_them(queue: Queue) -> None:
    send_many(queue, 20)
    assert not queue.claim(10).is_limited
    assert queue.dump().meta.keys().isdisjoint({"tat", "limited"})


@pytest.mark.parametrize("options", [{"rate": "10/s"}, {"max_in_flight": 1}], ids=str)
@pytest.mark.parametrize("checked", [False, True])
def test_a_send_leaves_no_token_while_the_queue_is_limited(
    make_queue: Any, clock: ServerClock, options: Any, checked: bool
) -> None:
    queue: Queue = make_queue(**options)
    send_many(queue, 20)
    fence = queue.claim(1).fence
    assert limited(queue) is None  # it got all that it asked for
    assert queue.claim(10).is_limited
    take_token(queue)
    extra: Any = {"ttl": 600} if checked else {}
    queue.send("during", **extra)
    assert queue.dump().wake == 0
    if "rate" in options:
        clock.freeze(int(limited(queue) or 0))
    else:
        queue.call(ops.ack(queue.keys, queue.options, [ops.Settle("m000000", fence, has_key=False)]))
        take_token(queue)
    queue.send("afterwards", **extra)
    assert queue.dump().wake == 1


def test_the_consumer_that_watches_a_limited_queue_takes_the_token(make_queue: Any) -> None:
    queue: Queue = make_queue(rate="10/s")
    send_many(queue, 20)
    ends: Any = (("stay", 0), ("watch", 0), ("pass", 1), ("leave", 1))
    for then, left in ends:
        claimed = queue.claim(10, then=then)
        assert claimed.is_limited
        assert claimed.next_in
        assert claimed.next_in > 0
        assert queue.dump().wake == left, then


# --- max_in_flight -----------------------------------------------------------------------------------------------


def given_full(queue: Queue, count: int = 3) -> list[ops.Settle]:
    """Hold as many as may be in flight, with others due after them; no token is left."""
    send_many(queue, count + 5)
    claimed = queue.claim(100)
    assert (len(claimed.ids), claimed.is_limited, limited(queue)) == (count, True, "0")
    assert claimed.next_in == pytest.approx(30, abs=0.001)
    take_token(queue)
    return settles_of(claimed)


def test_the_number_of_leases_never_exceeds_the_limit(make_queue: Any) -> None:
    queue: Queue = make_queue(max_in_flight=3)
    held = given_full(queue)
    for _ in range(5):
        claimed = queue.claim(100)
        assert (claimed.ids, claimed.is_limited) == ([], True)
        assert claimed.next_in
        assert claimed.next_in > 0
    queue.call(ops.ack(queue.keys, queue.options, held[:2]))
    assert len(queue.claim(100).ids) == 2
    assert len(queue.dump().leased) == 3


def test_a_consumer_with_a_lower_limit_gets_none_while_more_are_in_flight(make_queue: Any) -> None:
    queue: Queue = make_queue(max_in_flight=3)
    held = given_full(queue)
    queue.options = replace(queue.options, max_in_flight=2)
    assert queue.claim(100).ids == []
    queue.call(ops.ack(queue.keys, queue.options, held[:1]))
    assert queue.claim(100).ids == []
    queue.call(ops.ack(queue.keys, queue.options, held[1:2]))
    assert len(queue.claim(100).ids) == 1


@pytest.mark.parametrize("verb", ["ack", "finish", "reject", "cancel", "purge", "retry", "defer", "release", "recycle"])
def test_every_call_that_makes_room_leaves_a_token(make_queue: Any, verb: str) -> None:
    queue: Queue = make_queue(max_in_flight=3)
    held = given_full(queue)
    calls: dict[str, Any] = {
        "ack": ops.ack(queue.keys, queue.options, held),
        "finish": ops.finish(queue.keys, replace(queue.options, done=Keep(count=9)), [(each, "") for each in held]),
        "reject": ops.reject(queue.keys, queue.options, [(each, "bad", "", "") for each in held]),
        "cancel": ops.cancel(queue.keys, held[0].id, running=True),
        "purge": ops.purge(queue.keys, "leased", 3),
        "retry": ops.retry(queue.keys, [(each, 60, "", "") for each in held]),
        "defer": ops.defer(queue.keys, [(each, 60, "") for each in held]),
        "release": ops.release(queue.keys, held),
        "recycle": ops.recycle(queue.keys, [(each, 60, b"") for each in held]),
    }
    queue.call(calls[verb])
    assert queue.dump().wake == 1
    assert len(queue.claim(100).ids) == (1 if verb == "cancel" else 3)


@pytest.mark.parametrize("verb", ["ack", "reject", "cancel"])
def test_room_leaves_no_token_if_no_limit_held_messages_back(make_queue: Any, verb: str) -> None:
    queue: Queue = make_queue(max_in_flight=3)
    send_many(queue, 2)
    held = settles_of(queue.claim(100))
    assert limited(queue) is None
    take_token(queue)
    calls: dict[str, Any] = {
        "ack": ops.ack(queue.keys, queue.options, held[:1]),
        "reject": ops.reject(queue.keys, queue.options, [(held[0], "bad", "", "")]),
        "cancel": ops.cancel(queue.keys, held[0].id, running=True),
    }
    queue.call(calls[verb])
    assert queue.dump().wake == 0


def test_a_lease_that_runs_out_makes_room(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(max_in_flight=2, crash_limit=1)
    given_full(queue, 2)
    clock.freeze(NOW + 31 * SECOND)
    claimed = queue.claim(100)
    assert len(claimed.reclaimed) == 2
    assert ids_of(claimed) == ["m000002", "m000003"]


def test_a_keyed_message_that_is_finished_makes_room(make_queue: Any) -> None:
    queue: Queue = make_queue(max_in_flight=1)
    queue.send("a", key="k")
    queue.send("b", key="l")
    (held,) = (ops.Settle(id_, claimed.fence) for claimed in [queue.claim(10)] for id_ in ids_of(claimed))
    take_token(queue)
    queue.call(ops.ack(queue.keys, queue.options, [held]))
    assert queue.dump().wake == 1
    assert ids_of(queue.claim(10)) == ["b"]


def test_messages_that_a_limit_holds_back_are_not_parked(make_queue: Any) -> None:
    queue: Queue = make_queue(max_in_flight=1)
    queue.send("a", "b", key="k")
    assert ids_of(queue.claim(10)) == ["a"]
    claimed = queue.claim(10)
    assert (claimed.ids, claimed.is_limited, queue.dump().parked) == ([], True, [])


# --- Together ------------------------------------------------------------------------------------------------------


def test_both_limits_hold_together(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(rate="100/s", max_in_flight=5)
    send_many(queue, 100)
    first = queue.claim(100)
    free_at = int(limited(queue) or 0)
    assert (len(first.ids), free_at > first.now) == (1, True)  # by its rate
    clock.freeze(free_at + 80_000)
    second = queue.claim(100)
    assert (len(second.ids), limited(queue)) == (4, "0")  # by max_in_flight: the rate allows 9
    queue.call(ops.ack(queue.keys, queue.options, settles_of(first) + settles_of(second)))
    third = queue.claim(100)
    assert (len(third.ids), third.is_limited) == (1, True)  # the rate did not hold others back
    assert int(limited(queue) or 0) == third.now + 10_000
    clock.freeze(third.now + SECOND)
    assert len(queue.claim(100).ids) == 4


def test_a_paused_queue_is_paused_and_not_limited(make_queue: Any) -> None:
    queue: Queue = make_queue(max_in_flight=3)
    held = given_full(queue)
    queue.call(ops.pause(queue.keys, "somebody"))
    claimed = queue.claim(100)
    assert (claimed.is_paused, claimed.is_limited, limited(queue)) == (True, False, None)
    queue.call(ops.ack(queue.keys, queue.options, held))
    assert queue.claim(100).ids == []
    queue.call(ops.resume(queue.keys))
    assert queue.dump().wake == 1
    assert len(queue.claim(100).ids) == 3


def test_resume_of_a_limited_queue_is_limited_again(make_queue: Any) -> None:
    queue: Queue = make_queue(rate="10/s")
    send_many(queue, 20)
    assert queue.claim(100).is_limited
    queue.call(ops.pause(queue.keys, "somebody"))
    queue.claim(100)
    queue.call(ops.resume(queue.keys))
    claimed = queue.claim(100)
    assert (claimed.ids, claimed.is_limited) == ([], True)
    assert 0 < (claimed.next_in or 0) <= 0.1


def test_expiry_and_crashes_continue_while_limited(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(rate="1/d")
    queue.send("a", "b")
    queue.send("short", ttl=5)
    assert ids_of(queue.claim(10, lease=10)) == ["a"]
    clock.freeze(NOW + 11 * SECOND)
    claimed = queue.claim(10)
    assert [each.id for each in claimed.reclaimed] == ["a"]
    assert (claimed.ids, queue.dump().stats["expired"]) == ([], 1)


def test_limits_pass_an_audit_and_leave_nothing(make_queue: Any, clock: ServerClock) -> None:
    """I9."""
    queue: Queue = make_queue(rate="1000/s", max_in_flight=2)
    send_many(queue, 4)
    for turn in range(3):  # one; two that catch up, which is max_in_flight; one
        clock.freeze(NOW + (turn + 1) * SECOND)
        queue.call(ops.ack(queue.keys, queue.options, settles_of(queue.claim(100))))
    assert {name for name in queue.key_names() if not name.startswith("call:")} == {"meta"}
    assert limited(queue) is None
