"""The ids that sends return: texts that every part of Duly takes, with the confirmed durability."""

import copy
import json
import pickle
from typing import Any

import msgspec
import pydantic
import pytest

from duly import AsyncDuly, AsyncQueue, Keep, MessageId, NotDurable, Send
from tests.client._async.given import given_leased, take_one


class Shipment(msgspec.Struct):
    order: str


class Invoice(pydantic.BaseModel):
    order: str


def is_plain_id(value: Any) -> bool:
    """Whether a value is an id of a send without `durable=`."""
    return type(value) is MessageId and value.durable is None


async def test_every_send_returns_message_ids(app: AsyncDuly, queue: AsyncQueue, queue_name: str) -> None:
    @app.task(queue=f"{queue_name}-tasks")
    async def welcome(user_id: int) -> None: ...

    topic = app.topic(f"{queue_name}-topic")
    ids = [
        await queue.send(1),
        await queue.send(1, delay=60, key="k"),
        *await queue.send_many([1, Send(2, delay=60)]),
        await topic.publish(1),
        await topic.publish(1, delay=60),
        *await topic.publish_many([1, Send(2, delay=60)]),
        await welcome.send(42),
        await welcome.later(60, 42),
    ]

    assert len(set(ids)) == 10
    assert all(map(is_plain_id, ids))


@pytest.mark.one_slot("a commit to another queue")
async def test_a_commit_returns_message_ids(app: AsyncDuly, queue: AsyncQueue, queue_name: str) -> None:
    other, topic = app.queue(f"{queue_name}-other"), app.topic(f"{queue_name}-topic")
    done = await (await given_leased(queue, 1)).commit(send=[(other, 1)], publish=[(topic, 2)])

    assert all(map(is_plain_id, [*done.sent, *done.published]))
    assert (await take_one(other)).id == done.sent[0]


BODIES: dict[str, Any] = {
    "alone": lambda id_: (id_, str(id_)),
    "in a list": lambda id_: ([id_], [str(id_)]),
    "as a value": lambda id_: ({"order": id_}, {"order": str(id_)}),
    "as a key": lambda id_: ({id_: [id_]}, {str(id_): [str(id_)]}),
    "with a null": lambda id_: ({"order": id_, "note": None}, {"order": str(id_), "note": None}),
    "in a struct": lambda id_: (Shipment(id_), {"order": str(id_)}),
    "in a model": lambda id_: (Invoice(order=id_), {"order": str(id_)}),
}


@pytest.mark.parametrize("form", BODIES)
async def test_a_body_may_contain_an_id(queue: AsyncQueue, form: str) -> None:
    first = await given_leased(queue, "first")
    await first.ack()
    body, expected = BODIES[form](MessageId(first.id))
    delivery = await given_leased(queue, body)

    assert delivery.body == expected


async def test_an_id_may_be_anything_of_another_message(queue: AsyncQueue) -> None:
    id_ = await queue.send("first", delay=3600)
    name = MessageId(f"{id_}-second")
    again = await queue.send("second", id=name, key=id_, dedup=id_, headers={"after": id_, id_: "x"})
    delivery = await take_one(queue)

    assert again == name
    assert (delivery.id, delivery.key) == (name, id_)
    assert delivery.headers == {"after": id_, id_: "x"}
    assert await queue.send("third", dedup=id_) == name
    assert await queue.reschedule(id_, delay=7200)
    assert id_ in await queue.explain(id_)
    assert await queue.cancel(id_)


async def test_an_entry_takes_ids_as_key_header_and_dedup_value(app: AsyncDuly, queue_name: str) -> None:
    topic = app.topic(queue_name)
    id_ = await topic.publish("first")
    second = await topic.publish({"after": id_}, key=id_, headers={"after": id_}, dedup=id_)
    (entry,) = await topic.read(after=id_)

    assert (entry.id, entry.key, entry.body) == (second, id_, {"after": id_})
    assert entry.headers == {"after": id_}
    assert await topic.publish("third", dedup=id_) == second


async def test_a_result_and_the_arguments_of_a_task_may_be_ids(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))

    @app.task(queue=queue)
    async def follow(order: str) -> None: ...

    id_ = await queue.send("first")
    await (await take_one(queue)).ack(result={"next": id_})
    await follow.send(id_)

    assert await queue.result(id_) == {"next": id_}
    assert (await take_one(queue)).body == {"task": "follow", "args": [id_]}


async def test_a_schedule_may_send_an_id(app: AsyncDuly, queue: AsyncQueue, queue_name: str) -> None:
    id_ = await queue.send("first", delay=3600)

    assert await app.schedule(queue_name, queue, Send({"check": id_}, headers={"of": id_}), every=60)
    (schedule,) = [each for each in await app.schedules() if each.name == queue_name]
    assert schedule.body == {"check": id_}
    assert await app.unschedule(queue_name)


async def test_memory_confirms_nothing(queue_name: str) -> None:
    async with AsyncDuly("memory://") as app:
        with pytest.raises(NotDurable) as caught:
            await app.queue(queue_name).send_many([1, 2], durable="fsync")

    assert all(map(is_plain_id, caught.value.ids))
    assert len(caught.value.ids) == 2


def test_an_id_is_a_text_for_everything_else() -> None:
    id_ = MessageId("01J")
    id_._durable = 2

    assert id_ == "01J"
    assert {"01J": 1}[id_] == 1
    assert (repr(id_), f"{id_}", json.dumps([id_])) == ("'01J'", "01J", '["01J"]')
    assert type(str(id_)) is str
    for copied in (copy.deepcopy(id_), pickle.loads(pickle.dumps(id_))):
        assert (copied, copied.durable) == ("01J", 2)
