"""The Celery app of the questions about transports. A worker of one process (`-P solo`) runs it."""

import os
import time

import redis
from celery import Celery

import duly.celery

URL = os.environ.get("BENCH_URL", "redis://localhost:1/0")

app = Celery("bench", broker=os.environ.get("BENCH_BROKER", f"duly+{URL}"))
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)
duly.celery.setup(app)
record = redis.Redis.from_url(URL)
_starts: list[tuple[float, float]] = []


@app.task(name="tick")
def tick(sent: float, total: int, body: str = "") -> None:  # noqa: ARG001 - the size of a usual message
    """Record when the task was sent and started. The last task stores all records."""
    _starts.append((sent, time.time()))
    if len(_starts) == total:
        record.rpush("starts", *(f"{sent} {start}" for sent, start in _starts))
        _starts.clear()
