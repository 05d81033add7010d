"""Data of another program that clients cannot read: ids, leases, names."""

from typing import Final

import pytest
import redis

from duly import Audit, Duly
from tests.client._sync.given import take
from tests.client.place import ServerPlace
from tests.client.repair.judge import LATER, Healthy, drained


@pytest.fixture
def foreign(app: Duly, queue_name: str, stranger: redis.Redis) -> Healthy:
    """Return a queue with a message of another program, whose id is not text."""
    queue = app.queue(queue_name)
    queue.send("body", id="ours")
    h = Healthy(queue, {"ours": "body"}, stranger, f"duly:{{{queue_name}}}:", {})
    h.run("HSET", "msgs", b"\xff", h.run("HGET", "msgs", "ours"))
    return h


@pytest.mark.parametrize("where", [None, "waiting0", "leased"])
def test_a_message_with_an_id_that_is_not_text_becomes_a_dead_letter(foreign: Healthy, where: str | None) -> None:
    if where is not None:
        foreign.run("ZADD", where, 1, b"\xff")

    found = foreign.inbox.audit()
    foreign.inbox.audit(repair=True)

    assert ("\\xff", "an id that is not text") in [(fault.id, fault.what) for fault in found.faults]
    assert foreign.inbox.audit().explanation == ()
    assert [message.id for message in foreign.inbox.list("dead")] == ["\\xff"]
    assert drained(foreign.inbox) == ["body"]


def test_an_id_that_is_not_text_takes_no_others_with_it(foreign: Healthy) -> None:
    foreign.run("ZADD", "waiting0", 1, b"\xff")

    deliveries = take(foreign.inbox)

    assert [delivery.id for delivery in deliveries] == ["\\xff", "ours"]
    assert {row.id for row in foreign.inbox.pending().messages} == {"\\xff", "ours"}
    assert {message.id for message in foreign.inbox.list("leased")} == {"\\xff", "ours"}
    assert [delivery.id for delivery in foreign.inbox.ack_many(deliveries)] == ["\\xff"]


def test_a_dead_letter_with_an_id_that_is_not_text_can_be_redriven_and_purged(foreign: Healthy) -> None:
    foreign.inbox.audit(repair=True)

    assert foreign.inbox.redrive() == 1
    foreign.inbox.audit(repair=True)

    assert foreign.inbox.purge("dead") == 1
    assert foreign.inbox.audit().explanation == ()


PILLAR: Final = b"\1" * 65
NO_IDS: Final = {"without a message": b"ghost", "empty": b"", "a pillar": PILLAR, "too large": b"9" * 21 + b"-1"}
"""Ids that no message and no entry can have."""
every_wrong_id = pytest.mark.parametrize("id_", NO_IDS.values(), ids=NO_IDS)


def check_that_nobody_is_stopped(h: Healthy, found: Audit) -> None:
    """Check that one id was found and is a dead letter, and that all others are delivered."""
    assert found.faults != ()
    h.inbox.audit(repair=True)
    assert h.inbox.audit().explanation == ()
    assert sorted(drained(h.inbox)) == sorted(h.names.values())
    assert len(h.inbox.list("dead")) == 1
    assert h.inbox.purge("dead") == 1
    assert h.inbox.audit().explanation == ()


@pytest.fixture
def brief_group(app: Duly, queue_name: str, stranger: redis.Redis) -> Healthy:
    """Return a group whose entries wait in its own store."""
    topic = app.topic(queue_name)
    group = topic.group("archive")
    group.create()
    names: dict[str, str] = {topic.publish(name): name for name in ("a", "b")}
    for delivery in take(group):
        delivery.release()
    return Healthy(group, names, stranger, f"duly:{{@{queue_name}}}:group:archive:", {})


@pytest.mark.parametrize("where", ["waiting0", "dead"])
@every_wrong_id
def test_an_id_without_a_message_in_a_group_is_found_and_repaired(brief_group: Healthy, where: str, id_: bytes) -> None:
    brief_group.run("ZADD", where, 1, id_)

    check_that_nobody_is_stopped(brief_group, brief_group.inbox.audit())


@every_wrong_id
def test_a_body_without_a_place_in_a_group_is_found_and_repaired(brief_group: Healthy, id_: bytes) -> None:
    brief_group.run("HSET", "msgs", id_, "." * 40)

    check_that_nobody_is_stopped(brief_group, brief_group.inbox.audit())


@pytest.mark.parametrize("id_", [id_ for id_ in NO_IDS.values() if id_ != PILLAR])
def test_a_lease_without_a_message_in_a_group_is_found_and_repaired(brief_group: Healthy, id_: bytes) -> None:
    brief_group.run("ZADD", "leased", 1, id_)

    check_that_nobody_is_stopped(brief_group, brief_group.inbox.audit())


@every_wrong_id
def test_an_id_of_nothing_stops_no_claim_of_a_group(brief_group: Healthy, id_: bytes) -> None:
    brief_group.run("ZADD", "leased", 1, id_)

    assert drained(brief_group.inbox) == ["a", "b"]


@pytest.mark.parametrize("id_", [b"", PILLAR], ids=["empty", "a pillar"])
@pytest.mark.parametrize("where", ["waiting0", "waiting5", "dead"])
def test_an_id_without_a_message_in_a_queue_is_found_and_repaired(foreign: Healthy, where: str, id_: bytes) -> None:
    foreign.run("HDEL", "msgs", b"\xff")
    foreign.run("ZADD", where, 1, id_)

    check_that_nobody_is_stopped(foreign, foreign.inbox.audit())


@pytest.mark.parametrize("id_", [b"", PILLAR], ids=["empty", "a pillar"])
def test_a_sound_body_under_an_id_of_nothing_is_a_dead_letter(foreign: Healthy, id_: bytes) -> None:
    foreign.run("HSET", "msgs", id_, foreign.run("HGET", "msgs", "ours"))
    foreign.run("HDEL", "msgs", b"\xff")

    check_that_nobody_is_stopped(foreign, foreign.inbox.audit())


@pytest.mark.parametrize("lease", [b"\xff" * 70, b"short"], ids=["not text", "cut off"])
def test_a_message_with_an_unreadable_lease_can_be_inspected(healthy: Healthy, lease: bytes) -> None:
    healthy.run("HSET", "leases", "held", lease)

    assert {row.id for row in healthy.inbox.pending().messages} == {"held", "k1"}
    assert {message.id for message in healthy.inbox.list("leased")} == {"held", "k1"}


def test_a_queue_that_was_paused_with_unreadable_data_can_be_inspected(healthy: Healthy) -> None:
    healthy.run("HSET", "meta", "paused", b"\xff")

    assert healthy.inbox.stats().paused == "\\xff"
    assert healthy.inbox.audit().ok


@pytest.mark.parametrize("byte", [b"z", b"\xc0"], ids=["a number", "nil"])
def test_counts_with_trailing_bytes_stop_neither_consumers_nor_inspection(
    healthy: Healthy, server: ServerPlace, byte: bytes
) -> None:
    healthy.run("HSET", "counts", "failed", healthy.run("HGET", "counts", "failed") + byte)

    assert "failed" in {message.id for message in healthy.inbox.list("delayed")}
    assert healthy.inbox.get("failed") is not None
    assert "failed" in healthy.inbox.explain("failed")
    server.advance(LATER + 1)
    (delivery,) = [each for each in take(healthy.inbox) if each.id == "failed"]
    assert delivery.attempt >= 1
    delivery.retry(LATER, error="again")
    healthy.inbox.audit(repair=True)
    assert healthy.inbox.audit().explanation == ()
