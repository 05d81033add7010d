"""How long does a trip over the wire take, compared with redis-py's asyncio connection? Both use uvloop and hiredis."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import uvloop
from redis.asyncio.connection import Connection

from benchmarks.rig import Result, Rig, median, percentile
from duly._async.wire import AsyncWire

ROUNDS = 9
IDLE_TRIPS = 60
BUSY_TRIPS = 2000
CALLERS = 100
CALLS_OF_EACH = 200

Trip = Callable[[], Awaitable[object]]


def measure(rig: Rig) -> list[Result]:
    """Alternate both sides: trips after a rest, trips in a row, and many callers on one wire."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(rig))


async def _measure(rig: Rig) -> list[Result]:
    port = int(rig.raw.connection_pool.connection_kwargs["port"])
    wire = AsyncWire("tcp", {"host": "127.0.0.1", "port": port})
    theirs = Connection(host="127.0.0.1", port=port, protocol=2)
    await wire.open()
    await theirs.connect()

    async def our_trip() -> object:
        return await wire.ask([b"PING"])

    async def their_trip() -> object:
        await theirs.send_command(b"PING")
        return await theirs.read_response()

    idle: tuple[list[float], list[float]] = ([], [])
    busy: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    rates = []
    for number in range(ROUNDS):
        sides = [(0, our_trip), (1, their_trip)][:: -1 if number % 2 else 1]  # neither side is always first
        for side, trip in sides:
            idle[side].extend(await _idle(trip))
            seconds, of_processor = await _busy(trip)
            busy[side].append(seconds)
            cpu[side].append(of_processor)
        rates.append(await _overlapping(wire))
    await wire.close()
    await theirs.disconnect()
    return [
        Result(
            "a trip after a rest of 5 ms, p50",
            median(idle[0]),
            "us",
            None,
            higher_is_better=False,
            samples=idle[0],
            beside={
                "p99": round(percentile(idle[0], 0.99)),
                "redis-py p50": round(median(idle[1])),
                "redis-py p99": round(percentile(idle[1], 0.99)),
            },
        ),
        Result(
            "a trip of many in a row",
            median(busy[0]),
            "us",
            None,
            higher_is_better=False,
            samples=busy[0],
            beside={
                "processor us": round(median(cpu[0]), 1),
                "redis-py": round(median(busy[1]), 1),
                "redis-py processor us": round(median(cpu[1]), 1),
            },
        ),
        Result(
            f"{CALLERS} callers at once on one wire",
            median(rates),
            "calls/s",
            None,
            higher_is_better=True,
            samples=rates,
        ),
    ]


async def _idle(trip: Trip) -> list[float]:
    """Microseconds of single trips, each after a rest."""
    found = []
    for _ in range(IDLE_TRIPS):
        await asyncio.sleep(0.005)
        started = time.perf_counter()
        await trip()
        found.append((time.perf_counter() - started) * 1e6)
    return found


async def _busy(trip: Trip) -> tuple[float, float]:
    """Microseconds, and those of this process's processor, of one trip of many in a row."""
    started, used = time.perf_counter(), time.process_time()
    for _ in range(BUSY_TRIPS):
        await trip()
    ended, used_until = time.perf_counter(), time.process_time()
    return (ended - started) / BUSY_TRIPS * 1e6, (used_until - used) / BUSY_TRIPS * 1e6


async def _overlapping(wire: AsyncWire) -> float:
    """Calls per second of many callers that share one wire."""

    async def call() -> None:
        for _ in range(CALLS_OF_EACH):
            await wire.ask([b"PING"])

    started = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return CALLERS * CALLS_OF_EACH / (time.perf_counter() - started)
