"""Actors that note in Redis what they do. Workers of the tests run them, as processes."""

import os
import time

import dramatiq
import redis
from dramatiq.results import Results

from duly.dramatiq import DulyBackend, DulyBroker

RECORD = os.environ.get("PROGRAM_RECORD", "redis://localhost:1/0")
NAMESPACE = os.environ.get("PROGRAM_NAMESPACE", "duly")

broker = DulyBroker(RECORD, namespace=NAMESPACE, lease=1.5, crash_limit=2)
broker.add_middleware(Results(backend=DulyBackend(broker.app)))
dramatiq.set_broker(broker)
record = redis.Redis.from_url(RECORD, decode_responses=True)


def note(what: str, name: str) -> None:
    """Note what happened to which message, when, and in which process."""
    record.rpush(f"{NAMESPACE}:runs", f"{what} {name} {time.time():.3f} {os.getpid()}")


@dramatiq.actor(store_results=True)
def work(name: str, seconds: float = 0) -> str:
    note("start", name)
    for _ in range(int(seconds * 100)):
        time.sleep(0.01)  # interrupts arrive between two sleeps
    note("end", name)
    return f"{name} in {os.getpid()}"


@dramatiq.actor(queue_name="mail")
def mail(name: str) -> None:
    note("start", name)


@dramatiq.actor(max_retries=3, min_backoff=200, max_backoff=400)
def try_again(name: str) -> None:
    note("start", name)
    if len([run for run in record.lrange(f"{NAMESPACE}:runs", 0, -1) if f"start {name} " in run]) < 3:
        raise ValueError("not yet")
    note("end", name)


@dramatiq.actor(max_retries=0)
def fail(name: str) -> None:
    note("start", name)
    raise ValueError("never")


@dramatiq.actor
def die(name: str) -> None:
    """Kill the process that runs it."""
    note("start", name)
    os.kill(os.getpid(), 9)
