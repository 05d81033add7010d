"""New messages and retries: each waits only for the messages of its priority that were due before it."""

import random

from duly._core import ops
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, ids_of

TICK = SECOND // 10


def test_neither_new_messages_nor_retries_are_starved_by_an_overload(queue: Queue, clock: ServerClock) -> None:
    """Twice as many messages become due as are delivered, and half of the deliveries fail: the backlog grows."""
    chance = random.Random(7)
    due: dict[str, int] = {}
    order: list[str] = []
    delivered = {"new": 0, "retry": 0}
    tried: set[str] = set()
    for tick in range(1, 300):
        now = NOW + tick * TICK
        clock.freeze(now)
        queue.send(f"m{tick:04}")
        queue.send(f"n{tick:04}")
        waiting = queue.dump().waiting[0]
        claimed = queue.claim(1)
        (id_,) = ids_of(claimed)
        order.append(id_)
        due[id_] = waiting[id_]
        assert due[id_] == min(waiting.values()), "a message was due before it"
        delivered["retry" if id_ in tried else "new"] += 1
        tried.add(id_)
        settle = ops.Settle(id_, claimed.fence, has_key=False)
        if chance.random() < 0.5:
            queue.call(ops.retry(queue.keys, [(settle, chance.uniform(0, 3), "boom", "")]))
        else:
            queue.call(ops.ack(queue.keys, queue.options, [settle]))
    assert min(delivered.values()) > 50, delivered


def test_a_retry_goes_behind_all_that_is_due_already(queue: Queue) -> None:
    queue.send("fails")
    claimed = queue.claim(1)
    queue.send("a", "b")
    queue.call(ops.retry(queue.keys, [(ops.Settle("fails", claimed.fence, has_key=False), 0, "boom", "")]))
    queue.send("c")
    assert ids_of(queue.claim(10)) == ["a", "b", "fails", "c"]


def test_new_messages_wait_for_the_retries_that_are_due_before_them(queue: Queue, clock: ServerClock) -> None:
    """A wave of retries is delivered first, in the order of their due times, and each at most once before them."""
    ids = [f"m{n:03}" for n in range(100)]
    queue.send(*ids)
    claimed = queue.claim(100)
    rows = [(ops.Settle(id_, claimed.fence, has_key=False), 1.0, "boom", "") for id_ in ids]
    queue.call(ops.retry(queue.keys, rows))
    clock.freeze(NOW + 2 * SECOND)
    queue.send("new")
    again = queue.claim(100)
    assert ids_of(again) == ids
    rows = [(ops.Settle(id_, again.fence, has_key=False), 0, "boom", "") for id_ in ids]
    queue.call(ops.retry(queue.keys, rows))
    assert ids_of(queue.claim(1)) == ["new"]
