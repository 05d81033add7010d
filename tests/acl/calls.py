"""Every call of Duly that asks the server, made in a world in which it has something to do.

They have the names of docs/acl.md. A call that an option gives other permissions is there twice.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, get_args

import duly
from duly._core.states import State

STATES: Final = get_args(State)


@dataclass(frozen=True)
class World:
    """Messages, deliveries and locks for the calls, prepared so that each call is measured alone."""

    app: duly.Duly
    queue: duly.Queue
    topic: duly.Topic
    group: duly.Group
    d: duly.Delivery
    """A delivery of the queue."""
    entry: duly.Delivery
    """A delivery of the group."""
    waiting: str
    """The id of a delayed message of the queue."""
    ready: str
    """The id of a message that is parked behind another."""
    in_group: str
    """The id of a message of the group that waits for another attempt."""
    to_come: str
    """The id of a delayed publish."""
    lock: duly.Lock


def build(root: duly.Duly, app: duly.Duly, name: str) -> World:
    """Prepare the world as an admin, and pass deliveries and locks to the caller."""
    queue, events = root.queue(name, done=duly.Keep(count=9)), root.topic(name)
    root.schedule(name, queue, "tick", every=3600)
    archive = events.group("archive")
    waiting = queue.send("later", delay=3600)
    *_, ready = queue.send_many([*range(4), duly.Send("a", key="k"), duly.Send("b", key="k"), "last"])
    to_come = events.publish("later", delay=3600)
    events.publish_many(range(5))
    done, dead, held = queue.receive(limit=3)
    done.ack()
    dead.reject("no use")
    read, gone, again, entry = archive.receive(limit=4)
    read.ack()
    gone.reject("no use")
    again.retry(3600)
    lock = root.lock(name, ttl=60)
    lock.__enter__()
    lock._link = app._link  # the caller continues with it, here and below; an admin has taken it
    topic = app.topic(name)
    world = World(
        app, app.queue(name, done=duly.Keep(count=9)), topic, topic.group("archive"), held, entry, waiting, ready,
        again.id, to_come, lock,
    )  # fmt: skip
    world.d._queue, world.entry._queue = world.queue, world.group
    return world


def _other(w: World) -> str:
    return f"{w.queue.name}-other"


def _take(lock: duly.Lock) -> None:
    with lock:
        pass


def _result(w: World) -> None:
    with suppress(duly.NotFinished):
        w.queue.result(w.waiting, wait=0.01)


CALLS: Final[Mapping[str, Callable[[World], Any]]] = {
    "queue.send": lambda w: w.queue.send("body"),
    "queue.send_many": lambda w: w.queue.send_many(["a", duly.Send("b", dedup="b", ttl=60)]),
    "queue.result": _result,
    "queue.cancel": lambda w: [w.queue.cancel(id_, running=True) for id_ in (w.waiting, w.ready, w.d.id)],
    "queue.reschedule": lambda w: w.queue.reschedule(w.waiting, delay=60),
    "queue.promote": lambda w: w.queue.promote(w.waiting),
    "topic.publish": lambda w: w.topic.publish("body"),
    "topic.publish_many": lambda w: w.topic.publish_many(["a", duly.Send("b", delay=60)]),
    "topic.cancel": lambda w: w.topic.cancel(w.to_come),
    "topic.reschedule": lambda w: w.topic.reschedule(w.to_come, delay=60),
    "topic.promote": lambda w: w.topic.promote(w.to_come),
    "app.schedule": lambda w: w.app.schedule(w.queue.name, w.queue, "tock", every=60),
    "app.unschedule": lambda w: w.app.unschedule(w.queue.name),
    "app.schedules": lambda w: w.app.schedules(),
    "app.pause_schedule": lambda w: w.app.pause_schedule(w.queue.name),
    "app.resume_schedule": lambda w: w.app.resume_schedule(w.queue.name),
    "app.lock": lambda w: _take(w.app.lock(_other(w))),
    "d.lock": lambda w: _take(w.d.lock(_other(w))),
    "lock.extend": lambda w: w.lock.extend(60),
    "queue.receive": lambda w: w.queue.receive(wait=0),
    "queue.ack_many": lambda w: w.queue.ack_many([w.d]),
    "d.ack": lambda w: w.d.ack(result="done"),
    "d.retry": lambda w: w.d.retry(60),
    "d.defer": lambda w: w.d.defer(60),
    "d.recycle": lambda w: w.d.recycle(60),
    "d.reject": lambda w: w.d.reject("no use"),
    "d.release": lambda w: w.d.release(),
    "d.extend": lambda w: w.d.extend(60),
    "d.progress": lambda w: w.d.progress(0.4, "loading"),
    "d.commit": lambda w: w.d.commit(
        send=[(w.app.queue(_other(w)), "body")], publish=[(w.topic, "now"), (w.topic, duly.Send("later", delay=60))]
    ),
    "duly.once": lambda w: duly.once(w.d, _other(w), ttl=60),
    "group.create": lambda w: w.topic.group("news").create(),
    "group.receive": lambda w: w.group.receive(wait=0),
    "group.ack_many": lambda w: w.group.ack_many([w.entry]),
    "group.seek": lambda w: w.group.seek("end"),
    "group.cancel": lambda w: [w.group.cancel(id_, running=True) for id_ in (w.in_group, w.entry.id)],
    "group.reschedule": lambda w: w.group.reschedule(w.in_group, delay=60),
    "group.promote": lambda w: w.group.promote(w.in_group),
    "topic.read": lambda w: w.topic.read(),
    "queue.stats": lambda w: w.queue.stats(),
    "queue.forecast": lambda w: w.queue.forecast(),
    "queue.get": lambda w: [w.queue.get(id_) for id_ in (w.waiting, w.ready, w.d.id)],
    "queue.explain": lambda w: [w.queue.explain(id_) for id_ in (w.waiting, w.ready, w.d.id)],
    "queue.list": lambda w: [w.queue.list(state) for state in STATES],
    "queue.pending": lambda w: w.queue.pending(),
    "queue.find_dead": lambda w: w.queue.find_dead(),
    "queue.audit": lambda w: w.queue.audit(),
    "group.stats": lambda w: w.group.stats(),
    "group.forecast": lambda w: w.group.forecast(),
    "group.get": lambda w: [w.group.get(id_) for id_ in (w.in_group, w.entry.id)],
    "group.explain": lambda w: [w.group.explain(id_) for id_ in (w.in_group, w.entry.id)],
    "group.list": lambda w: [w.group.list(state) for state in STATES],
    "group.pending": lambda w: w.group.pending(),
    "group.find_dead": lambda w: w.group.find_dead(),
    "group.audit": lambda w: w.group.audit(),
    "topic.groups": lambda w: w.topic.groups(),
    "topic.delayed": lambda w: w.topic.delayed(),
    "topic.dead": lambda w: w.topic.dead(),
    "topic.get": lambda w: w.topic.get(w.to_come),
    "topic.explain": lambda w: w.topic.explain(w.to_come),
    "topic.stats": lambda w: w.topic.stats(),
    "topic.audit": lambda w: w.topic.audit(),
    "app.queues": lambda w: w.app.queues(),
    "app.topics": lambda w: w.app.topics(),
    "app.workers": lambda w: w.app.workers(),
    "queue.pause": lambda w: w.queue.pause(),
    "queue.resume": lambda w: w.queue.resume(),
    "queue.redrive": lambda w: w.queue.redrive(),
    "queue.redrive(to=)": lambda w: w.queue.redrive(to=_other(w)),
    "queue.purge": lambda w: w.queue.purge(),
    "queue.delete": lambda w: w.queue.delete(),
    "queue.audit(repair=True)": lambda w: w.queue.audit(repair=True),
    "group.pause": lambda w: w.group.pause(),
    "group.resume": lambda w: w.group.resume(),
    "group.redrive": lambda w: w.group.redrive(),
    "group.redrive(to=)": lambda w: w.group.redrive(to=_other(w)),
    "group.purge": lambda w: w.group.purge(),
    "group.delete": lambda w: w.group.delete(),
    "group.audit(repair=True)": lambda w: w.group.audit(repair=True),
    "topic.delete": lambda w: w.topic.delete(),
    "topic.audit(repair=True)": lambda w: w.topic.audit(repair=True),
}
