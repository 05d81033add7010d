"""Lanes (I7): one message of a key is in flight at a time, in order, even after failures and crashes."""

import math
import random
import struct
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from duly._core import codec, ops
from duly._core.replies import Claimed
from duly.message import AuditFault
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import DUE_DIGITS, NOW, SECOND, Queue, Refused, ids_of

BLOCK: Final = "block"


def settles_of(claimed: Claimed) -> list[ops.Settle]:
    return [ops.Settle(id_, claimed.fence, has_key=True) for id_ in ids_of(claimed)]


def take(queue: Queue, limit: int = 10, **options: Any) -> list[ops.Settle]:
    return settles_of(queue.claim(limit, **options))


def ack(queue: Queue, settles: list[ops.Settle]) -> None:
    assert queue.call(ops.ack(queue.keys, queue.options, settles)) == []


def given_lane(queue: Queue, *ids: str, key: str = "k", lease: float = 30) -> ops.Settle:
    """Send messages of one key, hold the first and park the others; no token is left."""
    queue.send(*ids, key=key)
    (first,) = take(queue, len(ids), lease=lease)
    assert first.id == ids[0]
    assert queue.dump().parked_ids(key) == list(ids[1:])
    take_token(queue)
    return first


def take_token(queue: Queue) -> None:
    queue.wire.run("DEL", queue.keys.key("wake"))


def finished_in_order(queue: Queue, limit: int = 10) -> list[str]:
    """Claim and finish until nothing is due; return the ids in order."""
    found: list[str] = []
    while settles := take(queue, limit):
        found += [settle.id for settle in settles]
        ack(queue, settles)
    return found


def faults_of(queue: Queue, *, repair: bool = False) -> list[AuditFault]:
    found: list[AuditFault] = []
    for source in ops.AUDITED:
        cursor = "0"
        while True:
            call = ops.audit_step(queue.keys, source, cursor, repair=repair)
            step = call.decode(queue.call(call))
            found += step.faults
            cursor = step.cursor
            if cursor == "0":
                break
    return found


def assert_nothing_left(queue: Queue) -> None:
    """I9."""
    assert {name for name in queue.key_names() if not name.startswith("call:")} == {"meta"}


# --- One at a time, in order ---------------------------------------------------------------------------------


def test_a_batch_takes_one_of_each_key_and_parks_the_others(queue: Queue) -> None:
    queue.send("a1", "a2", "a3", key="a")
    queue.send("b1", "b2", key="b")
    queue.send("plain")
    claimed = queue.claim(10)
    state = queue.dump()
    assert ids_of(claimed) == ["a1", "b1", "plain"]
    assert state.lanes == {"a": "+a1", "b": "+b1"}
    assert (state.parked_ids("a"), state.parked_ids("b")) == (["a2", "a3"], ["b2"])
    assert state.waiting == {}
    assert {id_: lease.key for id_, lease in state.leases.items()} == {"a1": "a", "b1": "b", "plain": None}


def test_a_message_that_is_parked_and_handed_its_lane_in_one_claim_stays(queue: Queue, clock: ServerClock) -> None:
    """Its owner has expired, and the claim finds that out after it has parked the others."""
    queue.send("a", key="k", ttl=60)
    (first,) = take(queue)
    queue.send("b", "c", key="k")
    queue.call(ops.retry(queue.keys, [(first, 0, "boom", "")]))
    stranger(queue, "ZREM", "expires", "a")
    clock.freeze(NOW + 61 * SECOND)
    assert finished_in_order(queue) == ["b", "c"]
    assert_nothing_left(queue)


def test_a_claim_parks_nothing_after_the_messages_that_it_leases(queue: Queue) -> None:
    queue.send("a", "b", "c", key="k")
    assert ids_of(queue.claim(1)) == ["a"]
    state = queue.dump()
    assert (state.lanes, state.parked_ids(), list(state.waiting[0])) == ({"k": "-a"}, [], ["b", "c"])


def test_a_lane_delivers_its_messages_in_order(queue: Queue) -> None:
    queue.send("a", "b", "c", "d", key="k")
    assert finished_in_order(queue) == ["a", "b", "c", "d"]
    assert_nothing_left(queue)


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_claims_do_not_read_parked_messages_again(queue: Queue, limit: int) -> None:
    given_lane(queue, "a", "b", "c")
    before = queue.dump()
    assert ids_of(queue.claim(limit)) == []
    assert queue.dump().differences(before) == ["calls"]


def test_keys_with_a_common_prefix_are_different_lanes(queue: Queue) -> None:
    for key in ("k", "k1", "k k", "kk", "\u00e9", "\u00ea"):
        queue.send(f"{key}-1", f"{key}-2", key=key)
    firsts = take(queue, 100)
    assert [settle.id for settle in firsts] == ["k-1", "k1-1", "k k-1", "kk-1", "\u00e9-1", "\u00ea-1"]
    ack(queue, firsts)
    assert [settle.id for settle in take(queue, 100)] == ["k-2", "k1-2", "k k-2", "kk-2", "\u00e9-2", "\u00ea-2"]


def test_a_key_that_costs_most_has_a_lane(queue: Queue) -> None:
    key = "x" * 500
    first = given_lane(queue, "a", "b", key=key)
    assert queue.dump().leases["a"].key == key
    assert queue.dump().leases["a"].consumer == "c"
    ack(queue, [first])
    assert ids_of(queue.claim()) == ["b"]


@pytest.mark.parametrize("verb", ["retry", "defer", "release", "crash"])
def test_a_message_that_is_given_back_keeps_its_lane(queue: Queue, clock: ServerClock, verb: str) -> None:
    first = given_lane(queue, "a", "b", "c", lease=10)
    calls = {
        "retry": ops.retry(queue.keys, [(first, 20, "boom", "")]),
        "defer": ops.defer(queue.keys, [(first, 20, "")]),
        "release": ops.release(queue.keys, [first]),
    }
    if verb in calls:
        queue.call(calls[verb])
        assert queue.dump().wake == 1
    state = queue.dump()
    assert (state.lanes, state.parked_ids()) == ({"k": "+a"}, ["b", "c"])
    if verb in ("retry", "defer"):
        assert ids_of(queue.claim()) == []
    clock.freeze(NOW + 60 * SECOND)
    assert finished_in_order(queue) == ["a", "b", "c"]


def test_a_back_off_holds_up_later_sends_of_the_key_and_no_others(queue: Queue, clock: ServerClock) -> None:
    first = given_lane(queue, "a", "b")
    queue.call(ops.retry(queue.keys, [(first, 20, "boom", "")]))
    queue.send("c", key="k")
    queue.send("other", key="o")
    queue.send("plain")
    assert finished_in_order(queue) == ["other", "plain"]
    clock.freeze(NOW + 60 * SECOND)
    assert finished_in_order(queue) == ["a", "b", "c"]


def test_order_within_a_key_is_that_of_due_times(queue: Queue, clock: ServerClock) -> None:
    queue.send("late", key="k", delay=10)
    queue.send("now", key="k")
    queue.send("soon", key="k", delay=5)
    assert finished_in_order(queue) == ["now"]
    clock.freeze(NOW + 20 * SECOND)
    assert finished_in_order(queue) == ["soon", "late"]


def test_a_message_that_becomes_due_while_its_lane_is_owned_waits(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", key="k")
    queue.send("b", key="k", delay=5)
    (first,) = take(queue)
    clock.freeze(NOW + 6 * SECOND)
    assert ids_of(queue.claim()) == []
    assert queue.dump().parked_ids() == ["b"]
    ack(queue, [first])
    assert ids_of(queue.claim()) == ["b"]


def test_order_within_a_key_is_first_that_of_priority(queue: Queue) -> None:
    queue.send("out", key="k")
    (first,) = take(queue)
    for id_, priority in (("low", 0), ("mid", 5), ("high", 9), ("mid too", 5)):
        queue.send(id_, key="k", priority=priority)
    assert ids_of(queue.claim(10)) == []
    assert queue.dump().parked_ids() == ["high", "mid", "mid too", "low"]
    ack(queue, [first])
    assert queue.dump().waiting.keys() == {9}
    assert finished_in_order(queue) == ["high", "mid", "mid too", "low"]


def test_the_next_in_line_is_reserved_and_no_later_one_slips_past(queue: Queue) -> None:
    first = given_lane(queue, "a", "b", "c")
    ack(queue, [first])
    assert queue.dump().lanes == {"k": "+b"}
    queue.send("pushy", key="k", priority=9)
    assert ids_of(queue.claim(1)) == ["b"]
    assert queue.dump().parked_ids() == ["pushy", "c"]


def test_lanes_take_turns(queue: Queue) -> None:
    for key in "xy":
        queue.send(*(f"{key}{n}" for n in range(1, 7)), key=key)
    queue.send("plain")
    firsts = take(queue, 3)
    assert [settle.id for settle in firsts] == ["x1", "y1", "plain"]
    ack(queue, firsts)
    order = finished_in_order(queue, limit=1)
    assert order[:7] == ["x2", "y2", "x3", "y3", "x4", "y4", "x5"]
    assert sorted(order[7:]) == ["x6", "y5", "y6"]


def test_the_only_one_that_is_parked_goes_to_its_own_place(queue: Queue) -> None:
    first = given_lane(queue, "a", "b")
    queue.send("plain")
    ack(queue, [first])
    assert queue.dump().due("b") == codec.read_stamps(queue.dump().msgs["b"])[1]
    assert finished_in_order(queue) == ["b", "plain"]


def test_a_busy_lane_does_not_overtake_waiting_messages(queue: Queue) -> None:
    first = given_lane(queue, "a", "b", "c")
    queue.send("plain 1", "plain 2")
    ack(queue, [first])
    assert ids_of(queue.claim(1)) == ["plain 1"]
    assert ids_of(queue.claim(1)) == ["plain 2"]
    assert ids_of(queue.claim(1)) == ["b"]


@pytest.mark.parametrize("seed", range(6))
def test_order_holds_through_everything_that_brings_a_message_back(queue: Queue, clock: ServerClock, seed: int) -> None:
    """One message of each key is in flight at a time, and they are finished in the order of their due times."""
    chance, now = random.Random(seed), NOW
    expected: dict[str, list[str]] = {}
    for key in "pqrst":
        delays = sorted(chance.choice((0, 0, 1, 2, 3)) for _ in range(8))
        expected[key] = [f"{key}{n}" for n in range(8)]
        for id_, delay in zip(expected[key], delays, strict=True):
            queue.send(id_, key=key, delay=delay)
    finished: dict[str, list[str]] = defaultdict(list)
    out: list[ops.Settle] = []
    for _ in range(5000):
        clock.freeze(now := now + chance.randrange(SECOND))
        claimed = queue.claim(chance.choice((1, 2, 5, 20)), lease=4, suspects="with")
        gone = {each.id for each in claimed.reclaimed}
        out = [settle for settle in out if settle.id not in gone] + settles_of(claimed)
        assert len({settle.id[0] for settle in out}) == len(out)
        chance.shuffle(out)
        for _ in range(chance.randrange(len(out) + 1)):
            settle = out.pop()
            settle_somehow(queue, settle, chance, finished)
        if not queue.dump().msgs:
            break
    assert finished == expected
    assert_nothing_left(queue)


def settle_somehow(queue: Queue, settle: ops.Settle, chance: random.Random, finished: dict[str, list[str]]) -> None:
    verb = chance.choice(("ack", "ack", "ack", "retry", "defer", "release", "crash"))
    calls: dict[str, Any] = {
        "ack": ops.ack(queue.keys, queue.options, [settle]),
        "retry": ops.retry(queue.keys, [(settle, chance.choice((0, 1, 3)), "boom", "")]),
        "defer": ops.defer(queue.keys, [(settle, chance.choice((0, 2)), "")]),
        "release": ops.release(queue.keys, [settle]),
        # It would be dead at the limit, so it is acked.
        "crash": ops.extend(queue.keys, [(settle, 0.001)]),
    }
    if verb == "crash" and queue.dump().counts.get(settle.id, codec.Counts()).crashes == 2:
        verb = "ack"
    assert queue.call(calls[verb]) == []
    if verb == "ack":
        finished[settle.id[0]].append(settle.id)


# --- Who ends a message hands its lane on ----------------------------------------------------------------------

End = Callable[[Queue, ops.Settle, ServerClock], Any]


def _acks(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.ack(queue.keys, queue.options, [first]))


def _keeps(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    options = replace(queue.options, done=Keep(count=10))
    queue.call(ops.finish(queue.keys, options, [(first, "j1")]))


def _recycles(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.recycle(queue.keys, [(first, 0, b"")]))


def _recycles_for_later(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.recycle(queue.keys, [(first, 60, b"")]))


def _rejects(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.reject(queue.keys, queue.options, [(first, "bad", "", "")]))


def _fails(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.reject(queue.keys, queue.options, [(first, "failed", "boom", "")], failed=True))


def _cancels(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    assert queue.call(ops.cancel(queue.keys, "a", running=True)) == 1


def _cancels_waiting(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.defer(queue.keys, [(first, 60, "")]))
    take_token(queue)
    assert queue.call(ops.cancel(queue.keys, "a")) == 1


def _purges(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    assert queue.call(ops.purge(queue.keys, "leased", 10)) == [1, 0]


def _purges_delayed(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.defer(queue.keys, [(first, 60, "")]))
    take_token(queue)
    assert queue.call(ops.purge(queue.keys, "delayed", 10)) == [1, 0]


def _expires(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.defer(queue.keys, [(first, 60, "")]))
    take_token(queue)
    clock.freeze(NOW + 31 * SECOND)
    assert not queue.tidy()


def _drops(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.defer(queue.keys, [(first, 30, "")]))
    take_token(queue)
    options = replace(queue.options, max_length=len(queue.dump().msgs))
    queue.call(ops.send(queue.keys, [queue.outgoing("new", delay=60)], options, "drop"))


def _replaces(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.defer(queue.keys, [(first, 30, "")]))
    take_token(queue)
    queue.send("new", body=b"new", key="k", dedup="x", replace=True, delay=60)


def _trims(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.reject(queue.keys, replace(queue.options, on_dead=BLOCK), [(first, "bad", "", "")]))
    take_token(queue)
    queue.options = replace(queue.options, dead=Keep(count=0))
    assert not queue.tidy()


def _redrives_to_the_end(queue: Queue, first: ops.Settle, clock: ServerClock) -> None:
    queue.call(ops.reject(queue.keys, replace(queue.options, on_dead=BLOCK), [(first, "bad", "", "")]))
    take_token(queue)
    assert queue.call(ops.redrive(queue.keys, 10, at_end=True)) == [1, 0]


ENDS: Final[dict[End, str]] = {
    _acks: "acked",
    _keeps: "acked",
    _recycles: "recycled",
    _recycles_for_later: "recycled",
    _rejects: "buried",
    _fails: "buried",
    _cancels: "cancelled",
    _cancels_waiting: "cancelled",
    _purges: "purged",
    _purges_delayed: "purged",
    _expires: "expired",
    _drops: "dropped",
    _replaces: "replaced",
    _trims: "trimmed",
    _redrives_to_the_end: "redriven",
}

every_end = pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__[1:])


def given_first_that_may_expire(queue: Queue) -> ops.Settle:
    queue.send("a", key="k", ttl=30, dedup="x")
    queue.send("b", "c", key="k")
    (first,) = take(queue)
    take_token(queue)
    return first


@every_end
def test_every_end_of_a_message_passes_its_lane_on_and_wakes_a_consumer(
    queue: Queue, clock: ServerClock, end: End
) -> None:
    first = given_first_that_may_expire(queue)
    end(queue, first, clock)
    state = queue.dump()
    assert state.stats[ENDS[end]] == 1
    assert state.lanes == {"k": "+b"}
    assert state.parked_ids() == ["c"]
    assert state.due("b") > codec.read_stamps(state.msgs["b"])[1]  # due now, not when it was sent
    assert state.wake == 1
    assert faults_of(queue) == []
    assert ids_of(queue.claim(1)) == ["b"]


@every_end
def test_a_lane_whose_last_message_ends_is_gone(queue: Queue, clock: ServerClock, end: End) -> None:
    queue.send("a", key="k", ttl=30, dedup="x")
    (first,) = take(queue)
    end(queue, first, clock)
    assert queue.dump().stats[ENDS[end]] == 1
    assert (queue.dump().lanes, queue.dump().parked) == ({}, [])


@pytest.mark.parametrize("crash_limit", [1, 2])
def test_a_poison_message_passes_its_lane_on(make_queue: Any, clock: ServerClock, crash_limit: int) -> None:
    queue: Queue = make_queue(crash_limit=crash_limit)
    given_lane(queue, "a", "b", "c", lease=10)
    for turn in range(1, crash_limit):
        clock.freeze(NOW + turn * 20 * SECOND)
        assert ids_of(queue.claim(lease=10)) == ["a"]
    clock.freeze(NOW + crash_limit * 20 * SECOND)
    claimed = queue.claim()
    assert [each.is_dead for each in claimed.reclaimed] == [True]
    assert ids_of(claimed) == ["b"]
    assert (queue.dump().lanes, queue.dump().wake) == ({"k": "+b"}, 1)


@pytest.mark.parametrize("looking", ["claim", "tidy", "send"])
def test_a_reserved_message_past_its_ttl_passes_its_lane_on(queue: Queue, clock: ServerClock, looking: str) -> None:
    queue.send("a", key="k")
    queue.send("b", key="k", ttl=5)
    queue.send("c", key="k")
    ack(queue, take(queue))
    assert queue.dump().lanes == {"k": "+b"}
    take_token(queue)
    clock.freeze(NOW + 6 * SECOND)
    if looking == "tidy":
        queue.tidy()
    elif looking == "send":
        options = replace(queue.options, max_length=100)
        queue.call(ops.send(queue.keys, [queue.outgoing("later", delay=60)], options, "each"))
    if looking != "claim":
        state = queue.dump()
        assert (state.lanes, state.wake, state.stats["expired"]) == ({"k": "-c"}, 1, 1)
    assert ids_of(queue.claim()) == ["c"]


def test_a_parked_message_past_its_ttl_is_dropped(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", key="k")
    queue.send("b", key="k", ttl=5)
    queue.send("c", key="k")
    (first,) = take(queue)
    clock.freeze(NOW + 6 * SECOND)
    assert ids_of(queue.claim()) == []
    assert queue.dump().parked_ids() == ["c"]
    ack(queue, [first])
    assert finished_in_order(queue) == ["c"]
    assert_nothing_left(queue)


@pytest.mark.parametrize("state", ["parked", None])
def test_parked_messages_can_be_ended(queue: Queue, state: str | None) -> None:
    first = given_lane(queue, "a", "b", "c")
    if state:
        assert queue.call(ops.purge(queue.keys, "parked", 1)) == [1, 1]
        assert queue.dump().parked_ids() == ["c"]
        assert queue.call(ops.purge(queue.keys, "parked", 10)) == [1, 0]
    else:
        assert [queue.call(ops.cancel(queue.keys, id_)) for id_ in ("b", "c", "b")] == [1, 1, 0]
    dump = queue.dump()
    assert (set(dump.msgs), dump.parked, dump.lanes) == ({"a"}, [], {"k": "+a"})
    assert dump.stats["bytes"] == len(dump.msgs["a"])
    ack(queue, [first])
    assert_nothing_left(queue)


def test_a_parked_message_takes_a_new_body(queue: Queue) -> None:
    queue.send("a", key="k")
    queue.send("b", body=b"old", key="k", dedup="x")
    queue.send("c", key="k")
    (first,) = take(queue)
    queue.send("d", body=b"new", key="k", dedup="x", replace=True)
    assert queue.dump().places("b") == ["waiting0"]
    ack(queue, [first])
    assert finished_in_order(queue) == ["c", "b"]


def test_parked_messages_count_in_a_bounded_queue(make_queue: Any) -> None:
    queue: Queue = make_queue(max_length=3)
    given_lane(queue, "a", "b", "c")
    assert queue.send("d")[1:] == [1, 2, b"d"]


def test_the_oldest_that_is_parked_can_be_dropped(make_queue: Any) -> None:
    queue: Queue = make_queue(max_length=3)
    first = given_lane(queue, "a", "b", "c")
    queue.send("d", on_refusal="drop")
    state = queue.dump()
    assert (state.parked_ids(), state.lanes, state.stats["dropped"]) == (["c"], {"k": "+a"}, 1)
    ack(queue, [first])
    assert sorted(finished_in_order(queue)) == ["c", "d"]
    assert_nothing_left(queue)


def test_ack_refuses_a_message_with_a_key(queue: Queue) -> None:
    first = given_lane(queue, "a", "b")
    before = queue.dump()
    with pytest.raises(Refused, match="a has a key: it is finished by the script finish"):
        queue.call(ops.ack(queue.keys, queue.options, [ops.Settle("a", first.fence, has_key=False)]))
    assert queue.dump() == before


def test_a_stale_settle_passes_no_lane_on(queue: Queue, clock: ServerClock) -> None:
    first = given_lane(queue, "a", "b", lease=10)
    clock.freeze(NOW + 11 * SECOND)
    assert ids_of(queue.claim()) == ["a"]
    assert queue.call(ops.ack(queue.keys, queue.options, [first])) == [1]
    assert (queue.dump().lanes, queue.dump().parked_ids()) == ({"k": "+a"}, ["b"])


# --- on_dead="block" -------------------------------------------------------------------------------------------


def given_blocked(queue: Queue) -> None:
    assert queue.options.on_dead == BLOCK
    first = given_lane(queue, "a", "b", "c")
    queue.call(ops.reject(queue.keys, queue.options, [(first, "bad", "boom", "")]))
    queue.send("other", key="o")
    assert finished_in_order(queue) == ["other"]
    state = queue.dump()
    assert (state.places("a"), state.lanes, state.parked_ids()) == (["dead"], {"k": "+a"}, ["b", "c"])
    assert faults_of(queue) == []
    take_token(queue)


def test_a_dead_message_can_block_its_lane_until_it_is_redriven_and_finished(make_queue: Any) -> None:
    queue: Queue = make_queue(on_dead=BLOCK)
    given_blocked(queue)
    assert queue.call(ops.redrive(queue.keys, 10)) == [1, 0]
    assert queue.dump().wake == 1
    assert finished_in_order(queue) == ["a", "b", "c"]
    assert_nothing_left(queue)


@pytest.mark.parametrize("way", ["cancel", "purge", "trim"])
def test_a_blocked_lane_continues_when_its_dead_letter_ends(make_queue: Any, way: str) -> None:
    queue: Queue = make_queue(on_dead=BLOCK)
    given_blocked(queue)
    if way == "cancel":
        assert queue.call(ops.cancel(queue.keys, "a")) == 1
    elif way == "purge":
        assert queue.call(ops.purge(queue.keys, "dead", 10)) == [1, 0]
    else:
        queue.options = replace(queue.options, dead=Keep(count=0))
        queue.tidy()
    assert queue.dump().wake == 1
    assert finished_in_order(queue) == ["b", "c"]


def test_poison_can_block_its_lane(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(on_dead=BLOCK, crash_limit=1)
    given_lane(queue, "a", "b", lease=10)
    clock.freeze(NOW + 11 * SECOND)
    assert ids_of(queue.claim()) == []
    assert queue.dump().lanes == {"k": "+a"}
    queue.call(ops.redrive(queue.keys, 10))
    assert finished_in_order(queue) == ["a", "b"]


def test_a_dead_letter_that_is_not_kept_blocks_nothing(make_queue: Any) -> None:
    queue: Queue = make_queue(on_dead=BLOCK, dead=Keep(count=0))
    first = given_lane(queue, "a", "b")
    queue.call(ops.reject(queue.keys, queue.options, [(first, "bad", "", "")]))
    assert queue.dump().wake == 1
    assert ids_of(queue.claim()) == ["b"]


def test_without_blocking_an_older_dead_letter_does_not_block_its_lane(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(count=1))
    given_lane(queue, "a", "b", "c", "d")
    for id_ in "abc":
        fence = queue.dump().leases[id_].fence
        queue.call(ops.reject(queue.keys, queue.options, [(ops.Settle(id_, fence), "bad", "", "")]))
        assert len(ids_of(queue.claim())) == 1
    assert (list(queue.dump().dead), queue.dump().lanes) == (["c"], {"k": "-d"})


# --- Redrive ---------------------------------------------------------------------------------------------------


def given_dead_first(queue: Queue) -> None:
    """Let the first of a, b, c die: b is next."""
    first = given_lane(queue, "a", "b", "c")
    queue.call(ops.reject(queue.keys, queue.options, [(first, "bad", "", "")]))
    assert queue.dump().lanes == {"k": "+b"}


def test_a_redriven_message_comes_before_parked_ones(queue: Queue) -> None:
    given_dead_first(queue)
    (second,) = take(queue)
    queue.call(ops.redrive(queue.keys, 10))
    assert ids_of(queue.claim()) == []
    assert queue.dump().parked_ids() == ["a", "c"]
    ack(queue, [second])
    assert finished_in_order(queue) == ["a", "c"]


def test_a_redriven_message_comes_before_one_that_was_never_delivered(queue: Queue) -> None:
    given_dead_first(queue)
    queue.call(ops.redrive(queue.keys, 10))
    state = queue.dump()
    assert (state.lanes, state.parked_ids(), state.places("b")) == ({"k": "+a"}, ["b", "c"], ["parked"])
    assert faults_of(queue) == []
    assert finished_in_order(queue) == ["a", "b", "c"]


def test_a_redriven_message_does_not_go_before_one_that_has_begun(queue: Queue) -> None:
    given_dead_first(queue)
    queue.call(ops.release(queue.keys, take(queue)))
    queue.call(ops.redrive(queue.keys, 10))
    assert queue.dump().lanes == {"k": "+b"}
    assert finished_in_order(queue) == ["b", "a", "c"]


def test_several_are_redriven_to_their_places(queue: Queue) -> None:
    given_lane(queue, "a", "b", "c", "d")
    for id_ in "ab":
        fence = queue.dump().leases[id_].fence
        queue.call(ops.reject(queue.keys, queue.options, [(ops.Settle(id_, fence), "bad", "", "")]))
        queue.claim()
    queue.call(ops.redrive(queue.keys, 10))
    ack(queue, [ops.Settle("c", queue.dump().leases["c"].fence)])
    assert finished_in_order(queue) == ["a", "b", "d"]


def test_a_message_redriven_to_the_end_is_the_last(queue: Queue) -> None:
    given_dead_first(queue)
    queue.call(ops.redrive(queue.keys, 10, at_end=True))
    assert finished_in_order(queue) == ["b", "c", "a"]


def test_a_blocking_message_redriven_to_the_end_is_the_last(make_queue: Any) -> None:
    queue: Queue = make_queue(on_dead=BLOCK)
    given_blocked(queue)
    queue.call(ops.redrive(queue.keys, 10, at_end=True))
    assert finished_in_order(queue) == ["b", "c", "a"]


def test_named_letters_are_redriven_if_they_are_the_same(queue: Queue) -> None:
    given_dead_first(queue)
    died = queue.dump().dead["a"]
    part = queue.outgoing("a", b"edited", key="k").part
    assert queue.call(ops.redrive(queue.keys, 10, [("a", died + 1, part), ("b", died, b"")])) == [0, 1]
    assert queue.call(ops.redrive(queue.keys, 10, [("a", died, part)])) == [1, 0]
    assert codec.part_of(queue.dump().msgs["a"]) == part
    assert finished_in_order(queue) == ["a", "b", "c"]


# --- Reschedule and promote --------------------------------------------------------------------------------------


def test_a_parked_message_can_be_delayed(queue: Queue, clock: ServerClock) -> None:
    first = given_lane(queue, "a", "b", "c")
    assert queue.call(ops.reschedule(queue.keys, "b", f"+{10 * SECOND}")) == 1
    state = queue.dump()
    assert (state.places("b"), state.parked_ids(), state.lanes) == (["waiting0"], ["c"], {"k": "+a"})
    ack(queue, [first])
    assert finished_in_order(queue) == ["c"]
    clock.freeze(NOW + 20 * SECOND)
    assert finished_in_order(queue) == ["b"]


def test_the_last_parked_message_can_be_rescheduled(queue: Queue) -> None:
    first = given_lane(queue, "a", "b")
    queue.call(ops.reschedule(queue.keys, "b", f"+{10 * SECOND}"))
    ack(queue, [first])
    assert (queue.dump().lanes, queue.dump().parked) == ({}, [])


def test_promote_of_a_parked_message_changes_nothing(queue: Queue) -> None:
    given_lane(queue, "a", "b", "c")
    before = queue.dump()
    assert queue.call(ops.reschedule(queue.keys, "c", "0")) == 1
    assert queue.dump().differences(before) == ["calls"]


def test_a_reserved_message_that_is_rescheduled_gives_its_lane_up(queue: Queue, clock: ServerClock) -> None:
    ack(queue, [given_lane(queue, "a", "b", "c")])
    take_token(queue)
    assert queue.call(ops.reschedule(queue.keys, "b", f"+{10 * SECOND}")) == 1
    assert (queue.dump().lanes, queue.dump().wake) == ({"k": "-c"}, 1)
    assert finished_in_order(queue) == ["c"]
    clock.freeze(NOW + 20 * SECOND)
    assert finished_in_order(queue) == ["b"]
    assert_nothing_left(queue)


def test_promote_of_a_reserved_message_changes_nothing(queue: Queue) -> None:
    ack(queue, [given_lane(queue, "a", "b", "c")])
    before = queue.dump()
    assert queue.call(ops.reschedule(queue.keys, "b", "0")) == 1
    assert queue.dump().differences(before) == ["calls"]


def test_a_message_that_has_begun_keeps_its_lane_when_it_is_rescheduled_or_promoted(
    queue: Queue, clock: ServerClock
) -> None:
    first = given_lane(queue, "a", "b")
    queue.call(ops.retry(queue.keys, [(first, 10, "boom", "")]))
    queue.call(ops.reschedule(queue.keys, "a", f"+{60 * SECOND}"))
    clock.freeze(NOW + 20 * SECOND)
    assert ids_of(queue.claim()) == []
    assert queue.call(ops.reschedule(queue.keys, "a", "0")) == 1
    assert finished_in_order(queue) == ["a", "b"]


# --- Bounds ------------------------------------------------------------------------------------------------------


def send_many(queue: Queue, count: int, key: str) -> None:
    for first in range(0, count, 500):
        ids = [f"{key}{n:05}" for n in range(first, min(first + 500, count))]
        queue.send(*ids, key=key)


@pytest.mark.parametrize("limit", [1, 10, 1000])
def test_a_claim_parks_a_bounded_number_and_others_are_served_soon(queue: Queue, limit: int) -> None:
    """I11."""
    send_many(queue, 5000, "k")
    queue.send("other", key="o")
    found: list[str] = []
    calls = 0
    while "other" not in found:
        parked_before = len(queue.dump().parked)
        claimed = queue.claim(limit)
        parked = len(queue.dump().parked) - parked_before
        assert parked <= 1000
        found += ids_of(claimed)
        calls += 1
        if "other" not in found:
            assert claimed.next_in == 0  # there is more: claim again
        assert calls <= 7
    assert found == ["k00000", "other"]
    assert 29 < (queue.claim(limit).next_in or 0) <= 30  # nothing to do until the lease ends


def test_a_parked_message_is_not_parked_again(queue: Queue) -> None:
    send_many(queue, 2000, "k")
    while queue.claim(10).next_in == 0:
        pass
    assert len(queue.dump().parked) == 1999
    for n in range(3):
        ack(queue, [ops.Settle(f"k{n:05}", queue.dump().leases[f"k{n:05}"].fence)])
        assert ids_of(queue.claim(10)) == [f"k{n + 1:05}"]
        assert len(queue.dump().parked) == 1999 - n - 1


def test_keys_cost_nothing_when_they_are_idle(queue: Queue) -> None:
    for first in range(0, 1000, 100):
        queue.send_all([queue.outgoing(f"id{n}", key=f"key{n}") for n in range(first, first + 100)])
    ack(queue, take(queue, 1000))
    assert_nothing_left(queue)


def test_delete_removes_lanes(queue: Queue) -> None:
    given_lane(queue, "a", "b")
    queue.call(ops.delete(queue.keys))
    assert {name for name in queue.key_names() if not name.startswith("call:")} == set()


# --- Damage --------------------------------------------------------------------------------------------------------


def stranger(queue: Queue, *command: Any) -> None:
    """Write to a key as another program might."""
    verb, key, *rest = command
    queue.wire.run(verb, queue.keys.key(key), *rest)


def member(queue: Queue, id_: str) -> bytes:
    (found,) = (each for each in queue.dump().parked if each.endswith(id_.encode()))
    return found


def test_an_audit_finds_a_lane_without_an_owner_and_frees_it(queue: Queue) -> None:
    first = given_lane(queue, "a", "b", "c")
    member_b = member(queue, "b")
    ack(queue, [first])
    stranger(queue, "ZREM", "waiting0", "b")
    stranger(queue, "ZADD", "parked", 0, member_b)
    stranger(queue, "HSET", "lanes", "k", "+a")
    take_token(queue)
    assert ids_of(queue.claim()) == []
    assert faults_of(queue) == [AuditFault("a", "the lane k belongs to nobody")]
    faults_of(queue, repair=True)
    assert queue.dump().wake == 1
    assert faults_of(queue) == []
    assert finished_in_order(queue) == ["b", "c"]


def test_an_audit_finds_messages_parked_in_a_lane_without_an_owner(queue: Queue) -> None:
    first = given_lane(queue, "a", "b", "c")
    ack(queue, [first])
    queue.call(ops.cancel(queue.keys, "b"))
    # c is next; another program parks it again and removes the lane.
    stranger(queue, "ZREM", "waiting0", "c")
    due = codec.read_stamps(queue.dump().msgs["c"])[1]
    stranger(queue, "ZADD", "parked", 0, b"k\0" + b"9" + str(due).rjust(DUE_DIGITS, "0").encode() + b"c")
    stranger(queue, "DEL", "lanes")
    assert ids_of(queue.claim()) == []
    assert faults_of(queue) == [AuditFault("c", "parked behind nobody")]
    faults_of(queue, repair=True)
    assert faults_of(queue) == []
    assert finished_in_order(queue) == ["c"]
    assert_nothing_left(queue)


@pytest.mark.parametrize("source", ["lanes", "parked"])
@pytest.mark.parametrize("keys", [1, 40])
def test_a_repair_of_lanes_unparks_a_bounded_number_per_call(queue: Queue, keys: int, source: str) -> None:
    """A script blocks all clients of its server, so its work is bounded: later calls do the rest."""
    count = 400 // keys
    for key in range(keys):
        queue.send(*(f"{key}-{n:04}" for n in range(count)), key=f"k{key}")
    settles = take(queue, 100)
    assert len(settles) == keys
    while any(queue.dump().waiting.values()):
        assert take(queue, 1000) == []
    ack(queue, settles)
    for key in range(keys):
        stranger(queue, "HSET", "lanes", f"k{key}", "+nobody")
    if source == "parked":
        stranger(queue, "DEL", "lanes")
    before, cursor = queue.wire.run("ZCARD", queue.keys.key("parked")), "0"
    moved: list[int] = []
    while not moved or cursor != "0":
        call = ops.audit_step(queue.keys, source, cursor, repair=True)
        cursor = call.decode(queue.call(call)).cursor
        left = queue.wire.run("ZCARD", queue.keys.key("parked"))
        moved.append(before - left)
        before = left
    assert 0 < max(moved) <= 200
    for _ in range(6):
        faults_of(queue, repair=True)
    assert faults_of(queue) == []
    finished = finished_in_order(queue, 100)
    for key in range(keys):
        of_key = [id_ for id_ in finished if id_.startswith(f"{key}-")]
        assert of_key == [f"{key}-{n:04}" for n in range(1, count)]


def test_an_audit_finds_a_lane_without_its_mark_for_parked_messages(queue: Queue) -> None:
    first = given_lane(queue, "a", "b")
    stranger(queue, "HSET", "lanes", "k", "-a")
    assert faults_of(queue) == [AuditFault("b", "parked behind one that does not know")]
    faults_of(queue, repair=True)
    assert (queue.dump().lanes, faults_of(queue)) == ({"k": "+a"}, [])
    ack(queue, [first])
    assert finished_in_order(queue) == ["b"]


@pytest.mark.parametrize("kind", ["no separator", "another due time", "another key"])
def test_an_audit_finds_messages_parked_in_a_wrong_lane(queue: Queue, kind: str) -> None:
    first = given_lane(queue, "a", "b")
    right = member(queue, "b")
    due = str(NOW + 7).rjust(DUE_DIGITS, "0").encode()
    wrong = {
        "no separator": b"nonsense",
        "another due time": b"k\0" + b"9" + due + b"b",
        "another key": b"other" + right[1:],
    }[kind]
    stranger(queue, "ZADD", "parked", 0, wrong)
    if kind in ("another due time", "another key"):
        stranger(queue, "ZREM", "parked", right)
    assert "parked where it does not belong" in {fault.what for fault in faults_of(queue)}
    faults_of(queue, repair=True)
    faults_of(queue, repair=True)  # a repair may reveal other faults
    assert faults_of(queue) == []
    ack(queue, [first])
    assert finished_in_order(queue) == ["b"]
    assert_nothing_left(queue)


def test_an_audit_makes_a_parked_id_without_a_body_a_dead_letter(queue: Queue) -> None:
    first = given_lane(queue, "a", "b")
    stranger(queue, "ZADD", "parked", 0, member(queue, "b")[:-1] + b"ghost")
    assert faults_of(queue) == [AuditFault("ghost", "place without a body")]
    faults_of(queue, repair=True)
    assert faults_of(queue) == []
    assert (queue.dump().places("ghost"), queue.dump().why["ghost"].reason) == (["dead"], "body lost")
    ack(queue, [first])
    assert finished_in_order(queue) == ["b"]


def test_an_audit_of_lanes_that_move_finds_nothing(queue: Queue) -> None:
    given_lane(queue, "a", "b", "c")
    assert faults_of(queue) == []
    before = queue.dump()
    assert faults_of(queue, repair=True) == []
    assert queue.dump() == before


@pytest.mark.parametrize("on_dead", ["continue", BLOCK])
@pytest.mark.parametrize(
    "verb", ["ack", "keep", "retry", "defer", "release", "recycle", "reject", "crash", "cancel", "purge"]
)
def test_a_body_that_is_lost_while_out_does_not_block_its_lane(
    make_queue: Any, clock: ServerClock, verb: str, on_dead: Any
) -> None:
    queue: Queue = make_queue(on_dead=on_dead, crash_limit=9)
    first = given_lane(queue, "a", "b", "c", lease=10)
    queue.lose_body("a")
    calls: dict[str, Any] = {
        "ack": ops.ack(queue.keys, queue.options, [first]),
        "keep": ops.ack(queue.keys, replace(queue.options, done=Keep(count=9)), [first]),
        "retry": ops.retry(queue.keys, [(first, 0, "", "")]),
        "defer": ops.defer(queue.keys, [(first, 0, "")]),
        "release": ops.release(queue.keys, [first]),
        "recycle": ops.recycle(queue.keys, [(first, 0, b"")]),
        "reject": ops.reject(queue.keys, queue.options, [(first, "bad", "", "")]),
        "cancel": ops.cancel(queue.keys, "a", running=True),
        "purge": ops.purge(queue.keys, "leased", 10),
    }
    if verb == "crash":
        clock.freeze(NOW + 11 * SECOND)
    else:
        queue.call(calls[verb])
        assert queue.dump().wake == 1
    assert finished_in_order(queue) == ["b", "c"]
    assert queue.dump().lanes == {}


@pytest.mark.parametrize("due", [math.nan, math.inf, -math.inf, 1e300, -5.0, 0.5, 1e17], ids=str)
@pytest.mark.parametrize("others", ["", "c"])
def test_a_due_time_that_is_none_stops_no_lane(queue: Queue, due: float, others: str) -> None:
    queue.send("a", "b", *others, key="k")
    record = queue.dump().msgs["b"]
    stranger(queue, "HSET", "msgs", "b", record[:8] + struct.pack("<d", due) + record[16:])
    ack(queue, take(queue))
    assert finished_in_order(queue) == ["b", *others]
    assert_nothing_left(queue)


def test_an_audit_repairs_a_body_that_was_lost_while_its_lane_waits(queue: Queue) -> None:
    first = given_lane(queue, "a", "b", "c")
    queue.call(ops.retry(queue.keys, [(first, 0, "boom", "")]))
    queue.lose_body("a")
    assert ids_of(queue.claim()) == []  # dead; its lane is unknown
    assert queue.dump().places("a") == ["dead"]
    faults_of(queue, repair=True)
    assert faults_of(queue) == []
    assert finished_in_order(queue) == ["b", "c"]


def test_a_lost_body_behind_a_parked_message_lets_no_lower_priority_go_first(queue: Queue) -> None:
    queue.send("first", key="k", priority=5)
    take(queue)
    queue.send("parked", key="k", priority=5)
    queue.send("lost", "high", priority=5)
    queue.send("low")
    queue.lose_body("lost")

    order = [id_ for _ in range(3) for id_ in ids_of(queue.claim(1))]

    assert order == ["high", "low"]


def test_an_audit_repairs_a_parked_message_whose_body_was_lost(queue: Queue) -> None:
    first = given_lane(queue, "a", "b", "c")
    queue.lose_body("b")
    faults_of(queue, repair=True)
    faults_of(queue, repair=True)
    assert faults_of(queue) == []
    ack(queue, [first])
    assert finished_in_order(queue) == ["c"]
