"""The process of one party, producer or worker: `python -m benchmarks.peers.party JOB`, which is JSON.

Runs where only the party is installed. `parties` starts it, and reads what it writes to the job's `out`.
"""

import asyncio
import importlib
import inspect
import json
import logging
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.adapters import BaseAdapter
from benchmarks.peers.recorder import CLOCKS, WARM_UP, Recorder, text_of, write

_CHUNK: Final = 100
"""Messages in one call of `send_many`."""

_CHUNK_BYTES: Final = 4_000_000
"""Bytes in one call of `send_many`, at most."""


async def _done(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


async def fill(adapter: BaseAdapter, job: dict[str, Any]) -> None:
    """Send messages for a drain, many per call."""
    chunk = max(1, min(_CHUNK, _CHUNK_BYTES // job["size"]))
    for first in range(0, job["messages"], chunk):
        numbers = range(first, min(first + chunk, job["messages"]))
        await _done(adapter.send_many([text_of(number, 0.0, job["size"]) for number in numbers]))


async def send(adapter: BaseAdapter, job: dict[str, Any]) -> None:
    """Send one message after another."""
    for number in range(job["messages"]):
        await _done(adapter.send(text_of(number, 0.0, job["size"])))


async def trickle(adapter: BaseAdapter, job: dict[str, Any]) -> None:
    """Send one message after another, each at a time when the worker has nothing to do."""
    await _warm_up(adapter, job)
    clock = CLOCKS[job["clock"]]
    for number in range(job["messages"]):
        await asyncio.sleep(job["gap"])
        await _done(adapter.send(text_of(number, clock(), job["size"])))


async def pace(adapter: BaseAdapter, job: dict[str, Any]) -> None:
    """Send one message after another at a rate. A message that is late is sent at once."""
    await _warm_up(adapter, job)
    clock = CLOCKS[job["clock"]]
    began = clock()
    for number in range(job["messages"]):
        if (ahead := began + number / job["rate"] - clock()) > 0:
            await asyncio.sleep(ahead)
        await _done(adapter.send(text_of(number, clock(), job["size"])))


async def delay(adapter: BaseAdapter, job: dict[str, Any]) -> None:
    """Send messages that fall due later, all at once or spread over some time, in order or mixed."""
    await _warm_up(adapter, job)
    base, count = time.time() + job["due_in"], job["messages"]
    dues = [base + job["spread"] * number / count for number in range(count)]
    if job["is_mixed"]:
        random.Random(1).shuffle(dues)  # the same in each run
    sends: list[Any] = []
    for number, due in enumerate(dues):
        sends.append(adapter.send_at(text_of(number, due), due))
        if len(sends) == _CHUNK or number == count - 1:
            await adapter._together(sends)
            sends.clear()
    if time.time() > base:
        raise RuntimeError("the first message was due before the last one was sent: give it more time")


async def _warm_up(adapter: BaseAdapter, job: dict[str, Any]) -> None:
    """Let the worker handle a message, and wait until it has: then it is running, and soon idle."""
    for number in range(job["warm_ups"]):
        await _done(adapter.send(text_of(WARM_UP + number, 0.0)))
        if number == 0:
            await asyncio.to_thread(_wait_for, Path(job["seen"]))
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


_ROLES: Final = {"fill": fill, "send": send, "trickle": trickle, "pace": pace, "delay": delay}


async def produce(adapter: BaseAdapter, job: dict[str, Any]) -> None:
    """Be a producer."""
    await adapter.open()
    started = time.perf_counter()
    await _ROLES[job["role"]](adapter, job)
    write(Path(job["out"]), {"seconds": time.perf_counter() - started})


def main(job: dict[str, Any]) -> None:
    """Do a job."""
    logging.disable(logging.WARNING)
    try:
        import uvloop

        uvloop.install()
    except ImportError:
        pass
    module = importlib.import_module(f"benchmarks.peers.adapters.{job['adapter']}")
    recorder = Recorder(job["clock"], job["out"], job["messages"] + job["warm_ups"])
    adapter: BaseAdapter = module.Adapter(job["url"], recorder.note, job["options"])
    if job["role"] == "companion":
        adapter.accompany()
    elif job["role"] == "work":
        if job["messages"]:
            recorder.watch()
        adapter.work()
    else:
        asyncio.run(produce(adapter, job))
    os._exit(0)  # without waiting for connections that the party still has open


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
