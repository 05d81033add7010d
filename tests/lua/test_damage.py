"""Damage by other programs must not stop a queue: no script fails, and no other message is lost."""

import struct
from datetime import UTC, datetime
from typing import Any

import pytest

from duly._core import ops, views
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, Refused, ids_of, settles_of

every_damage = pytest.mark.parametrize("damage", [b"short", b"." * 40], ids=["cut off", "overwritten"])


def _damage(queue: Queue, id_: str, record: bytes) -> None:
    queue.wire.run("HSET", queue.keys.key("msgs"), id_, record)


@every_damage
def test_a_damaged_record_with_a_ttl_does_not_stop_claims(queue: Queue, clock: ServerClock, damage: bytes) -> None:
    queue.send("a", ttl=5)
    queue.send("b", delay=6)
    _damage(queue, "a", damage)
    clock.freeze(NOW + 60 * SECOND)
    assert ids_of(queue.claim()) == ["b"]


@every_damage
@pytest.mark.parametrize("verb", ["cancel", "purge", "redrive"])
def test_a_damaged_dead_letter_can_be_steered_and_stays_in_one_place(queue: Queue, damage: bytes, verb: str) -> None:
    queue.send("a")
    _damage(queue, "a", damage)
    queue.claim()
    calls: dict[str, Any] = {
        "cancel": ops.cancel(queue.keys, "a"),
        "purge": ops.purge(queue.keys, "dead", 10),
        "redrive": ops.redrive(queue.keys, 10),
    }
    queue.call(calls[verb])
    state = queue.dump()
    assert state.places("a") == (["dead"] if verb == "redrive" else [])
    assert ("a" in state.msgs) == (verb == "redrive")


@every_damage
@pytest.mark.parametrize("repair", [False, True])
def test_an_audit_continues_after_a_damaged_record(queue: Queue, damage: bytes, repair: bool) -> None:
    queue.send("a", "b")
    _damage(queue, "a", damage)
    for source in ops.AUDITED:
        queue.call(ops.audit_step(queue.keys, source, "0", repair=repair))
    assert len(queue.dump().places("a")) == 1


@every_damage
def test_a_dedup_value_whose_message_is_damaged_does_not_stop_sends(queue: Queue, damage: bytes) -> None:
    queue.send("a", dedup="x")
    _damage(queue, "a", damage)
    queue.send("b", dedup="x", replace=True)
    queue.send("c", dedup="y")
    assert "c" in queue.dump().msgs


@pytest.mark.parametrize("place", ["waiting", "leased"])
def test_an_own_id_whose_body_was_lost_is_not_stored_twice(queue: Queue, place: str) -> None:
    put: dict[str, Any] = {"waiting": queue.send, "leased": queue.hold}
    put[place]("a", own=True)
    queue.lose_body("a")
    queue.send("a", own=True, priority=5)
    assert len(queue.dump().places("a")) == 1


def test_the_bytes_of_dead_letters_are_right_when_a_body_was_lost_before_the_reject(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(bytes=100))
    (lost,) = queue.hold("lost", body=b"." * 200)
    queue.lose_body("lost")
    queue.call(ops.reject(queue.keys, queue.options, [(lost, "bad", "", "")]))
    queue.bury("fine")
    state = queue.dump()
    assert "fine" in state.dead
    assert state.stats["dead_bytes"] == len(state.msgs["fine"])


@pytest.mark.parametrize("verb", ["cancel", "purge"])
def test_the_bytes_of_live_messages_are_right_when_a_leased_one_without_a_body_is_ended(
    queue: Queue, verb: str
) -> None:
    queue.hold("a")
    queue.lose_body("a")
    calls: dict[str, Any] = {
        "cancel": ops.cancel(queue.keys, "a", running=True),
        "purge": ops.purge(queue.keys, "leased", 10),
    }
    queue.call(calls[verb])
    assert queue.dump().stats["bytes"] == 0


def test_a_claim_that_trims_a_letter_without_a_body_delivers_its_messages(make_queue: Any) -> None:
    # -0 is not an integer for Redis 6.2 and 7.0.
    queue: Queue = make_queue(dead=Keep(count=0))
    queue.send("a", "b")
    queue.lose_body("a")
    assert ids_of(queue.claim()) == ["b"]
    assert queue.dump().places("b") == ["leased"]


def test_a_letter_without_a_body_can_be_purged(queue: Queue) -> None:
    queue.bury("a")
    queue.lose_body("a")
    assert queue.call(ops.purge(queue.keys, "dead", 10)) == [1, 0]


def test_a_message_without_a_body_can_be_dropped_for_a_new_one(make_queue: Any) -> None:
    queue: Queue = make_queue(max_length=1)
    queue.send("a")
    queue.lose_body("a")
    queue.send("b", on_refusal="drop")
    queue.send("c", on_refusal="drop")
    assert queue.dump().places("c") == ["waiting0"]


@pytest.mark.parametrize("broken", [3, 5, 7])
def test_a_hand_over_that_fails_at_a_damaged_key_loses_no_message(queue: Queue, broken: int) -> None:
    """One call hands several lanes on. Their next messages have different priorities."""
    for priority in (3, 5, 7):
        queue.send(f"first {priority}", f"next {priority}", key=f"k{priority}", priority=priority)
    firsts = settles_of(queue.claim())
    damaged = queue.keys.key(f"waiting{broken}")
    queue.wire.run("SET", damaged, "of another program")
    with pytest.raises(Refused, match="WRONGTYPE"):
        queue.call(ops.ack(queue.keys, queue.options, firsts))
    queue.wire.run("DEL", damaged)
    state = queue.dump()
    assert all(state.places(f"next {priority}") for priority in (3, 5, 7))


def test_lateness_is_that_of_the_time_at_which_a_retried_message_was_due(queue: Queue, clock: ServerClock) -> None:
    (settle,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(settle, 100, "", "")]))
    clock.freeze(queue.dump().due("a"))
    queue.claim()
    assert queue.dump().meta["lateness"] == "0"


@pytest.mark.parametrize("verb", ["release", "crash"])
def test_stamps_that_are_not_numbers_make_a_dead_letter_not_an_error(
    queue: Queue, clock: ServerClock, verb: str
) -> None:
    (settle,) = queue.hold("a")
    _damage(queue, "a", b"\xff" * 16 + queue.dump().msgs["a"][16:])
    if verb == "release":
        queue.call(ops.release(queue.keys, [settle]))
    else:
        clock.freeze(NOW + 60 * SECOND)
        queue.claim()
    state = queue.dump()
    assert (state.places("a"), state.why["a"].reason) == (["dead"], "damaged")


@pytest.mark.parametrize("stamp", [1e300, -1e300, 1e18, -1e18], ids=str)
def test_a_message_with_an_invalid_time_can_be_inspected(queue: Queue, stamp: float) -> None:
    queue.send("a")
    _damage(queue, "a", struct.pack("<dd", stamp, stamp) + queue.dump().msgs["a"][16:])
    viewer = views.Viewer("orders", lambda _content, body: body)
    get, page = ops.get(queue.keys, viewer, "a"), ops.list_(queue.keys, viewer, "ready", 10, None)
    message = get.decode(queue.call(get))
    assert message is not None
    assert message.sent_at in (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC))
    assert [each.id for each in page.decode(queue.call(page))[0]] == ["a"]
