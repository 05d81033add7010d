"""Topics, groups and commits."""

from dataclasses import dataclass
from typing import Any, assert_type

import duly


@dataclass
class Event:
    name: str


app = duly.Duly("memory://")
events: duly.Topic[Event] = app.topic("events", type=Event)
plain = app.topic("plain", keep=duly.Keep(age=3600))
archive = events.group("archive", start="beginning")
orders = app.queue("orders", type=int)

assert_type(app.topic("events", type=Event), duly.Topic[Event])
assert_type(plain, duly.Topic[Any])
assert_type(archive, duly.Group[Event])
assert_type(events.aio, duly.AsyncTopic[Event])
assert_type(archive.aio, duly.AsyncGroup[Event])
assert_type(archive.topic, duly.Topic[Event])
assert_type(archive.receive()[0].body, Event)

app.topic("events", max_length=3)  # E

assert_type(events.publish(Event("paid"), delay=5, key="k"), duly.MessageId)
events.publish(duly.Send(Event("paid"), delay=5))
events.publish_many([Event("paid"), duly.Send(Event("shipped"))])
plain.publish({"any": "body"})

events.publish("text")  # E
events.publish(Event("paid"), priority=5)  # E
events.publish_many(["text"])  # E


@events.handler(group="archive", start="new")
async def on_event(event: Event, d: duly.AsyncDelivery[Event]) -> None: ...


@events.handler(group="batches", batch=duly.Batch())
def on_events(batch: list[Event]) -> None: ...


@archive.handler
def on_archived(event: Event) -> None: ...


@events.handler(group="archive")  # E
async def on_text(text: str) -> None: ...


@archive.handler  # E
def on_number(number: int) -> None: ...


@events.handler()  # E
def without_group(event: Event) -> None: ...


# Commits


@app.task
def invoice(number: int) -> None: ...


def commit(d: duly.Delivery[int]) -> None:
    replies = d.commit(
        send=[(orders, 5), (orders, duly.Send(5, delay=30)), (invoice, (42,)), (invoice, {"number": 42})],
        publish=[(events, Event("paid"))],
        redis=[("DECRBY", "stock:1", 5)],
        result={"any": "value"},
    )
    assert_type(replies, duly.Committed)
    assert_type(replies.sent, list[duly.MessageId])
    d.commit(send=[(events, Event("paid"))])  # E
    d.commit(send=[("orders", 5)])  # E
    d.commit(send=[(invoice, 42)])  # E
    d.commit(publish=[(orders, 5)])  # E
    d.commit(redis=[("SET", "key", None)])  # E


async def commit_async(d: duly.AsyncDelivery[int]) -> None:
    """A delivery of either client may send to queues of either client."""
    await d.commit(send=[(orders, 5), (orders.aio, 5), (invoice.aio, (42,))], publish=[(events.aio, Event("paid"))])
