"""With a frozen clock, a message that is due in 60 s is due when the clock is advanced by 60 s."""

from collections.abc import Callable, Iterator

import pytest

import duly
from duly.testing import clock


@pytest.fixture
def app() -> Iterator[duly.Duly]:
    with duly.Duly("memory://") as app:
        clock.freeze()
        yield app
    clock.reset()


def _take(queue: duly.Queue) -> duly.Delivery:
    queue.send("body")
    [delivery] = queue.receive(wait=0)
    return delivery


def _repeat(queue: duly.Queue) -> None:
    queue.send("body", repeat=duly.Repeat(first=60))
    clock.advance(60)
    [delivery] = queue.receive(wait=0)
    delivery.ack()


def _commit(queue: duly.Queue) -> None:
    _take(queue._app.queue("other")).commit(send=[(queue, duly.Send(n, delay=60)) for n in range(5)])


WAYS: dict[str, tuple[int, Callable[[duly.Queue], object]]] = {
    "send": (5, lambda queue: [queue.send(n, delay=60) for n in range(5)]),
    "send_many": (5, lambda queue: queue.send_many([duly.Send(n, delay=60) for n in range(5)])),
    "retry": (1, lambda queue: _take(queue).retry(delay=60)),
    "defer": (1, lambda queue: _take(queue).defer(60)),
    "recycle": (1, lambda queue: _take(queue).recycle(60)),
    "repeat": (1, _repeat),
    "reschedule": (1, lambda queue: queue.reschedule(queue.send("body", delay=5), delay=60)),
    "commit": (5, _commit),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_delayed_message_is_due_when_the_clock_was_advanced_by_its_delay(app: duly.Duly, way: str) -> None:
    count, delay = WAYS[way]
    queue = app.queue("queue")

    delay(queue)
    clock.advance(59.9)
    assert queue.receive(wait=0) == []
    clock.advance(0.1)

    assert len(queue.receive(wait=0)) == count


def test_a_clock_that_was_set_back_stays_there(app: duly.Duly) -> None:
    queue = app.queue("queue")
    queue.send("body")
    earlier = clock.now_us() - 3_600_000_000

    clock.set_us(earlier)
    queue.send("body")

    assert clock.now_us() == earlier
