"""I6 under load: the server executes, the reply is lost, and nothing is done twice or forgotten."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import duly
from tests.conftest import StartedServer
from tests.fault.history import History, Recorder, assert_clean, check
from tests.fault.proxy import LoseReplies, Proxy
from tests.fault.recorded import RecordedQueue, assert_drained

pytestmark = pytest.mark.fault

LEASE = 60.0
OPERATIONS = 100_000
PRODUCERS = CONSUMERS = 4
BATCH = 100
BATCHES, PLAIN, DELAYED, CANCELLED = 60, 1_200, 1_000, 300
"""Messages of each producer: batches of 100, messages due now, messages due later, messages that it cancels."""
TROUBLES = ("ack", "retry", "defer", "release", "recycle", "extend", "cancel")


class Load:
    """Producers and consumers of one queue, and what they have done."""

    def __init__(self, queue: duly.Queue, seed: int) -> None:
        self.queue = queue
        self.seed = seed
        self.recorders: list[Recorder] = []
        self.finished: set[str] = set()
        self.troubled: set[str] = set()
        self.done: Counter[str] = Counter()
        self.expected = PRODUCERS * (BATCHES * BATCH + PLAIN + DELAYED)
        self._lock = threading.Lock()

    def run(self) -> History:
        with ThreadPoolExecutor(PRODUCERS + CONSUMERS) as pool:
            work = [pool.submit(self._produce, number) for number in range(PRODUCERS)]
            work += [pool.submit(self._consume, number) for number in range(CONSUMERS)]
            for each in work:
                each.result()
        return History.of(*self.recorders)

    def _recorded(self, name: str) -> RecordedQueue:
        self.recorders.append(Recorder(name))
        return RecordedQueue(self.queue, self.recorders[-1], LEASE)

    def _note(self, operation: str, count: int = 1) -> None:
        with self._lock:
            self.done[operation] += count

    def _produce(self, number: int) -> None:
        queue, chance = self._recorded(f"producer {number}"), random.Random(f"{self.seed} producer {number}")
        bodies = (f"{number}-{serial}" for serial in range(10**9))
        work: list[Callable[[], Any]] = [
            *[lambda: queue.send_many([next(bodies) for _ in range(BATCH)])] * BATCHES,
            *[lambda: queue.send(next(bodies))] * PLAIN,
            *[lambda: queue.send(next(bodies), delay=chance.uniform(0.001, 1))] * DELAYED,
            *[lambda: queue.cancel(queue.send(next(bodies), delay=600))] * CANCELLED,
        ]
        chance.shuffle(work)
        for act in work:
            act()
        self._note("send", BATCHES * BATCH + PLAIN + DELAYED + CANCELLED)
        self._note("cancel", CANCELLED)

    def _consume(self, number: int) -> None:
        queue, chance = self._recorded(f"consumer {number}"), random.Random(f"{self.seed} consumer {number}")
        deadline = time.monotonic() + 240
        while len(self.finished) < self.expected:
            assert time.monotonic() < deadline, f"{self.expected - len(self.finished)} of {self.expected} are missing"
            found = queue.receive(chance.choice([1, 10, 50, 100]), wait=0.5)
            self._note("claim", len(found))
            clean = [each for each in found if each.id in self.troubled or chance.random() > 0.2]
            for each in found:
                if each not in clean:
                    self.troubled.add(each.id)
                    self._trouble(queue, chance.choice(TROUBLES), each)
            queue.ack_many(clean)
            self._note("ack", len(clean))
            self.finished.update(each.id for each in clean)

    def _trouble(self, queue: RecordedQueue, verb: str, delivery: duly.Delivery) -> None:
        self._note(verb)
        if verb == "cancel":
            queue.cancel(delivery.id)
        elif verb == "extend":
            queue.settle("extend", delivery, LEASE)
            queue.settle("ack", delivery)
        else:
            queue.settle(verb, delivery, *([0] if verb in {"retry", "defer", "recycle"} else []))
        if verb in {"ack", "extend", "cancel"}:
            self.finished.add(delivery.id)


@pytest.mark.timeout(300)
def test_100_000_operations_with_lost_replies_have_their_effect_exactly_once(
    server: StartedServer, queue_name: str
) -> None:
    seed = 7
    upstream = server("valkey")
    policy = LoseReplies(0.05, seed)
    with Proxy(upstream.port, policy) as proxy, duly.Duly(proxy.url) as app:
        load = Load(app.queue(queue_name), seed)
        history = load.run()

    assert sum(load.done.values()) >= OPERATIONS, load.done
    with duly.Duly(upstream.url) as app:
        done = load.done
        assert_drained(
            app.queue(queue_name), sent=done["send"], delivered=done["claim"], cancelled=done["cancel"],
            retried=done["retry"], deferred=done["defer"], released=done["release"], recycled=done["recycle"],
            crashed=0,
        )  # fmt: skip
    report = check(history, seed=seed, fired={"lost replies": policy.fired}, max_attempts=2, left=0)
    assert_clean(report)
    assert set(report.causes) == {"retry", "defer", "release", "recycle"}
    assert policy.fired > 500


async def test_concurrent_sends_that_go_as_one_call_are_stored_once_when_the_reply_is_lost(
    server: StartedServer, queue_name: str
) -> None:
    senders, each = 100, 60
    policy = LoseReplies(0.2, 11)
    delivered: Counter[str] = Counter()
    with Proxy(server("valkey").port, policy) as proxy:
        async with duly.AsyncDuly(proxy.url) as app:
            queue = app.queue(queue_name)

            async def send() -> list[str]:
                return [await queue.send(number, delay=0.001 * (number % 3)) for number in range(each)]

            async def consume() -> None:
                async with asyncio.timeout(100):
                    while delivered.total() < senders * each:
                        found = await queue.receive(100, wait=0.5)
                        delivered.update(one.id for one in found)
                        assert not await queue.ack_many(found)

            consumers = [asyncio.create_task(consume()) for _ in range(4)]
            sent = await asyncio.gather(*(send() for _ in range(senders)))
            await asyncio.gather(*consumers)
            audit = await queue.audit()

    assert policy.fired > 20
    assert proxy.counts["EVALSHA"] < senders * each, "nothing was sent together"
    assert delivered == Counter(message_id for ids in sent for message_id in ids)
    assert audit.ok
    assert (audit.stats.sent, audit.stats.acked, audit.stats.live) == (senders * each, senders * each, 0)


def test_200_short_lived_producers_leave_nothing_that_does_not_expire(server: StartedServer, queue_name: str) -> None:
    upstream = server("valkey")
    policy = LoseReplies(0.2, 3)
    with Proxy(upstream.port, policy) as proxy:
        for number in range(200):
            with duly.Duly(proxy.url) as producer:
                producer.queue(queue_name).send(number)
    with duly.Duly(upstream.url) as app, redis.Redis.from_url(upstream.url) as client:
        queue = app.queue(queue_name)
        while found := queue.receive(100, wait=0):
            assert not queue.ack_many(found)
        assert_drained(queue, sent=200, acked=200)
        prefix = f"duly:{{{queue_name}}}:".encode()
        names = {key.removeprefix(prefix): client.pttl(key) for key in client.scan_iter(prefix + b"*", count=10_000)}

    assert policy.fired
    calls = {name: ttl for name, ttl in names.items() if name.startswith(b"call:")}
    assert 0 < names[b"history"] <= 8 * 86_400_000
    assert names.keys() - calls.keys() <= {b"stats", b"meta", b"history"}
    assert 200 <= len(calls) <= 203
    assert all(0 < ttl <= 3_600_000 for ttl in calls.values())
