"""progress: only the holder writes it, and every end of a lease removes it.

No script that ends a lease knows progress. So these tests hold for the scripts of earlier versions as well.
"""

from dataclasses import replace
from typing import Any, Final

import pytest

from duly._core import codec, ops, replies
from duly._core.call import Call
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, State

HAS_COUNTS: Final = 128
"""The flag of a lease whose message has rows in `counts` and `why`."""


def progress(queue: Queue, *settles: ops.Held, fraction: str = "0.4", text: str = "loading") -> Any:
    return queue.call(progress_call(queue, *settles, fraction=fraction, text=text))


def progress_call(queue: Queue, *settles: ops.Held, fraction: str = "0.4", text: str = "loading") -> Call[list[int]]:
    return ops.of_rows("progress", queue.keys, [(settle, fraction, text) for settle in settles])


def said(state: State, id_: str) -> str:
    return state.why[id_].result


def test_progress_keeps_the_lease_and_moves_nothing(queue: Queue) -> None:
    (settle,) = queue.hold("a", priority=4)
    before = queue.dump()
    assert progress(queue, settle) == []
    after = queue.dump()
    fence, at, fraction, text = said(after, "a")[1:].split(" ", 3)
    assert (said(after, "a")[0], int(fence), fraction, text) == ("p", settle.fence, "0.4", "loading")
    assert int(at) > settle.fence
    assert after.why["a"] == codec.Why("", 0, 0, 0, 0, [], 0, [], 0, said(after, "a"))
    assert after.counts["a"] == codec.Counts()
    assert after.leases["a"] == codec.Lease(**{**_fields(before.leases["a"]), "flags": HAS_COUNTS})
    assert after.differences(before) == ["leases", "counts", "why", "calls"]


def _fields(lease: codec.Lease) -> dict[str, Any]:
    return {name: getattr(lease, name) for name in lease.__struct_fields__}


def test_the_last_progress_is_the_one_that_is_kept(queue: Queue, clock: ServerClock) -> None:
    (settle,) = queue.hold("a", key="k")
    progress(queue, settle)
    clock.freeze(NOW + 5 * SECOND)
    progress(queue, settle, fraction="1.0", text="")
    state = queue.dump()
    assert said(state, "a") == f"p{settle.fence} {NOW + 5 * SECOND} 1.0 "
    assert (state.leases["a"].key, state.leases["a"].consumer) == ("k", "c")


def test_progress_keeps_the_errors_the_timeline_and_the_counts(queue: Queue) -> None:
    (first,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(first, 0, "boom", "trace")]))
    fence = queue.claim().fence
    before = queue.dump()
    progress(queue, ops.Settle("a", fence))
    after = queue.dump()
    assert after.differences(before) == ["why", "calls"]
    assert (after.why["a"].errors, after.why["a"].timeline) == (before.why["a"].errors, before.why["a"].timeline)


def test_a_stale_fence_an_unknown_id_and_a_message_that_waits_change_nothing(queue: Queue) -> None:
    held, stale = queue.hold("a", "b")
    queue.call(ops.release(queue.keys, [stale]))
    queue.send("c")
    before = queue.dump()
    wrong = [ops.Settle("a", held.fence - 1), stale, ops.Settle("c", held.fence), ops.Settle("x", held.fence)]
    assert progress(queue, *wrong) == [1, 2, 3, 4]
    assert queue.dump() == before


def test_of_several_those_that_are_held_are_written(queue: Queue) -> None:
    first, second = queue.hold("a", "b")
    queue.call(ops.ack(queue.keys, queue.options, [first]))
    assert progress(queue, first, second) == [1]
    state = queue.dump()
    assert set(state.why) == set(state.counts) == {"b"}


def test_a_lease_that_ran_out_may_report_until_a_claim_takes_the_message_back(queue: Queue, clock: ServerClock) -> None:
    (settle,) = queue.hold("a", lease=10)
    clock.freeze(NOW + 60 * SECOND)
    assert progress(queue, settle) == []
    assert queue.claim().ids == [b"a"]
    assert progress(queue, settle) == [1]


def test_a_repeat_writes_once(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    call, sequence = progress_call(queue, settle), queue.sequence + 1
    assert queue.call(call) == []
    before = queue.dump()
    assert queue.call(call, sequence=sequence) == []
    assert queue.dump() == before


def _ends(queue: Queue, settle: ops.Settle) -> dict[str, Call[Any]]:
    keys, options = queue.keys, queue.options
    keeping = replace(options, done=Keep(count=10))
    return {
        "ack": ops.ack(keys, options, [settle]),
        "finish": ops.finish(keys, options, [(settle, "")]),
        "finish and keep": ops.finish(keys, keeping, [(settle, "")]),
        "commit": ops.commit(keys, options, settle),
        "commit and keep": ops.commit(keys, keeping, settle),
        "retry": ops.retry(keys, [(settle, 0, "boom", "")]),
        "defer": ops.defer(keys, [(settle, 0, "")]),
        "release": ops.release(keys, [settle]),
        "recycle": ops.recycle(keys, [(settle, 0, b"")]),
        "reject": ops.reject(keys, options, [(settle, "no", "", "")]),
        "cancel": ops.cancel(keys, settle.id, running=True),
        "purge": ops.purge(keys, "leased", 10),
        "delete": ops.delete(keys),
    }


ENDS: Final = (
    "ack", "finish", "finish and keep", "commit", "commit and keep", "retry", "defer", "release", "recycle", "reject",
    "cancel", "purge", "delete",
)  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("key", [None, "k"])
def test_no_end_of_a_delivery_leaves_a_trace(queue: Queue, end: str, key: str | None) -> None:
    (settle,) = queue.hold("a", key=key) if key else queue.hold("a")
    progress(queue, settle)
    queue.call(_ends(queue, settle)[end])
    state = queue.dump()
    assert "a" not in state.leases
    assert [row for row in state.why.values() if row.result] == []
    if not state.places("a"):
        assert (state.counts, state.why) == ({}, {})
    assert _is_sound(queue)


def test_a_crash_leaves_no_trace(queue: Queue, clock: ServerClock) -> None:
    (settle,) = queue.hold("a", lease=10)
    progress(queue, settle)
    clock.freeze(NOW + 60 * SECOND)
    assert queue.claim().ids == [b"a"]
    assert said(queue.dump(), "a") == ""
    assert _is_sound(queue)


def test_the_last_crash_leaves_no_trace_and_neither_does_a_redrive(queue: Queue, clock: ServerClock) -> None:
    queue.options = replace(queue.options, crash_limit=1)
    (settle,) = queue.hold("a", lease=10)
    progress(queue, settle)
    clock.freeze(NOW + 60 * SECOND)
    queue.claim()
    assert (set(queue.dump().dead), said(queue.dump(), "a")) == ({"a"}, "")
    queue.call(ops.redrive(queue.keys, 10))
    assert said(queue.dump(), "a") == ""
    assert _is_sound(queue)


def test_an_audit_finds_nothing_wrong_with_progress(queue: Queue) -> None:
    progress(queue, *queue.hold("a", "b"))
    assert _is_sound(queue)


LEFT_OVER: Final = "progress of a delivery that is over"


def test_an_audit_finds_and_removes_progress_of_another_delivery(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(settle, 0, "boom", "trace")]))
    fence = queue.claim().fence
    progress(queue, ops.Settle("a", fence))
    left = queue.wire.run("HGET", queue.keys.key("why"), "a")
    queue.call(ops.release(queue.keys, [ops.Settle("a", fence)]))
    queue.wire.run("HSET", queue.keys.key("why"), "a", left)
    queue.claim()
    assert _faults(queue) == [("a", LEFT_OVER)]
    assert _faults(queue, repair=True) == [("a", LEFT_OVER)]
    assert _faults(queue) == []
    after = queue.dump().why["a"]
    assert (after.result, len(after.errors), len(after.timeline)) == ("", 1, 1)


def test_an_audit_finds_progress_of_a_message_that_waits(queue: Queue) -> None:
    (settle,) = queue.hold("a")
    progress(queue, settle)
    left = queue.wire.run("HGET", queue.keys.key("why"), "a")
    queue.call(ops.release(queue.keys, [settle]))
    queue.wire.run("HSET", queue.keys.key("why"), "a", left)
    assert LEFT_OVER in [what for _, what in _faults(queue)]


def _faults(queue: Queue, *, repair: bool = False) -> list[tuple[str, str]]:
    found = []
    for source in ("keys", *ops.AUDITED):
        cursor = "0"
        while True:
            call = ops.audit_step(queue.keys, source, cursor, repair=repair)
            step: replies.AuditStep = call.decode(queue.call(call))
            found += [(fault.id, fault.what) for fault in step.faults]
            cursor = step.cursor
            if cursor == "0":
                break
    return found


def _is_sound(queue: Queue) -> bool:
    return _faults(queue) == []
