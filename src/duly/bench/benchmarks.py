"""The benchmarks, one function each. A benchmark sends its own messages and leaves the queue empty.

Rates and waits are measured with this machine's monotonic clock, lateness with the server's clock.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duly import Delivery, Duly, DulyError, Queue
from duly.worker import Worker, WorkerOptions

_MESSAGES_PER_SEND: Final = 1000
_MESSAGES_PER_RECEIVE: Final = 100
_SINGLES: Final = 1000
_WAKES: Final = 200
_DELAYED: Final = 200
_DELAYED_OVER: Final = 2.0
_DEADLINE: Final = 60.0
_SLOWEST: Final = 1000
"""Messages per second. A slower run is an error."""


@dataclass(frozen=True)
class Figure:
    """One measured value."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Load:
    """The queue, and the messages to send."""

    app: Duly
    queue: Queue
    messages: int
    body: str

    def fill(self) -> None:
        """Send all messages, in large batches."""
        for start in range(0, self.messages, _MESSAGES_PER_SEND):
            self.queue.send_many([self.body] * min(_MESSAGES_PER_SEND, self.messages - start))


def calls(load: Load) -> list[Figure]:
    """How long does the smallest call take?"""
    return _waits("one call", [_timed(load.queue.stats) for _ in range(_SINGLES)])


def single_sends(load: Load) -> list[Figure]:
    """How many messages per second does one sender send, one by one?"""
    seconds = _timed(lambda: [load.queue.send(load.body) for _ in range(_SINGLES)])
    load.queue.purge()
    return [Figure("send, one by one", _SINGLES / seconds, "/s")]


def batches(load: Load) -> list[Figure]:
    """How many messages per second does one client send, and then receive and ack, in batches?"""
    sending = _timed(load.fill)
    return [
        Figure(f"send_many, {_MESSAGES_PER_SEND} at once", load.messages / sending, "/s"),
        Figure(
            f"receive and ack_many, {_MESSAGES_PER_RECEIVE} at once", load.messages / _timed(lambda: _drain(load)), "/s"
        ),
    ]


def _drain(load: Load) -> None:
    while taken := load.queue.receive(_MESSAGES_PER_RECEIVE, wait=0):
        load.queue.ack_many(taken)


def worker(load: Load) -> list[Figure]:
    """How many messages per second does one worker process handle, with an empty handler?"""
    load.fill()
    return [Figure("worker, async handler", load.messages / asyncio.run(_work_off(load)), "/s")]


async def _work_off(load: Load) -> float:
    app = Duly(load.app, namespace=load.app.namespace)  # a separate app, since handlers cannot be removed
    deadline = _DEADLINE + load.messages / _SLOWEST
    done = asyncio.Event()
    handled = 0

    async def count(_body: Any) -> None:
        nonlocal handled
        handled += 1
        if handled == load.messages:
            done.set()

    app.queue(load.queue.name, lease=60).handler(concurrency=100)(count)
    began = time.monotonic()
    async with Worker(app, WorkerOptions()):
        try:
            await asyncio.wait_for(done.wait(), deadline)
        except TimeoutError:
            raise DulyError(f"{handled:,} of {load.messages:,} messages were handled in {deadline:g} s") from None
    seconds = time.monotonic() - began
    app.close()
    return seconds


def wake_ups(load: Load) -> list[Figure]:
    """How long does a message take from its send to a waiting consumer?"""
    arrived: list[float] = []
    sent: list[float] = []
    is_there = threading.Semaphore(0)
    is_over = threading.Event()

    def consume() -> None:
        while not is_over.is_set():
            for delivery in load.queue.receive(1, 1):
                arrived.append(time.monotonic())
                delivery.ack()
                is_there.release()

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    try:
        for _ in range(_WAKES):
            time.sleep(0.002)  # let the consumer block again
            sent.append(time.monotonic())
            load.queue.send(load.body)
            if not is_there.acquire(timeout=_DEADLINE):
                raise DulyError(f"a message did not reach the waiting consumer in {_DEADLINE:g} s")
    finally:
        is_over.set()
        consumer.join(_DEADLINE)  # the queue is deleted next
    return _waits("send to waiting consumer", [there - here for here, there in zip(sent, arrived, strict=True)])


def delays(load: Load) -> list[Figure]:
    """How late are delayed messages, by the server's clock? None may be early."""
    for place in range(_DELAYED):
        load.queue.send(load.body, delay=0.5 + _DELAYED_OVER * place / _DELAYED)
    late: list[float] = []
    while len(late) < _DELAYED and (taken := load.queue.receive(10, 5)):
        late += map(_lateness, taken)
        load.queue.ack_many(taken)
    if len(late) < _DELAYED:
        raise DulyError(f"{len(late)} of {_DELAYED} delayed messages arrived, and no more within 5 s")
    early = sum(1 for each in late if each < 0)
    return [*_waits("delayed message is late by", late), Figure("delayed messages that were early", early, "")]


def _lateness(delivery: Delivery) -> float:
    """Return the time from due to delivery. A fence is the time of the delivery, in microseconds."""
    return delivery.fence / 1_000_000 - delivery.due_at.timestamp()


def _timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _waits(name: str, seconds: Sequence[float]) -> list[Figure]:
    ordered = sorted(seconds)
    return [
        Figure(f"{name}, p50", ordered[len(ordered) // 2] * 1000, "ms"),
        Figure(f"{name}, p99", ordered[len(ordered) * 99 // 100] * 1000, "ms"),
    ]


ALL: Final[Mapping[str, Callable[[Load], list[Figure]]]] = {
    "calls": calls,
    "single sends": single_sends,
    "batches": batches,
    "a worker": worker,
    "wake-ups": wake_ups,
    "delays": delays,
}
