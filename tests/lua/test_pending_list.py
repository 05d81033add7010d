"""The stream's own pending list has exactly the leased messages, after every end of a lease."""

from collections.abc import Callable
from typing import Any

import pytest

from duly._core import ops, topic_ops
from duly._core.call import Call
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Group, Queue, Refused, Topic

MINUTE = 60 * SECOND

Made = Callable[[Group, ops.Settle], Call[Any]]

VERBS: dict[str, Made] = {
    "ack": lambda g, s: ops.ack(g.keys, g.options, [s]),
    "finish": lambda g, s: ops.finish(g.keys, g.options, [(s, "")]),
    "commit": lambda g, s: ops.commit(g.keys, g.options, s),
    "retry": lambda g, s: ops.retry(g.keys, [(s, 5, "boom", "")]),
    "defer": lambda g, s: ops.defer(g.keys, [(s, 5, "")]),
    "release": lambda g, s: ops.release(g.keys, [s]),
    "recycle": lambda g, s: ops.recycle(g.keys, [(s, 5, b"")]),
    "reject": lambda g, s: ops.reject(g.keys, g.options, [(s, "bad", "", "")]),
    "extend": lambda g, s: ops.extend(g.keys, [(s, 90)]),
    "progress": lambda g, s: ops.of_rows("progress", g.keys, [(s, "0.4", "loading")]),
    "cancel": lambda g, s: ops.cancel(g.keys, s.id, running=True),
    "purge": lambda g, _: ops.purge(g.keys, "leased", 1),
    "pause": lambda g, _: ops.pause(g.keys, "me"),
}
every_verb = pytest.mark.parametrize("verb", VERBS)


def _agrees(group: Group) -> bool:
    state = group.dump()
    leases = {id_: lease.consumer for id_, lease in state.leases.items()}
    return group.pending() == leases and set(leases) == set(state.leased)


@pytest.fixture
def group(any_topic: Topic) -> Group:
    """Return a group whose entries stay in the stream, because another group has not read them."""
    any_topic.group("slow").seek("0", makes=True)
    return any_topic.group("g")


@every_verb
@pytest.mark.parametrize("key", [None, "k"])
def test_the_pending_list_equals_the_leases_after_every_verb(
    group: Group, clock: ServerClock, verb: str, key: str | None
) -> None:
    group.topic.publish(b"a", b"b", b"c", key=key)
    group.topic.publish(b"d", b"e")
    held = group.take(3, consumer="c1")
    assert _agrees(group)
    before = len(group.dump().leased)
    group.call(VERBS[verb](group, held[0]))
    assert _agrees(group)
    assert len(group.dump().leased) == before - (verb not in ("extend", "progress", "pause"))
    if verb == "pause":
        group.call(ops.resume(group.keys))
    group.claim(100, consumer="c2")
    assert _agrees(group)
    clock.freeze(NOW + 10 * SECOND)
    group.claim(100, consumer="c3")
    assert _agrees(group)
    clock.freeze(NOW + 10 * MINUTE)
    group.claim(100, consumer="c4")
    assert _agrees(group)
    assert group.dump().stats["sent"] == 5


@every_verb
def test_a_repeat_changes_nothing_there(group: Group, verb: str) -> None:
    group.topic.publish(b"a", b"b")
    settle = group.take()[0]
    call = VERBS[verb](group, settle)
    answer = group.call(call, sequence=50)
    before = group.dump(), group.pending()
    assert group.call(call, sequence=50) == answer
    assert (group.dump(), group.pending()) == before


@every_verb
def test_an_overtaken_call_changes_nothing_there(group: Group, verb: str) -> None:
    group.topic.publish(b"a", b"b")
    call = VERBS[verb](group, group.take()[0])
    group.call(ops.correct(group.keys, {"corrected": 0}), sequence=50)
    before = group.dump(), group.pending()
    with pytest.raises(Refused, match="OVERTAKEN"):
        group.call(call, sequence=49)
    assert (group.dump(), group.pending()) == before


def test_a_renewed_lease_is_not_idle(group: Group, clock: ServerClock) -> None:
    group.topic.publish(b"a")
    (settle,) = group.take()
    clock.freeze(NOW + 20 * SECOND)
    group.call(ops.extend(group.keys, [(settle, 60)], renews=True))
    clock.freeze(NOW + 25 * SECOND)
    ((_, _, idle, _),) = group.topic.run("XPENDING", "g", "-", "+", 10)
    assert idle == 5000


def test_dead_letters_that_are_redriven_are_there_when_they_are_leased(group: Group) -> None:
    group.topic.publish(b"a", key="k")
    group.call(VERBS["reject"](group, group.take()[0]))
    group.call(ops.redrive(group.keys, 1))
    assert group.pending() == {}
    group.take(consumer="d")
    assert _agrees(group)
    assert set(group.pending().values()) == {"d"}


@pytest.mark.parametrize("damage", ["no lease", "no place", "no body", "both gone", "cut off"])
def test_a_repair_leaves_the_pending_list_correct(group: Group, damage: str) -> None:
    (id_,) = group.topic.publish(b"a")
    group.take()
    run, key = group.wire.run, group.keys.key
    if damage in ("no lease", "both gone"):
        run("HDEL", key("leases"), id_)
    if damage in ("no place", "both gone"):
        run("DEL", key("leased"))
    if damage == "no body":
        run("HDEL", key("msgs"), id_)
    if damage == "cut off":
        run("HSET", key("msgs"), id_, "short")
    if damage in ("no body", "cut off"):
        group.topic.run("XDEL", id_)
    for source in ops.AUDITED:
        group.call(ops.audit_step(group.keys, source, "0", repair=True))
    assert _agrees(group)
    assert group.dump().leased == {}
    assert len(group.dump().places(id_)) == 1


@pytest.mark.parametrize("garbage", [None, "short"], ids=["removed", "cut off"])
def test_an_audit_that_reads_a_body_from_the_stream_again_leaves_the_lease_there(
    group: Group, garbage: str | None
) -> None:
    (id_,) = group.topic.publish(b"a")
    (settle,) = group.take()
    before = group.pending()
    group.wire.run("HDEL", group.keys.key("msgs"), id_)
    if garbage is not None:
        group.wire.run("HSET", group.keys.key("msgs"), id_, garbage)
    for source in ops.AUDITED:
        group.call(ops.audit_step(group.keys, source, "0", repair=True))
    assert (_agrees(group), group.pending(), group.dump().places(id_)) == (True, before, ["leased"])
    assert group.call(ops.ack(group.keys, group.options, [settle])) == []


def test_a_deleted_group_leaves_nothing(group: Group) -> None:
    group.topic.publish(b"a", b"b", key="k")
    group.take()
    group.topic.publish_later("late", delay=5)
    assert group.call(ops.delete(group.keys)) > 0
    assert group.key_names() == {"call:tests"}
    assert [row.name for row in group.topic.stats().groups] == ["slow"]
    assert "group:g" not in group.topic.stats().fields
    slow = group.topic.group("slow", start="0")
    slow.sequence = 10
    slow.call(ops.delete(slow.keys))
    assert group.topic.call(topic_ops.delete(group.topic.keys)) >= 3
    left = {key.rpartition(b":")[2] for key in group.wire.run("KEYS", group.topic.keys.prefix + b"*")}
    assert left == {b"tests"}  # the records of calls


def test_consumers_that_are_gone_are_removed_after_an_hour(group: Group, clock: ServerClock) -> None:
    group.topic.publish(b"a", b"b")
    group.ack(group.take(1, consumer="done"))
    group.take(1, lease=7200, consumer="busy")
    group.topic.run("XGROUP CREATE", "plain", "0")
    group.wire.run("XREADGROUP", "GROUP", "plain", "p", "COUNT", 1, "STREAMS", group.topic.keys.stream, ">")
    clock.freeze(NOW + 3600 * SECOND)
    group.topic.tidy()
    assert group.consumers() == {"done", "busy"}
    clock.freeze(NOW + 3601 * SECOND)
    group.topic.tidy()
    assert group.consumers() == {"busy"}
    assert {row.name: row.consumers for row in group.topic.stats().groups} == {"g": 1, "plain": 1, "slow": 0}


def test_a_member_leaves_in_order(group: Group) -> None:
    group.topic.publish(b"a")
    held = group.take(consumer="c1")
    leave = topic_ops.leave_group(group.keys, "c1")
    assert leave.decode(group.call(leave)) is False
    group.ack(held)
    assert leave.decode(group.call(leave)) is True
    assert group.consumers() == set()
    nowhere = topic_ops.leave_group(group.topic.group("none").keys, "c1")
    assert nowhere.decode(group.wire.carry(nowhere, b"x", 1)) is False


def test_queues_are_untouched_by_it(queue: Queue) -> None:
    queue.hold("a", "b")
    assert all(b"stream" not in key for key in queue.wire.run("KEYS", queue.keys.prefix + b"*"))
