"""rate and max_in_flight: exact, shared by all consumers, and nobody spins or sleeps too long because of them."""

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
"""Microseconds by which a consumer may come late and lose nothing of its rate."""


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
    """Claims when it was told to, but late, and finishes at once; writes down what it got when."""

    def __init__(self, queue: Queue, clock: ServerClock, *, late: int, seed: int = 0) -> None:
        self._queue, self._clock, self._late = queue, clock, late
        self._chance = random.Random(seed)
        self.now = NOW + SECOND
        self.taken: list[tuple[int, int]] = []

    def run_until(self, end: int) -> None:
        """Go on until a moment, and look at that moment exactly."""
        while self.now < end:
            self.now = min(self._look() + self._chance.randrange(self._late), end)
        self._look()

    def _look(self) -> int:
        self._clock.freeze(self.now)
        claimed = self._queue.claim(1000)
        if claimed.ids:
            self._queue.call(ops.ack(self._queue.keys, self._queue.options, settles_of(claimed)))
        self.taken.append((self.now, len(claimed.ids)))
        assert claimed.next_in is not None
        # A thousand at once is what a claim gives; otherwise there is always more, and never a reason to spin.
        assert len(claimed.ids) == 1000 or (claimed.is_limited and claimed.next_in > 0)
        return self.now + max(math.ceil(claimed.next_in * SECOND), 1)

    def count(self) -> int:
        return sum(count for _, count in self.taken)


@pytest.mark.parametrize(
    ("rate", "seconds", "count"),
    [
        ("100/s", 60, 6000),
        ("6000/m", 60, 6000),
        ("3/s", 60, 180),
        ("1/m", 60, 1),
        ("1/m", 600, 10),
        ("1000/s", 5, 5000),
    ],
)
def test_a_rate_is_exact_for_a_consumer_that_comes_late(
    make_queue: Any, clock: ServerClock, rate: str, seconds: int, count: int
) -> None:
    queue: Queue = make_queue(rate=rate)
    send_many(queue, count + 1500)
    consumer = Consumer(queue, clock, late=LATE)
    consumer.run_until(NOW + 2 * SECOND)  # the burst is over
    before = consumer.count()
    consumer.run_until(NOW + (2 + seconds) * SECOND)
    assert consumer.count() - before == count


@pytest.mark.parametrize("rate", ["100/s", "7/s", "400/s"])
def test_no_stretch_of_time_has_more_than_its_share_and_the_burst(
    make_queue: Any, clock: ServerClock, rate: str
) -> None:
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


@pytest.mark.parametrize(("rate", "burst"), [("1/m", 1), ("3/s", 1), ("50/s", 6), ("100/s", 11), ("1000/s", 101)])
def test_a_burst_is_one_and_a_tenth_of_a_seconds_worth(make_queue: Any, rate: str, burst: int) -> None:
    queue: Queue = make_queue(rate=rate)
    send_many(queue, 200)
    claimed = queue.claim(1000)
    assert (len(claimed.ids), claimed.is_limited) == (burst, True)
    assert queue.claim(1000).ids == []


def test_a_rate_is_shared(make_queue: Any) -> None:
    queue: Queue = make_queue(rate="100/s")
    send_many(queue, 100)
    first = ids_of(queue.claim(4, consumer="one"))
    call = queue.claim_call(100, consumer="other")
    second = call.decode(queue.call(call, stream=b"other"))
    assert (len(first), len(ids_of(second))) == (4, 7)


@pytest.mark.parametrize(("rate", "wait"), [("1/m", 59_900_000), ("3/s", 233_334), ("100/s", 10_000), ("50/s", 20_000)])
def test_a_limited_claim_says_when_more_may_be_had(make_queue: Any, clock: ServerClock, rate: str, wait: int) -> None:
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
    send_many(queue, 11)
    queue.send("later", delay=5)
    claimed = queue.claim(1000)
    assert (len(claimed.ids), claimed.is_limited, limited(queue)) == (11, False, None)
    assert claimed.next_in == pytest.approx(5, abs=0.001)
    queue.send("now")
    claimed = queue.claim(1000)
    assert (claimed.ids, claimed.is_limited) == ([], True)
    assert 0 < (claimed.next_in or 0) < 0.011


def test_a_queue_without_limits_notes_nothing_of_them(queue: Queue) -> None:
    send_many(queue, 20)
    assert not queue.claim(10).is_limited
    assert queue.dump().meta.keys().isdisjoint({"tat", "limited"})


@pytest.mark.parametrize("options", [{"rate": "10/s"}, {"max_in_flight": 1}], ids=str)
@pytest.mark.parametrize("checked", [False, True])
def test_a_send_leaves_no_token_while_nobody_could_do_anything(
    make_queue: Any, clock: ServerClock, options: Any, checked: bool
) -> None:
    queue: Queue = make_queue(**options)
    send_many(queue, 20)
    fence = queue.claim(1).fence
    assert limited(queue) is None  # it took what it wanted
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


def test_the_one_who_watches_a_limited_queue_takes_the_token(make_queue: Any) -> None:
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
    """Hold as many as may be out, with others due behind them; nobody is woken by then."""
    send_many(queue, count + 5)
    claimed = queue.claim(100)
    assert (len(claimed.ids), claimed.is_limited, limited(queue)) == (count, True, "0")
    assert claimed.next_in == pytest.approx(30, abs=0.001)
    take_token(queue)
    return settles_of(claimed)


def test_never_more_leases_are_out_than_allowed(make_queue: Any) -> None:
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


def test_whoever_allows_fewer_gets_none_while_more_are_out(make_queue: Any) -> None:
    queue: Queue = make_queue(max_in_flight=3)
    held = given_full(queue)
    queue.options = replace(queue.options, max_in_flight=2)
    assert queue.claim(100).ids == []
    queue.call(ops.ack(queue.keys, queue.options, held[:1]))
    assert queue.claim(100).ids == []
    queue.call(ops.ack(queue.keys, queue.options, held[1:2]))
    assert len(queue.claim(100).ids) == 1


@pytest.mark.parametrize("verb", ["ack", "finish", "reject", "cancel", "purge", "retry", "defer", "release", "recycle"])
def test_whoever_makes_room_leaves_a_token(make_queue: Any, verb: str) -> None:
    queue: Queue = make_queue(max_in_flight=3)
    held = given_full(queue)
    calls: dict[str, Any] = {
        "ack": ops.ack(queue.keys, queue.options, held),
        "finish": ops.finish(queue.keys, replace(queue.options, done=Keep(count=9)), [(each, "") for each in held]),
        "reject": ops.reject(queue.keys, queue.options, [(each, "bad", "", "") for each in held]),
        "cancel": ops.cancel(queue.keys, held[0].id),
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
def test_room_that_nobody_waits_for_leaves_no_token(make_queue: Any, verb: str) -> None:
    queue: Queue = make_queue(max_in_flight=3)
    send_many(queue, 2)
    held = settles_of(queue.claim(100))
    assert limited(queue) is None
    take_token(queue)
    calls: dict[str, Any] = {
        "ack": ops.ack(queue.keys, queue.options, held[:1]),
        "reject": ops.reject(queue.keys, queue.options, [(held[0], "bad", "", "")]),
        "cancel": ops.cancel(queue.keys, held[0].id),
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


def test_what_a_limit_keeps_back_is_not_parked(make_queue: Any) -> None:
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
    assert (len(first.ids), limited(queue)) == (5, "0")
    queue.call(ops.ack(queue.keys, queue.options, settles_of(first)))
    second = queue.claim(100)
    assert (len(second.ids), limited(queue)) == (5, "0")
    queue.call(ops.ack(queue.keys, queue.options, settles_of(second)))
    third = queue.claim(100)
    assert (len(third.ids), third.is_limited) == (1, True)
    assert int(limited(queue) or 0) > third.now  # by its rate this time
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


def test_expiry_and_crashes_go_on_while_limited(make_queue: Any, clock: ServerClock) -> None:
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
    send_many(queue, 6)
    for turn in range(3):
        clock.freeze(NOW + (turn + 1) * SECOND)
        queue.call(ops.ack(queue.keys, queue.options, settles_of(queue.claim(100))))
    assert {name for name in queue.key_names() if not name.startswith("call:")} == {"meta"}
    assert limited(queue) is None
