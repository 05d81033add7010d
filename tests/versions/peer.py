"""One version of Duly in its own process: it evaluates the expressions that a test sends, a line of JSON each.

    {"run": "box.send(body, delay=5)", "given": {"body": "a"}}   ->   {"value": "01JC..."}
    {"run": "held[id].ack()", "given": {"id": "01JC..."}}        ->   {"error": "LeaseLost: ..."}

An expression may use the names of this file. Both versions run this file, so it uses public names of Duly, but for the
hashes of the scripts.
"""

import asyncio
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import httpx

import duly
import duly.web

LEASE = 300.0
LATER = 600.0
"""Seconds that a message waits which was sent, retried or deferred for later."""
STATES: Any = ("ready", "delayed", "leased", "parked", "dead", "done")

app = duly.Duly(sys.argv[1])
dashboard = httpx.ASGITransport(app=duly.web.create_app(app))
loop = asyncio.Runner()
"""The event loop of the dashboard."""

box: Any = None
"""The queue or group of the test."""
topic: Any = None
"""The topic of the group, and of publishes in commits."""
other: Any = None
"""The queue that dead letters are moved to, and that commits send to."""
path = ""
"""Where the HTTP API has the queue or group."""
counter = ""
"""A key of the user's own, which commits change."""
held: dict[str, Any] = {}
"""Deliveries by the id of their message."""
locks: dict[str, Any] = {}
tasks: dict[str, Any] = {}


def open_box(kind: str, name: str, attempts: int) -> None:
    """Choose the queue or group that the next expressions are about."""
    global box, topic, other, path, counter  # noqa: PLW0603 - an expression finds them by these names
    frees, keeps = kind == "freeing group", kind == "keeping queue"
    keep = None if frees else duly.Keep(count=1000)
    topic = app.topic(name, keep=keep, lease=LEASE, retry=duly.Retry(attempts=attempts))
    other = app.queue(f"{name}-other")
    counter = f"{{{name}}}:counter"
    if kind.endswith("group"):
        box, path = topic.group("archive"), f"/api/v1/topics/{name}/groups/archive"
    else:
        done = duly.Keep(count=1000) if keeps else None
        box = app.queue(name, lease=LEASE, retry=duly.Retry(attempts=attempts), done=done)
        path = f"/api/v1/queues/{name}"
    box.handler(lambda body: None)  # the HTTP API takes the options of queues that have a handler
    held.clear()


# Storing


def store_all_forms() -> dict[str, str]:
    """Send, or publish, a message of every form, and give its ids by their names. The body is the name."""
    if hasattr(box, "topic"):
        forms = {name: form for name, form in _forms().items() if name in PUBLISHED}
        ids = [topic.publish(forms["plain"].body), *topic.publish_many([*forms.values()][1:])]
    else:
        forms = _forms()
        ids = [box.send(forms["plain"].body), *box.send_many([*forms.values()][1:])]
    return dict(zip(forms, ids, strict=True))


def _forms() -> dict[str, Any]:
    send, long = duly.Send, 100 * LATER
    return {
        "plain": send("plain"),
        "bytes": send(b"bytes"),
        "large": send("large" + " " * 5000),
        "first of its key": send("first of its key", key="k"),
        "second of its key": send("second of its key", key="k"),
        "urgent": send("urgent", priority=7),
        "mortal": send("mortal", ttl=long),
        "single": send("single", dedup="single", dedup_for=long),
        "debounced": send("debounced", dedup="debounced", dedup_for=long, replace=True),
        "with headers": send("with headers", headers={"trace": "t"}),
        "patient": send("patient", retry=duly.Retry(attempts=9, first=LATER)),
        "again": send("again", delay=0, repeat=duly.Repeat(first=LATER / 10, times=2)),
        "own id": send("own id", id=f"own-{box.name}"),
        "all at once": send("all at once", key="a", priority=3, ttl=long, dedup="a", headers={"a": "b"}, id="all"),
        "later": send("later", delay=LATER),
    }


PUBLISHED = {"plain", "bytes", "large", "first of its key", "second of its key", "single", "with headers", "later"}
"""Forms that a topic takes."""


def call_add(queue: str, one: int, two: int) -> str:
    """Call the task `add` over a queue."""
    if queue not in tasks:
        tasks[queue] = app.task(queue=queue, name="add")(lambda one, two=0: None)
    return str(tasks[queue].send(one, two=two))


# Claiming and settling


def claim(limit: int = 100) -> list[dict[str, Any]]:
    """Receive due messages, and hold them."""
    found = box.receive(limit=limit, wait=0)
    held.update({d.id: d for d in found})
    return [_delivered(d) for d in found]


DELIVERED = (
    "id", "fence", "attempt", "deliveries", "failures", "crashes", "defers", "cycles", "redrives", "key", "priority",
    "headers", "sent_at", "due_at",
)  # fmt: skip


def _delivered(d: Any) -> dict[str, Any]:
    return {"body": text_of(d.body), **{name: getattr(d, name) for name in DELIVERED}}


def text_of(body: Any) -> str:
    """Return the name of a form, of which the body is made."""
    return (body.decode() if isinstance(body, bytes) else str(body)).strip()


def settle(verb: str) -> None:
    """Settle all that is held in one way."""
    for d in held.values():
        VERBS[verb](d)


def _commit(d: Any) -> None:
    if text_of(d.body) == "again":  # it would come back, and commit refuses that
        d.ack()
        return
    later = duly.Send("later effect", delay=LATER)
    d.commit(
        send=[(other, "effect"), (other, later)],
        publish=() if hasattr(box, "topic") else [(topic, "effect"), (topic, later)],
        redis=[("INCRBY", counter, 2)],
        result={"handled": d.id},
    )


VERBS: dict[str, Callable[[Any], Any]] = {
    "ack": lambda d: d.ack(result={"handled": d.id}),
    "retry": lambda d: d.retry(LATER, error="no answer"),
    "last retry": lambda d: d.retry(error=ValueError("no answer")),  # of a box with one attempt
    "defer": lambda d: d.defer(LATER, "not now"),
    "recycle": lambda d: d.recycle(LATER),
    "recycle with another body": lambda d: d.recycle(body=f"{text_of(d.body)}!"),
    "reject": lambda d: d.reject("no use"),
    "release": lambda d: d.release(),
    "extend": lambda d: d.extend(2 * LATER),
    "commit": _commit,
}


def receive_over_http() -> list[str]:
    """Receive due messages, and return receipts with which any process can settle them."""
    answer = loop.run(_posted("receive", {"limit": 100, "wait": 0, "lease": LEASE}))
    return [message["receipt"] for message in answer["messages"]]


def settle_over_http(verb: str, receipts: list[str]) -> int:
    """Settle what receipts stand for, and count them."""
    details: dict[str, dict[str, Any]] = {
        "ack": {"result": {"handled": True}},
        "retry": {"delay": LATER, "error": "no answer"},
        "defer": {"delay": LATER, "reason": "not now"},
        "recycle": {"delay": LATER},
        "reject": {"reason": "no use"},
        "release": {},
        "extend": {"seconds": 2 * LATER},
    }
    answer = loop.run(_posted(verb, {"receipts": receipts, **details[verb]}))
    assert answer["lost"] == []
    return len(answer["settled"])


async def _posted(verb: str, body: dict[str, Any]) -> Any:
    async with httpx.AsyncClient(transport=dashboard, base_url="http://localhost") as client:
        answer = await client.post(f"{path}/{verb}", json=body)
    if answer.is_error:
        raise RuntimeError(f"{answer.status_code}: {answer.text}")
    return answer.json()


def finish_all() -> list[dict[str, Any]]:
    """Redrive dead letters, ack all due messages, and return the deliveries."""
    box.redrive()
    delivered: list[dict[str, Any]] = []
    while found := box.receive(limit=100, wait=0):
        delivered += [_delivered(d) for d in found]
        assert box.ack_many(found) == []
    return delivered


# Locks


def take_lock(name: str, wait: float = 0) -> int:
    """Take a lock, waiting for it if asked to, and give its fence."""
    lock = app.lock(name, ttl=LEASE, on_busy=duly.Wait(wait) if wait else "raise")
    locks[name] = lock.__enter__()
    return lock.fence


def free_lock(name: str) -> bool:
    """Free a lock; True: it was lost before."""
    lock = locks.pop(name)
    lock.__exit__(None, None, None)
    return bool(lock.lost)


# Inspection


def look() -> dict[str, Any]:
    """Show all that this version sees of the queue or group, but for what changes as time passes."""
    found: dict[str, Any] = _look_at_topic() if hasattr(box, "topic") else {}
    moving = {"oldest_age", "next_due_in"}
    stats = {name: value for name, value in dataclasses.asdict(box.stats()).items() if name not in moving}
    found |= {"stats": stats, "audit": [*box.audit().explanation]}
    found |= {state: [_seen(message) for message in box.list(state, limit=1000)] for state in STATES}
    found["pending"] = [
        {name: value for name, value in dataclasses.asdict(row).items() if name not in ("deadline_in", "idle")}
        for row in box.pending().messages
    ]
    return found


def _look_at_topic() -> dict[str, Any]:
    entries = topic.read(limit=1000)  # first: it lets due publishes in, which changes the numbers
    counts = dataclasses.asdict(topic.stats())
    return {
        "topic": {name: value for name, value in counts.items() if name != "bytes"},
        "topic audit": [*topic.audit().explanation],
        "entries": [dataclasses.asdict(entry) for entry in entries],
        "delayed publishes": [_seen(message) for message in topic.delayed(limit=1000)],
        "groups": [dataclasses.asdict(group) for group in topic.groups()],
    }


def _seen(message: Any) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(message).items() if name != "cursor"}


def scripts() -> dict[str, list[str]]:
    """Return the hashes of each script of this version, in all of its forms."""
    from duly import _lua

    kinds: Any = ("queue", "topic", "group", "freeing")
    return {name: sorted({_lua.script(name, kind).sha for kind in kinds}) for name in _lua.names()}


# Answering


def _plain(value: Any) -> Any:
    """Turn a value into one that JSON has."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} cannot be sent to the test")


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": eval(request["run"], {**globals(), **request["given"]})}
    except Exception as error:  # noqa: BLE001 - the test decides what it means
        return {"error": f"{type(error).__name__}: {error}"}


def serve() -> None:
    """Answer each line, until there are no more."""
    logging.disable()  # it warns of every dead letter, and the tests make many
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output is not an answer
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line)), default=_plain) + "\n")
        answers.flush()
    app.close()


if __name__ == "__main__":
    serve()
