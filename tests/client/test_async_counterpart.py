"""The async counterpart of a sync app."""

from pathlib import Path

import pytest

from duly import AsyncDuly, Duly, UsageError

ROOT = Path(__file__).parents[2]


async def test_the_counterpart_shares_the_store_and_the_definitions(backend: str, queue_name: str) -> None:
    with Duly(backend) as app:
        queue = app.queue(queue_name, type=int, lease=7)
        queue.send(1)
        await app.aio.queue(queue_name).send(2)
        await queue.aio.send(3)

        assert [delivery.body for delivery in await queue.aio.receive(wait=0)] == [1, 2, 3]
        assert queue.aio.options == queue.options
        assert queue.aio.name == queue.name
        with pytest.raises(UsageError):
            await queue.aio.send("text")  # type: ignore[arg-type]
        await app.aio.aclose()


def test_the_names_of_both_clients_differ_as_documented() -> None:
    sync, coloured = ({name for name in dir(kind) if not name.startswith("_")} for kind in (Duly, AsyncDuly))

    assert sync ^ coloured == {"close", "aclose", "aio"}
    for page in ("docs/guide.md", "docs/reference/app.md"):
        assert "aclose()" in (ROOT / page).read_text(), page


def test_an_app_has_one_counterpart(backend: str) -> None:
    with Duly(backend, namespace="shop") as app:
        assert app.aio is app.aio
        assert isinstance(app.aio, AsyncDuly)
        assert app.aio.namespace == "shop"


async def test_a_renewed_lease_survives_the_end_of_the_counterpart(backend: str, queue_name: str) -> None:
    with Duly(backend) as app:
        queue = app.queue(queue_name, lease=0.6)
        queue.send("body")
        (delivery,) = queue.receive(renew=True)
        async with app.aio as counterpart:
            await counterpart.queues()

        assert await app.aio.queue(queue_name).receive(wait=1.2) == []
        delivery.ack()
        await app.aio.aclose()


async def test_the_counterpart_renews_leases_as_well(backend: str, queue_name: str) -> None:
    with Duly(backend) as app:
        queue = app.queue(queue_name, lease=0.6).aio
        await queue.send("body")
        (delivery,) = await queue.receive(renew=True)

        assert await queue.receive(wait=1.2) == []
        await delivery.ack()
        await app.aio.aclose()


async def test_a_task_has_a_counterpart_to_send_it_from_async_code(backend: str, queue_name: str) -> None:
    with Duly(backend) as app:

        @app.task(queue=queue_name)
        async def welcome(user_id: int) -> None: ...

        id_ = await welcome.using(priority=5).aio.send(42)

        (delivery,) = welcome.queue.receive(wait=0)
        assert (delivery.id, delivery.priority) == (id_, 5)
        assert delivery.body == {"task": "welcome", "args": [42]}
        await app.aio.aclose()


async def test_a_topic_and_a_group_have_counterparts_that_share_the_stream(backend: str, queue_name: str) -> None:
    with Duly(backend) as app:
        events = app.topic(queue_name, type=int, lease=7, keep=None)
        group = events.group("archive", start="new", headers={"a": "b"})
        assert group.create() is True
        events.publish(1, headers={"a": "b"})
        await events.aio.publish(2)
        await app.aio.topic(queue_name).publish(3, headers={"a": "b"})

        found = await group.aio.receive(wait=0)
        assert [delivery.body for delivery in found] == [1, 3]
        assert await group.aio.ack_many(found) == []
        assert (events.aio.options, events.aio.name) == (events.options, events.name)
        assert (group.aio.name, group.aio.start, group.aio.headers) == ("archive", "new", {"a": "b"})
        assert events.stats().length == (await events.aio.stats()).length == 0
        with pytest.raises(UsageError):
            await events.aio.publish("text")  # type: ignore[arg-type]
        await app.aio.aclose()
