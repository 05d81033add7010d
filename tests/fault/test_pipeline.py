"""Consume, transform, produce: with commit each output is there exactly once, despite kills and lost replies."""

import json
import multiprocessing
import random
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import redis

import duly
from tests.conftest import StartedServer
from tests.fault.proxy import LoseReplies, Proxy

pytestmark = pytest.mark.fault

MESSAGES = 10_000
WORKERS = 4
KILLS = 12
LEASE = 1.5
DEADLINE = 100.0


class Pipeline:
    """Three queues: raw orders become cooked, cooked ones are served. Each step counts, and is an event."""

    def __init__(self, app: duly.Duly, name: str) -> None:
        options: duly.QueueKeywords = {"lease": LEASE, "crash_limit": 1_000_000}
        self.raw = app.queue(f"{name}-raw", **options)
        self.cooked = app.queue(f"{name}-cooked", **options)
        self.served = app.queue(f"{name}-served")
        self.events = app.topic(f"{name}-events")
        self.counter = f"{name}-counted"

    def step(self, limit: int = 100, wait: float = 0.1) -> int:
        """Move the messages of either queue to the next, and return their number."""
        done = 0
        for source, target, word in ((self.cooked, self.served, "served"), (self.raw, self.cooked, "cooked")):
            for d in source.receive(limit=limit, wait=wait):
                try:
                    d.commit(
                        send=[(target, {**d.body, "is": word})],
                        publish=[(self.events, [word, d.body["n"]])],
                        redis=[("HINCRBY", self.counter, word, 1)],
                    )
                except duly.LeaseLost:
                    continue
                done += 1
        return done

    def is_done(self) -> bool:
        return self.raw.stats().live == 0 and self.cooked.stats().live == 0

    def check(self, client: redis.Redis, count: int) -> None:
        """Fail unless every input has one output, and was counted once."""
        outputs: Counter[int] = Counter()
        while found := self.served.receive(limit=1000, wait=0):
            outputs.update(d.body["n"] for d in found)
            assert self.served.ack_many(found) == []
        assert outputs == Counter(range(count))
        entries: Any = client.xrange(self.events.stream)
        told = Counter(tuple(json.loads(fields[b"body"])) for _, fields in entries)
        assert told == Counter((word, number) for word in ("cooked", "served") for number in range(count))
        assert client.hgetall(self.counter) == {word: str(count).encode() for word in (b"cooked", b"served")}
        for queue in (self.raw, self.cooked, self.served):
            audit = queue.audit()
            assert audit.ok, audit
            assert (audit.stats.sent, audit.stats.acked, audit.stats.live) == (count, count, 0)


def work(url: str, name: str) -> None:
    """Act as a worker until killed."""
    with duly.Duly(url) as app:
        pipeline = Pipeline(app, name)
        while True:
            pipeline.step()


def started(url: str, name: str) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work, args=(url, name), daemon=True)
    process.start()
    return process


@pytest.mark.timeout(150)
def test_random_kills_leave_each_output_exactly_once(server: StartedServer, queue_name: str) -> None:
    chance, url, killed = random.Random(5), server("valkey").url, 0
    with duly.Duly(url) as app, redis.Redis.from_url(url) as client:
        pipeline = Pipeline(app, queue_name)
        pipeline.raw.send_many({"n": number} for number in range(MESSAGES))
        workers = [started(url, queue_name) for _ in range(WORKERS)]
        try:
            deadline = time.monotonic() + DEADLINE
            while not pipeline.is_done():
                assert time.monotonic() < deadline, (pipeline.raw.stats(), pipeline.cooked.stats())
                time.sleep(chance.uniform(0.05, 0.3))
                if killed < KILLS:
                    victim = chance.randrange(WORKERS)
                    workers[victim].kill()
                    workers[victim].join(10)
                    workers[victim] = started(url, queue_name)
                    killed += 1
        finally:
            for each in workers:
                each.kill()
                each.join(10)
        crashed = pipeline.raw.stats().crashed + pipeline.cooked.stats().crashed
        pipeline.check(client, MESSAGES)

    assert killed >= KILLS // 2
    assert crashed > 0, "no process was killed in the middle of anything"


def test_lost_replies_double_no_effect(server: StartedServer, queue_name: str) -> None:
    """I6."""
    count = 1000
    upstream = server("valkey")
    policy = LoseReplies(0.1, 3)
    with (
        Proxy(upstream.port, policy) as proxy,
        duly.Duly(proxy.url) as app,
        redis.Redis.from_url(upstream.url) as client,
    ):
        pipeline = Pipeline(app, queue_name)
        pipeline.raw.send_many({"n": number} for number in range(count))
        deadline = time.monotonic() + DEADLINE
        while not pipeline.is_done():
            assert time.monotonic() < deadline
            pipeline.step(wait=0)
        pipeline.check(client, count)

    assert policy.fired > 50
