"""Budgets in bytes: of live messages, of dead letters and of finished ones. The counters are exact after every call."""

import random
from typing import Any

import msgspec
import pytest

from duly._core import ops
from duly.message import Stats
from duly.options import Keep
from tests.lua.harness import Queue, State, settles_of

LIVE, DEAD, DONE = 2000, 1200, 1000


def stats_of(queue: Queue) -> Stats:
    call = ops.stats(queue.keys)
    return call.decode(queue.call(call))


def check_budgets(queue: Queue) -> None:
    """Compare each number with the stored records and rows, and with its budget."""
    state, stats = queue.dump(), stats_of(queue)
    live = set(state.msgs) - set(state.dead) - set(state.done)
    sizes = [sum(len(state.msgs[id_]) for id_ in ids) for ids in (live, state.dead, state.done)]
    assert sizes == [stats.bytes, stats.dead_bytes, stats.done_bytes]
    rows = rows_of(queue, state)
    assert rows == [stats.dead_why_bytes, stats.done_why_bytes] == counted_rows(state)
    assert sizes[0] <= LIVE
    assert sizes[1] + rows[0] <= DEAD
    assert sizes[2] + rows[1] <= DONE


def rows_of(queue: Queue, state: State) -> list[int]:
    """Return the bytes of the rows of `why` of dead and of done messages."""
    why = queue.keys.key("why")
    return [sum(queue.wire.run("HSTRLEN", why, id_) for id_ in ids) for ids in (state.dead, state.done)]


def counted_rows(state: State) -> list[int]:
    """Return the bytes that the scripts have counted."""
    return [int(state.meta.get(field, "0").split()[0]) for field in ("dead_why", "done_why")]


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


ROW = msgspec.msgpack.encode(["." * 4000, 0, 0, 0, 0, [], 1, [], 0, "", 0])
"""A row of a dead letter with a large error."""


def add_uncounted(queue: Queue, *ids: str) -> None:
    """Store dead letters as a version does that does not count rows."""
    for number, id_ in enumerate(ids):
        record = bytes(queue.outgoing(id_).part)
        keys = [queue.keys.key(name) for name in ("dead", "why", "msgs", "meta")]
        queue.wire.run("ZADD", keys[0], number, id_)
        queue.wire.run("HSET", keys[1], id_, ROW)
        queue.wire.run("HSET", keys[2], id_, b"." * 16 + record)
        queue.wire.run("HINCRBY", keys[3], "buried", 1)
        queue.wire.run("HINCRBY", keys[3], "dead_bytes", 16 + len(record))


def remove_uncounted(queue: Queue, id_: str) -> None:
    """Cancel a dead letter as a version does that does not count rows."""
    size = queue.wire.run("HSTRLEN", queue.keys.key("msgs"), id_)
    queue.wire.run("ZREM", queue.keys.key("dead"), id_)
    queue.wire.run("HDEL", queue.keys.key("why"), id_)
    queue.wire.run("HDEL", queue.keys.key("msgs"), id_)
    queue.wire.run("HINCRBY", queue.keys.key("meta"), "dead_bytes", -size)


def test_rows_that_another_version_removed_trim_no_dead_letter(make_queue: Any) -> None:
    """new-11."""
    queue: Queue = make_queue(dead=Keep(bytes=4000))
    queue.bury("oldest")
    for number in range(8):
        (held,) = queue.hold(f"large {number}")
        queue.call(ops.reject(queue.keys, queue.options, [(held, "." * 1500, "", "")]))
        remove_uncounted(queue, f"large {number}")
    queue.bury("last")
    state, stats = queue.dump(), stats_of(queue)
    assert (list(state.dead), stats.trimmed) == (["oldest", "last"], 0)
    assert stats.dead_why_bytes == sum(rows_of(queue, state)) == counted_rows(state)[0]


def test_rows_that_another_version_added_are_in_the_budget(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(bytes=9000))
    queue.bury("first")
    add_uncounted(queue, *(f"large {number}" for number in range(5)))
    queue.bury("last")
    state, stats = queue.dump(), stats_of(queue)
    assert stats.dead_bytes + sum(rows_of(queue, state)) <= 9000
    assert {"last", "first"} <= set(state.dead)
    assert stats.trimmed == 3


def test_the_bytes_of_too_many_rows_are_unknown_and_trim_nothing(make_queue: Any) -> None:
    queue: Queue = make_queue(dead=Keep(bytes=100_000))
    add_uncounted(queue, *(f"large {number}" for number in range(1001)))
    queue.bury("last")
    stats = stats_of(queue)
    assert (stats.dead, stats.trimmed, stats.dead_why_bytes) == (1002, 0, None)
    queue.call(ops.purge(queue.keys, "dead", 2))
    assert stats_of(queue).dead_why_bytes == sum(rows_of(queue, queue.dump()))
    queue.bury("counted")
    assert stats_of(queue).trimmed == 101  # the most that one call trims


def test_a_correction_sets_the_bytes_of_rows_only_in_the_state_that_was_read(make_queue: Any) -> None:
    queue: Queue = make_queue()
    add_uncounted(queue, *(f"large {number}" for number in range(1001)))
    (real, _) = rows_of(queue, queue.dump())
    assert queue.call(ops.correct(queue.keys, {"dead_why": f"{real} 1000 1001 0"})) == 0
    assert stats_of(queue).dead_why_bytes is None
    assert queue.call(ops.correct(queue.keys, {"dead_why": f"{real} 1001 1001 0"})) == 1
    assert stats_of(queue).dead_why_bytes == real
    queue.bury("one more")
    (real, _) = rows_of(queue, queue.dump())
    assert stats_of(queue).dead_why_bytes == real
    queue.call(ops.correct(queue.keys, {"sent": 0}, 1))
    assert stats_of(queue).dead_why_bytes == real


def test_a_row_of_another_type_leaves_its_bytes_unknown(make_queue: Any) -> None:
    queue: Queue = make_queue()
    queue.bury("a")
    queue.wire.run("HDEL", queue.keys.key("meta"), "dead_why")
    queue.wire.run("SET", queue.keys.key("why"), "x")
    assert stats_of(queue).dead_why_bytes is None


def test_an_audit_counts_each_row_once_while_rows_of_live_messages_are_removed(make_queue: Any) -> None:
    """HSCAN returns fields twice if the hash shrinks between two steps."""
    queue: Queue = make_queue()
    add_uncounted(queue, *(f"dead {number}" for number in range(600)))
    (real, _) = rows_of(queue, queue.dump())
    why, live = queue.keys.key("why"), [f"live {number}" for number in range(6000)]
    for most in range(1, 61, 6):
        queue.wire.run("HSET", why, *(part for id_ in live for part in (id_, b"x")))
        counted, cursor = steps_of_audit(queue, "why", "0", most)
        queue.wire.run("HDEL", why, *live)
        rest = [steps_of_audit(queue, *step) for step in (("why", cursor), ("dead", "0"), ("done", "0"))]
        assert counted + sum(more for more, _ in rest) == real


def steps_of_audit(queue: Queue, source: str, cursor: str, most: int = 1000) -> tuple[int, str]:
    """Run steps of an audit. Return the bytes of rows of dead letters that they found, and the next cursor."""
    counted = 0
    for _ in range(most):
        call = ops.audit_step(queue.keys, source, cursor, repair=False)
        step = call.decode(queue.call(call))
        counted, cursor = counted + step.sizes["dead_why_bytes"], step.cursor
        if cursor == "0":
            break
    return counted, cursor


def test_rows_that_another_version_added_are_counted_again_without_a_budget_only_by_tidy(make_queue: Any) -> None:
    """While two versions use a queue, a count by every ack would slow down the server."""
    queue: Queue = make_queue(done=Keep(count=1000))
    queue.bury("counted")
    add_uncounted(queue, "uncounted")
    before = queue.dump().meta["dead_why"]
    queue.bury("last")
    assert queue.dump().meta["dead_why"] == before
    state, stats = queue.dump(), stats_of(queue)
    assert stats.dead_why_bytes == sum(rows_of(queue, state))
    queue.tidy()
    assert counted_rows(queue.dump()) == rows_of(queue, state)


def test_a_tidy_that_changes_nothing_writes_nothing(make_queue: Any) -> None:
    """A worker tidies each of its queues once a minute, and every write is replicated."""
    queue: Queue = make_queue(done=Keep(count=1000))
    queue.bury("dead")
    queue.send("done")
    settle(queue, "ack", 1)
    queue.tidy()

    before = changes_of(queue)
    queue.tidy()

    assert changes_of(queue) == before
    assert counted_rows(queue.dump()) == rows_of(queue, queue.dump()) != [0, 0]


def changes_of(queue: Queue) -> int:
    """Return the number of writes of the server."""
    lines = queue.wire.run("INFO", "persistence").decode().splitlines()
    return int(dict(line.split(":", 1) for line in lines if ":" in line)["rdb_changes_since_last_save"])


def test_bytes_that_another_version_left_end_with_the_last_message(make_queue: Any) -> None:
    """A version that does not count rows has shortened one, and the state is the same."""
    queue: Queue = make_queue()
    queue.bury("a")
    (real, _) = rows_of(queue, queue.dump())
    queue.wire.run("HSET", queue.keys.key("meta"), "dead_why", f"{real + 9} 1 1 0")

    queue.call(ops.purge(queue.keys, "dead", 1))
    assert (counted_rows(queue.dump())[0], stats_of(queue).dead_why_bytes) == (0, 0)

    queue.bury("b")
    assert counted_rows(queue.dump()) == rows_of(queue, queue.dump())
