"""Data that a repair keeps, and messages that it restores."""

from collections.abc import Callable
from typing import Any, Final

import pytest
import redis

from duly import Delivery, Duly, Send
from tests.client._sync.given import take
from tests.client.place import ServerPlace
from tests.client.repair.judge import LATER, LEASE, Healthy, drained


def test_attempts_are_counted_again_from_the_timeline(healthy: Healthy, server: ServerPlace) -> None:
    """I8."""
    healthy.run("DEL", "counts")

    healthy.inbox.audit(repair=True)

    server.advance(LATER + 1)
    deliveries = {delivery.id: delivery for delivery in take(healthy.inbox)}
    assert [deliveries[name].attempt for name in ("failed", "r1", "ready")] == [2, 2, 1]


def test_a_dedup_window_that_was_cut_in_half_counts_on(healthy: Healthy, app: Duly, server: ServerPlace) -> None:
    healthy.run("DEL", "dedup_ends")

    healthy.inbox.audit(repair=True)

    queue = app.queue(healthy.inbox.name)
    assert queue.send("again", dedup="once") == "single"
    assert all(0 < server.keys(queue.name)[key] < 11 * LATER * 1000 for key in ("dedup", "dedup_ends"))


def test_windows_that_would_never_end_nor_expire_last_as_long_as_they_should(
    healthy: Healthy, app: Duly, server: ServerPlace
) -> None:
    for key in ("dedup", "dedup_ends"):
        healthy.run("PERSIST", key)
    healthy.run("ZADD", "dedup_ends", "+inf", "once")

    healthy.inbox.audit(repair=True)

    queue = app.queue(healthy.inbox.name)
    assert queue.audit().explanation == ()
    assert queue.send("again", dedup="once") == "single"
    assert all(0 < server.keys(queue.name)[key] < 11 * LATER * 1000 for key in ("dedup", "dedup_ends"))


def test_a_dead_letter_whose_place_was_lost_is_the_same_dead_letter(healthy: Healthy) -> None:
    healthy.run("DEL", "dead")

    healthy.inbox.audit(repair=True)

    (letter,) = healthy.inbox.list("dead")
    assert (letter.id, letter.reason, letter.body) == ("dead", "no use", "dead")


def test_the_holder_of_a_message_may_finish_it_after_a_repair_of_its_lane(healthy: Healthy) -> None:
    """I7."""
    healthy.run("DEL", "lanes")

    healthy.inbox.audit(repair=True)

    assert {"k2", "k3"}.isdisjoint(drained(healthy.inbox))
    healthy.held["k1"].ack()
    assert drained(healthy.inbox) == ["k2", "k3"]


@pytest.mark.parametrize(
    "damage",
    [
        ("DEL", "slots"),
        ("HDEL", "meta", "slot"),
        ("HSET", "meta", "slot", "9e15"),
        *(("ZADD", "slots", score, "NAME") for score in ("-inf", "+inf", "-5", "1.5", "7.3e15")),
    ],
    ids=" ".join,
)
def test_a_schedule_that_was_forgotten_fires_again(
    app: Duly, server: ServerPlace, queue_name: str, stranger: redis.Redis, damage: tuple[str, ...]
) -> None:
    queue = app.queue(queue_name)
    app.schedule(queue_name, queue, "report", every=3600)
    assert take(queue) == []
    command, key, *rest = (part.replace("NAME", queue_name) for part in damage)
    stranger.execute_command(  # type: ignore[no-untyped-call]
        command, f"duly:{{{queue_name}}}:{key}", *rest
    )

    found = queue.audit()
    queue.audit(repair=True)

    assert (found.ok, queue.audit().explanation) == (False, ())
    assert take(queue) == []
    server.advance(3601)
    assert [delivery.body for delivery in take(queue)] == ["report"]


@pytest.mark.parametrize("row", [b"junk", b"\xff" * 40], ids=["cut off", "overwritten"])
def test_an_unreadable_schedule_is_named_and_can_be_declared_again(
    app: Duly, server: ServerPlace, queue_name: str, stranger: redis.Redis, row: bytes
) -> None:
    queue = app.queue(queue_name)
    app.schedule(queue_name, queue, "report", every=3600)
    stranger.hset(f"duly:{{{queue_name}}}:schedules", queue_name, row)

    found = queue.audit()
    queue.audit(repair=True)

    assert [(fault.id, fault.what) for fault in found.faults] == [(queue_name, "a schedule that cannot be read")]
    assert queue.audit().explanation == ()
    app.schedule(queue_name, queue, "report", every=3600)
    server.advance(3601)
    assert [delivery.body for delivery in take(queue)] == ["report"]


def test_a_dedup_value_that_would_never_be_free_is_free_again(healthy: Healthy, app: Duly) -> None:
    healthy.run("HSET", "dedup", "pay-17", "ghost")
    healthy.run("ZADD", "dedup_ends", "+inf", "pay-17")

    healthy.inbox.audit(repair=True)

    id_ = app.queue(healthy.inbox.name).send("pay", dedup="pay-17")
    assert id_ != "ghost"
    assert healthy.inbox.get(id_) is not None


def test_a_lane_that_waits_for_a_dead_letter_is_not_a_fault(app: Duly, queue_name: str) -> None:
    """I7."""
    queue = app.queue(queue_name, on_dead="block")
    queue.send_many([Send(name, key="k") for name in ("a", "b")])
    take(queue)[0].reject("no use")

    assert queue.audit(repair=True).ok
    assert take(queue) == []


# Restored messages


def _crash(_: Delivery, server: ServerPlace) -> None:
    server.advance(LEASE + 1)


RETURNS: Final[dict[str, Callable[[Delivery, ServerPlace], Any]]] = {
    "crash": _crash,
    "retry": lambda delivery, _: delivery.retry(0),
    "release": lambda delivery, _: delivery.release(),
    "redrive": lambda delivery, _: delivery.reject("no use"),
}


@pytest.mark.parametrize(
    "damage", [("DEL", "meta"), ("HDEL", "meta", "priorities"), ("HSET", "meta", "priorities", "x")]
)
@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("verb", RETURNS)
def test_a_message_that_a_repair_restores_is_delivered(
    app: Duly,
    server: ServerPlace,
    stranger: redis.Redis,
    queue_name: str,
    verb: str,
    priority: int,
    damage: tuple[str, ...],
) -> None:
    """I2."""
    queue = app.queue(queue_name, lease=LEASE)
    queue.send("body", priority=priority)
    (delivery,) = take(queue)
    if verb == "redrive":
        RETURNS[verb](delivery, server)
    command, key, *rest = damage
    stranger.execute_command(  # type: ignore[no-untyped-call]
        command, f"duly:{{{queue_name}}}:{key}", *rest
    )

    queue.audit(repair=True)

    assert queue.audit().explanation == ()
    if verb == "redrive":
        queue.redrive()
    else:
        RETURNS[verb](delivery, server)
    assert drained(queue) == ["body"]


def test_claims_know_of_large_messages_after_a_repair(app: Duly, stranger: redis.Redis, queue_name: str) -> None:
    queue = app.queue(queue_name)
    queue.send_many(["." * 500_000] * 12)
    stranger.delete(f"duly:{{{queue_name}}}:meta")

    found = queue.audit(repair=True)

    assert any("large: a field of meta that is missing" in line for line in found.explanation)
    assert queue.audit().explanation == ()
    assert 0 < len(take(queue)) < 12
