"""Budgets in bytes: of live messages, of dead letters and of finished ones. The counters are exact after every call."""

import random
from typing import Any

import pytest

from duly._core import ops
from duly.message import Stats
from duly.options import Keep
from tests.lua.harness import Queue, settles_of

LIVE, DEAD, DONE = 2000, 900, 700


def stats_of(queue: Queue) -> Stats:
    call = ops.stats(queue.keys)
    return call.decode(queue.call(call))


def check_budgets(queue: Queue) -> None:
    """Compare each counter with the stored records, and with its budget."""
    state, stats = queue.dump(), stats_of(queue)
    live = set(state.msgs) - set(state.dead) - set(state.done)
    sizes = [sum(len(state.msgs[id_]) for id_ in ids) for ids in (live, state.dead, state.done)]
    assert sizes == [stats.bytes, stats.dead_bytes, stats.done_bytes]
    assert sizes[0] <= LIVE
    assert sizes[1] <= DEAD
    assert sizes[2] <= DONE


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("on_refusal", ["each", "drop"])
def test_no_budget_is_exceeded_and_all_counters_are_exact(
    make_queue: Any, seed: int, on_refusal: ops.OnRefusal
) -> None:
    """new-11."""
    queue: Queue = make_queue(max_bytes=LIVE, dead=Keep(bytes=DEAD), done=Keep(bytes=DONE))
    chance = random.Random(seed)
    for step in range(120):
        match chance.choice(["send", "send", "send", "ack", "retry", "reject", "cancel", "purge"]):
            case "send":
                queue.send(f"m{step}", body=b"." * chance.randrange(600), on_refusal=on_refusal)
            case "cancel":
                queue.call(ops.cancel(queue.keys, f"m{chance.randrange(step + 1)}"))
            case "purge":
                queue.call(ops.purge(queue.keys, chance.choice(["dead", "done"]), 1))
            case verb:
                settle(queue, verb, chance.randrange(1, 4))
        check_budgets(queue)
    for number in range(5):
        queue.send(f"last {number}", body=b"." * 500, on_refusal=on_refusal)
        check_budgets(queue)
    stats = stats_of(queue)
    assert stats.trimmed
    assert stats.done_trimmed
    assert stats.dropped or on_refusal == "each"


def settle(queue: Queue, verb: str, limit: int) -> None:
    held = settles_of(queue.claim(limit))
    if not held:
        return
    if verb == "ack":
        queue.call(ops.ack(queue.keys, queue.options, held))
    elif verb == "retry":
        queue.call(ops.retry(queue.keys, [(each, 0, "no answer", "") for each in held]))
    else:
        queue.call(ops.reject(queue.keys, queue.options, [(each, "no use", "", "") for each in held]))


def test_a_dead_letter_that_is_larger_than_the_budget_is_trimmed_at_once(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(bytes=300))
    queue.bury("small", body=b"." * 100)
    queue.bury("large", body=b"." * 400)
    state = queue.dump()
    assert (state.dead, state.msgs, state.why) == ({}, {}, {})
    assert (state.stats["buried"], state.stats["trimmed"], state.stats["dead_bytes"]) == (2, 2, 0)


def test_the_oldest_dead_letters_make_room_for_new_ones(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(bytes=400))
    for id_ in ("a", "b", "c", "d"):
        queue.bury(id_, body=b"." * 100)
    state = queue.dump()
    assert list(state.dead) == ["b", "c", "d"] or list(state.dead) == ["c", "d"]
    assert state.stats["dead_bytes"] == sum(map(len, state.msgs.values())) <= 400
    assert state.stats["trimmed"] == 4 - len(state.dead)


def test_a_full_budget_of_dead_letters_refuses_no_send(make_queue: Any) -> None:
    queue: Queue = make_queue(max_bytes=LIVE, dead=Keep(bytes=0))
    queue.bury("a")
    assert len(queue.send("b")) == 1
    assert stats_of(queue).trimmed == 1
