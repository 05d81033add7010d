"""send and send_checked: all stored data afterwards."""

from dataclasses import replace
from typing import Any

import pytest

from duly._core import codec, ops
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, Refused, ids_of

DUPLICATE, FULL, REPLACED = 1, 2, 3


def test_the_first_send_writes_this_and_nothing_else(queue: Queue) -> None:
    message = queue.outgoing("a")
    answer = queue.send_all([message])
    record = codec.stamped(NOW, NOW, message.part)
    state = queue.dump()
    assert answer == 1
    assert state.msgs == {"a": record}
    assert state.waiting == {0: {"a": NOW}}
    assert state.stats == {"sent": 1, "bytes": len(record)}
    assert state.meta == {"clock": str(NOW), "point": str(NOW + 60 * SECOND)}
    assert state.wake == 1
    assert queue.key_names() == {"msgs", "waiting0", "meta", "wake", "call:tests"}


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({}, NOW),
        ({"delay": 0}, NOW),
        ({"delay": 30}, NOW + 30 * SECOND),
        ({"delay": 0.0000001}, NOW + 1),
        ({"at": NOW / SECOND + 60}, NOW + 60 * SECOND),
        ({"at": NOW / SECOND - 60}, NOW),
        ({"at": 0}, NOW),
    ],
)
def test_a_message_is_due_when_it_was_asked_for_and_never_before_now(
    queue: Queue, options: dict[str, Any], due: int
) -> None:
    queue.send("a", **options)
    state = queue.dump()
    assert state.due("a") == due
    assert codec.read_stamps(state.msgs["a"]) == (NOW, due)


def test_messages_of_one_call_and_of_one_moment_have_a_strict_order(queue: Queue) -> None:
    queue.send("c", "a")
    queue.send("b")
    assert queue.dump().waiting == {0: {"c": NOW, "a": NOW + 1, "b": NOW + 2}}
    assert ids_of(queue.claim()) == ["c", "a", "b"]


def test_each_priority_has_its_own_key_and_meta_has_those_in_use(queue: Queue) -> None:
    queue.send_all([queue.outgoing(f"p{priority}", priority=priority) for priority in (3, 9, 3 + 2)])
    state = queue.dump()
    assert {priority: list(ids) for priority, ids in state.waiting.items()} == {9: ["p9"], 5: ["p5"], 3: ["p3"]}
    assert state.meta["priorities"] == "9530"


def test_a_ttl_counts_from_the_due_time(queue: Queue) -> None:
    queue.send("a", delay=10, ttl=5)
    assert queue.dump().expires == {"a": NOW + 15 * SECOND}


def test_a_large_record_sets_the_field_large(queue: Queue) -> None:
    queue.send("a", body=b"." * 5000)
    assert queue.dump().meta["large"] == "1"


@pytest.mark.parametrize(
    ("options", "wake"),
    [({}, 1), ({"delay": 5}, 1), ({"delay": 20}, 0)],
    ids=["due now", "before the others", "behind the others"],
)
def test_a_token_is_left_when_the_next_due_time_becomes_earlier(
    queue: Queue, options: dict[str, Any], wake: int
) -> None:
    queue.send("first", delay=10)
    queue.wire.run("DEL", queue.keys.key("wake"))
    queue.send("a", **options)
    assert queue.dump().wake == wake


def test_a_paused_queue_takes_messages_and_leaves_no_token(queue: Queue) -> None:
    queue.call(ops.pause(queue.keys, "me"))
    queue.send("a")
    state = queue.dump()
    assert state.places("a") == ["waiting0"]
    assert state.wake == 0


def test_a_duplicate_within_the_window_stores_nothing(queue: Queue) -> None:
    queue.send("a", dedup="x", dedup_for=10)
    before = queue.dump()
    assert before.dedup == {"x": "a"}
    assert before.dedup_ends == {"x": NOW + 10 * SECOND}
    assert queue.send("b", dedup="x")[1:] == [1, DUPLICATE, b"a"]
    after = queue.dump()
    assert after.stats == {**before.stats, "duplicates": 1}
    assert set(after.differences(before)) == {"stats", "meta", "calls"}


def test_a_window_outlives_its_message(queue: Queue) -> None:
    (settle,) = queue.hold("a", dedup="x", dedup_for=10)
    queue.call(ops.ack(queue.keys, queue.options, [settle]))
    assert queue.send("b", dedup="x")[1:] == [1, DUPLICATE, b"a"]


def test_a_dedup_window_that_has_ended_accepts_the_next_entry(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", dedup="x", dedup_for=10)
    clock.freeze(NOW + 10 * SECOND)
    assert len(queue.send("b", dedup="x", dedup_for=10)) == 1
    assert queue.dump().dedup == {"x": "b"}


def test_the_keys_of_dedup_go_with_their_last_window(queue: Queue) -> None:
    queue.send("a", dedup="x", dedup_for=100)
    queue.send("b", dedup="y", dedup_for=10)
    for name in ("dedup", "dedup_ends"):
        assert 100_000 < queue.wire.run("PTTL", queue.keys.key(name)) <= 101_000


def test_ended_dedup_windows_are_closed_by_later_ones(queue: Queue, clock: ServerClock) -> None:
    queue.send("keeper", dedup="keeper", dedup_for=1000)
    for number in range(5):
        queue.send(f"a{number}", dedup=f"x{number}", dedup_for=1)
    clock.freeze(NOW + 10 * SECOND)
    for number in range(3):
        queue.send(f"b{number}", dedup=f"y{number}", dedup_for=1000)
    state = queue.dump()
    assert set(state.dedup) == set(state.dedup_ends) == {"keeper", "y0", "y1", "y2"}


def test_replace_gives_a_waiting_message_the_new_body_and_due_time(queue: Queue) -> None:
    queue.send("a", dedup="x", delay=5, ttl=9, priority=2)
    new = queue.outgoing("b", b"new", dedup="x", replace=True, delay=2)
    assert queue.send_all([new])[1:] == [1, REPLACED, b"a"]
    state = queue.dump()
    record = codec.stamped(NOW + 1, NOW + 1 + 2 * SECOND, new.part)
    assert state.msgs == {"a": record}
    assert state.waiting == {0: {"a": NOW + 1 + 2 * SECOND}}
    assert state.expires == {}
    assert (state.stats["sent"], state.stats["replaced"], state.stats["bytes"]) == (1, 1, len(record))


def test_replace_of_a_leased_message_sends_a_new_one(queue: Queue) -> None:
    queue.hold("a", dedup="x")
    assert len(queue.send("b", dedup="x", replace=True)) == 1
    state = queue.dump()
    assert (state.places("a"), state.places("b")) == (["leased"], ["waiting0"])
    assert state.dedup == {"x": "b"}


def test_messages_of_one_call_see_each_other(queue: Queue) -> None:
    first, second = queue.outgoing("a", dedup="x"), queue.outgoing("b", dedup="x")
    third = queue.outgoing("c", b"third", dedup="x", replace=True)
    assert queue.send_all([first, second, third])[1:] == [2, DUPLICATE, b"a", 3, REPLACED, b"a"]
    state = queue.dump()
    assert codec.read_record(state.msgs["a"]).envelope.body == b"third"
    assert state.stats["sent"] == 1


@pytest.mark.parametrize("place", ["waiting", "leased", "dead"])
def test_an_own_id_that_is_still_in_the_queue_is_stored_once(queue: Queue, place: str) -> None:
    put: dict[str, Any] = {"waiting": queue.send, "leased": queue.hold, "dead": queue.bury}
    put[place]("a", own=True)
    before = queue.dump()
    assert queue.send("a", own=True, body=b"other")[1:] == [1, DUPLICATE, b"a"]
    assert queue.dump().msgs == before.msgs


def test_an_own_id_may_be_used_again_when_finished_even_if_it_is_kept(queue: Queue) -> None:
    (settle,) = queue.hold("a", own=True)
    queue.call(ops.ack(queue.keys, replace(queue.options, done=Keep()), [settle]))
    assert queue.dump().places("a") == ["done"]
    assert len(queue.send("a", own=True)) == 1
    state = queue.dump()
    assert state.places("a") == ["waiting0"]
    assert (state.stats["done_bytes"], state.stats["done_trimmed"]) == (0, 1)


@pytest.mark.parametrize(
    ("on_refusal", "answer", "waiting"),
    [
        ("each", [2, FULL, b"c", 3, FULL, b"d"], ["a", "b"]),
        ("all", [1, FULL, b"b", 2, FULL, b"c", 3, FULL, b"d"], ["a"]),
        ("drop", [1, FULL, b"b", 2, FULL, b"c", 3, FULL, b"d"], ["a"]),
    ],
)
def test_messages_that_do_not_fit_are_refused(
    make_queue: Any, on_refusal: ops.OnRefusal, answer: list[Any], waiting: list[str]
) -> None:
    queue: Queue = make_queue(max_length=2)
    queue.send("a")
    assert queue.send("b", "c", "d", on_refusal=on_refusal)[1:] == answer
    assert list(queue.dump().waiting[0]) == waiting


def test_the_oldest_waiting_are_dropped_for_new_ones_of_any_priority(make_queue: Any) -> None:
    queue: Queue = make_queue(max_length=3)
    queue.send("low", priority=0)
    queue.send("high", priority=9)
    queue.send("later", delay=60)
    queue.send("x", "y", on_refusal="drop")
    state = queue.dump()
    assert set(state.msgs) == {"later", "x", "y"}
    assert state.stats["dropped"] == 2


def test_leased_messages_are_never_dropped(make_queue: Any) -> None:
    queue: Queue = make_queue(max_length=2)
    queue.hold("a", "b")
    assert queue.send("c", on_refusal="drop")[1:] == [1, FULL, b"c"]
    assert set(queue.dump().leased) == {"a", "b"}


def test_bytes_are_bounded_as_well(make_queue: Any) -> None:
    queue: Queue = make_queue(max_bytes=1000)
    assert queue.send("a", body=b"." * 2000)[1:] == [1, FULL, b"a"]
    queue.send("b", "c", body=b"." * 400)
    assert queue.send("d", body=b"." * 400)[1:] == [1, FULL, b"d"]
    assert queue.dump().stats["bytes"] <= 1000


def test_dead_and_done_messages_take_no_room(make_queue: Any) -> None:
    queue: Queue = make_queue(max_length=1, done=Keep())
    queue.bury("a")
    queue.call(ops.ack(queue.keys, queue.options, queue.hold("b")))
    assert len(queue.send("c")) == 1


def test_expired_messages_take_no_room(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(max_length=1)
    queue.send("a", ttl=5)
    clock.freeze(NOW + 5 * SECOND)
    assert len(queue.send("b")) == 1
    state = queue.dump()
    assert set(state.msgs) == {"b"}
    assert state.stats["expired"] == 1


def test_a_message_past_its_ttl_gives_its_dedup_value_back_swept_or_not(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", dedup="x", dedup_for=1000, ttl=5)
    clock.freeze(NOW + 5 * SECOND)
    assert queue.send("b", dedup="x") == [NOW + 5 * SECOND]
    state = queue.dump()
    assert (set(state.msgs), state.dedup, state.stats["expired"]) == ({"b"}, {"x": "b"}, 1)


def test_a_dropped_message_gives_its_dedup_value_back(make_queue: Any) -> None:
    queue: Queue = make_queue(max_length=1)
    queue.send("a", dedup="x")
    queue.send("b", on_refusal="drop")
    assert queue.send("c", dedup="x", on_refusal="drop")[1:] == []


def test_dropping_skips_messages_that_are_replaced(make_queue: Any) -> None:
    queue: Queue = make_queue()
    queue.send("a", dedup="x")
    queue.send(*[f"b{number}" for number in range(400)])
    bounded: Queue = make_queue(max_length=10)
    bounded.sequence = queue.sequence
    messages = [bounded.outgoing("new", dedup="x", replace=True), bounded.outgoing("c")]
    assert bounded.send_all(messages, "drop")[1:] == [1, REPLACED, b"a"]


def test_a_send_that_fails_half_way_is_not_taken_for_done_when_it_is_repeated(queue: Queue) -> None:
    queue.wire.run("SET", queue.keys.key("msgs"), "of another type")
    call = ops.send(queue.keys, [queue.outgoing("a")], queue.options, "each")
    for _ in range(2):
        with pytest.raises(Refused, match="WRONGTYPE"):
            queue.call(call, stream=b"other", sequence=7)
    queue.wire.run("DEL", queue.keys.key("msgs"))
    assert queue.call(call, stream=b"other", sequence=7) == 1
    assert ids_of(queue.claim()) == ["a"]


def test_replace_leaves_another_message_alone_that_uses_the_id_by_now(queue: Queue) -> None:
    queue.send("x", own=True, dedup="d")
    queue.call(ops.ack(queue.keys, queue.options, [ops.Settle("x", queue.claim().fence, 0)]))
    queue.send("x", own=True)
    queue.send("new", dedup="d", replace=True)
    assert set(queue.dump().msgs) == {"x", "new"}


def test_a_message_that_can_never_fit_drops_nothing(make_queue: Any) -> None:
    queue: Queue = make_queue(max_bytes=1000)
    queue.send("a", "b")
    assert queue.send("huge", body=b"." * 2000, on_refusal="drop")[1:] == [1, FULL, b"huge"]
    assert set(queue.dump().msgs) == {"a", "b"}


def test_expired_messages_do_not_count_as_dropped(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue()
    queue.send(*[f"a{number:03d}" for number in range(150)], ttl=5)
    queue.send("z", ttl=6, dedup="x")
    clock.freeze(NOW + 60 * SECOND)
    bounded: Queue = make_queue(max_length=10)
    bounded.sequence = queue.sequence
    bounded.send("new", dedup="x", on_refusal="drop")
    stats = bounded.dump().stats
    assert stats["sent"] == stats["expired"] + stats.get("dropped", 0) + len(bounded.dump().msgs)
