"""Cancels and claims at the same time: each message is either cancelled or handled, never both."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

import duly

COUNT: Final = 300
CANCELLERS: Final = 2
CONSUMERS: Final = 2


class Race:
    """Consumers and cancellers of one queue, which begin together."""

    def __init__(self, queue: duly.Queue, ids: list[str], *, gives_back: bool) -> None:
        self.handled: list[str] = []
        self._queue = queue
        self._ids = ids
        self._gives_back = gives_back
        self._begin = threading.Barrier(CANCELLERS + CONSUMERS)
        self._are_cancels_over = threading.Event()

    def run(self) -> list[str]:
        """Return the ids whose cancel was True."""
        with ThreadPoolExecutor(CANCELLERS + CONSUMERS) as pool:
            consumers = [pool.submit(self._consume) for _ in range(CONSUMERS)]
            cancellers = [pool.submit(self._cancel) for _ in range(CANCELLERS)]
            cancelled = [id_ for each in cancellers for id_ in each.result()]
            self._are_cancels_over.set()
            for each in consumers:
                each.result()
        return cancelled

    def _cancel(self) -> list[str]:
        self._begin.wait(timeout=60)
        return [id_ for id_ in random.sample(self._ids, len(self._ids)) if self._queue.cancel(id_)]

    def _consume(self) -> None:
        self._begin.wait(timeout=60)
        while not self._are_cancels_over.is_set() or self._queue.stats().live:
            for delivery in self._queue.receive(limit=7, wait=0.05):  # several at once, as a worker claims ahead
                if self._gives_back and delivery.deliveries == 1 and delivery.body % 3 == 0:
                    delivery.release()  # it waits again, and may be cancelled
                else:
                    self.handled.append(delivery.id)
                    delivery.ack()


@pytest.mark.parametrize("gives_back", [False, True])
@pytest.mark.parametrize("key", [None, "lane"])
def test_each_message_is_cancelled_or_handled(backend: str, queue_name: str, gives_back: bool, key: str | None) -> None:
    """With a key, messages are parked behind each other."""
    with duly.Duly(backend) as app:
        queue = app.queue(queue_name)
        ids = queue.send_many([duly.Send(number, key=key) for number in range(COUNT)])
        race = Race(queue, [*map(str, ids)], gives_back=gives_back)

        cancelled = race.run()

        assert sorted(cancelled + race.handled) == sorted(ids)
        assert queue.stats().cancelled == len(cancelled)
        assert queue.audit().ok
