"""The clock of a queue that was set ahead: its leases and delays would not end for days."""

from typing import Final

import redis

from duly import Duly, Queue
from tests.client._sync.given import take
from tests.client.place import ServerPlace
from tests.client.repair.judge import drained

YEAR: Final = 365 * 86400
AHEAD: Final = ("clock", "a clock that is far ahead")


def put_ahead(queue: Queue, stranger: redis.Redis, seconds: int) -> None:
    now, _ = stranger.time()
    stranger.hset(f"duly:{{{queue.name}}}:meta", "clock", str((now + seconds) * 1_000_000))


def faults_of(queue: Queue, *, repair: bool = False) -> list[tuple[str, str]]:
    return [(fault.id, fault.what) for fault in queue.audit(repair).faults]


def test_a_clock_that_nothing_was_stamped_by_is_the_servers_again(
    app: Duly, server: ServerPlace, queue_name: str, stranger: redis.Redis
) -> None:
    """I3: a message that was sent before waits as long as it should."""
    queue = app.queue(queue_name, lease=30)
    queue.send("now")
    queue.send("later", delay=60)
    put_ahead(queue, stranger, YEAR)

    assert faults_of(queue) == [AHEAD]
    assert faults_of(queue, repair=True) == [AHEAD]

    assert faults_of(queue) == []
    (delivery,) = take(queue)
    assert delivery.body == "now"
    server.advance(31)
    assert [delivery.body for delivery in take(queue)] == ["now"]
    server.advance(30)
    assert drained(queue) == ["now", "later"]


def test_a_clock_that_leases_depend_on_stays_until_they_end(
    app: Duly, server: ServerPlace, queue_name: str, stranger: redis.Redis
) -> None:
    """The next fence of a message is larger than its last."""
    queue = app.queue(queue_name, lease=30)
    queue.send("body")
    put_ahead(queue, stranger, YEAR)
    (first,) = take(queue)
    first.release()

    assert faults_of(queue, repair=True) == [AHEAD]

    (second,) = take(queue)
    assert second.fence > first.fence
    second.ack()
    assert faults_of(queue, repair=True) == [AHEAD]
    assert faults_of(queue) == []
    queue.send("next", delay=60)
    server.advance(61)
    assert drained(queue) == ["next"]


def test_a_clock_that_stamped_waiting_messages_stays(app: Duly, queue_name: str, stranger: redis.Redis) -> None:
    """I3."""
    queue = app.queue(queue_name)
    put_ahead(queue, stranger, YEAR)
    queue.send("now")

    assert faults_of(queue, repair=True) == [AHEAD]

    assert drained(queue) == ["now"]
    queue.audit(repair=True)
    assert faults_of(queue) == []


def test_a_clock_hours_behind_the_server_is_not_a_fault(app: Duly, queue_name: str, stranger: redis.Redis) -> None:
    queue = app.queue(queue_name)
    queue.send("now")
    put_ahead(queue, stranger, 20 * 3600)

    assert queue.audit(repair=True).ok


def test_a_rate_continues_when_the_clock_is_the_servers_again(
    app: Duly, server: ServerPlace, queue_name: str, stranger: redis.Redis
) -> None:
    """I3: only the rest of its interval is waited for."""
    queue = app.queue(queue_name, rate="1/m")
    queue.send_many(["first", "second"])
    put_ahead(queue, stranger, YEAR)
    queue.ack_many(take(queue))
    assert take(queue) == []

    assert faults_of(queue, repair=True) == [AHEAD]

    assert faults_of(queue) == []
    tat = int(stranger.hget(f"duly:{{{queue_name}}}:meta", "tat") or 0)
    assert 0 < tat / 1_000_000 - stranger.time()[0] <= 61
    server.advance(50)
    assert take(queue) == []
    server.advance(11)
    assert drained(queue) == ["second"]


def test_a_rate_that_was_delayed_forever_starts_over(
    app: Duly, server: ServerPlace, queue_name: str, stranger: redis.Redis
) -> None:
    queue = app.queue(queue_name, rate="1/m")
    queue.send("body")
    endless = ("tat", "a rate without an end")
    put_ahead(queue, stranger, 0)
    stranger.hset(f"duly:{{{queue_name}}}:meta", "tat", str((stranger.time()[0] + 11 * YEAR) * 1_000_000))

    assert (faults_of(queue), faults_of(queue, repair=True), faults_of(queue)) == ([endless], [endless], [])
    assert drained(queue) == ["body"]


def test_the_longest_allowed_times_are_not_faults(app: Duly, queue_name: str) -> None:
    longest = 10 * 366 * 86400
    queue = app.queue(queue_name, rate="0.000274/d")
    queue.send("body", dedup="once", dedup_for=longest)
    assert [delivery.body for delivery in take(queue)] == ["body"]

    assert queue.audit(repair=True).explanation == ()
