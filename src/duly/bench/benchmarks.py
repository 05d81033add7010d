"""The benchmarks, one function each. A benchmark sends its own messages and leaves the queue empty.

They ask the same questions as `make bench`. Rates and waits are measured with this machine's monotonic clock, lateness
with the server's clock.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from duly import Delivery, Duly, DulyError, Queue, Send
from duly.bench import server_use
from duly.bench.figure import Sample, waits
from duly.worker import Worker, WorkerOptions

_MESSAGES_PER_SEND: Final = 1000
_MESSAGES_PER_RECEIVE: Final = 100
_SINGLES: Final = 1000
_WAKES: Final = 200
_DELAYED: Final = 200
_DELAYED_OVER: Final = 2.0
_BURST: Final = 1000
_BURST_IN: Final = 1.5
_AT_ONCE: Final = 100
_PACED: Final = 2.0
"""Seconds of the benchmark at half load."""
_ABANDONED: Final = 100
_SHORT_LEASE: Final = 2.0
_DEADLINE: Final = 60.0
_SLOWEST: Final = 1000
"""Messages per second. A slower run is an error."""


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


def calls(load: Load) -> list[Sample]:
    """How long does the smallest call take?"""
    return waits("one call", [_timed(load.queue.stats) for _ in range(_SINGLES)])


def single_sends(load: Load) -> list[Sample]:
    """How many messages per second does one sender send, one by one?"""
    rate = _send_rate(load)
    load.queue.purge()
    return [Sample("send, one by one", rate, "/s")]


def _send_rate(load: Load) -> float:
    return _SINGLES / _timed(lambda: [load.queue.send(load.body) for _ in range(_SINGLES)])


def concurrent_sends(load: Load) -> list[Sample]:
    """How many messages per second do concurrent senders of one process send?"""
    rate = asyncio.run(_send_together(load))
    load.queue.purge()
    return [Sample(f"send, {_AT_ONCE} concurrent calls", rate, "/s")]


async def _send_together(load: Load) -> float:
    queue, calls = load.queue.aio, max(load.messages // _AT_ONCE, 1)
    began = time.monotonic()
    for _ in range(calls):
        await asyncio.gather(*(queue.send(load.body) for _ in range(_AT_ONCE)))
    return calls * _AT_ONCE / (time.monotonic() - began)


def batches(load: Load) -> list[Sample]:
    """How many messages per second does one client send, and then receive and ack, in batches, at what cost?"""
    before = server_use.read(load.app)
    sending = _timed(load.fill)
    full = server_use.read(load.app)
    draining = _timed(lambda: _drain(load))
    after = server_use.read(load.app)
    samples = [
        Sample(f"send_many, {_MESSAGES_PER_SEND} at once", load.messages / sending, "/s"),
        Sample(f"receive and ack_many, {_MESSAGES_PER_RECEIVE} at once", load.messages / draining, "/s"),
    ]
    if before is not None and full is not None and after is not None:
        samples += [
            Sample("server CPU of a message, in batches", (after.cpu - before.cpu) / load.messages * 1e6, "us"),
            Sample("memory of a waiting message", (full.memory - before.memory) / load.messages, "bytes"),
        ]
    return samples


def _drain(load: Load) -> None:
    while taken := load.queue.receive(_MESSAGES_PER_RECEIVE, wait=0):
        load.queue.ack_many(taken)


def worker(load: Load) -> list[Sample]:
    """How many messages per second does one worker process handle, with an empty handler?"""
    load.fill()
    return [Sample("worker, async handler", load.messages / asyncio.run(_work_off(load)), "/s")]


async def _work_off(load: Load) -> float:
    deadline = _DEADLINE + load.messages / _SLOWEST
    done = asyncio.Event()
    handled = 0

    async def count(_body: Any) -> None:
        nonlocal handled
        handled += 1
        if handled == load.messages:
            done.set()

    began = time.monotonic()
    async with _working(load, count):
        await _until(done, deadline, lambda: f"{handled:,} of {load.messages:,} messages were handled")
        return time.monotonic() - began


@asynccontextmanager
async def _working(load: Load, handler: Callable[[Any], Awaitable[None]]) -> AsyncIterator[None]:
    """Run a worker of a separate app, since handlers cannot be removed."""
    app = Duly(load.app, namespace=load.app.namespace)
    app.queue(load.queue.name, lease=60).handler(concurrency=100)(handler)
    async with Worker(app, WorkerOptions()):
        yield
    app.close()


async def _until(done: asyncio.Event, seconds: float, describe: Callable[[], str]) -> None:
    try:
        await asyncio.wait_for(done.wait(), seconds)
    except TimeoutError:
        raise DulyError(f"{describe()} in {seconds:g} s") from None


def half_load(load: Load) -> list[Sample]:
    """How long does a message take from its send to a worker's handler, at half of the rate of single sends?"""
    rate = _send_rate(load) / 2
    load.queue.purge()
    return waits("send to handler at half load", asyncio.run(_paced(load, rate)))


async def _paced(load: Load, rate: float) -> list[float]:
    """Send messages at a rate from a thread, and return how long each took. A message that is late is sent at once."""
    count = max(int(rate * _PACED), 1)
    taken: list[float] = []
    done = asyncio.Event()

    async def note(sent: float) -> None:
        taken.append(time.monotonic() - sent)
        if len(taken) == count:
            done.set()

    def send() -> None:
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            load.queue.send(time.monotonic())

    async with _working(load, note):
        await asyncio.to_thread(send)
        await _until(done, _DEADLINE, lambda: f"{len(taken):,} of {count:,} messages were handled")
    return taken


def wake_ups(load: Load) -> list[Sample]:
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
    return waits("send to waiting consumer", [there - here for here, there in zip(sent, arrived, strict=True)])


def delays(load: Load) -> list[Sample]:
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
    return [*waits("delayed message is late by", late), Sample("delayed messages that were early", early, "")]


def burst(load: Load) -> list[Sample]:
    """How late is the last of many messages that are due at the same moment?"""
    due = _server_time(load) + _BURST_IN
    load.queue.send_many([Send(load.body, at=due) for _ in range(_BURST)])
    late: list[float] = []
    while len(late) < _BURST and (taken := load.queue.receive(_MESSAGES_PER_RECEIVE, 5)):
        late += map(_lateness, taken)
        load.queue.ack_many(taken)
    if len(late) < _BURST:
        raise DulyError(f"{len(late)} of {_BURST:,} messages that were due at once arrived, and no more within 5 s")
    return [Sample(f"{_BURST:,} due at once, the last one is late by", max(late) * 1000, "ms")]


def _server_time(load: Load) -> float:
    """Read the server's clock from a message that is sent and received now."""
    load.queue.send(load.body)
    (delivery,) = load.queue.receive(1, 5)
    delivery.ack()
    return delivery.fence / 1_000_000


def abandoned(load: Load) -> list[Sample]:
    """How long after a consumer vanished are its messages delivered again, and is any lost?"""
    queue = load.app.queue(load.queue.name, lease=_SHORT_LEASE)
    queue.send_many([load.body] * _ABANDONED)
    left = {delivery.id for delivery in queue.receive(_ABANDONED, 5)}  # and the consumer is gone
    began, deadline = time.monotonic(), time.monotonic() + _DEADLINE
    back: set[str] = set()
    with _without_log():
        while back < left and time.monotonic() < deadline:
            taken = queue.receive(_ABANDONED, 1)
            back |= {delivery.id for delivery in taken}
            queue.ack_many(taken)
    return [
        Sample(
            f"messages of a lost consumer are back after, lease of {_SHORT_LEASE:g} s", time.monotonic() - began, "s"
        ),
        Sample("messages of a lost consumer that were lost", _ABANDONED - len(back), ""),
    ]


@contextmanager
def _without_log() -> Iterator[None]:
    """Drop warnings of leases that run out: here they are meant to."""

    def drop(_record: logging.LogRecord) -> bool:
        return False

    log = logging.getLogger("duly")
    log.addFilter(drop)
    try:
        yield
    finally:
        log.removeFilter(drop)


def _lateness(delivery: Delivery) -> float:
    """Return the time from due to delivery. A fence is the time of the delivery, in microseconds."""
    return delivery.fence / 1_000_000 - delivery.due_at.timestamp()


def _timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


ALL: Final[Mapping[str, Callable[[Load], list[Sample]]]] = {
    "calls": calls,
    "single sends": single_sends,
    "concurrent sends": concurrent_sends,
    "batches": batches,
    "a worker": worker,
    "wake-ups": wake_ups,
    "half load": half_load,
    "delays": delays,
    "a burst": burst,
    "a lost consumer": abandoned,
}
