"""Messages of other queues, written as their own programs write them."""

import base64
import json
import os
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

import duly
from duly import importing

HOUR = 3600


def fill_list(old: redis.Redis, name: str) -> list[object]:
    for to in ("ann", "bob", "bob"):
        old.lpush(name, json.dumps({"to": to}))
    return [{"to": "ann"}, {"to": "bob"}, {"to": "bob"}]


def fill_sorted_set(old: redis.Redis, name: str) -> list[object]:
    for to, delay in (("ann", -5), ("bob", HOUR), ("eve", HOUR)):
        old.zadd(name, {json.dumps({"to": to}): time.time() + delay})
    return [{"to": "ann"}, {"to": "bob"}, {"to": "eve"}]


def fill_delayqueue(old: redis.Redis, name: str, root: str = "dp:{}", bodies: str = "dp:{}") -> list[object]:
    root, bodies = root.format(name), bodies.format(name)
    for place, score in (("pending", time.time() + HOUR), ("ready", None), ("retry", None), ("unack", time.time())):
        old.set(f"{bodies}:msg:id-{place}", place, ex=HOUR)
        old.hset(f"{root}:retry:cnt", f"id-{place}", "3")
        if score is None:
            old.lpush(f"{root}:{place}", f"id-{place}")
        else:
            old.zadd(f"{root}:{place}", {f"id-{place}": int(score)})
    return ["pending", "ready", "retry", "unack"]


def fill_rmq(old: redis.Redis, name: str) -> list[object]:
    old.sadd("rmq::queues", name)
    for connection in ("lost", "live"):
        old.sadd("rmq::connections", f"{name}-{connection}")
        unacked = f"rmq::connection::{name}-{connection}::queue::[{name}]::unacked"
        old.lpush(unacked, f"taken by {connection}")
    old.set(f"rmq::connection::{name}-live::heartbeat", "1", ex=60)
    for payload in ("a", "b", "b"):
        old.lpush(f"rmq::queue::[{name}]::ready", payload)
    old.lpush(f"rmq::queue::[{name}]::rejected", "given up")
    return ["a", "b", "b", "given up", "taken by lost"]


def offer(old: redis.Redis, name: str, value: bytes, due: float) -> None:
    """Add a delayed value as RDelayedQueue.offer() does."""
    entry = b"\x08" + os.urandom(8) + struct.pack("<Q", len(value)) + value
    old.zadd(f"redisson_delay_queue_timeout:{{{name}}}", {entry: int(due * 1000)})
    old.rpush(f"redisson_delay_queue:{{{name}}}", entry)


def fill_redisson(old: redis.Redis, name: str) -> list[object]:
    for value, delay in ((b"a", -5), (b"b", HOUR), (b"b", HOUR)):
        offer(old, name, value, time.time() + delay)
    old.rpush(name, b"due", b"due")
    return [b"a", b"b", b"b", b"due", b"due"]


def celery_message(task: str, args: list[Any], tag: str, **headers: Any) -> str:
    """Write a message as Celery 5 does."""
    embedded = {"callbacks": None, "errbacks": None, "chain": headers.pop("chain", None), "chord": None}
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps([args, {}, embedded]).encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": task, "id": f"id-of-{tag}", "eta": None, "expires": None, **headers},
            "properties": {
                "correlation_id": f"id-of-{tag}",
                "delivery_info": {"exchange": "", "routing_key": "orders"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": tag,
            },
        }
    )


def fill_celery(old: redis.Redis, name: str) -> list[object]:
    in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    old.lpush(f"{name}:orders", celery_message("shop.close", ["a"], "1"))
    old.lpush(f"{name}:orders", celery_message("shop.close", ["b"], "2", eta=in_an_hour))
    old.lpush(f"{name}:orders\x06\x169", celery_message("shop.close", ["c"], "3"))
    old.hset(f"{name}:unacked", "4", json.dumps([json.loads(celery_message("shop.close", ["d"], "4")), "", "orders"]))
    old.zadd(f"{name}:unacked_index", {"4": time.time()})
    return [{"task": "close", "args": [arg], "kwargs": {}} for arg in "abcd"]


def add_job(old: redis.Redis, job_id: str, data: bytes, **fields: int) -> None:
    old.hset(f"rq:job:{job_id}", mapping={"data": zlib.compress(data), "status": "queued"})
    for name, value in fields.items():
        old.hset(f"rq:job:{job_id}", name, value)


def fill_rq(old: redis.Redis, name: str) -> list[object]:
    for number, order in enumerate("abcd"):
        job_id = f"{name}-{number}"
        add_job(old, job_id, json.dumps(["shop.close", None, [order], {}]).encode(), retries_left=2)
        if order == "c":
            old.zadd(f"rq:scheduled:{name}", {job_id: int(time.time()) + HOUR})
        else:
            old.rpush(f"rq:queue:{name}" + (":intermediate" if order == "d" else ""), job_id)
    return [{"task": "close", "args": [order], "kwargs": {}} for order in "abcd"]


@dataclass(frozen=True)
class Case:
    """Another queue: how it is filled, which returns the bodies that must arrive, and how it is read."""

    fill: Callable[[redis.Redis, str], list[object]]
    source: Callable[[duly.Duly, str], importing.Source]
    stays: tuple[str, ...] = ()
    """Keys that stay, by what they have in their names."""


CASES = {
    "list": Case(fill_list, importing.PlainList),
    "sorted set": Case(fill_sorted_set, importing.PlainSortedSet),
    "delayqueue": Case(fill_delayqueue, lambda at, name: importing.Delayqueue(at, name, unfinished=True)),
    "rmq": Case(fill_rmq, lambda at, name: importing.RmqQueue(at, name, rejected=True), ("-live::", "rmq::queues")),
    "redisson": Case(fill_redisson, importing.RedissonQueue),
    "celery": Case(
        fill_celery,
        lambda at, name: importing.CeleryQueue(
            at, "orders", prefix=f"{name}:", tasks={"shop.close": "close"}, unfinished=True
        ),
    ),
    "rq": Case(fill_rq, lambda at, name: importing.RqQueue(at, name, unfinished=True)),
}
