"""Operations on queues: cancel, reschedule, pause, resume, purge, redrive, delete, correct."""

from dataclasses import replace
from typing import Any

import pytest

from duly._core import codec, ops
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, ids_of

LEFT_BEHIND = {"meta", "call:tests"}


def _finish(queue: Queue, id_: str, **options: Any) -> None:
    queue.call(ops.ack(queue.keys, queue.options, queue.hold(id_, **options)))


@pytest.mark.parametrize("place", ["waiting", "delayed", "leased", "dead", "retried"])
def test_cancel_ends_a_message_wherever_it_is_and_leaves_nothing(queue: Queue, place: str) -> None:
    options: dict[str, Any] = {"ttl": 60, "priority": 3, "dedup": "x"}
    if place == "retried":
        queue.call(ops.retry(queue.keys, [(settle, 5, "boom", "") for settle in queue.hold("a", **options)]))
    else:
        put: dict[str, Any] = {"waiting": queue.send, "delayed": queue.send, "leased": queue.hold, "dead": queue.bury}
        put[place]("a", **options, **({"delay": 5} if place == "delayed" else {}))
    assert queue.call(ops.cancel(queue.keys, "a", running=place == "leased")) == 1
    state = queue.dump()
    assert queue.key_names() == LEFT_BEHIND
    assert (state.stats["cancelled"], state.stats["bytes"], state.stats.get("dead_bytes", 0)) == (1, 0, 0)


def test_cancel_frees_a_dedup_value_only_while_it_is_the_messages_own(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", dedup="x", dedup_for=1)
    clock.freeze(NOW + 2 * SECOND)
    queue.send("b", dedup="x", dedup_for=100)
    queue.call(ops.cancel(queue.keys, "a"))
    assert queue.dump().dedup == {"x": "b"}


@pytest.mark.parametrize("place", ["unknown", "gone", "done", "leased", "lease ran out"])
def test_cancel_of_a_finished_or_leased_message_changes_nothing(
    make_queue: Any, clock: ServerClock, place: str
) -> None:
    queue: Queue = make_queue(done=Keep() if place == "done" else None)
    if place in ("gone", "done"):
        _finish(queue, "a")
    elif place != "unknown":
        queue.hold("a")
        clock.freeze(NOW + 3600 * SECOND if place == "lease ran out" else NOW)
    before = queue.dump()
    assert queue.call(ops.cancel(queue.keys, "a")) == 0
    assert replace(queue.dump(), calls={}) == replace(before, calls={})


@pytest.mark.parametrize(
    ("when", "due"),
    # The queue's clock is one tick ahead of the frozen one: a point in time is moved by one tick.
    [("0", NOW + 1), ("+7000000", NOW + 1 + 7 * SECOND), (f"={NOW + 99}", NOW + 100), ("=5", NOW + 1)],
)
def test_reschedule_gives_a_waiting_message_another_due_time(queue: Queue, when: str, due: int) -> None:
    queue.send("a", delay=60, ttl=10)
    assert queue.call(ops.reschedule(queue.keys, "a", when)) == 1
    state = queue.dump()
    assert state.waiting == {0: {"a": due}}
    assert codec.read_stamps(state.msgs["a"]) == (NOW, due)
    assert state.expires == {"a": due + 10 * SECOND}
    assert state.wake == 1


def test_reschedule_overrules_the_due_time_of_a_retry_and_keeps_the_counts(queue: Queue) -> None:
    queue.call(ops.retry(queue.keys, [(settle, 60, "", "") for settle in queue.hold("a")]))
    queue.call(ops.reschedule(queue.keys, "a", "0"))
    assert queue.dump().counts == {"a": codec.Counts(failures=1)}
    assert ids_of(queue.claim()) == ["a"]


def test_promote_of_a_due_message_changes_nothing(queue: Queue) -> None:
    queue.send("a", "b")
    before = queue.dump()
    assert queue.call(ops.reschedule(queue.keys, "b", "0")) == 1
    assert replace(queue.dump(), calls={}) == replace(before, calls={})


@pytest.mark.parametrize("place", ["leased", "dead", "unknown"])
def test_reschedule_of_a_message_that_does_not_wait_changes_nothing(queue: Queue, place: str) -> None:
    put: dict[str, Any] = {"leased": queue.hold, "dead": queue.bury, "unknown": lambda _: None}
    put[place]("a")
    before = queue.dump()
    assert queue.call(ops.reschedule(queue.keys, "a", "+5")) == 0
    assert replace(queue.dump(), calls={}) == replace(before, calls={})


def test_pause_and_resume(queue: Queue) -> None:
    queue.send("a")
    assert queue.call(ops.pause(queue.keys, "me")) == 1
    assert queue.dump().meta["paused"] == "me"
    queue.wire.run("DEL", queue.keys.key("wake"))
    assert queue.call(ops.resume(queue.keys)) == 1
    state = queue.dump()
    assert "paused" not in state.meta
    assert state.wake == 1
    queue.wire.run("DEL", queue.keys.key("wake"))
    queue.call(ops.resume(queue.keys))
    assert queue.dump().wake == 0


@pytest.mark.parametrize(
    ("state", "gone"),
    [("ready", {"r", "p"}), ("delayed", {"d"}), ("leased", {"l"}), ("dead", {"x"}), ("done", {"f"})],
)
def test_purge_ends_the_messages_of_one_state(make_queue: Any, state: str, gone: set[str]) -> None:
    queue: Queue = make_queue(done=Keep())
    queue.bury("x", ttl=60)
    _finish(queue, "f")
    queue.hold("l")
    queue.send("r", dedup="v", ttl=60)
    queue.send("p", priority=5)
    queue.send("d", delay=60)
    before = queue.dump()
    assert queue.call(ops.purge(queue.keys, state, 1000)) == [len(gone), 0]
    after = queue.dump()
    assert set(before.msgs) - set(after.msgs) == gone
    assert not any(after.places(id_) for id_ in gone)
    assert after.stats["done_trimmed" if state == "done" else "purged"] == len(gone)
    live = [id_ for id_ in after.msgs if id_ not in {*after.dead, *after.done}]
    assert after.stats["bytes"] == sum(len(after.msgs[id_]) for id_ in live)
    assert after.stats["dead_bytes"] == sum(len(after.msgs[id_]) for id_ in after.dead)
    assert after.stats["done_bytes"] == sum(len(after.msgs[id_]) for id_ in after.done)
    assert after.dedup == ({} if state == "ready" else {"v": "r"})


def test_purge_is_bounded_and_returns_how_many_are_left(queue: Queue) -> None:
    queue.send("a", "b", "c")
    assert queue.call(ops.purge(queue.keys, "ready", 2)) == [2, 1]
    assert queue.call(ops.purge(queue.keys, "ready", 2)) == [1, 0]
    assert queue.call(ops.purge(queue.keys, "ready", 2)) == [0, 0]


def test_redrive_puts_dead_letters_back_to_their_places_as_new(queue: Queue) -> None:
    queue.bury("a", "b", priority=4)
    record = queue.dump().msgs["a"]
    assert queue.call(ops.redrive(queue.keys, 10)) == [2, 0]
    state = queue.dump()
    assert state.waiting == {4: {"a": NOW, "b": NOW + 1}}
    assert state.dead == {}
    assert state.counts == {"a": codec.Counts(redrives=1), "b": codec.Counts(redrives=1)}
    assert [(why.reason, why.failures, why.errors, why.rejects) for why in state.why.values()] == [("", 0, [], 0)] * 2
    assert [[event.what for event in why.timeline] for why in state.why.values()] == [["reject", "redrive"]] * 2
    assert (state.stats["redriven"], state.stats["dead_bytes"]) == (2, 0)
    assert state.stats["bytes"] == 2 * len(record)
    assert state.wake == 1


def test_redrive_is_bounded_and_takes_the_oldest_first(queue: Queue, clock: ServerClock) -> None:
    queue.bury("b")
    clock.freeze(NOW + 1000)
    queue.bury("a")
    assert queue.call(ops.redrive(queue.keys, 1)) == [1, 1]
    assert queue.dump().places("b") == ["waiting0"]


def test_the_ttl_of_a_redriven_message_starts_over(queue: Queue, clock: ServerClock) -> None:
    queue.bury("a", ttl=5)
    later = NOW + 60 * SECOND
    clock.freeze(later)
    queue.call(ops.redrive(queue.keys, 10))
    state = queue.dump()
    assert state.expires == {"a": later + 5 * SECOND}
    assert ids_of(queue.claim()) == ["a"]


def test_redrive_leaves_a_letter_without_a_body(queue: Queue) -> None:
    queue.bury("a", "b")
    queue.lose_body("a")
    assert queue.call(ops.redrive(queue.keys, 10)) == [1, 1]
    assert list(queue.dump().dead) == ["a"]


def test_delete_leaves_call_records_only(queue: Queue) -> None:
    queue.bury("a", dedup="x")
    queue.hold("b", ttl=60)
    queue.send("c", priority=3)
    queue.call(ops.delete(queue.keys))
    assert queue.key_names() == {"call:tests"}


def test_correct_adds_to_counters(queue: Queue) -> None:
    queue.send("a")
    before = queue.dump().stats
    assert queue.call(ops.correct(queue.keys, {"bytes": -3, "corrected": 1})) == 1
    assert queue.dump().stats == {**before, "bytes": before["bytes"] - 3, "corrected": 1, "repairs": 1}


def test_differences_found_before_another_repair_are_not_corrected_again(queue: Queue) -> None:
    queue.send("a")
    look = ops.accounts(queue.keys)
    seen = look.decode(queue.call(look)).repairs
    assert queue.call(ops.correct(queue.keys, {"bytes": -3}, seen))
    before = queue.dump().stats
    assert not queue.call(ops.correct(queue.keys, {"bytes": -3}, seen))
    assert queue.dump().stats == before

    queue.wire.run("ZREM", queue.keys.key("waiting0"), "a")
    seen = look.decode(queue.call(look)).repairs
    queue.call(ops.audit_step(queue.keys, "msgs", "0", repair=True))
    assert not queue.call(ops.correct(queue.keys, {"corrected": 1}, seen))


def test_a_pause_of_an_empty_queue_leaves_no_token_behind(queue: Queue) -> None:
    queue.call(ops.pause(queue.keys, "somebody"))
    queue.call(ops.resume(queue.keys))
    assert queue.key_names() == {"call:tests"}
