"""A Celery app whose tasks note in Redis what they do. Workers of the tests run it, as processes."""

import os
import time
from typing import Any

import redis
from celery import Celery, Task
from celery.exceptions import Reject

import duly.celery

RECORD = os.environ.get("PROGRAM_RECORD", "redis://localhost:1/0")
NAMESPACE = os.environ.get("PROGRAM_NAMESPACE", "duly")

app = Celery("program", broker=os.environ.get("PROGRAM_BROKER", "duly+redis://localhost:1/0"))
app.conf.update(
    broker_transport_options={"lease": 1.5, "namespace": NAMESPACE, "delivery_limit": 3},
    result_backend=RECORD,
    worker_hijack_root_logger=False,
)
tasks = duly.celery.setup(app)
record = redis.Redis.from_url(RECORD, decode_responses=True)


def note(what: str, name: str) -> None:
    """Note what happened to which task, when, and in which process."""
    record.rpush(f"{NAMESPACE}:runs", f"{what} {name} {time.time():.3f} {os.getpid()}")


@app.task(bind=True)
def work(self: Task, name: str, seconds: float = 0) -> str:
    note("start", name)
    time.sleep(seconds)
    note("end", name)
    return f"{name} in {os.getpid()}"


@app.task(bind=True)
def refuse(self: Task, name: str, requeue: bool) -> None:
    note("start", name)
    raise Reject("not today", requeue=requeue)


@app.task(bind=True)
def die(self: Task, name: str) -> None:
    """Kill the process of the pool that runs it."""
    note("start", name)
    os.kill(os.getpid(), 9)


@app.task(bind=True, max_retries=3)
def try_again(self: Task, name: str) -> None:
    note("start", name)
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    note("end", name)


@app.task(bind=True)
def send_on(self: Task, name: str, **options: Any) -> None:
    """Send another task from a process of the pool."""
    note("start", name)
    work.apply_async([f"{name}-child"], **options)
