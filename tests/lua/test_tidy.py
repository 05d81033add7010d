"""tidy: expires and trims a bounded number of messages per call, and counts them as sends and claims do."""

from typing import Any

import pytest

from duly._core import ops, views
from duly.message import Audit
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, State

PER_CALL = 100


def _finish(queue: Queue, *ids: str) -> None:
    """Finish messages and keep them all, regardless of this queue's bound."""
    keeping = Queue(queue.wire, queue.keys.name, done=Keep())
    queue.call(ops.ack(queue.keys, keeping.options, queue.hold(*ids)))


def _checked(queue: Queue) -> State:
    """Read the queue; its counters and bytes must be correct (I1)."""
    state = queue.dump()
    stats = views.stats(queue.call(ops.stats(queue.keys)))
    assert Audit("", stats, 0, (), repaired=False).difference == 0
    over = {*state.dead, *state.done}
    sizes = [sum(len(state.msgs[id_]) for id_ in ids) for ids in (set(state.msgs) - over, state.dead, state.done)]
    assert sizes == [stats.bytes, stats.dead_bytes, stats.done_bytes]
    return state


def test_a_queue_that_was_never_used_is_left_alone(queue: Queue) -> None:
    assert queue.tidy() is False
    assert queue.key_names() == set()


def test_nothing_to_do_changes_nothing(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(count=5), done=Keep(count=5))
    queue.bury("dead")
    _finish(queue, "done")
    queue.hold("leased", ttl=60)
    queue.send("waiting", ttl=60, dedup="x")
    before = queue.dump()
    assert queue.tidy() is False
    assert queue.dump() == before


def test_expired_messages_are_dropped(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", ttl=5, priority=3, dedup="x")
    queue.send("b", ttl=500)
    queue.hold("c", ttl=5, lease=1, priority=9)
    clock.freeze(NOW + 6 * SECOND)
    assert queue.tidy() is False
    state = _checked(queue)
    assert set(state.msgs) == {"b", "c"}  # the lease ran out, but only a claim reclaims it
    assert (state.stats["expired"], state.dedup) == (1, {})


@pytest.mark.parametrize("count", [PER_CALL - 1, PER_CALL, PER_CALL + 50])
def test_many_past_their_ttl_go_in_steps(queue: Queue, clock: ServerClock, count: int) -> None:
    queue.send(*(f"a{n:03d}" for n in range(count)), ttl=5)
    clock.freeze(NOW + 6 * SECOND)
    assert queue.tidy() is (count >= PER_CALL)
    assert len(queue.dump().msgs) == max(count - PER_CALL, 0)
    assert queue.tidy() is False
    state = _checked(queue)
    assert (state.msgs, state.waiting, state.expires, state.wake) == ({}, {}, {}, 0)
    assert state.stats["expired"] == count


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (Keep(count=2), ["d1", "d2"]),
        (Keep(age=15), ["d2"]),
        (Keep(age=1000), ["d0", "d1", "d2"]),
        (Keep(count=0), []),
        (Keep(bytes=180), ["d1", "d2"]),
        (Keep(count=None, age=None, bytes=None), ["d0", "d1", "d2"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("place", ["dead", "done"])
def test_dead_and_finished_messages_are_kept_within_their_bounds(
    make_queue: Any, clock: ServerClock, place: str, keep: Keep, left: list[str]
) -> None:
    queue: Queue = make_queue(**{place: keep})
    keeping = Queue(queue.wire, queue.keys.name, dead=Keep(), done=Keep())
    for number in range(3):
        keeping.sequence = queue.sequence
        if place == "dead":
            keeping.bury(f"d{number}")
        else:
            _finish(keeping, f"d{number}")
        queue.sequence = keeping.sequence
        clock.freeze(NOW + (number + 1) * 10 * SECOND)
    assert queue.tidy() is False
    state = _checked(queue)
    assert list(getattr(state, place)) == left
    assert set(state.msgs) == set(left)
    assert state.stats.get({"dead": "trimmed", "done": "done_trimmed"}[place], 0) == 3 - len(left)


def test_finished_messages_are_left_alone_by_a_consumer_that_keeps_none(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(count=0), done=None)
    _finish(queue, "a", "b")
    assert queue.tidy() is False
    assert list(queue.dump().done) == ["a", "b"]


@pytest.mark.parametrize("place", ["dead", "done"])
def test_a_bound_made_smaller_is_reached_in_steps(make_queue: Any, place: str) -> None:
    keeping: Queue = make_queue(dead=Keep(), done=Keep())
    ids = [f"d{n:03d}" for n in range(250)]
    if place == "dead":
        keeping.bury(*ids)
    else:
        _finish(keeping, *ids)
    queue: Queue = make_queue(**{place: Keep(count=10)})
    queue.sequence = keeping.sequence
    left = []
    while queue.tidy():
        left.append(len(getattr(_checked(queue), place)))
    assert left == [150, 50]
    assert list(getattr(_checked(queue), place)) == ids[240:]


def test_dedup_windows_that_ended_are_closed(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", dedup="short", dedup_for=5)
    queue.send("b", dedup="long", dedup_for=500)
    clock.freeze(NOW + 6 * SECOND)
    assert queue.tidy() is False
    state = queue.dump()
    assert (set(state.dedup), set(state.dedup_ends)) == ({"long"}, {"long"})


def test_many_dedup_windows_are_closed_in_steps(queue: Queue, clock: ServerClock) -> None:
    messages = [queue.outgoing(f"a{n:03d}", dedup=f"v{n}", dedup_for=5) for n in range(150)]
    queue.send_all([*messages, queue.outgoing("b", dedup="long", dedup_for=500)])
    clock.freeze(NOW + 6 * SECOND)
    assert queue.tidy() is True
    assert len(queue.dump().dedup) == 51
    assert queue.tidy() is False
    assert set(queue.dump().dedup) == {"long"}


def test_a_queue_that_is_empty_afterwards_leaves_nothing(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(dead=Keep(count=0), done=Keep(count=0))
    keeping: Queue = make_queue(dead=Keep(), done=Keep())
    keeping.bury("dead")
    _finish(keeping, "done")
    keeping.send("a", ttl=5, dedup="x", dedup_for=1)
    clock.freeze(NOW + 6 * SECOND)
    queue.sequence = keeping.sequence
    assert queue.tidy() is False
    assert queue.key_names() == {"meta", "call:tests"}
    _checked(queue)


def test_a_record_that_was_damaged_is_left_to_the_claim_that_meets_it(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", ttl=5)
    queue.lose_body("a")
    clock.freeze(NOW + 6 * SECOND)
    assert queue.tidy() is False
    state = queue.dump()
    assert (state.places("a"), state.expires) == (["waiting0"], {})


def test_a_repeated_tidy_continues_where_the_first_call_ended(queue: Queue, clock: ServerClock) -> None:
    queue.send(*(f"a{n:03d}" for n in range(150)), ttl=5)
    clock.freeze(NOW + 6 * SECOND)
    call = ops.tidy(queue.keys, queue.options)
    answers = [queue.call(call, sequence=100) for _ in range(3)]
    assert answers == [1, 0, 0]
    assert _checked(queue).stats["expired"] == 150
