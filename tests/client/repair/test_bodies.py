"""Bodies that another program removed are lost, but their ids are known, and nothing else is lost.

Those of groups are read from the stream again.
"""

import pytest
import redis

from duly import Duly
from tests.client._sync.given import take
from tests.client.place import ServerPlace
from tests.client.repair.damages import deleted
from tests.client.repair.judge import LATER, Damage, Healthy, check_order, check_repair, drained


@pytest.mark.parametrize("garbage", [None, b"short", b"." * 40], ids=["removed", "cut off", "overwritten"])
@pytest.mark.parametrize("name", ["ready", "urgent", "failed", "held", "k1", "k2", "r1", "n2", "dead", "single"])
def test_a_body_that_is_gone_is_a_dead_letter_and_nothing_else_is_lost(
    healthy: Healthy, server: ServerPlace, name: str, garbage: bytes | None
) -> None:
    """I1 I2 I7."""
    if garbage is None:
        healthy.run("HDEL", "msgs", name)
    else:
        healthy.run("HSET", "msgs", name, garbage)

    found = healthy.inbox.audit()
    healthy.inbox.audit(repair=True)

    assert not found.ok
    assert healthy.inbox.audit().explanation == ()
    due = drained(healthy.inbox)
    server.advance(LATER + 1)
    late = drained(healthy.inbox)
    check_order([*due, *late])
    assert {*due, *late} == {*healthy.names} - {"dead", "done", "n1", name}
    assert {message.id for message in healthy.inbox.list("dead")} == {"dead", name}
    assert healthy.inbox.audit().explanation == ()


def test_of_a_queue_without_bodies_every_id_is_a_dead_letter(healthy: Healthy) -> None:
    """I2."""
    healthy.run("DEL", "msgs")

    healthy.inbox.audit(repair=True)

    assert healthy.inbox.audit().explanation == ()
    dead = healthy.inbox.list("dead", limit=100)
    assert {message.id for message in dead} == {*healthy.names} - {"done", "n1"}
    assert {message.reason for message in dead} == {"body lost"}


def body_lost(name: str, garbage: bytes | None = None) -> Damage:
    if garbage is None:
        return lambda h: h.run("HDEL", "msgs", h.id(name))
    return lambda h: h.run("HSET", "msgs", h.id(name), garbage)


@pytest.mark.parametrize("garbage", [None, b"short"], ids=["removed", "overwritten"])
@pytest.mark.parametrize("name", ["held", "failed", "dead", "k1", "k2", "k3", "r1", "r2", "n2", "n3"])
def test_a_body_of_a_group_comes_from_the_stream_again(
    healthy_group: Healthy, server: ServerPlace, name: str, garbage: bytes | None
) -> None:
    """I1 I2 I3 I7."""
    check_repair(healthy_group, body_lost(name, garbage), "a body that only the stream has", server)


def test_all_bodies_of_a_group_come_from_the_stream_again(healthy_group: Healthy, server: ServerPlace) -> None:
    """I1 I2 I3 I7."""
    check_repair(healthy_group, deleted("msgs"), "a body that only the stream has", server)


@pytest.mark.parametrize("garbage", [None, b"short"], ids=["body lost", "damaged"])
def test_a_body_that_the_stream_has_no_more_is_lost(healthy_group: Healthy, garbage: bytes | None) -> None:
    topic = healthy_group.prefix.partition("group:")[0]
    body_lost("held", garbage)(healthy_group)
    healthy_group.client.xdel(f"{topic}stream", healthy_group.id("held"))

    healthy_group.inbox.audit(repair=True)

    assert healthy_group.inbox.audit().explanation == ()
    reason = "body lost" if garbage is None else "damaged"
    assert {letter.reason for letter in healthy_group.inbox.list("dead")} == {"no use", reason}


def test_a_letter_that_was_buried_as_damaged_has_its_body_from_the_stream_again(healthy_group: Healthy) -> None:
    body_lost("n2", b"short")(healthy_group)
    assert "n2" not in drained(healthy_group.inbox)

    healthy_group.inbox.audit(repair=True)

    assert healthy_group.inbox.audit().explanation == ()
    assert drained(healthy_group.inbox) == ["n3", "n4"]
    assert healthy_group.inbox.redrive() == 2
    assert sorted(drained(healthy_group.inbox)) == ["dead", "n2"]


def test_data_written_under_an_unread_entry_does_no_harm(app: Duly, healthy_group: Healthy) -> None:
    """I1 I2."""
    later = app.topic(healthy_group.inbox.label.split("/")[0]).publish("later")
    healthy_group.run("HSET", "msgs", later, "short")

    found = healthy_group.inbox.audit()
    healthy_group.inbox.audit(repair=True)

    assert (later, "body of an entry that was not read yet") in [(fault.id, fault.what) for fault in found.faults]
    assert healthy_group.inbox.audit().explanation == ()
    assert drained(healthy_group.inbox).count("later") == 1


def test_an_entry_that_the_group_has_finished_is_not_redelivered(healthy_group: Healthy) -> None:
    healthy_group.run("ZADD", "waiting0", 1, healthy_group.id("done"))

    healthy_group.inbox.audit(repair=True)

    assert healthy_group.inbox.audit().explanation == ()
    assert "done" not in drained(healthy_group.inbox)


@pytest.mark.parametrize("key", ["waiting0", "waiting5", "leased", "dead", "parked"])
def test_an_entry_that_was_not_read_yet_comes_in_its_turn(app: Duly, healthy_group: Healthy, key: str) -> None:
    """I1 I2."""
    later = app.topic(healthy_group.inbox.label.split("/")[0]).publish("later")
    member = f"k\0{9:065d}{later}" if key == "parked" else later
    healthy_group.run("ZADD", key, 1, member)

    found = healthy_group.inbox.audit()
    healthy_group.inbox.audit(repair=True)

    assert (later, "place of an entry that was not read yet") in [(fault.id, fault.what) for fault in found.faults]
    assert healthy_group.inbox.audit().explanation == ()
    assert drained(healthy_group.inbox).count("later") == 1
    assert [letter.body for letter in healthy_group.inbox.list("dead")] == ["dead"]


@pytest.mark.parametrize("garbage", [None, b"short"], ids=["removed", "overwritten"])
@pytest.mark.parametrize("key", ["waiting0", "waiting9", "leased", "dead"])
@pytest.mark.parametrize("name", ["k2", "r2"])
def test_a_body_of_one_that_is_parked_and_somewhere_else_comes_from_the_stream_again(
    healthy_group: Healthy, server: ServerPlace, name: str, key: str, garbage: bytes | None
) -> None:
    """I1 I2 I3 I7."""

    def damage(h: Healthy) -> None:
        body_lost(name, garbage)(h)
        h.run("ZADD", key, 1, h.id(name))

    check_repair(healthy_group, damage, "a body that only the stream has", server)


@pytest.mark.parametrize("garbage", [None, b"short"], ids=["body lost", "damaged"])
@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
def test_the_body_of_a_recycled_message_is_not_taken_from_an_earlier_life(
    app: Duly, queue_name: str, stranger: redis.Redis, server: ServerPlace, key: str | None, garbage: bytes | None
) -> None:
    """I3: nor would its delay be known."""
    topic = app.topic(queue_name)
    group = topic.group("archive")
    id_ = topic.publish({"page": 1}, key=key)
    (delivery,) = take(group)
    delivery.recycle(LATER, body={"page": 2})
    msgs = f"duly:{{@{queue_name}}}:group:archive:msgs"
    if garbage is None:
        stranger.hdel(msgs, id_)
    else:
        stranger.hset(msgs, id_, garbage)

    group.audit(repair=True)

    assert group.audit().explanation == ()
    assert drained(group) == []
    server.advance(LATER + 1)
    assert drained(group) == []
    assert [(letter.id, letter.reason) for letter in group.list("dead")] == [
        (id_, "body lost" if garbage is None else "damaged")
    ]
