"""Move jobs of arq's queue to tasks of Duly, with arguments and due times.

Two programs do this, so that arq and Duly may be in two environments. The first one runs where
arq is installed, reads the jobs and writes a line of JSON for each: docs/migration/arq.md has it. This is the second
one. It runs where Duly is installed, and needs that file.
Stop the arq workers first. Jobs whose function has no new name stay in the queue, for the old workers.
You can kill this program at any point and start it again with the same file: each job arrives once.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping

import redis

import duly
from duly.embedded import open_server

DAY = 86400.0


def drain(
    lines: Iterable[str], old: redis.Redis, queue: duly.Queue, names: Mapping[str, str], *, arq_queue: str = "arq:queue"
) -> Counter[str]:
    """Move the jobs of these lines. Return the number of jobs per outcome.

    `names` maps functions of arq to tasks of Duly. A line is
    `{"id": ..., "due_ms": ..., "function": ..., "args": [...], "kwargs": {...}}`.
    """
    counted: Counter[str] = Counter()
    for line in lines:
        try:
            counted[move(json.loads(line), old, queue, names, arq_queue)] += 1
        except (AttributeError, LookupError, TypeError, ValueError) as problem:
            counted[f"cannot be read: {line[:40]!r}, {problem!r}"] += 1
    if not counted:
        print(f"nothing was found in the lines from {arq_queue}: did the first program write any?", file=sys.stderr)
    return counted


def move(job: dict, old: redis.Redis, queue: duly.Queue, names: Mapping[str, str], arq_queue: str) -> str:
    """Send one job and remove the old one, in this order. Return the outcome."""
    task, job_id = names.get(job["function"]), job["id"]
    if task is None:
        return "left alone"
    if old.zscore(arq_queue, job_id) is None:  # moved by an earlier run, or finished since the file was written
        return "gone"
    body = {"task": task, "args": job["args"], "kwargs": job["kwargs"]}
    # A crash between these two sends it again, and the dedup value stores it once.
    queue.send(body, at=job["due_ms"] / 1000, dedup=f"arq-{job_id}", dedup_for=DAY)
    with old.pipeline(transaction=True) as step:
        step.zrem(arq_queue, job_id)
        step.delete(f"arq:job:{job_id}", f"arq:retry:{job_id}")
        step.execute()
    return "moved"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no sorted sets
        old = redis.Redis(unix_socket_path=server.socket_path)
        app = duly.Duly(old)  # the same server; it may be another one

        @app.task(queue="orders")
        def close(order: str) -> None:
            """Close an order that was not paid."""

        # The jobs that arq left, and the file that the first program wrote.
        lines = []
        for job_id, function, order, delay in (
            ("1", "close", "A", 0),
            ("2", "close", "B", 1800),
            ("3", "tell", "C", 0),
        ):
            due_ms = int((time.time() + delay) * 1000)
            old.zadd("arq:queue", {job_id: due_ms})
            old.set(f"arq:job:{job_id}", b"only arq can read this")
            lines.append(
                json.dumps({"id": job_id, "due_ms": due_ms, "function": function, "args": [order], "kwargs": {}})
            )

        print(dict(drain(lines, old, close.queue, {"close": "close"})))
        print("again:", dict(drain(lines, old, close.queue, {"close": "close"})))
        assert [message.body["args"] for message in close.queue.list("ready")] == [["A"]]
        assert [message.body["args"] for message in close.queue.list("delayed")] == [["B"]]
        assert old.zrange("arq:queue", 0, -1) == [b"3"]  # its function has no new name: for the old workers

        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
