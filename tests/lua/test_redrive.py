"""redrive of named letters, and move, which puts them into another queue in one step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from duly._core import codec, ops, replies, views
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, Refused, ids_of
from tests.lua.test_lanes import BLOCK, faults_of, finished_in_order, given_blocked, given_lane

LETTERS = Sequence[tuple[str, int, bytes]]


def letters_of(queue: Queue, *ids: str, part: bytes = b"") -> list[tuple[str, int, bytes]]:
    died = queue.dump().dead
    return [(id_, died[id_], part) for id_ in ids]


def other_of(queue: Queue, **options: Any) -> Queue:
    """Make another queue on the same server."""
    return Queue(queue.wire, f"{queue.keys.name}.other", **options)


def move(here: Queue, there: Queue, letters: LETTERS, **how: Any) -> replies.Moved:
    call = ops.move(here.keys, there.keys, there.options, letters)
    return call.decode(here.call(call, **how))


def difference(queue: Queue) -> int:
    """Return the difference between the counters and the messages (I1): 0 if they agree."""
    stats = queue.wire
    found = views.stats(stats.carry(ops.stats(queue.keys), b"", 0))
    gone = found.acked + found.expired + found.cancelled + found.dropped + found.purged + found.moved + found.trimmed
    return found.sent - gone - found.dead - found.live


def assert_in_order(*queues: Queue) -> None:
    """Fail unless counters, places and sizes are correct."""
    for queue in queues:
        state = queue.dump()
        assert difference(queue) == 0
        assert faults_of(queue) == []
        dead, done = {*state.dead}, {*state.done}
        sizes = {
            "bytes": sum(len(record) for id_, record in state.msgs.items() if id_ not in dead | done),
            "dead_bytes": sum(len(state.msgs[id_]) for id_ in dead),
            "done_bytes": sum(len(state.msgs[id_]) for id_ in done),
        }
        assert {name: state.stats.get(name, 0) for name in sizes} == sizes


# --- Named letters -----------------------------------------------------------------------------------------------


def test_named_letters_are_redriven_and_no_others(queue: Queue) -> None:
    queue.bury("a", "b", "c")
    assert queue.call(ops.redrive(queue.keys, 10, letters_of(queue, "c", "a"))) == [2, 1]
    state = queue.dump()
    assert (list(state.dead), state.waiting) == (["b"], {0: {"a": NOW, "c": NOW + 2}})
    assert_in_order(queue)


def test_a_letter_that_died_again_is_another_one(queue: Queue, clock: ServerClock) -> None:
    queue.bury("a")
    letters = letters_of(queue, "a")
    queue.call(ops.redrive(queue.keys, 10))
    clock.freeze(NOW + SECOND)
    fence = queue.claim().fence
    queue.call(ops.reject(queue.keys, queue.options, [(ops.Settle("a", fence), "again", "", "")]))
    assert queue.call(ops.redrive(queue.keys, 10, letters)) == [0, 1]
    assert list(queue.dump().dead) == ["a"]


def test_a_letter_that_is_gone_and_one_that_lives_are_left_alone(queue: Queue) -> None:
    queue.bury("a", "b")
    letters = letters_of(queue, "a", "b")
    queue.call(ops.cancel(queue.keys, "a"))
    queue.call(ops.redrive(queue.keys, 10))
    before = queue.dump()
    assert queue.call(ops.redrive(queue.keys, 10, letters)) == [0, 0]
    assert replace(queue.dump(), calls={}) == replace(before, calls={})


def test_a_named_letter_may_get_another_body(queue: Queue) -> None:
    queue.bury("a", "b", priority=3, ttl=60, headers={"x": "y"})
    part = bytes(queue.outgoing("a", b"a longer body than before", priority=3, ttl=60, headers={"x": "y"}).part)
    assert queue.call(ops.redrive(queue.keys, 10, letters_of(queue, "a", part=part))) == [1, 1]
    state = queue.dump()
    assert codec.part_of(state.msgs["a"]) == part
    assert codec.read_stamps(state.msgs["a"])[0] == NOW
    assert_in_order(queue)


def test_a_named_letter_whose_body_was_lost_stays(queue: Queue) -> None:
    queue.bury("a")
    letters = letters_of(queue, "a")
    queue.lose_body("a")
    assert queue.call(ops.redrive(queue.keys, 10, letters)) == [0, 1]


def test_at_the_end_is_behind_all_that_is_due_in_the_order_of_the_names(queue: Queue, clock: ServerClock) -> None:
    queue.bury("a", "b")
    clock.freeze(NOW + SECOND)
    queue.send("c", "d")
    queue.send("later", delay=60)
    queue.call(ops.redrive(queue.keys, 10, letters_of(queue, "b", "a"), at_end=True))
    assert ids_of(queue.claim()) == ["c", "d", "b", "a"]


# --- Move ----------------------------------------------------------------------------------------------------------


def test_a_moved_letter_is_a_new_message_in_the_other_queue(queue: Queue, clock: ServerClock) -> None:
    there = other_of(queue)
    queue.bury("a", priority=3, ttl=60, headers={"x": "y"}, key="k", dedup="d")
    record = queue.dump().msgs["a"]
    clock.freeze(later := NOW + 600 * SECOND)
    assert move(queue, there, letters_of(queue, "a")) == replies.Moved(1, is_full=False, known=[])
    state = there.dump()
    assert codec.part_of(state.msgs["a"]) == codec.part_of(record)
    assert codec.read_stamps(state.msgs["a"]) == (NOW, later)
    assert state.waiting == {3: {"a": later}}
    assert state.expires == {"a": later + 60 * SECOND}
    assert state.counts == {"a": codec.Counts(redrives=1)}
    assert (state.why["a"].reason, state.why["a"].errors) == ("", [])
    events = [(event.what, event.detail) for event in state.why["a"].timeline]
    assert events == [("reject", "why"), ("redrive", f"from {queue.keys.name}")]
    assert (state.meta["priorities"], state.meta["keyed"], state.wake) == ("30", "1", 1)
    assert state.stats["sent"] == 1
    assert ids_of(there.claim()) == ["a"]
    assert_in_order(queue, there)


def test_a_moved_letter_leaves_nothing_behind_but_its_dedup_window(queue: Queue) -> None:
    queue.bury("a", dedup="d")
    move(queue, other_of(queue), letters_of(queue, "a"))
    state = queue.dump()
    assert queue.key_names() == {"meta", "call:tests", "dedup", "dedup_ends"}
    assert (state.stats["moved"], state.stats["dead_bytes"], state.stats["sent"]) == (1, 0, 1)
    assert queue.send("b", dedup="d")[1:] == [1, 1, b"a"]  # it still lives, elsewhere


def test_letters_are_moved_in_their_order_and_may_get_another_body(queue: Queue) -> None:
    there = other_of(queue)
    queue.bury("a", "b", "c")
    part = bytes(queue.outgoing("b", b"." * 5000).part)
    letters = [*letters_of(queue, "c"), *letters_of(queue, "b", part=part)]
    assert move(queue, there, letters).moved == 2
    assert codec.part_of(there.dump().msgs["b"]) == part
    assert there.dump().meta["large"] == "1"
    assert ids_of(there.claim()) == ["c", "b"]
    assert list(queue.dump().dead) == ["a"]
    assert_in_order(queue, there)


def test_only_the_very_letter_is_moved(queue: Queue) -> None:
    there = other_of(queue)
    queue.bury("a", "b")
    (letter,) = letters_of(queue, "a")
    flawed = letters_of(queue, "b")
    queue.lose_body("b")
    wrong = [(letter[0], letter[1] + 1, b""), ("unknown", letter[1], b""), *flawed]
    assert move(queue, there, wrong) == replies.Moved(0, is_full=False, known=[])
    assert set(queue.dump().dead) == {"a", "b"}
    assert there.key_names() == set()


def test_a_letter_given_twice_is_moved_once(queue: Queue) -> None:
    there = other_of(queue)
    queue.bury("a")
    assert move(queue, there, letters_of(queue, "a") * 2).moved == 1
    assert_in_order(queue, there)


def test_a_repeat_moves_once(queue: Queue) -> None:
    """I6, even if the letter has died there and come back since."""
    there = other_of(queue)
    queue.bury("a", "b")
    letters = letters_of(queue, "a")
    first = move(queue, there, letters, sequence=100)
    before = queue.dump(), there.dump()
    assert move(queue, there, letters, sequence=100) == first
    assert (queue.dump(), there.dump()) == before


def test_a_late_copy_of_an_empty_move_moves_nothing(queue: Queue) -> None:
    there = other_of(queue)
    letters = [("a", NOW + 1, b"")]
    assert move(queue, there, letters, stream=b"slow", sequence=1).moved == 0
    queue.bury("a")
    letters = letters_of(queue, "a")
    assert move(queue, there, letters, stream=b"slow", sequence=1).moved == 0
    assert list(queue.dump().dead) == ["a"]


@pytest.mark.parametrize("place", ["waiting", "leased", "parked", "dead"])
def test_a_letter_whose_id_is_in_use_there_stays(queue: Queue, place: str) -> None:
    there = other_of(queue)
    queue.bury("a", "b")
    put: dict[str, Any] = {
        "waiting": there.send,
        "leased": there.hold,
        "dead": there.bury,
        "parked": lambda id_: given_lane(there, "first", id_),
    }
    put[place]("a")
    before = there.dump().msgs["a"]
    assert move(queue, there, letters_of(queue, "a", "b")) == replies.Moved(1, is_full=False, known=["a"])
    assert (list(queue.dump().dead), there.dump().msgs["a"]) == (["a"], before)
    assert_in_order(queue, there)


def test_an_id_that_is_finished_or_expired_there_may_be_used_again(queue: Queue, clock: ServerClock) -> None:
    there = other_of(queue, done=Keep())
    there.call(ops.ack(there.keys, there.options, there.hold("a")))
    there.send("b", ttl=1)
    queue.bury("a", "b")
    clock.freeze(NOW + 2 * SECOND)
    assert move(queue, there, letters_of(queue, "a", "b")).moved == 2
    assert set(ids_of(there.claim())) == {"a", "b"}
    assert (there.dump().stats["done_trimmed"], there.dump().stats["expired"]) == (1, 1)
    assert_in_order(queue, there)


@pytest.mark.parametrize("bound", ["max_length", "max_bytes"])
def test_a_full_queue_accepts_messages_that_fit_and_the_rest_stay(queue: Queue, bound: str) -> None:
    queue.bury("a", "b", "c", "d")
    size = len(queue.dump().msgs["a"])
    there = other_of(queue, **{bound: 3 if bound == "max_length" else 3 * size})
    there.send("x")
    assert move(queue, there, letters_of(queue, "a", "b", "c", "d")) == replies.Moved(2, is_full=True, known=[])
    assert (set(queue.dump().dead), set(there.dump().msgs)) == ({"c", "d"}, {"a", "b", "x"})
    assert_in_order(queue, there)


def test_live_messages_take_room_and_expired_ones_do_not(queue: Queue, clock: ServerClock) -> None:
    there = other_of(queue, max_length=5)
    given_lane(there, "leased", "parked")
    there.send("waits")
    there.send("expired", ttl=1)
    queue.bury("a", "b", "c")
    clock.freeze(NOW + 2 * SECOND)
    assert move(queue, there, letters_of(queue, "a", "b", "c")).moved == 2
    assert_in_order(queue, there)


def test_a_blocked_lane_continues_when_its_letter_is_moved(make_queue: Any) -> None:
    queue: Queue = make_queue(on_dead=BLOCK)
    given_blocked(queue)
    there = other_of(queue)
    assert move(queue, there, letters_of(queue, "a")).moved == 1
    assert queue.dump().wake == 1
    assert finished_in_order(queue) == ["b", "c"]
    assert finished_in_order(there) == ["a"]
    assert_in_order(queue, there)


def test_a_moved_letter_takes_its_turn_in_the_lane_of_its_key_there(queue: Queue, clock: ServerClock) -> None:
    there = other_of(queue)
    first = given_lane(there, "a", "b")
    queue.bury("c", key="k")
    clock.freeze(NOW + SECOND)
    move(queue, there, letters_of(queue, "c"))
    assert ids_of(there.claim()) == []
    there.call(ops.ack(there.keys, there.options, [first]))
    assert finished_in_order(there) == ["b", "c"]


@pytest.mark.parametrize("why", ["paused", "limited"])
def test_no_token_is_left_where_it_would_wake_for_nothing(queue: Queue, why: str) -> None:
    there = other_of(queue, max_in_flight=1 if why == "limited" else None)
    if why == "paused":
        there.call(ops.pause(there.keys, "me"))
    else:
        there.hold("x", "y")
        assert there.claim(then="watch").is_limited
    there.wire.run("DEL", there.keys.key("wake"))
    queue.bury("a")
    move(queue, there, letters_of(queue, "a"))
    assert there.dump().wake == 0


def test_a_thousand_are_moved_in_one_call(make_queue: Any) -> None:
    """I11."""
    queue: Queue = make_queue(crash_limit=1)
    there = other_of(queue)
    ids = [f"{number:04}" for number in range(1000)]
    for first in range(0, 1000, 100):
        queue.bury(*ids[first : first + 100])
    assert move(queue, there, letters_of(queue, *ids)).moved == 1000
    assert ids_of(there.claim(1000)) == ids
    assert_in_order(queue, there)


@pytest.mark.parametrize("key", ["msgs", "why", "expires", "waiting0", "lanes", "meta"])
def test_an_overwritten_key_of_the_other_queue_is_noticed_before_anything_is_written(queue: Queue, key: str) -> None:
    there = other_of(queue)
    queue.bury("a", ttl=60, key="k")
    letters = letters_of(queue, "a")
    queue.wire.run("SET", there.keys.key(key), "a text")
    before = queue.dump()
    with pytest.raises(Refused, match="WRONGTYPE"):
        move(queue, there, letters)
    assert queue.dump() == before
