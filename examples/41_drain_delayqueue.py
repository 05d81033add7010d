"""Move messages of github.com/hdt3213/delayqueue (Go) to a queue of Duly, with due times and retries.

Stop the Go consumers first. You can kill this program at any point and start it again: each message arrives once.
"""

import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import redis

import duly
from duly.embedded import open_server

DAY = 86400.0


class Waiting(NamedTuple):
    """A message of the Go queue: where it is, when it is due (None: now), how often it may still be delivered."""

    where: str
    id: str
    due: float | None
    deliveries: int


def find_all(old: redis.Redis, prefix: str) -> Iterator[Waiting]:
    """Yield what the Go queue holds, oldest first in each place."""
    retries = {id_.decode(): int(count) for id_, count in old.hgetall(f"{prefix}:retry:cnt").items()}
    for where in ("retry", "ready"):  # lists, taken from the right end
        for id_ in map(bytes.decode, reversed(old.lrange(f"{prefix}:{where}", 0, -1))):
            yield Waiting(where, id_, None, retries.get(id_, 0) + 1)
    for where in ("pending", "unack"):  # sorted sets by due time, in seconds
        for raw, due in old.zrange(f"{prefix}:{where}", 0, -1, withscores=True):
            id_ = raw.decode()
            left = retries.get(id_, 0)  # a message in flight has spent its delivery; the next one costs a retry
            yield Waiting(where, id_, due, max(1, left) if where == "unack" else left + 1)


def forget(old: redis.Redis, prefix: str, message: Waiting) -> None:
    """Remove a message with all that belongs to it, in one step. Safe to repeat."""
    with old.pipeline(transaction=True) as step:
        if message.where in ("retry", "ready"):
            step.lrem(f"{prefix}:{message.where}", -1, message.id)
        else:
            step.zrem(f"{prefix}:{message.where}", message.id)
        step.hdel(f"{prefix}:retry:cnt", message.id)
        step.delete(f"{prefix}:msg:{message.id}")
        step.execute()


def drain(
    old: redis.Redis,
    name: str,
    queue: duly.Queue,
    *,
    prefix: str | None = None,
    decode: Callable[[bytes], Any] = bytes.decode,
) -> Counter[str]:
    """Move all messages of the Go queue `name`. Return how many were moved, and how many had lost their payload.

    `decode` makes the body: the text as it is, or `json.loads` for handlers that take more than a str.
    A message whose payload cannot be decoded stays, and the returned value names it.
    Its keys begin with "dp:NAME:" or, with UseHashTagKey() and on a cluster, with "{dp:NAME}:": it searches both,
    unless you pass the `prefix`, without the colon at the end.
    """
    counted: Counter[str] = Counter()
    prefixes = [f"dp:{name}", f"{{dp:{name}}}"] if prefix is None else [prefix]
    for each in prefixes:
        counted += drain_prefix(old, each, queue, decode)
    if not counted:
        print(f"nothing was found in {' or '.join(prefixes)}: is it the right name and server?", file=sys.stderr)
    return counted


def drain_prefix(old: redis.Redis, prefix: str, queue: duly.Queue, decode: Callable[[bytes], Any]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for message in find_all(old, prefix):
        payload = old.get(f"{prefix}:msg:{message.id}")
        if payload is None:  # the payload has its own TTL, and has expired: there is nothing to move
            counted["expired"] += 1
        else:
            try:
                body = decode(payload)
            except (LookupError, TypeError, ValueError) as problem:
                counted[f"cannot be decoded: {message.id} {payload[:40]!r}, {problem!r}"] += 1
                continue
            # It waits between attempts as others of the queue do, and has as many of them as were left to it. A
            # function for the delays stays with the queue: no message can carry it.
            policy = replace(queue.options.retry, attempts=message.deliveries, delay=None)
            # First sent, then forgotten: a crash in between sends it again, and the dedup value stores it once.
            queue.send(
                body,
                at=message.due,
                retry=policy,
                dedup=f"delayqueue-{message.id}",
                dedup_for=DAY,
            )
            counted["moved"] += 1
        forget(old, prefix, message)
    return counted


def send_as_go_does(old: redis.Redis, payload: str, due: float, retries: int = 3) -> str:
    """Write the keys that SendScheduleMsg writes."""
    id_ = str(uuid.uuid4())
    old.set(f"dp:example:msg:{id_}", payload, ex=max(1, int(due - time.time())) + 3600)
    old.hset("dp:example:retry:cnt", id_, retries)
    old.zadd("dp:example:pending", {id_: int(due)})
    return id_


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no such keys
        old = redis.Redis(unix_socket_path=server.socket_path)
        app = duly.Duly(old)  # the same server; it may be another one
        orders = app.queue("orders")

        now = time.time()
        send_as_go_does(old, "close order 1", now + 1800)
        due = send_as_go_does(old, "close order 2", now - 5)  # due, so a consumer has moved it on:
        old.zrem("dp:example:pending", due)
        old.lpush("dp:example:ready", due)
        out = send_as_go_does(old, "close order 3", now - 10)  # out to a consumer that was killed:
        old.zrem("dp:example:pending", out)
        old.zadd("dp:example:unack", {out: int(now)})
        gone = send_as_go_does(old, "close order 4", now + 60)
        old.delete(f"dp:example:msg:{gone}")  # its payload has expired

        print(dict(drain(old, "example", orders)))
        for state in ("ready", "delayed"):
            for message in orders.list(state):
                print(f"{state:8}{message.body}, due in {max(0.0, message.due_at.timestamp() - now):.0f} s")
        assert sorted(m.body for m in orders.list("ready")) == ["close order 2", "close order 3"]
        assert [m.body for m in orders.list("delayed")] == ["close order 1"]
        assert list(old.scan_iter("dp:example:*")) == []

        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
