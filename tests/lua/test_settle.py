"""ack, retry, defer, release, recycle, reject, extend: each removes all data of the lease in one step."""

from dataclasses import replace
from typing import Any

import pytest

from duly._core import codec, ops
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, Refused, ids_of


def test_ack_leaves_nothing_of_a_message(queue: Queue) -> None:
    (settle,) = queue.hold("a", ttl=60, priority=4)
    assert queue.call(ops.ack(queue.keys, queue.options, [settle])) == []
    state = queue.dump()
    assert (state.msgs, state.waiting, state.leased, state.leases, state.expires) == ({}, {}, {}, {}, {})
    assert state.stats == {"sent": 1, "delivered": 1, "acked": 1, "bytes": 0}


def test_ack_of_a_message_with_failures_removes_its_counts_and_errors(queue: Queue) -> None:
    (first,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(first, 0, "boom", "trace")]))
    (second,) = _leases(queue, queue.claim())
    queue.call(ops.ack(queue.keys, queue.options, [second]))
    state = queue.dump()
    assert (state.counts, state.why) == ({}, {})


def test_ack_with_keep_moves_to_done_within_its_bounds(queue: Queue) -> None:
    options = replace(queue.options, done=Keep(count=2))
    queue.call(ops.ack(queue.keys, options, queue.hold("a", "b", "c")))
    state = queue.dump()
    assert set(state.done) == set(state.msgs) == {"b", "c"}
    assert state.stats["done_trimmed"] == 1
    assert state.stats["done_bytes"] == sum(map(len, state.msgs.values()))
    assert (state.stats["acked"], state.stats["bytes"]) == (3, 0)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (Keep(age=5), ["new"]),
        (Keep(age=60), ["old", "new"]),
        (Keep(bytes=100), ["new"]),
        (Keep(count=0), []),
    ],
    ids=str,
)
def test_done_is_trimmed_by_count_age_and_bytes(queue: Queue, clock: ServerClock, keep: Keep, kept: list[str]) -> None:
    options = replace(queue.options, done=keep)
    queue.call(ops.ack(queue.keys, options, queue.hold("old")))
    clock.freeze(NOW + 10 * SECOND)
    queue.call(ops.ack(queue.keys, options, queue.hold("new")))
    assert list(queue.dump().done) == kept


def test_retry_counts_a_failure_keeps_the_error_and_waits(queue: Queue) -> None:
    (settle,) = queue.hold("a", priority=4)
    before = queue.dump()
    queue.call(ops.retry(queue.keys, [(settle, 5, "boom", "trace")]))
    after = queue.dump()
    due = NOW + 2 + 5 * SECOND
    assert after.waiting == {4: {"a": due}}
    assert after.counts == {"a": codec.Counts(failures=1, due=due)}
    fault = codec.Fault(NOW + 2, 1, "c", "boom", "trace")
    event = codec.Event(NOW + 2, "retry", "c", settle.fence, "boom")
    assert after.why == {"a": codec.Why("", 0, 0, 0, 0, [fault], timeline=[event])}
    assert (after.leased, after.leases) == ({}, {})
    assert after.stats == {**before.stats, "retried": 1}
    assert after.msgs == before.msgs
    assert after.wake == 1


def test_retry_without_an_error_keeps_none(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(settle, 0, "", "")]))
    event = codec.Event(NOW + 2, "retry", "c", settle.fence, "")
    assert queue.dump().why == {"a": codec.Why("", 0, 0, 0, 0, [], timeline=[event])}


def test_the_last_five_errors_are_kept(queue: Queue) -> None:
    queue.send("a")
    for number in range(7):
        (settle,) = _leases(queue, queue.claim())
        queue.call(ops.retry(queue.keys, [(settle, 0, f"boom {number}", "")]))
    errors = queue.dump().why["a"].errors
    assert [(fault.attempt, fault.error) for fault in errors] == [(n + 1, f"boom {n}") for n in range(2, 7)]


def test_defer_waits_and_spends_no_attempt(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    queue.call(ops.defer(queue.keys, [(settle, 5, "")]))
    state = queue.dump()
    due = NOW + 2 + 5 * SECOND
    assert state.waiting == {0: {"a": due}}
    assert state.counts == {"a": codec.Counts(defers=1, due=due)}
    assert state.stats["deferred"] == 1


def test_release_gives_a_message_back_to_its_own_place(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    queue.send("b")
    queue.call(ops.release(queue.keys, [settle]))
    state = queue.dump()
    assert state.counts == {"a": codec.Counts(releases=1)}
    assert state.due("a") == NOW
    assert ids_of(queue.claim()) == ["a", "b"]


def test_release_after_a_retry_goes_back_to_the_place_of_the_retry(queue: Queue, clock: ServerClock) -> None:
    (first,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(first, 5, "", "")]))
    due = queue.dump().due("a")
    clock.freeze(NOW + 10 * SECOND)
    (second,) = _leases(queue, queue.claim())
    queue.call(ops.release(queue.keys, [second]))
    state = queue.dump()
    assert state.due("a") == due
    assert state.counts == {"a": codec.Counts(failures=1, releases=1, due=due)}


def test_recycle_is_a_new_message_under_the_same_id(queue: Queue) -> None:
    (first,) = queue.hold("a", ttl=60)
    queue.call(ops.retry(queue.keys, [(first, 0, "boom", "")]))
    (second,) = _leases(queue, queue.claim())
    part = queue.outgoing("a", b"a new and longer body", ttl=60).part
    queue.call(ops.recycle(queue.keys, [(second, 5, part)]))
    state = queue.dump()
    sent, due = codec.read_stamps(state.msgs["a"])
    assert state.msgs["a"] == codec.stamped(sent, sent + 5 * SECOND, part)
    assert state.waiting == {0: {"a": due}}
    assert state.expires == {"a": due + 60 * SECOND}
    assert (state.counts, state.why) == ({"a": codec.Counts(cycles=1)}, {})
    assert state.stats["bytes"] == len(state.msgs["a"])
    assert (state.stats["recycled"], state.stats["sent"]) == (1, 1)


@pytest.mark.parametrize(
    ("had", "has", "why"),
    [
        ({}, {"priority": 7}, "has priority 0, and its new part has 7"),
        ({"priority": 7}, {}, "has priority 7, and its new part has 0"),
        ({"key": "k"}, {"key": "other"}, "another key"),
        ({"key": "k"}, {}, "another key"),
        ({}, {"key": "k"}, "another key"),
        ({"ttl": 60}, {}, "another ttl"),
        ({}, {"ttl": 60}, "another ttl"),
    ],
)
def test_recycle_refuses_a_part_that_is_not_of_its_message(
    queue: Queue, had: dict[str, Any], has: dict[str, Any], why: str
) -> None:
    settle, other = queue.hold("a", "b", **had) if "key" not in had else (*queue.hold("a", **had), *queue.hold("b"))
    before = queue.dump()
    part = queue.outgoing("a", b"other", **has).part
    with pytest.raises(Refused, match=f"message a .*{why}"):
        queue.call(ops.recycle(queue.keys, [(other, 0, b""), (settle, 0, part)]))
    assert queue.dump() == before
    own = queue.outgoing("a", b"other", **had).part
    assert queue.call(ops.recycle(queue.keys, [(settle, 0, own)])) == []


@pytest.mark.parametrize("part", [b"x", b"\x01\x00", b"\x01\x00\xfa", b"\x01\x04\x00\xff"], ids=repr)
def test_recycle_refuses_a_part_that_cannot_be_read(queue: Queue, part: bytes) -> None:
    (settle,) = queue.hold("a")
    before = queue.dump()
    with pytest.raises(Refused, match="message a "):
        queue.call(ops.recycle(queue.keys, [(settle, 0, part)]))
    assert queue.dump() == before


def test_recycle_without_a_part_keeps_the_body(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    part = codec.part_of(queue.dump().msgs["a"])
    queue.call(ops.recycle(queue.keys, [(settle, 0, b"")]))
    assert codec.part_of(queue.dump().msgs["a"]) == part


def test_reject_makes_a_dead_letter_with_its_reason_and_errors(queue: Queue) -> None:
    (settle,) = queue.hold("a", ttl=60)
    before = queue.dump()
    queue.call(ops.reject(queue.keys, queue.options, [(settle, "bad", "boom", "trace")]))
    after = queue.dump()
    fault = codec.Fault(NOW + 2, 1, "c", "boom", "trace")
    size = len(before.msgs["a"])
    assert after.dead == {"a": NOW + 2}
    event = codec.Event(NOW + 2, "reject", "c", settle.fence, "boom")
    assert after.why == {"a": codec.Why("bad", 0, 0, 0, 0, [fault], rejects=1, timeline=[event])}
    assert after.msgs == before.msgs
    assert (after.leased, after.leases, after.expires, after.counts) == ({}, {}, {}, {})
    assert after.stats == {**before.stats, "buried": 1, "bytes": 0, "dead_bytes": size}


def test_reject_keeps_dead_letters_within_their_bounds(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(count=1))
    queue.bury("a", "b")
    state = queue.dump()
    assert list(state.dead) == list(state.why) == list(state.msgs) == ["b"]
    assert state.stats["trimmed"] == 1
    assert state.stats["dead_bytes"] == len(state.msgs["b"])


def test_extend_moves_the_deadline_and_nothing_else(queue: Queue, clock: ServerClock) -> None:
    (settle,) = queue.hold("a")
    queue.wire.run("DEL", queue.keys.key("wake"))
    before = queue.dump()
    clock.freeze(NOW + 10 * SECOND)
    assert queue.call(ops.extend(queue.keys, [(settle, 30)])) == []
    after = queue.dump()
    assert after.leased == {"a": NOW + 40 * SECOND}
    assert after.differences(before) == ["leased", "meta", "calls"]
    assert after.meta == {**before.meta, "clock": str(NOW + 10 * SECOND)}


def test_a_lease_made_shorter_leaves_a_token(queue: Queue) -> None:
    (settle,) = queue.hold("a", lease=30)
    queue.wire.run("DEL", queue.keys.key("wake"))
    queue.call(ops.extend(queue.keys, [(settle, 1)]))
    assert queue.dump().wake == 1


@pytest.mark.parametrize("verb", ["retry", "defer", "release", "recycle"])
def test_a_message_whose_body_was_lost_while_out_is_a_dead_letter_when_given_back(queue: Queue, verb: str) -> None:
    (settle,) = queue.hold("a")
    queue.lose_body("a")
    calls = {
        "retry": ops.retry(queue.keys, [(settle, 0, "", "")]),
        "defer": ops.defer(queue.keys, [(settle, 0, "")]),
        "release": ops.release(queue.keys, [settle]),
        "recycle": ops.recycle(queue.keys, [(settle, 0, b"")]),
    }
    assert queue.call(calls[verb]) == []
    state = queue.dump()
    assert state.places("a") == ["dead"]
    assert state.why["a"].reason == "body lost"
    assert (state.stats["bytes"], state.stats.get("dead_bytes", 0)) == (0, 0)


def _leases(queue: Queue, claimed: Any) -> list[ops.Settle]:
    return [ops.Settle(id_, claimed.fence, queue.dump().leases[id_].priority) for id_ in ids_of(claimed)]


def test_a_renewal_leaves_a_later_deadline_alone(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    queue.call(ops.extend(queue.keys, [(settle, 90)]))
    later = queue.dump().leased
    queue.call(ops.extend(queue.keys, [(settle, 30)], renews=True))
    assert queue.dump().leased == later
