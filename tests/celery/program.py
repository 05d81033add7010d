"""A Celery app whose tasks note in Redis what they do. Workers of the tests run it, as processes."""

import os
import time
from typing import Any

import redis
from celery import Celery, Task
from celery.exceptions import Ignore, Reject
from kombu import Exchange, Queue
from kombu.common import Broadcast

import duly.celery

RECORD = os.environ.get("PROGRAM_RECORD", "redis://localhost:1/0")
NAMESPACE = os.environ.get("PROGRAM_NAMESPACE", "duly")
LEASE = float(os.environ.get("PROGRAM_LEASE", "1.5"))
PATIENCE = float(os.environ.get("PROGRAM_PATIENCE", "5"))
BROADCAST = os.environ.get("PROGRAM_BROADCAST")
"""The name of a queue of which each worker gets all messages, if there is one."""
OF_REDIS = {"visibility_timeout": LEASE, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
"""Options of the redis transport by which it returns the tasks of a dead worker as soon. Duly ignores them."""

app = Celery("program", broker=os.environ.get("PROGRAM_BROKER", "duly+redis://localhost:1/0"))
app.conf.update(
    broker_transport_options={
        "lease": LEASE,
        "namespace": NAMESPACE,
        "delivery_limit": 3,
        "patience": PATIENCE,
        **OF_REDIS,
    },
    result_backend=RECORD,
    worker_hijack_root_logger=False,
)
if BROADCAST:
    app.conf.task_queues = [Queue("celery"), Broadcast(BROADCAST)]
tasks = duly.celery.setup(app, keep_failed=os.environ.get("PROGRAM_KEEP_FAILED") == "yes")
record = redis.Redis.from_url(RECORD, decode_responses=True)


def note(what: str, name: str, due: float = 0) -> None:
    """Note what happened to which task, when, in which process of which worker, and when the task was due."""
    record.rpush(f"{NAMESPACE}:runs", f"{what} {name} {time.time():.6f} {os.getpid()} {os.getppid()} {due:.6f}")


@app.task(bind=True)
def work(self: Task, name: str, seconds: float = 0) -> str:
    note("start", name)
    time.sleep(seconds)
    note("end", name)
    return f"{name} in {os.getpid()}"


def tell(exchange: str, name: str) -> None:
    """Send a task to the workers that have a queue for broadcasts with this name."""
    everyone = Exchange(exchange, type="fanout")
    work.apply_async([name], exchange=everyone, routing_key=exchange, declare=[everyone])


@app.task(bind=True)
def refuse(self: Task, name: str, requeue: bool) -> None:
    note("start", name)
    raise Reject("not today", requeue=requeue)


@app.task(bind=True)
def ignore(self: Task, name: str) -> None:
    note("start", name)
    raise Ignore


@app.task(bind=True)
def die(self: Task, name: str) -> None:
    """Kill the process of the pool that runs it."""
    note("start", name)
    os.kill(os.getpid(), 9)


@app.task(bind=True)
def fail(self: Task, name: str) -> None:
    note("start", name)
    raise ValueError(name)


@app.task(bind=True, autoretry_for=(ValueError,), max_retries=2, default_retry_delay=0)
def fail_each_time(self: Task, name: str) -> None:
    note("start", name)
    raise ValueError(name)


@app.task(bind=True, time_limit=1)
def overrun(self: Task, name: str) -> None:
    """Run until the time limit kills the process."""
    note("start", name)
    time.sleep(600)


@app.task(bind=True, max_retries=3)
def try_again(self: Task, name: str) -> None:
    note("start", name)
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    note("end", name)


@app.task(bind=True, ignore_result=True)
def retry_when_told(self: Task, name: str, file: str) -> None:
    """Retry as soon as there is a file."""
    if self.request.retries:
        note("end", name)
        return
    note("start", name)
    while not os.path.exists(file):  # noqa: PTH110
        time.sleep(0.05)
    raise self.retry(countdown=0)


@app.task(bind=True)
def send_on(self: Task, name: str, **options: Any) -> None:
    """Send another task from a process of the pool."""
    note("start", name)
    work.apply_async([f"{name}-child"], **options)


@app.task(bind=True, max_retries=None, ignore_result=True)
def one_of_many(self: Task, name: str, retries: int, due: float) -> None:
    """Retry this number of times, a second later each time, and then end."""
    attempt = f"{name}.{self.request.retries}"
    note("start", attempt, due)
    if self.request.retries < retries:
        raise self.retry(args=[name, retries, time.time() + 1], countdown=1)
    note("end", attempt, due)
