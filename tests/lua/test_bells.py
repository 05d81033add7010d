"""Members of a group wait for ids after a position. Every change that makes a message claimable adds such an id."""

from collections.abc import Callable
from typing import Any

import pytest

from duly._core import ops, topic_ops
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Group, Topic, Wire

MINUTE = 60 * SECOND


def _news(topic: Topic, watched: tuple[bytes, ...], position: tuple[bytes, ...]) -> list[bytes]:
    """Read as a waiting member does, without blocking; name the streams that have news."""
    found = topic.wire.run("XREAD", "COUNT", 1, "STREAMS", *watched, *position)
    return [name.removeprefix(topic.keys.prefix) for name, _ in found or []]


class _Waiting:
    """A waiting member."""

    def __init__(self, group: Group) -> None:
        self.group = group
        claimed = group.claim(then="watch", consumer="waiting")
        assert claimed.ids == []
        assert claimed.position is not None
        self.position = claimed.position

    def hears(self) -> bool:
        return bool(_news(self.group.topic, self.group.keys.watched, self.position))


def _settle(group: Group) -> ops.Settle:
    return group.take(1, consumer="busy")[0]


Change = Callable[[Group, ops.Settle], Any]

MAKING: dict[str, Change] = {
    "publish": lambda g, _: g.topic.publish(b"new"),
    "plain XADD": lambda g, _: g.topic.run("XADD", "*", "a", "b"),
    "retry": lambda g, s: g.call(ops.retry(g.keys, [(s, 0, "boom", "")])),
    "a retry in a while": lambda g, s: g.call(ops.retry(g.keys, [(s, 5, "boom", "")])),
    "defer": lambda g, s: g.call(ops.defer(g.keys, [(s, 5, "")])),
    "release": lambda g, s: g.call(ops.release(g.keys, [s])),
    "recycle": lambda g, s: g.call(ops.recycle(g.keys, [(s, 5, b"")])),
    "the end of a lane's head": lambda g, s: g.ack([s]),
    "the death of a lane's head": lambda g, s: g.call(ops.reject(g.keys, g.options, [(s, "bad", "", "")])),
    "a commit": lambda g, s: g.call(ops.commit(g.keys, g.options, s)),
    "a cancelled head": lambda g, s: g.call(ops.cancel(g.keys, s.id, running=True)),
    "purge": lambda g, _: g.call(ops.purge(g.keys, "leased", 10)),
    "a shorter lease": lambda g, s: g.call(ops.extend(g.keys, [(s, 1)])),
    "seek": lambda g, _: g.seek("0"),
    "a delayed publish": lambda g, _: g.topic.publish_later("late", delay=5),
}


@pytest.mark.parametrize("change", MAKING)
def test_every_claimable_message_wakes_a_member(any_topic: Topic, change: str) -> None:
    group = any_topic.group()
    any_topic.publish(b"head", b"behind", key="k")
    settle = _settle(group)
    waiting = _Waiting(group)
    assert not waiting.hears()
    MAKING[change](group, settle)
    assert waiting.hears()


@pytest.mark.parametrize("verb", ["redrive", "promote", "resume", "audit"])
def test_every_steering_call_that_makes_messages_claimable_wakes_a_member(any_topic: Topic, verb: str) -> None:
    group = any_topic.group()
    (id_,) = any_topic.publish(b"a")
    settle = _settle(group)
    if verb == "redrive":
        group.call(ops.reject(group.keys, group.options, [(settle, "bad", "", "")]))
    elif verb == "promote":
        group.call(ops.retry(group.keys, [(settle, 3600, "", "")]))
    elif verb == "resume":
        group.call(ops.pause(group.keys, "me"))
    else:
        group.wire.run("HDEL", group.keys.key("leases"), id_)
    waiting = _Waiting(group)
    if verb == "resume":
        any_topic.publish(b"b")
        assert not waiting.hears()  # a paused group does not wait for entries
    calls: dict[str, Any] = {
        "redrive": ops.redrive(group.keys, 1),
        "promote": ops.reschedule(group.keys, id_, "0"),
        "resume": ops.resume(group.keys),
        "audit": ops.audit_step(group.keys, "msgs", "0", repair=True),
    }
    assert not waiting.hears()
    group.call(calls[verb])
    assert waiting.hears()
    assert group.claim().ids != []


def test_deadlines_and_due_times_are_returned_to_all_members(topic: Topic, clock: ServerClock) -> None:
    group = topic.group()
    topic.publish(b"a")
    group.take(lease=30, consumer="busy")
    assert group.claim(then="watch", consumer="x").next_in == pytest.approx(30, abs=0.001)
    assert group.claim(then="watch", consumer="y").next_in == pytest.approx(30, abs=0.001)
    topic.publish_later("late", delay=7)
    assert group.claim(then="watch", consumer="x").next_in == pytest.approx(7, abs=0.001)
    clock.freeze(NOW + MINUTE)
    assert len(group.claim(then="watch", consumer="y").ids) == 2


def test_calls_that_make_nothing_claimable_ring_no_bell(topic: Topic) -> None:
    group = topic.group()
    topic.publish(b"a", b"b", b"c")
    one, two, three = group.take(consumer="busy")
    topic.publish_later("soon", delay=5)
    waiting = _Waiting(group)
    group.ack([one])
    group.call(ops.reject(group.keys, group.options, [(two, "bad", "", "")]))
    group.call(ops.extend(group.keys, [(three, 90)]))
    group.claim(then="watch", consumer="x")
    topic.publish_later("later", delay=50)
    group.call(ops.resume(group.keys))
    topic.tidy()
    assert not waiting.hears()


def test_a_bell_takes_no_room(topic: Topic) -> None:
    group = topic.group()
    topic.publish(b"a")
    for _ in range(300):
        group.call(ops.release(group.keys, group.take()))
    assert topic.wire.run("XLEN", group.keys.key("wake")) == 1


def test_two_consumers_that_skip_a_suspect_do_not_wake_each_other(any_topic: Topic, clock: ServerClock) -> None:
    group = any_topic.group(crash_limit=2)
    any_topic.publish(b"suspect")
    group.take(lease=1, consumer="dead")
    idle = _Waiting(group)
    clock.freeze(NOW + 10 * SECOND)
    first = group.claim(then="stay", suspects="none", consumer="x")
    assert (first.ids, first.passed_over, len(first.reclaimed)) == ([], True, 1)
    assert idle.hears()  # a member that holds nothing may claim it
    second = group.claim(then="stay", suspects="none", consumer="y")
    assert second.passed_over
    for claimed in (first, second):
        assert claimed.position is not None
        assert _news(any_topic, group.keys.watched, claimed.position) == []
    assert len(group.claim(suspects="alone", consumer="z").ids) == 1


@pytest.mark.parametrize("change", ["publish", "plain XADD", "a delayed publish"])
def test_entries_wake_readers_as_well(topic: Topic, change: str) -> None:
    topic.publish(b"a")
    position = topic.read("$").position
    assert _news(topic, topic.keys.watched, position) == []
    MAKING[change](topic.group(), ops.Settle("", 0, has_key=False))
    assert len(_news(topic, topic.keys.watched, position)) == 1


def test_a_member_that_waits_for_the_first_entry_is_woken(any_topic: Topic) -> None:
    waiting = _Waiting(any_topic.group())
    any_topic.publish(b"a")
    assert waiting.hears()


def test_entries_between_a_claim_and_its_wait_are_found(topic: Topic, wire: Wire) -> None:
    """Entries that are added after the claim and before the wait are found every time."""
    group = topic.group()
    for number in range(20):
        waiting = _Waiting(group)
        topic.publish(b"%d" % number)
        other = group.take(consumer="other")
        assert waiting.hears()  # for nothing: the other member has it
        assert not _Waiting(group).hears()
        group.ack(other)
    assert wire.run("XLEN", topic.keys.stream) == 20


def test_a_group_that_plain_commands_moved_is_found_by_the_next_sweep(topic: Topic) -> None:
    group = topic.group()
    topic.publish(b"a")
    group.drain()
    topic.run("XGROUP SETID", "g", "0")
    assert group.held_bodies() == [b"a"]
    assert topic.call(topic_ops.stats(topic.keys)).groups[0].pending == 1
