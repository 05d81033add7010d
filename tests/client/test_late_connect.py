"""An app that is connected later: `connect=False`, then `connect(url)`."""

import pytest

import duly
from duly import AsyncDuly, Duly, UsageError


def test_queues_topics_and_tasks_that_were_defined_before_work_after_it(backend: str, queue_name: str) -> None:
    app = Duly(connect=False)
    queue, topic = app.queue(queue_name), app.topic(queue_name)
    ran: list[int] = []

    @app.task(queue=f"{queue_name}-tasks")
    def note(number: int) -> None:
        ran.append(number)

    app.connect(backend)
    with app:
        queue.send("body")
        topic.publish("entry")
        note.send(7)

        assert [delivery.body for delivery in queue.receive(wait=0)] == ["body"]
        assert [entry.body for entry in topic.read()] == ["entry"]
        assert app.queue(f"{queue_name}-tasks").stats().ready == 1
        assert app.queue(queue_name).stats().leased == 1


async def test_the_async_app_can_be_connected_later_as_well(backend: str, queue_name: str) -> None:
    app = AsyncDuly(connect=False)
    queue = app.queue(queue_name)

    app.connect(backend)
    async with app:
        await queue.send("body")
        assert [delivery.body for delivery in await queue.receive(wait=0)] == ["body"]


async def test_the_async_counterpart_follows(backend: str, queue_name: str) -> None:
    app = Duly(connect=False)
    queue, before = app.queue(queue_name), app.aio.queue(queue_name)

    app.connect(backend)
    queue.send("body")

    assert [delivery.body for delivery in await before.receive(wait=0)] == ["body"]
    assert (await queue.aio.stats()).leased == 1
    await app.aio.aclose()
    app.close()


def test_using_it_before_raises(queue_name: str) -> None:
    app = Duly(connect=False)
    queue = app.queue(queue_name)
    queue.handler(print)

    for use in (lambda: queue.send("x"), queue.stats, app.queues, lambda: queue.receive(wait=0), app.run):
        with pytest.raises(UsageError, match=r"has no server yet: call app\.connect\(url\) first"):
            use()
    assert repr(app) == "<Duly not connected>"
    app.close()


async def test_using_the_async_app_before_raises(queue_name: str) -> None:
    app = AsyncDuly(connect=False)

    with pytest.raises(UsageError, match="has no server yet"):
        await app.queue(queue_name).send("x")
    with pytest.raises(UsageError, match="has no server yet"):
        duly.Duly(app)
    await app.aclose()


def test_connecting_again_to_the_same_server_does_nothing() -> None:
    app = Duly(connect=False)
    app.connect("redis://localhost:1/0")
    app.connect("redis://localhost:1/0")

    with pytest.raises(UsageError, match="is connected to redis://localhost:1/0: make another one"):
        app.connect("redis://localhost:2/0")


def test_a_server_belongs_to_connect() -> None:
    with pytest.raises(UsageError, match="pass the server and its credentials to app"):
        Duly("redis://localhost:1/0", connect=False)
    with pytest.raises(UsageError, match="connect the sync app"):
        Duly(connect=False).aio.connect("memory://")


def test_credentials_are_given_with_the_server() -> None:
    app = Duly(connect=False)
    app.connect("redis://localhost:1/0", credentials=lambda: "secret")

    assert "secret" not in repr(app)
