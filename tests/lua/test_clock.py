"""The queue's clock never goes back, even if the server's clock does. Each test moves the clock of a real server."""

from typing import Any

import pytest
from msgspec import structs

from duly._core import ops
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, ids_of

HOUR = 3600 * SECOND


def test_after_a_step_back_messages_sent_now_are_claimable_now(queue: Queue, clock: ServerClock) -> None:
    queue.send("before")
    clock.freeze(NOW - HOUR)
    queue.send("after")
    assert ids_of(queue.claim()) == ["before", "after"]


def test_after_a_step_back_arrivals_keep_their_order(queue: Queue, clock: ServerClock) -> None:
    for number in range(20):
        clock.freeze(NOW - number * HOUR)
        queue.send(f"a{number}")
    assert ids_of(queue.claim(limit=20)) == [f"a{number}" for number in range(20)]


@pytest.mark.parametrize("verb", ["retry", "release", "defer", "recycle", "redrive", "promote"])
def test_after_a_step_back_messages_given_back_now_are_claimable_now(
    queue: Queue, clock: ServerClock, verb: str
) -> None:
    (settle,) = queue.hold("a", ttl=10)
    clock.freeze(NOW - HOUR)
    if verb == "redrive":
        queue.call(ops.reject(queue.keys, queue.options, [(settle, "bad", "", "")]))
    if verb == "promote":
        queue.call(ops.defer(queue.keys, [(settle, 60, "")]))
    calls: dict[str, Any] = {
        "retry": ops.retry(queue.keys, [(settle, 0, "", "")]),
        "release": ops.release(queue.keys, [settle]),
        "defer": ops.defer(queue.keys, [(settle, 0, "")]),
        "recycle": ops.recycle(queue.keys, [(settle, 0, b"")]),
        "redrive": ops.redrive(queue.keys, 1),
        "promote": ops.reschedule(queue.keys, "a", "0"),
    }
    queue.call(calls[verb])
    assert ids_of(queue.claim()) == ["a"]


def test_after_a_step_back_fences_keep_growing(queue: Queue, clock: ServerClock) -> None:
    fences = []
    queue.send("a")
    for number in range(10):
        clock.freeze(NOW - number * HOUR)
        fences.append(queue.claim().fence)
        queue.call(ops.release(queue.keys, [ops.Settle("a", fences[-1], 0)]))
    assert fences == sorted(set(fences))


def test_after_a_step_back_a_lease_still_holds(queue: Queue, clock: ServerClock) -> None:
    (settle,) = queue.hold("a")
    clock.freeze(NOW - HOUR)
    assert ids_of(queue.claim()) == []
    assert queue.call(ops.ack(queue.keys, queue.options, [settle])) == []


def test_after_a_step_forward_leases_are_over(queue: Queue, clock: ServerClock) -> None:
    (stale,) = queue.hold("a", lease=30)
    clock.freeze(NOW + HOUR)
    assert ids_of(queue.claim()) == ["a"]
    assert queue.call(ops.ack(queue.keys, queue.options, [stale])) == [1]


@pytest.mark.parametrize("back", [1, 10 * SECOND, HOUR])
def test_after_a_step_back_nothing_that_waits_is_early(queue: Queue, clock: ServerClock, back: int) -> None:
    queue.send("a", delay=5)
    clock.freeze(NOW - back)
    assert ids_of(queue.claim()) == []
    clock.freeze(NOW + 5 * SECOND - 1)
    assert ids_of(queue.claim()) == []
    clock.freeze(NOW + 5 * SECOND)
    assert ids_of(queue.claim()) == ["a"]


def test_never_early_to_the_microsecond(queue: Queue, clock: ServerClock) -> None:
    dues = {f"a{number}": NOW + number for number in range(1, 50)}
    clock.freeze(NOW - SECOND)  # each arrival takes a tick of the queue's clock, which is over long before NOW
    queue.send_all([structs.replace(queue.outgoing(id_, at=due / SECOND), when=f"={due}") for id_, due in dues.items()])
    claimed_at: dict[str, int] = {}
    for now in range(NOW, NOW + 60):
        clock.freeze(now)
        claimed_at |= dict.fromkeys(ids_of(queue.claim()), now)
    assert claimed_at == dues


def test_a_clock_that_stands_still_gives_every_claim_its_own_fence(queue: Queue) -> None:
    queue.send("a", "b")
    first, second = queue.claim(limit=1), queue.claim(limit=1)
    assert first.fence < second.fence


def test_after_a_step_back_a_point_in_time_does_not_come_early(queue: Queue, clock: ServerClock) -> None:
    """At 12:00 the clock goes back to 11:00. A message sent then for 11:30 must not be delivered before 11:30."""
    queue.send("before")
    clock.freeze(NOW - HOUR)
    queue.send("at", at=(NOW - HOUR // 2) / SECOND)
    assert ids_of(queue.claim()) == ["before"]
    clock.freeze(NOW + HOUR)
    assert ids_of(queue.claim(consumer="later")) == ["before", "at"]
