"""The timeline of a message: one event per delivery that did not end in an ack, and per redrive."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from duly._core import codec, ops
from duly._core.replies import Claimed
from duly._core.views import Viewer
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, ids_of


def settle_of(claimed: Claimed) -> ops.Settle:
    (id_,) = ids_of(claimed)
    return ops.Settle(id_, claimed.fence, has_key=True)


def timeline(queue: Queue, id_: str = "a") -> list[codec.Event]:
    return queue.dump().why[id_].timeline


def words(queue: Queue, id_: str = "a") -> list[str]:
    return [event.what for event in timeline(queue, id_)]


@pytest.mark.parametrize(
    ("verb", "detail"), [("retry", "boom"), ("defer", "busy"), ("defer", ""), ("release", ""), ("reject", "boom")]
)
@pytest.mark.parametrize("key", [None, "k"])
def test_a_delivery_that_does_not_end_in_an_ack_is_in_the_timeline(
    queue: Queue, clock: ServerClock, verb: str, detail: str, key: str | None
) -> None:
    (held,) = queue.hold("a", key=key)
    later = NOW + 3 * SECOND
    clock.freeze(later)
    calls: dict[str, Any] = {
        "retry": ops.retry(queue.keys, [(held, 0, "boom", "trace")]),
        "defer": ops.defer(queue.keys, [(held, 0, detail)]),
        "release": ops.release(queue.keys, [held]),
        "reject": ops.reject(queue.keys, queue.options, [(held, "bad", "boom", "trace")]),
    }
    queue.call(calls[verb])
    assert timeline(queue) == [codec.Event(later, verb, "c", held.fence, detail)]


def test_the_timeline_has_the_reason_of_a_reject_without_an_error(queue: Queue) -> None:
    queue.bury("a", reason="no such order")
    assert [(event.what, event.detail) for event in timeline(queue)] == [("reject", "no such order")]


def test_the_failure_of_the_last_attempt_is_a_failure_in_the_timeline(queue: Queue) -> None:
    (held,) = queue.hold("a")
    queue.call(ops.reject(queue.keys, queue.options, [(held, "failed", "boom", "trace")], failed=True))
    assert [(event.what, event.detail) for event in timeline(queue)] == [("fail", "boom")]


@pytest.mark.parametrize(("failed", "shown"), [(True, "fail"), (False, "reject")])
def test_a_failure_that_an_earlier_version_stored_as_a_reject_is_shown_as_a_failure(
    queue: Queue, failed: bool, shown: str
) -> None:
    (held,) = queue.hold("a")
    queue.call(ops.reject(queue.keys, queue.options, [(held, "failed", "boom", "trace")], failed=failed))
    why = queue.dump().why["a"]
    why.timeline[-1].what = "reject"
    queue.wire.run("HSET", queue.keys.key("why"), "a", msgspec.msgpack.encode(why))
    look = ops.get(queue.keys, Viewer(queue.keys.name, codec.decoder_of(None)), "a")
    message = look.decode(queue.call(look))
    assert message is not None
    assert [event.what for event in message.timeline] == ["sent", "claimed", shown]


def test_a_crash_records_the_holder_and_the_time_of_the_claim(queue: Queue, clock: ServerClock) -> None:
    queue.send("a")
    fence = queue.claim(consumer="the one who died").fence
    clock.freeze(NOW + 31 * SECOND)
    second = queue.claim()
    assert timeline(queue) == [codec.Event(second.now, "crash", "the one who died", fence, "")]
    assert queue.dump().counts == {"a": codec.Counts(crashes=1)}


@pytest.mark.parametrize("key", [None, "k"])
def test_the_happy_path_writes_no_counts_and_no_timeline(queue: Queue, key: str | None) -> None:
    settles = queue.hold("a", key=key)
    state = queue.dump()
    assert (state.counts, state.why) == ({}, {})
    queue.call(ops.ack(queue.keys, queue.options, settles))
    assert {name for name in queue.key_names() if not name.startswith("call:")} == {"meta"}


def test_the_last_twenty_entries_are_kept(queue: Queue, clock: ServerClock) -> None:
    queue.send("a")
    for turn in range(25):
        clock.freeze(NOW + turn * SECOND)
        held = settle_of(queue.claim())
        queue.call(ops.retry(queue.keys, [(held, 0, f"boom {turn}", "")]))
    assert [event.detail for event in timeline(queue)] == [f"boom {turn}" for turn in range(5, 25)]
    assert len(queue.dump().why["a"].errors) == 5


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200),
        ("x" * 199 + "\u00e9", "x" * 199),
        ("x" * 198 + "\u00e9!", "x" * 198 + "\u00e9"),
        ("\u6f22" * 67, "\u6f22" * 66),
        ("x" + "\U0001f600" * 60, "x" + "\U0001f600" * 49),
        ("\u00e9" * 100, "\u00e9" * 100),
    ],
    ids=["fits", "one too long", "two bytes cut", "two bytes fit", "three bytes", "four bytes", "fits exactly"],
)
def test_a_detail_is_cut_between_characters(queue: Queue, text: str, kept: str) -> None:
    (held,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(held, 0, text, "")]))
    assert [event.detail for event in timeline(queue)] == [kept]
    assert queue.dump().why["a"].errors[0].error == text


def test_events_outside_of_a_delivery_have_no_consumer(queue: Queue, clock: ServerClock) -> None:
    (held,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(held, 0, "boom", "")]))
    queue.call(ops.reject(queue.keys, queue.options, [(settle_of(queue.claim()), "bad", "boom again", "")]))
    later = NOW + 60 * SECOND
    clock.freeze(later)
    queue.call(ops.redrive(queue.keys, 10))
    assert words(queue) == ["retry", "reject", "redrive"]
    assert timeline(queue)[-1] == codec.Event(later, "redrive", "", 0, "")


def test_redrive_resets_counts_and_errors_and_keeps_the_timeline(queue: Queue) -> None:
    (held,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(held, 0, "boom", "trace")]))
    queue.call(ops.reject(queue.keys, queue.options, [(settle_of(queue.claim()), "bad", "boom", "")], failed=True))
    why = queue.dump().why["a"]
    assert (why.failures, len(why.errors)) == (2, 2)
    queue.call(ops.redrive(queue.keys, 10))
    state = queue.dump()
    assert state.counts == {"a": codec.Counts(redrives=1)}
    why = state.why["a"]
    assert (why.reason, why.failures, why.errors, why.rejects) == ("", 0, [], 0)
    assert words(queue) == ["retry", "fail", "redrive"]


def test_recycle_clears_the_timeline_and_counts_the_cycle(queue: Queue) -> None:
    (held,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(held, 0, "boom", "")]))
    for cycle in (1, 2, 3):
        queue.call(ops.recycle(queue.keys, [(settle_of(queue.claim()), 0, b"")]))
        state = queue.dump()
        assert (state.counts, state.why) == ({"a": codec.Counts(cycles=cycle)}, {})
    queue.call(ops.retry(queue.keys, [(settle_of(queue.claim()), 0, "boom", "")]))
    state = queue.dump()
    assert (state.counts["a"].cycles, state.counts["a"].failures) == (3, 1)
    queue.call(ops.reject(queue.keys, queue.options, [(settle_of(queue.claim()), "bad", "", "")]))
    assert queue.dump().why["a"].cycles == 3
    queue.call(ops.redrive(queue.keys, 10))
    assert queue.dump().counts == {"a": codec.Counts(cycles=3, redrives=1)}
    queue.call(ops.ack(queue.keys, queue.options, [settle_of(queue.claim())]))
    assert (queue.dump().counts, queue.dump().why) == ({}, {})


def test_finished_messages_that_are_kept_keep_counts_timeline_and_result(queue: Queue, clock: ServerClock) -> None:
    (held,) = queue.hold("a", key="k")
    queue.call(ops.retry(queue.keys, [(held, 0, "boom", "")]))
    queue.call(ops.defer(queue.keys, [(settle_of(queue.claim()), 0, "")]))
    last = queue.claim()
    later = NOW + 9 * SECOND
    clock.freeze(later)
    options = replace(queue.options, done=Keep(count=10))
    queue.call(ops.finish(queue.keys, options, [(settle_of(last), 'j{"total":5}')]))
    state = queue.dump()
    why = state.why["a"]
    assert (state.done, state.counts) == ({"a": later}, {})
    assert (why.reason, why.failures, why.defers, why.result) == ("", 1, 1, 'j{"total":5}')
    assert [fault.error for fault in why.errors] == ["boom"]
    assert words(queue) == ["retry", "defer", "ack"]
    assert why.timeline[-1] == codec.Event(later, "ack", "c", last.fence, "")


def test_a_finished_message_that_is_trimmed_leaves_nothing(queue: Queue) -> None:
    options = replace(queue.options, done=Keep(count=0))
    queue.call(ops.finish(queue.keys, options, [(each, "j1") for each in queue.hold("a", "b", key="k")[:1]]))
    state = queue.dump()
    assert (set(state.msgs), state.why, state.done) == ({"b"}, {}, {})


def test_poison_keeps_its_timeline(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(crash_limit=2)
    queue.hold("a")
    for turn in (1, 2):
        clock.freeze(NOW + turn * 60 * SECOND)
        queue.claim()
    assert queue.dump().why["a"].reason == "poison"
    assert words(queue) == ["crash", "crash"]


def test_a_live_message_with_a_timeline_has_counts(queue: Queue) -> None:
    """An ack checks only counts, and removes both."""
    for id_, verb in (("a", "retry"), ("b", "defer"), ("c", "release")):
        (held,) = queue.hold(id_)
        calls: dict[str, Any] = {
            "retry": ops.retry(queue.keys, [(held, 60, "", "")]),
            "defer": ops.defer(queue.keys, [(held, 60, "")]),
            "release": ops.release(queue.keys, [held]),
        }
        queue.call(calls[verb])
        state = queue.dump()
        assert set(state.counts) == set(state.why)
        if verb == "release":
            queue.call(ops.cancel(queue.keys, id_))
