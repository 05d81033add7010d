"""Repairs of a queue that is in use."""

import threading
from typing import Final

import pytest
import redis

from duly import Duly, Send
from tests.client._sync.given import InBackground
from tests.client.place import ServerPlace
from tests.client.repair.judge import drained


def test_a_repair_while_consumers_work_loses_nothing(server: ServerPlace, queue_name: str, app: Duly) -> None:
    """I1 I2."""
    queue, bodies = app.queue(queue_name), list(range(400))
    queue.send_many([Send(body, key=f"k{body % 7}" if body % 2 else None) for body in bodies])
    seen: set[int] = set()

    def consume() -> None:
        with Duly(server.url) as other:
            mine = other.queue(queue_name)
            while len(seen) < len(bodies):
                deliveries = mine.receive(5, wait=0.1)
                seen.update(delivery.body for delivery in deliveries)
                mine.ack_many(deliveries)

    consumers = [InBackground(consume) for _ in range(3)]
    for number in range(1000):
        if all(not consumer.is_running for consumer in consumers):
            break
        if number < 20:
            server.corrupt(queue_name, "DEL", ("waiting0", "parked", "lanes", "leased", "leases")[number % 5])
        queue.audit(repair=True)
    for consumer in consumers:
        consumer.result(within=60)
    drained(queue)
    queue.audit(repair=True)
    assert seen == set(bodies)
    assert queue.audit().explanation == ()
    assert queue.stats().live == 0


WRONG: Final = {"bytes": 100_000, "sent": 7}


@pytest.mark.parametrize("counter", WRONG)
def test_two_repairs_at_once_correct_once(
    server: ServerPlace, queue_name: str, app: Duly, stranger: redis.Redis, counter: str
) -> None:
    """I1."""
    queue = app.queue(queue_name)
    queue.send_many(["." * 100] * 20)
    size = queue.stats().bytes
    for _ in range(5):
        stranger.hincrby(f"duly:{{{queue_name}}}:meta", counter, WRONG[counter])
        together = threading.Barrier(2)

        def repair(together: threading.Barrier = together) -> None:
            with Duly(server.url) as other:
                mine = other.queue(queue_name)
                mine.stats()
                together.wait(60)
                mine.audit(repair=True)

        for each in [InBackground(repair), InBackground(repair)]:
            each.result()
        assert queue.audit().explanation == ()
        assert queue.stats().bytes == size
