"""Do busy queues, many queues or a full worker keep other queues of a worker waiting?"""

import itertools
import time
from collections.abc import Iterator

from benchmarks import many_queues
from benchmarks.many_queues import Latencies, WorkerProcess
from benchmarks.rig import Result, Rig, median, percentile

QUEUES, BUSY = 20, 10
BUSY_RATE, LAST_RATE = 1500, 20
SECONDS = 8.0

WORKERS, CONCURRENCY = 4, 4
SHARED_RATE = 200

ROUNDS = 2

SENDER_LATE = "sender late, p99 ms"

MANY = 1000
MANY_RATE = 200
IDLE = 15.0
"""Seconds: three times the interval in which an idle worker polls."""


def measure(rig: Rig) -> Iterator[Result]:
    """Measure a queue among busy ones, queues with a full worker, and a thousand queues."""
    rounds = min(ROUNDS, rig.rounds)
    yield from _beside_busy_queues(rig, rounds)
    yield from _beside_a_full_worker(rig, rounds)
    yield from of_many_queues(rig, rounds, MANY)


def _beside_busy_queues(rig: Rig, rounds: int) -> list[Result]:
    ratios, firsts, lasts, worst, late = [], [], [], [], []
    for _ in range(rounds):
        rig.raw.flushall()
        with many_queues.working(rig.url, QUEUES) as (worker,):
            late.append(many_queues.send(rig.url, range(BUSY), BUSY_RATE, SECONDS, (QUEUES - 1, LAST_RATE)))
            found = worker.stop()
        firsts.append(median(found[0]))
        lasts.append(median(found[QUEUES - 1]))
        worst.append(max(found[QUEUES - 1]))
        ratios.append(lasts[-1] / firsts[-1])
    return [
        Result(
            f"{QUEUES} queues, {BUSY} busy: median of the last, of the first",
            median(ratios),
            "ratio",
            2.0,
            higher_is_better=False,
            samples=[round(ratio, 2) for ratio in ratios],
            beside={
                "first ms": round(median(firsts), 2),
                "last ms": round(median(lasts), 2),
                "last, most ms": round(max(worst), 1),
                SENDER_LATE: round(median(late), 1),
            },
        )
    ]


def _beside_a_full_worker(rig: Rig, rounds: int) -> list[Result]:
    """Compare three idle workers with three idle workers and one that has no free handler."""
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(_served_by(rig, has_full_worker=False))
        beside.append(_served_by(rig, has_full_worker=True))
    return [
        Result(
            f"{WORKERS} workers, one of them full: p99",
            median([percentile(found, 0.99) for found in beside]),
            "ms",
            50.0,
            higher_is_better=False,
            samples=[round(percentile(found, 0.99), 2) for found in beside],
            beside={
                "p50 ms": round(median([median(found) for found in beside]), 2),
                "p50 ms without it": round(median([median(found) for found in alone]), 2),
                "p99 ms without it": round(median([percentile(found, 0.99) for found in alone]), 2),
            },
        )
    ]


def _served_by(rig: Rig, *, has_full_worker: bool) -> list[float]:
    rig.raw.flushall()
    others = many_queues.working(rig.url, QUEUES, processes=WORKERS - 1, concurrency=CONCURRENCY)
    if not has_full_worker:
        with others as workers:
            return _latencies(rig, workers)
    with many_queues.working(rig.url, QUEUES, concurrency=CONCURRENCY, holds=True) as (full,), others as workers:
        many_queues.fill(rig.url, CONCURRENCY)
        found = _latencies(rig, workers)
        if any(full.stop().values()):
            raise RuntimeError("the full worker took a message: this shows nothing")
        return found


def _latencies(rig: Rig, workers: list[WorkerProcess]) -> list[float]:
    many_queues.send(rig.url, range(QUEUES), SHARED_RATE, SECONDS)
    return list(itertools.chain.from_iterable(_all(worker.stop()) for worker in workers))


def of_many_queues(rig: Rig, rounds: int, queues: int) -> list[Result]:
    """Measure a worker of many queues, idle and with messages for all of them."""
    starts, idle, servers, latencies, late = [], [], [], [], []
    for _ in range(rounds):
        rig.raw.flushall()
        with many_queues.working(rig.url, queues) as (worker,):
            starts.append(worker.started_after)
            cpu, server, began = worker.cpu(), rig.server_cpu(), time.monotonic()
            time.sleep(IDLE)
            elapsed = time.monotonic() - began
            idle.append((worker.cpu() - cpu) / elapsed * 100)
            servers.append((rig.server_cpu() - server) / elapsed * 100)
            late.append(many_queues.send(rig.url, range(queues), MANY_RATE, SECONDS))
            latencies.append(_all(worker.stop()))
    return [
        Result(
            f"{queues:,} queues, idle: CPU of the worker",
            median(idle),
            "% of a core",
            3.0,
            higher_is_better=False,
            samples=[round(part, 2) for part in idle],
            beside={"server's, %": round(median(servers), 2), "start s": round(median(starts), 2)},
        ),
        Result(
            f"{queues:,} queues, {MANY_RATE} messages/s over them: p99",
            median([percentile(found, 0.99) for found in latencies]),
            "ms",
            50.0,
            higher_is_better=False,
            samples=[round(percentile(found, 0.99), 2) for found in latencies],
            beside={
                "p50 ms": round(median([median(found) for found in latencies]), 2),
                "most ms": round(max(max(found) for found in latencies), 1),
                SENDER_LATE: round(median(late), 1),
            },
        ),
    ]


def _all(found: Latencies) -> list[float]:
    return list(itertools.chain.from_iterable(found.values()))
