"""I5 and I6 for every script that writes: a repeat, a call that was overtaken, a stale fence."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from duly import _lua
from duly._core import ops, replies
from duly._core.call import Call
from duly._core.effects import Effect
from duly._core.keys import QueueKeys
from duly._core.schedules import Choice, Plan, messages, read_row, written_plan
from duly.options import Keep
from tests.lua.harness import NOW, SECOND, Queue, Refused

Prepare = Callable[[Queue], Call[Any]]

BAD = ("boom", "Traceback: boom")


def _sends(queue: Queue) -> Call[Any]:
    messages = [queue.outgoing(id_, delay=delay, priority=3) for id_, delay in (("a", 0), ("b", 5))]
    return ops.send(queue.keys, messages, queue.options, "each")


def _sends_with_keys(queue: Queue) -> Call[Any]:
    messages = [queue.outgoing(id_, key="k") for id_ in ("a", "b")]
    return ops.send(queue.keys, messages, queue.options, "each")


def _sends_mixed(queue: Queue) -> Call[Any]:
    return ops.send(queue.keys, [queue.outgoing("a", ttl=60, priority=3), queue.outgoing("b")], queue.options, "each")


def _sends_checked(queue: Queue) -> Call[Any]:
    queue.send("a", dedup="x")
    messages = [queue.outgoing("b", dedup="x"), queue.outgoing("c", b"new", dedup="x", replace=True)]
    return ops.send(queue.keys, [*messages, queue.outgoing("own", own=True)], queue.options, "each")


def _claims(queue: Queue) -> Call[Any]:
    queue.send("a", "b", ttl=60)
    return ops.claim(queue.keys, queue.options, limit=10, lease=30, consumer="c", then="watch")


def _claims_and_parks(queue: Queue) -> Call[Any]:
    queue.send("a", "b", "c", key="k")
    queue.send("d", key="l")
    claim: Call[Any] = queue.claim_call(4)
    return claim


def _measures(queue: Queue) -> Call[Any]:
    queue.send("a")
    return ops.measure(queue.keys, "1500,0,1", "3000,2")


def _acks(queue: Queue) -> Call[Any]:
    return ops.ack(queue.keys, queue.options, queue.hold("a", "b"))


def _finishes_lanes(queue: Queue) -> Call[Any]:
    queue.send("a", "c", key="k")
    queue.send("b", "d", key="l")
    fence = queue.claim(4).fence
    return ops.ack(queue.keys, queue.options, [ops.Settle(id_, fence, has_key=True) for id_ in ("a", "b")])


def _finishes_and_keeps(queue: Queue) -> Call[Any]:
    options = replace(queue.options, done=Keep(count=1))
    return ops.finish(queue.keys, options, [(settle, "j1") for settle in queue.hold("a", "b")])


def _commits(queue: Queue) -> Call[Any]:
    (settle,) = queue.hold("a")
    target = ops.Target(queue.keys, queue.options, [queue.outgoing("b", dedup="x", ttl=60), queue.outgoing("c")])
    effect = Effect("INCR", f"mine:{{{queue.keys.name}}}".encode(), ())
    return ops.commit(queue.keys, queue.options, settle, [target], effects=[effect])


def _keeps_results(queue: Queue) -> Call[Any]:
    options = replace(queue.options, done=Keep(count=9))
    settles = queue.hold("a", "b")
    for settle in settles:
        queue.call(ops.commit(queue.keys, options, settle, result_in=60))
    return ops.keep_results(queue.keys, [(settle, "j1") for settle in settles])


def _retries(queue: Queue) -> Call[Any]:
    return ops.retry(queue.keys, [(settle, 5, *BAD) for settle in queue.hold("a", "b")])


def _defers(queue: Queue) -> Call[Any]:
    return ops.defer(queue.keys, [(settle, 5, "") for settle in queue.hold("a", "b", ttl=60)])


def _releases(queue: Queue) -> Call[Any]:
    return ops.release(queue.keys, queue.hold("a", "b"))


def _recycles(queue: Queue) -> Call[Any]:
    part = queue.outgoing("a", b"a longer body").part
    return ops.recycle(queue.keys, [(settle, 5, part) for settle in queue.hold("a", "b")])


def _rejects(queue: Queue) -> Call[Any]:
    return ops.reject(queue.keys, queue.options, [(settle, "bad", *BAD) for settle in queue.hold("a", "b")])


def _extends(queue: Queue) -> Call[Any]:
    return ops.extend(queue.keys, [(settle, 90) for settle in queue.hold("a", "b")])


def _reports(queue: Queue) -> Call[Any]:
    return ops.of_rows("progress", queue.keys, [(settle, "0.4", "loading") for settle in queue.hold("a", "b")])


def _cancels(queue: Queue) -> Call[Any]:
    queue.send("a", "b", dedup="x", ttl=60)
    return ops.cancel(queue.keys, "a")


def _reschedules(queue: Queue) -> Call[Any]:
    queue.send("a", ttl=60)
    return ops.reschedule(queue.keys, "a", "+5000000")


def _redrives(queue: Queue) -> Call[Any]:
    queue.bury("a", "b", ttl=60)
    return ops.redrive(queue.keys, 1)


def _moves(queue: Queue) -> Call[Any]:
    queue.bury("a", "b", ttl=60, priority=2)
    died = queue.dump().dead
    # A cluster refuses two queues in one call: here, the other one has the same hash tag.
    other = QueueKeys(f"other:{{{queue.keys.name}}}", "x")
    return ops.move(queue.keys, other, queue.options, [("a", died["a"], b""), ("b", died["b"], b"")])


def _purges(queue: Queue) -> Call[Any]:
    queue.send("a", "b", "c", priority=4)
    return ops.purge(queue.keys, "ready", 2)


def _corrects(queue: Queue) -> Call[Any]:
    return ops.correct(queue.keys, {"bytes": -5, "corrected": 2})


def _takes_tokens(queue: Queue) -> Call[Any]:
    queue.send("a")
    return ops.take_tokens(queue.keys, [queue.keys.key("wake")], 1)


def _pauses(queue: Queue) -> Call[Any]:
    return ops.pause(queue.keys, "somebody")


def _resumes(queue: Queue) -> Call[Any]:
    queue.send("a")
    queue.call(ops.pause(queue.keys, "somebody"))
    return ops.resume(queue.keys)


def _deletes(queue: Queue) -> Call[Any]:
    queue.send("a", "b")
    return ops.delete(queue.keys)


def given_schedule(queue: Queue, name: str = "report", every: int = 10, **options: Any) -> bytes:
    """Store a schedule and return its row."""
    part = bytes(queue.outgoing("", b"body", **options).part)
    queue.call(ops.schedule(queue.keys, name, written_plan(Plan(None, every * SECOND, "UTC", "one", part))))
    return queue.dump().schedules[name]


def _schedules(queue: Queue) -> Call[Any]:
    given_schedule(queue)
    return ops.schedule(
        queue.keys, "other", written_plan(Plan(None, SECOND, "UTC", "all", bytes(queue.outgoing("").part)))
    )


def _schedules_anew(queue: Queue) -> Call[Any]:
    given_schedule(queue)
    return ops.schedule(
        queue.keys, "report", written_plan(Plan(None, SECOND, "UTC", "all", bytes(queue.outgoing("").part)))
    )


def _unschedules(queue: Queue) -> Call[Any]:
    given_schedule(queue)
    return ops.unschedule(queue.keys, "report")


def _pauses_a_schedule(queue: Queue) -> Call[Any]:
    given_schedule(queue)
    return ops.pause_schedule(queue.keys, "report")


def _resumes_a_schedule(queue: Queue) -> Call[Any]:
    given_schedule(queue)
    queue.call(ops.pause_schedule(queue.keys, "report"))
    return ops.resume_schedule(queue.keys, "report")


def _fires(queue: Queue) -> Call[Any]:
    row = given_schedule(queue, ttl=60, priority=3)
    choice = Choice([NOW - 1, NOW], NOW, NOW + 10 * SECOND)
    ids = iter(("a", "b"))
    return ops.fire(
        queue.keys, "report", row, choice, messages("report", read_row(row).plan, choice.runs, lambda: next(ids))
    )


def _fires_nothing(queue: Queue) -> Call[Any]:
    return ops.fire(queue.keys, "report", given_schedule(queue), Choice([], NOW, NOW + 10 * SECOND), [])


WRITING: dict[str, list[Prepare]] = {
    "send": [_sends, _sends_with_keys],
    "send_checked": [_sends_checked, _sends_mixed],
    "claim": [_claims, _claims_and_parks],
    "ack": [_acks],
    "finish": [_finishes_lanes, _finishes_and_keeps],
    "commit": [_commits],
    "keep_result": [_keeps_results],
    "retry": [_retries],
    "defer": [_defers],
    "release": [_releases],
    "recycle": [_recycles],
    "reject": [_rejects],
    "extend": [_extends],
    "progress": [_reports],
    "cancel": [_cancels],
    "reschedule": [_reschedules],
    "redrive": [_redrives],
    "move": [_moves],
    "purge": [_purges],
    "correct": [_corrects],
    "take_tokens": [_takes_tokens],
    "pause": [_pauses],
    "resume": [_resumes],
    "delete": [_deletes],
    "schedule": [_schedules, _schedules_anew],
    "unschedule": [_unschedules],
    "pause_schedule": [_pauses_a_schedule],
    "resume_schedule": [_resumes_a_schedule],
    "fire": [_fires, _fires_nothing],
    "measure": [_measures],
}
ELSEWHERE = {"register", "unregister", "lock", "unlock", "prolong", "once", "publish", "seek_group", "delete_topic"}
"""They touch no queue: see test_schedules.py, test_locks.py, test_once.py, test_publish.py and test_seek.py."""
SETTLING = ("ack", "finish", "retry", "defer", "release", "recycle", "reject", "extend", "progress")

every_writing_call = pytest.mark.parametrize(
    "prepare", [prepare for prepares in WRITING.values() for prepare in prepares], ids=lambda f: f.__name__[1:]
)
every_settle = pytest.mark.parametrize(
    "prepare", [prepare for verb in SETTLING for prepare in WRITING[verb]], ids=lambda f: f.__name__[1:]
)


def test_every_script_with_a_call_key_is_in_the_table() -> None:
    writing = {name for name in _lua.names() if _lua.script(name).keys[0] == "call"}
    assert writing == set(WRITING) | ELSEWHERE


@every_writing_call
def test_a_repeat_gets_the_same_answer_and_changes_nothing(queue: Queue, prepare: Prepare) -> None:
    call = prepare(queue)
    before = queue.dump()
    answer = queue.call(call, sequence=100)
    after = queue.dump()
    assert after != before
    again = queue.call(call, sequence=100)
    if call.script.name == "claim":  # the times in the reply are those of the repeat
        answer, again = (replies.claimed(each)._replace(now=0, next_in=0) for each in (answer, again))
    assert again == answer
    assert queue.dump() == after


@every_writing_call
def test_a_call_that_was_overtaken_is_refused_and_changes_nothing(queue: Queue, prepare: Prepare) -> None:
    call = prepare(queue)
    queue.call(ops.correct(queue.keys, {"corrected": 0}), sequence=100)
    before = queue.dump()
    with pytest.raises(Refused, match="OVERTAKEN"):
        queue.call(call, sequence=99)
    assert queue.dump() == before


@every_writing_call
def test_another_stream_is_not_taken_for_a_repeat(queue: Queue, prepare: Prepare) -> None:
    call = prepare(queue)
    queue.call(ops.correct(queue.keys, {"corrected": 0}), stream=b"other", sequence=100)
    before = queue.dump()
    queue.call(call, sequence=50)
    assert queue.dump() != before


@every_settle
def test_a_settle_with_a_stale_fence_changes_nothing(queue: Queue, prepare: Prepare) -> None:
    call = prepare(queue)
    queue.call(ops.release(queue.keys, [ops.Settle(id_, _fence_of(queue, id_), 0) for id_ in ("a", "b")]))
    queue.claim()  # others hold the messages now
    before = queue.dump()
    assert queue.call(call) == [1, 2]
    assert queue.dump() == before


@every_settle
def test_a_settle_of_a_message_that_is_gone_changes_nothing(queue: Queue, prepare: Prepare) -> None:
    call = prepare(queue)
    queue.call(ops.cancel(queue.keys, "a", running=True))
    queue.call(ops.cancel(queue.keys, "b", running=True))
    before = queue.dump()
    assert queue.call(call) == [1, 2]
    assert queue.dump() == before


@every_settle
def test_a_settle_returns_which_leases_were_lost_and_settles_the_others(queue: Queue, prepare: Prepare) -> None:
    call = prepare(queue)
    queue.call(ops.cancel(queue.keys, "a", running=True))
    before = queue.dump()
    assert queue.call(call) == [1]
    after = queue.dump()
    assert after != before
    assert not after.places("a")


@every_settle
def test_a_settle_after_the_deadline_is_accepted_until_a_claim_reclaims_the_message(
    queue: Queue, clock: Any, prepare: Prepare
) -> None:
    call = prepare(queue)
    clock.freeze(queue.dump().leased["a"] + 1)
    assert queue.call(call) == []


@pytest.mark.parametrize("verb", ["ack", "release"])
def test_an_id_given_twice_in_one_call_is_settled_once(queue: Queue, verb: str) -> None:
    (settle,) = queue.hold("a")
    calls = {"ack": ops.ack(queue.keys, queue.options, [settle] * 2), "release": ops.release(queue.keys, [settle] * 2)}
    assert queue.call(calls[verb]) == [2]
    assert queue.dump().stats[{"ack": "acked", "release": "released"}[verb]] == 1


def test_a_repeated_claim_omits_messages_that_were_settled_since(queue: Queue) -> None:
    queue.send("a", "b")
    first = queue.call(queue.claim_call(), sequence=100)
    queue.call(ops.ack(queue.keys, queue.options, [ops.Settle("a", first[3], 0)]), stream=b"other", sequence=1)
    again = queue.call(queue.claim_call(), sequence=100)
    assert again[3] == first[3]
    assert again[4] == [b"b"]


def test_a_repeated_claim_omits_messages_that_others_hold_by_now(queue: Queue) -> None:
    queue.send("a")
    first = queue.call(queue.claim_call(), sequence=100)
    queue.call(ops.release(queue.keys, [ops.Settle("a", first[3], 0)]), stream=b"other", sequence=1)
    queue.call(queue.claim_call(consumer="thief"), stream=b"other", sequence=2)
    assert queue.call(queue.claim_call(), sequence=100)[4] == []
    assert queue.dump().leases["a"].consumer == "thief"


def test_a_late_copy_of_a_claim_that_took_nothing_takes_nothing(queue: Queue) -> None:
    assert queue.call(queue.claim_call(), sequence=100)[4] == []
    queue.call(ops.send(queue.keys, [queue.outgoing("a")], queue.options, "each"), stream=b"other", sequence=1)
    assert queue.call(queue.claim_call(), sequence=100)[4] == []


def test_a_claim_that_is_withdrawn_after_it_was_carried_out_returns_what_it_took(queue: Queue) -> None:
    queue.send("a", "b")
    first = queue.call(queue.claim_call(1, then="behind"), sequence=100)
    withdrawn = queue.call(queue.claim_call(0, then="pass"), sequence=100)
    assert (withdrawn[3], withdrawn[4]) == (first[3], [b"a"])
    assert set(queue.dump().leased) == {"a"}


def test_a_claim_that_is_withdrawn_before_it_arrives_takes_nothing_then(queue: Queue) -> None:
    queue.send("a")
    assert queue.call(queue.claim_call(0, then="pass"), sequence=100)[4] == []
    assert queue.call(queue.claim_call(1, then="behind"), sequence=100)[4] == []
    assert queue.dump().leased == {}
    assert queue.call(queue.claim_call(1, then="stay"), sequence=101)[4] == [b"a"]


def test_a_call_record_lives_for_an_hour(queue: Queue) -> None:
    queue.send("a")
    left = queue.wire.run("PTTL", queue.keys.call(b"tests"))
    assert 3_590_000 < left <= 3_600_000


def _fence_of(queue: Queue, id_: str) -> int:
    return queue.dump().leases[id_].fence


@pytest.mark.parametrize("verb", ["purge", "redrive", "reschedule", "cancel"])
def test_a_late_copy_of_a_call_that_did_nothing_does_nothing_either(queue: Queue, verb: str) -> None:
    calls: dict[str, Call[Any]] = {
        "purge": ops.purge(queue.keys, "ready", 10),
        "redrive": ops.redrive(queue.keys, 10),
        "reschedule": ops.reschedule(queue.keys, "a", "+5000000"),
        "cancel": ops.cancel(queue.keys, "a"),
    }
    queue.call(calls[verb], stream=b"slow", sequence=1)
    queue.bury("b")
    queue.send("a")
    before = queue.dump()
    queue.call(calls[verb], stream=b"slow", sequence=1)
    assert queue.dump() == before
