"""Tasks that note in Redis what they do. Workers of the tests run them, as processes."""

import asyncio
import os
import time

import redis
from taskiq import SimpleRetryMiddleware

import duly
from duly.taskiq import DulyBroker, DulyResultBackend

RECORD = os.environ.get("PROGRAM_RECORD", "redis://localhost:1/0")
NAMESPACE = os.environ.get("PROGRAM_NAMESPACE", "duly")

app = duly.AsyncDuly(RECORD, namespace=NAMESPACE)
broker = DulyBroker(app, lease=1.5, crash_limit=2).with_result_backend(DulyResultBackend(app))
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=5))
record = redis.Redis.from_url(RECORD, decode_responses=True)


def note(what: str, name: str) -> None:
    """Note what happened to which task, when, and in which process."""
    record.rpush(f"{NAMESPACE}:runs", f"{what} {name} {time.time():.3f} {os.getpid()}")


@broker.task(task_name="work")
async def work(name: str, seconds: float = 0) -> str:
    note("start", name)
    await asyncio.sleep(seconds)
    note("end", name)
    return f"{name} in {os.getpid()}"


@broker.task(task_name="try_again", retry_on_error=True)
async def try_again(name: str) -> None:
    note("start", name)
    if len([run for run in record.lrange(f"{NAMESPACE}:runs", 0, -1) if f"start {name} " in run]) < 3:
        raise ValueError("not yet")
    note("end", name)


@broker.task(task_name="die")
async def die(name: str) -> None:
    """Kill the process that runs it."""
    note("start", name)
    os.kill(os.getpid(), 9)
