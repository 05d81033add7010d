"""commit with publishes and with results that come later: together with the ack, or not at all, and each once."""

from typing import Any

import pytest

from duly._core import codec, ops, replies, views
from duly._core.effects import Effect
from duly._core.outgoing import Encoder
from duly._core.topic_ops import Publication
from duly.options import Keep, QueueOptions, Send
from tests.clock import ServerClock
from tests.lua.conftest import MakeQueue, MakeTopic
from tests.lua.harness import NOW, SECOND, Queue, Refused, Topic
from tests.lua.test_lanes import faults_of
from tests.servers import Server

VIEWER = views.Viewer("q", lambda _content, body: body)
KEPT = Keep(count=9)


def _entries(*bodies: bytes, dedup: str = "") -> list[Publication]:
    return [Publication(("bytes", body), dedup, 60 * SECOND) for body in bodies]


def _publishing(queue: Queue, settle: ops.Settle, topic: Topic, *bodies: bytes, **options: Any) -> Any:
    publishes = ops.Publishes(topic.keys, topic.keep, _entries(*bodies, dedup=options.pop("dedup", "")))
    return ops.commit(queue.keys, queue.options, settle, topics=[publishes], **options)


def _state(topic: Topic) -> list[Any]:
    """Read all keys of a topic except the records of calls."""
    keys = sorted(key for key in topic.wire.run("KEYS", topic.keys.prefix + b"*") if b":call:" not in key)
    return topic.wire.post([["DUMP", key] for key in keys])


# Publishing


def test_entries_are_added_behind_those_that_are_due_and_the_message_is_finished(
    queue: Queue, topic: Topic, clock: ServerClock
) -> None:
    """I1."""
    topic.publish_later("waited", delay=1, body=b"waited")
    (settle,) = queue.hold("a")
    clock.freeze(NOW + 2 * SECOND)

    outcome = (call := _publishing(queue, settle, topic, b"x", b"y")).decode(queue.call(call))

    assert outcome.published == topic.ids()[1:]
    assert [fields[1] for _, fields in topic.read().entries] == [b"waited", b"x", b"y"]
    assert (topic.stats().fields["published"], topic.stats().fields["entered"]) == ("2", "1")
    assert queue.dump().stats["acked"] == 1
    assert topic.group().held_bodies() == [b"waited", b"x", b"y"]


def test_a_repeat_publishes_nothing_and_has_the_same_answer(queue: Queue, topic: Topic) -> None:
    """I6."""
    (settle,) = queue.hold("a")
    effects = [Effect("SET", b"%s-k" % queue.keys.name.encode(), (b"1", b"NX")), Effect("INCR", b"n", ())]
    call = _publishing(queue, settle, topic, b"x", b"y", dedup="d", effects=effects)

    answer = queue.call(call, sequence=100)
    state = _state(topic)

    assert queue.call(call, sequence=100) == answer
    assert _state(topic) == state
    assert len(topic.ids()) == 1
    assert call.decode(answer).published == topic.ids() * 2
    assert topic.stats().fields["duplicates"] == "1"
    topic.wire.run("DEL", b"%s-k" % queue.keys.name.encode(), b"n")


def test_a_commit_keeps_the_stream_within_its_bounds(queue: Queue, make_topic: MakeTopic) -> None:
    topic = make_topic(Keep(count=2))
    topic.publish(b"1", b"2")
    (settle,) = queue.hold("a")

    queue.call(_publishing(queue, settle, topic, b"3"))

    assert [fields[1] for _, fields in topic.read().entries] == [b"2", b"3"]
    assert topic.stats().fields["trimmed"] == "1"


def test_a_delayed_publish_waits_in_the_topic_and_rings_its_bell(
    queue: Queue, topic: Topic, clock: ServerClock
) -> None:
    (settle,) = queue.hold("a")
    message = Encoder(topic.keys.name, QueueOptions()).outgoing(Send(b"late", delay=5), "later", NOW / SECOND)

    queue.call(ops.commit(queue.keys, queue.options, settle, [ops.Target(topic.keys, QueueOptions(), [message])]))

    assert topic.wire.run("TYPE", topic.keys.key("wake")) == b"stream"
    assert topic.read().entries == []
    clock.freeze(NOW + 6 * SECOND)
    assert [fields[1] for _, fields in topic.read().entries] == [b"late"]


def test_the_holder_of_an_entry_publishes_to_its_own_topic(any_topic: Topic) -> None:
    group = any_topic.group()
    any_topic.publish(b"first")
    (settle,) = group.take()

    group.call(_publishing(group, settle, any_topic, b"second"))

    assert group.pending() == {}
    assert group.held_bodies() == [b"second"]


@pytest.mark.parametrize("key", ["stream", "meta", "msgs", "waiting0", "dedup_ends"])
def test_a_key_of_the_topic_that_was_overwritten_refuses_everything(queue: Queue, topic: Topic, key: str) -> None:
    (settle,) = queue.hold("a")
    topic.wire.run("SET", topic.keys.key(key), "mine")
    before, state = queue.dump(), _state(topic)

    with pytest.raises(Refused, match="WRONGTYPE"):
        queue.call(_publishing(queue, settle, topic, b"x"))

    assert (queue.dump(), _state(topic)) == (before, state)


def test_a_stream_whose_ids_are_used_up_refuses_everything(queue: Queue, topic: Topic) -> None:
    (settle,) = queue.hold("a")
    topic.run("XADD", "18446744073709551615-18446744073709551615", "body", "last")
    state = _state(topic)

    outcome = (call := _publishing(queue, settle, topic, b"x")).decode(queue.call(call))

    assert (outcome.code, outcome.position) == (replies.COMMIT_UNPUBLISHABLE, 0)
    assert "leaves no room" in outcome.problem
    assert _state(topic) == state
    assert queue.dump().places("a") == ["leased"]


def test_a_user_without_permission_to_publish_is_refused_before_anything_is_written(
    queue: Queue, topic: Topic, still_server: tuple[Server, ServerClock]
) -> None:
    (settle,) = queue.hold("a")
    if not int(queue.wire.run("EVAL", "return redis.acl_check_cmd and 1 or 0", 0)):
        pytest.skip("this server cannot check permissions beforehand")
    user, counter = f"u-{queue.keys.name}", f"{queue.keys.name}-n"
    queue.wire.run("ACL", "SETUSER", user, "on", "nopass", "+@all", "-xadd", "~*")
    call = _publishing(queue, settle, topic, b"x", effects=[Effect("INCR", counter.encode(), ())])

    queue.wire.run("AUTH", user, "any")
    outcome = call.decode(queue.call(call))
    queue.wire.run("AUTH", "default", "any")
    queue.wire.run("ACL", "DELUSER", user)

    assert (outcome.code, outcome.problem) == (
        replies.COMMIT_UNPUBLISHABLE,
        "the user of this connection may not publish there",
    )
    assert queue.wire.run("GET", counter) is None
    assert queue.dump().places("a") == ["leased"]


# Results that come after the commit


def _committed(queue: Queue, id_: str = "a", *, result: str = "", result_in: float = 30) -> ops.Settle:
    (settle,) = queue.hold(id_)
    queue.call(ops.commit(queue.keys, queue.options, settle, result=result, result_in=result_in))
    return settle


def _end(queue: Queue, id_: str = "a", wait: float = 5) -> views.End:
    call = ops.await_end(queue.keys, VIEWER, id_, wait)
    return call.decode(queue.call(call))


def _told(queue: Queue) -> int:
    return int(queue.wire.run("XLEN", queue.keys.key("ends")))


def test_a_result_that_comes_after_the_commit_is_awaited_and_announced(make_queue: MakeQueue) -> None:
    queue = make_queue(done=KEPT)
    settle = _committed(queue)

    assert _end(queue).after is not None
    assert _told(queue) == 0
    assert queue.call(ops.keep_results(queue.keys, [(settle, "j7")])) == []

    assert (_end(queue).result, _end(queue).after) == ("j7", None)
    assert _told(queue) == 1
    assert queue.dump().why["a"].result_until == 0


def test_a_result_that_does_not_come_in_time_is_none_and_may_still_come(
    make_queue: MakeQueue, clock: ServerClock
) -> None:
    queue = make_queue(done=KEPT)
    settle = _committed(queue, result_in=30)

    clock.freeze(NOW + 31 * SECOND)

    assert (_end(queue).result, _end(queue).after) == ("", None)
    assert queue.call(ops.keep_results(queue.keys, [(settle, "j7")])) == []
    assert _end(queue).result == "j7"


def test_a_result_of_the_commit_itself_is_there_at_once(make_queue: MakeQueue) -> None:
    queue = make_queue(done=KEPT)
    settle = _committed(queue, result="j1", result_in=0)

    assert _end(queue).result == "j1"
    assert queue.call(ops.keep_results(queue.keys, [(settle, "j2")])) == [1]
    assert _end(queue).result == "j1"


@pytest.mark.parametrize("how", ["twice", "another fence", "gone", "again"])
def test_only_the_delivery_that_committed_brings_the_result_and_once(make_queue: MakeQueue, how: str) -> None:
    """I5."""
    queue = make_queue(done=KEPT)
    settle = _committed(queue)
    if how == "twice":
        queue.call(ops.keep_results(queue.keys, [(settle, "j1")]))
    elif how == "another fence":
        settle = ops.Settle("a", settle.fence + 1)
    elif how == "gone":
        queue.call(ops.purge(queue.keys, "done", 10))
    else:  # the id is used again, and the new message is finished by another delivery
        queue.send("a", own=True)
        (later,) = [ops.Settle("a", queue.claim().fence)]
        queue.call(ops.commit(queue.keys, queue.options, later, result_in=30))
    before = queue.dump()

    assert queue.call(ops.keep_results(queue.keys, [(settle, "j9")])) == [1]

    assert {**vars(queue.dump()), "calls": {}} == {**vars(before), "calls": {}}


def test_results_of_several_are_kept_in_one_call(make_queue: MakeQueue) -> None:
    queue = make_queue(done=KEPT)
    settles = [_committed(queue, id_) for id_ in "abc"]
    queue.call(ops.purge(queue.keys, "done", 1))

    assert queue.call(ops.keep_results(queue.keys, [(s, f"j{n}") for n, s in enumerate(settles)])) == [1]

    why: dict[str, codec.Why] = queue.dump().why
    assert {id_: row.result for id_, row in why.items()} == {"b": "j1", "c": "j2"}


@pytest.mark.parametrize("row", [b"\xc1", b"\x01", b"\x9c" + b"\x01" * 12], ids=["unreadable", "number", "wrong types"])
def test_an_overwritten_row_stops_no_call(make_queue: MakeQueue, row: bytes) -> None:
    queue = make_queue(done=KEPT)
    damaged, sound = _committed(queue, "a"), _committed(queue, "b")
    queue.wire.run("HSET", queue.keys.key("why"), "a", row)

    assert queue.call(ops.keep_results(queue.keys, [(damaged, "j1"), (sound, "j2")])) == [1]

    assert queue.wire.run("HGET", queue.keys.key("why"), "a") == row
    assert _end(queue, "b").result == "j2"
    assert queue.call(ops.await_end(queue.keys, VIEWER, "a", 1))[0] == b"done"


def test_a_row_with_a_result_to_come_is_sound(make_queue: MakeQueue) -> None:
    queue = make_queue(done=KEPT)
    _committed(queue)

    assert faults_of(queue) == []
