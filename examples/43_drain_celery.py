"""Move messages of Celery's lists on Redis to tasks of Duly, with arguments, ETA, expiry and priority.

Stop the Celery workers first: they hold messages in memory, including all that have an ETA, and return them when they
shut down gracefully. Messages of a killed worker are in the hash `unacked`, and are moved as well.
Messages that cannot be moved stay in the lists, for the old workers: those with a chain, a chord or callbacks, those
that are not plain JSON, and tasks without a new name. Unreadable messages stay as well, and the result names each.
You can kill this program at any point and start it again: each message arrives once.
"""

import base64
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

import duly
from duly.embedded import open_server

DAY = 86400.0
BROKEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # of a message; no server raises these
PRIORITY_STEPS = (0, 3, 6, 9)  # kombu has a list for each; it takes from that of 0 first


def list_name(celery_queue: str, step: int) -> str:
    return f"{celery_queue}\x06\x16{step}" if step else celery_queue


def translate(envelope: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the message as a task of Duly, or None if it is not one that Duly could do."""
    headers, properties = envelope["headers"], envelope["properties"]
    task = names.get(headers.get("task", ""))
    if task is None or envelope["content-type"] != "application/json" or headers.get("compression"):
        return None
    body = envelope["body"]
    if properties.get("body_encoding") == "base64":
        body = base64.b64decode(body).decode()
    if '"__type__"' in body:  # a datetime, UUID or Decimal in kombu's own notation: plain JSON would not be the same
        return None
    args, kwargs, embed = json.loads(body)
    if any(embed.get(part) for part in ("callbacks", "errbacks", "chain", "chord")) or headers.get("group"):
        return None
    return {"task": task, "args": args, "kwargs": kwargs}


def when(envelope: dict[str, Any], name: str) -> datetime | None:
    """Read `eta` or `expires`. A time without a zone is UTC: that is what Celery writes with enable_utc."""
    text = envelope["headers"].get(name)
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def move(
    envelope: dict[str, Any], names: Mapping[str, str], queue: duly.Queue, step: int, forget: Callable[[], object]
) -> str:
    """Send one message and forget the old one, in this order. Return what became of it."""
    body = translate(envelope, names)
    if body is None:
        return "left alone"
    eta, expires = when(envelope, "eta"), when(envelope, "expires")
    begin = max(datetime.now(UTC), eta) if eta else datetime.now(UTC)
    ttl = expires - begin if expires else None
    if ttl is not None and ttl <= timedelta(0):  # Celery would not run it any more
        forget()
        return "expired"
    # A crash between these two sends it again, and the dedup value stores it once. The delivery tag is the message's
    # own, and it keeps it when Celery delivers it a second time; a retry of the task has another one.
    tag = envelope["properties"]["delivery_tag"]
    queue.send(body, at=eta, ttl=ttl, priority=9 - step, dedup=f"celery-{tag}", dedup_for=DAY)
    forget()
    return "moved"


def named_if_unreadable(raw: bytes, move_it: Callable[[], str]) -> str:
    """Move one message, and continue if it cannot be read: a damaged message must not block the others."""
    try:
        return move_it()
    except BROKEN as problem:
        return f"cannot be read: {raw[:40]!r}, {problem!r}"


def drain(
    old: redis.Redis, celery_queue: str, queue: duly.Queue, names: Mapping[str, str], *, prefix: str = ""
) -> Counter[str]:
    """Move the waiting messages of a Celery queue. Return a count for each outcome.

    `names` maps names of Celery's tasks to those of Duly's; `prefix` is the `global_keyprefix`, if you have one.
    """
    counted: Counter[str] = Counter()
    for step in PRIORITY_STEPS:
        key = list_name(f"{prefix}{celery_queue}", step)
        position = -1  # the oldest is at the right end; messages that are left alone stay there
        while (raw := old.lindex(key, position)) is not None:

            def move_it(key: str = key, raw: bytes = raw, step: int = step) -> str:
                return move(json.loads(raw), names, queue, step, lambda: old.lrem(key, -1, raw))

            outcome = named_if_unreadable(raw, move_it)
            counted[outcome] += 1
            position -= outcome not in ("moved", "expired")
    if not counted:
        print(f"nothing was found in {prefix}{celery_queue}: is it the right name and database?", file=sys.stderr)
    return counted


def drain_unacked(
    old: redis.Redis, celery_queue: str, queue: duly.Queue, names: Mapping[str, str], *, prefix: str = ""
) -> Counter[str]:
    """Move what workers had taken and not finished. Only when no Celery worker runs on this database any more."""
    counted: Counter[str] = Counter()
    for tag, raw in old.hgetall(f"{prefix}unacked").items():

        def move_it(tag: bytes = tag, raw: bytes = raw) -> str:
            envelope, _, routing_key = json.loads(raw)
            if routing_key != celery_queue:  # `unacked` is one for all queues of the database
                return "of another queue"

            def forget() -> None:
                with old.pipeline(transaction=True) as both:
                    both.zrem(f"{prefix}unacked_index", tag).hdel(f"{prefix}unacked", tag).execute()

            priority = envelope["properties"].get("priority") or 0
            step = max(step for step in PRIORITY_STEPS if step <= max(0, priority))
            return move(envelope, names, queue, step, forget)

        counted[named_if_unreadable(raw, move_it)] += 1
    del counted["of another queue"]
    return counted


def envelope_of(task: str, args: list[Any], tag: str, **headers: Any) -> str:
    """Write a message as Celery 5 does, so that there is something to move."""
    embed = {"callbacks": None, "errbacks": None, "chain": headers.pop("chain", None), "chord": None}
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps([args, {}, embed]).encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": task, "id": f"id-of-{tag}", "eta": None, "expires": None, **headers},
            "properties": {
                "correlation_id": f"id-of-{tag}",
                "delivery_info": {"exchange": "", "routing_key": "celery"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": tag,
            },
        }
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no lists
        old = redis.Redis(unix_socket_path=server.socket_path)
        app = duly.Duly(old)  # the same server; it may be another one

        @app.task(queue="orders")
        def close(order: str) -> None:
            """Close an order that was not paid."""

        in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        a_minute_ago = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
        for message in (
            envelope_of("shop.close", ["A"], "tag-a"),
            envelope_of("shop.close", ["B"], "tag-b", eta=in_an_hour),
            envelope_of("shop.close", ["C"], "tag-c", expires=a_minute_ago),
            envelope_of("shop.close", ["D"], "tag-d", chain=[{"task": "shop.tell", "args": []}]),
        ):
            old.lpush("celery", message)
        killed = [json.loads(envelope_of("shop.close", ["E"], "tag-e")), "", "celery"]
        old.hset("unacked", "tag-e", json.dumps(killed))
        old.zadd("unacked_index", {"tag-e": 1.0})

        names = {"shop.close": "close"}
        print("from the hash:", dict(drain_unacked(old, "celery", close.queue, names)))
        print("from the list:", dict(drain(old, "celery", close.queue, names)))
        for state in ("ready", "delayed"):
            print(f"{state}:", [message.body["args"] for message in close.queue.list(state)])
        assert [message.body["args"] for message in close.queue.list("ready")] == [["E"], ["A"]]
        assert [message.body["args"] for message in close.queue.list("delayed")] == [["B"]]
        assert old.llen("celery") == 1  # the one with a chain is for the old workers

        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
