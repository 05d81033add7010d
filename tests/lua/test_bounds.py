"""I11: a script does a bounded part of any backlog, and reports that there is more.

The limits here are generous: the machine may be busy. Work that grows with the queue would take seconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec import structs

from duly._core import ops
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue

pytestmark = pytest.mark.slow

MANY = 200_000
SANE = 1.0  # seconds of the server's processor for a script; they take milliseconds


@contextmanager
def sane_time(queue: Queue) -> Iterator[None]:
    """Fail if the server uses much processor time in this block. Time in which it does not run does not count."""
    used = queue.wire.cpu_seconds()
    yield
    assert queue.wire.cpu_seconds() - used < SANE


def _send_many(queue: Queue, count: int, batch: int = 1000, **options: object) -> None:
    # One message prepared, many ids: preparing each would take longer than sending them all.
    one = queue.outgoing("", **options)
    for first in range(0, count, batch):
        queue.send_all([structs.replace(one, id=f"m{n:06d}") for n in range(first, min(first + batch, count))])


def _stored(queue: Queue) -> int:
    count: int = queue.wire.run("HLEN", queue.keys.key("msgs"))
    return count


def test_of_200_000_due_in_the_same_millisecond_a_claim_takes_its_thousand(queue: Queue, clock: ServerClock) -> None:
    _send_many(queue, MANY, at=NOW / SECOND + 60)
    clock.freeze(NOW + 60 * SECOND)
    with sane_time(queue):
        claimed = queue.claim(limit=1000)
    assert [id_.decode() for id_ in claimed.ids] == [f"m{n:06d}" for n in range(1000)]
    assert claimed.next_in == 0
    settles = [ops.Settle(id_.decode(), claimed.fence, 0) for id_ in claimed.ids]
    with sane_time(queue):
        assert queue.call(ops.ack(queue.keys, queue.options, settles)) == []
    with sane_time(queue):
        queue.send("one more")
    with sane_time(queue):
        queue.call(ops.stats(queue.keys))
    queue.call(ops.delete(queue.keys))


@pytest.mark.parametrize("verb", ["retry", "defer", "release", "recycle", "reject", "extend", "progress"])
def test_a_thousand_are_settled_in_one_call(queue: Queue, verb: str) -> None:
    _send_many(queue, 1000)
    claimed = queue.claim(limit=1000)
    settles = [ops.Settle(id_.decode(), claimed.fence, 0) for id_ in claimed.ids]
    call = {
        "retry": ops.retry(queue.keys, [(settle, 0, "boom", "") for settle in settles]),
        "defer": ops.defer(queue.keys, [(settle, 0, "") for settle in settles]),
        "release": ops.release(queue.keys, settles),
        "recycle": ops.recycle(queue.keys, [(settle, 0, b"") for settle in settles]),
        "reject": ops.reject(queue.keys, queue.options, [(settle, "bad", "", "") for settle in settles]),
        "extend": ops.extend(queue.keys, [(settle, 60) for settle in settles]),
        "progress": ops.of_rows("progress", queue.keys, [(settle, "0.4", "loading") for settle in settles]),
    }[verb]
    with sane_time(queue):
        assert queue.call(call) == []


def test_of_9_000_due_all_are_delivered_in_order(queue: Queue) -> None:
    _send_many(queue, 9000)
    taken: list[bytes] = []
    while ids := queue.claim(limit=1000).ids:
        taken += ids
    assert taken == [b"m%06d" % n for n in range(9000)]


def test_10_000_leases_that_ran_out_are_taken_back_in_steps(queue: Queue, clock: ServerClock) -> None:
    _send_many(queue, 10_000)
    for _ in range(10):
        queue.claim(limit=1000, lease=10)
    clock.freeze(NOW + 60 * SECOND)
    reclaimed = 0
    for _ in range(100):
        with sane_time(queue):
            claimed = queue.claim(limit=1, lease=1000)
        assert 0 < len(claimed.reclaimed) <= 100
        assert claimed.next_in == 0
        reclaimed += len(claimed.reclaimed)
    assert reclaimed == 10_000
    assert queue.dump().stats["crashed"] == 10_000


def test_10_000_messages_past_their_ttl_go_in_steps(queue: Queue, clock: ServerClock) -> None:
    _send_many(queue, 10_000, ttl=5)
    clock.freeze(NOW + 60 * SECOND)
    steps = 0
    while _stored(queue):
        with sane_time(queue):
            claimed = queue.claim(limit=1)
        assert not claimed.ids
        assert (claimed.next_in == 0) == (_stored(queue) > 0)
        steps += 1
    assert 90 <= steps <= 100
    assert queue.dump().stats["expired"] == 10_000


def test_10_000_messages_past_their_ttl_are_tidied_away_in_steps(queue: Queue, clock: ServerClock) -> None:
    _send_many(queue, 10_000, ttl=5)
    clock.freeze(NOW + 60 * SECOND)
    steps, is_more = 0, True
    while is_more:
        with sane_time(queue):
            is_more = queue.tidy()
        steps += 1
    assert steps == 101  # the last one finds nothing
    assert _stored(queue) == 0


def test_a_claim_past_5_000_suspects_takes_no_longer_than_any_other(queue: Queue, clock: ServerClock) -> None:
    queue = Queue(queue.wire, queue.keys.name, crash_limit=2)
    _send_many(queue, 5000)
    for _ in range(5):
        queue.claim(limit=1000, lease=10)
    clock.freeze(NOW + 60 * SECOND)
    while queue.claim(limit=1000, suspects="none").reclaimed:
        pass
    queue.send("free", priority=1)
    with sane_time(queue):
        claimed = queue.claim(limit=1000, suspects="none")
    assert (claimed.ids, claimed.passed_over) == ([b"free"], True)
    with sane_time(queue):
        assert queue.claim(limit=1000, suspects="alone").ids == [b"m000000"]


def test_a_live_message_behind_thousands_that_expired_is_found(queue: Queue, clock: ServerClock) -> None:
    _send_many(queue, 3000, ttl=5)
    queue.send("live")
    clock.freeze(NOW + 60 * SECOND)
    steps = 0
    while not (claimed := queue.claim(limit=10)).ids:
        assert claimed.next_in == 0
        steps += 1
    assert claimed.ids == [b"live"]
    assert steps <= 40


def test_a_bound_on_dead_letters_that_was_made_smaller_is_reached_in_steps(queue: Queue) -> None:
    for first in range(0, 3000, 1000):
        queue.bury(*(f"d{n:06d}" for n in range(first, first + 1000)))
    smaller = Queue(queue.wire, queue.keys.name, dead=Keep(count=10))
    smaller.sequence = queue.sequence
    left = 3000
    while left > 10:
        with sane_time(queue):
            smaller.bury(f"x{left}")
        dead = len(smaller.dump().dead)
        assert left - 101 <= dead < left
        left = dead


def test_a_queue_whose_bound_was_made_smaller_is_emptied_in_steps(queue: Queue) -> None:
    _send_many(queue, 5000, priority=3)
    smaller = Queue(queue.wire, queue.keys.name, max_length=10)
    smaller.sequence = queue.sequence
    steps = 0
    while steps == 0 or _stored(queue) > 10:
        with sane_time(queue):
            assert len(smaller.send(f"x{steps}", on_refusal="drop")) == 1
        steps += 1
    assert 5 <= steps <= 60
    state = smaller.dump()
    assert len(state.msgs) == 10
    assert state.stats["dropped"] == 5000 + steps - 10


@pytest.mark.parametrize("verb", ["purge", "redrive"])
def test_purge_and_redrive_are_bounded(queue: Queue, verb: str) -> None:
    queue.bury(*(f"d{n}" for n in range(1000)))
    queue.bury(*(f"e{n}" for n in range(1000)))
    calls = {"purge": ops.purge(queue.keys, "dead", 600), "redrive": ops.redrive(queue.keys, 600)}
    with sane_time(queue):
        assert queue.call(calls[verb]) == [600, 1400]


def test_an_audit_of_a_large_queue_goes_in_steps(queue: Queue) -> None:
    _send_many(queue, 20_000)
    cursor, checked, steps = "0", 0, 0
    while steps == 0 or cursor != "0":
        with sane_time(queue):
            step = ops.audit_step(queue.keys, "msgs", cursor, repair=False)
            found = step.decode(queue.call(step))
        assert found.checked < 2000
        assert not found.faults
        cursor, checked, steps = found.cursor, checked + found.checked, steps + 1
    assert checked >= 20_000


def test_a_forecast_of_a_large_queue_is_bounded(queue: Queue) -> None:
    _send_many(queue, MANY, delay=1800)
    for priority in range(1, 10):
        queue.send(f"of priority {priority}", delay=1800, priority=priority)
    call = ops.forecast(queue.keys, 3600)
    with sane_time(queue):
        found = call.decode(queue.call(call))
    assert sum(bucket.count for bucket in found) == MANY + 9
    queue.call(ops.delete(queue.keys))


def test_measured_times_of_any_length_are_bounded(queue: Queue, clock: ServerClock) -> None:
    """A caller may send more numbers than there are buckets: only the first 32 are stored, and a point has room."""
    _send_many(queue, MANY)
    times = ",".join(["1"] * 100_000)
    with sane_time(queue):
        assert queue.call(ops.measure(queue.keys, times, times)) == 1
    history = queue.dump().history
    assert history["lateness"] == history["handling"] == b",".join([b"1"] * 32)
    clock.freeze(NOW + 60 * SECOND)
    with sane_time(queue):
        assert queue.call(ops.measure(queue.keys, times, "5,1")) == 1
    assert max(map(len, queue.dump().history.values())) < 400
    queue.call(ops.delete(queue.keys))
