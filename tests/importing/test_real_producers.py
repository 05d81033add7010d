"""Messages that Celery and RQ themselves have written are moved, and run once."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery, chain
from kombu import Connection, Consumer, Queue
from rq import Queue as RqQueue
from rq import Retry
from rq.serializers import JSONSerializer

import duly
from duly import _port, importing
from tests.conftest import StartedServer
from tests.importing.test_moves import consume

# Other tests of the process may have registered shared tasks twice.
pytestmark = pytest.mark.filterwarnings("ignore:Task name")


@pytest.fixture
def url(server: StartedServer) -> str:
    return server("valkey").url


@pytest.fixture
def producer(url: str, queue_name: str) -> Iterator[Celery]:
    app = Celery("shop", broker=url.removesuffix("/0") + "/1")
    app.conf.task_default_queue = queue_name
    app.conf.broker_transport_options = {"global_keyprefix": f"{queue_name}-"}

    @app.task(name="shop.close", shared=False)  # type: ignore[untyped-decorator]
    def close(order: str) -> None:
        """Close an order."""

    yield app
    app.close()


def delivered(url: str, name: str, count: int) -> list[Any]:
    """Return the bodies that a consumer of kombu gets from the transport of Duly."""
    bodies: list[Any] = []

    def keep(body: Any, message: Any) -> None:
        bodies.append(body)
        message.ack()

    with Connection(f"duly+{url}") as connection, Consumer(connection, [Queue(name)], callbacks=[keep]):
        deadline = time.monotonic() + 60
        while len(bodies) < count and time.monotonic() < deadline:
            connection.drain_events(timeout=30)
    return bodies


def test_a_queue_of_celery_continues_on_the_transport_of_duly(producer: Celery, url: str, queue_name: str) -> None:
    close = producer.tasks["shop.close"]
    close.delay("a")
    close.apply_async(["b"], countdown=3600)
    close.apply_async(["c"], priority=9)
    chain(close.si("d"), close.si("e")).delay()
    with duly.Duly(url.removesuffix("/0") + "/1") as origin, duly.Duly(url) as app:
        queue = app.queue(_port.encoded_name(queue_name))

        report = importing.move(importing.CeleryQueue(origin, queue_name, prefix=f"{queue_name}-"), queue)

        assert report.moved == {"ready": 3, "delayed": 1}
        [later] = queue.list("delayed")
        assert later.due_at is not None
        assert 3500 < later.due_at.timestamp() - time.time() <= 3600
        queue.promote(later.id)
        bodies = delivered(url, queue_name, 4)
        assert sorted(args[0] for args, _kwargs, _embedded in bodies) == ["a", "b", "c", "d"]
        [rest] = [embedded["chain"] for args, _kwargs, embedded in bodies if args == ["d"]]
        assert [each["args"] for each in rest] == [["e"]]


def test_plain_calls_of_celery_become_tasks_of_duly(producer: Celery, url: str, queue_name: str) -> None:
    close = producer.tasks["shop.close"]
    close.delay("a")
    close.apply_async(kwargs={"order": "b"}, countdown=3600)
    with duly.Duly(url.removesuffix("/0") + "/1") as origin, duly.Duly(url) as app:
        queue = app.queue(queue_name)

        importing.move(importing.CeleryQueue(origin, queue_name, prefix=f"{queue_name}-", tasks={}), queue)

        assert consume(queue) == [
            {"task": "close", "args": ["a"], "kwargs": {}},
            {"task": "close", "args": [], "kwargs": {"order": "b"}},
        ]


def test_json_jobs_of_rq_become_tasks_and_pickled_ones_stay(url: str, queue_name: str) -> None:
    with redis.Redis.from_url(url.removesuffix("/0") + "/1") as old:
        jobs = RqQueue(queue_name, connection=old, serializer=JSONSerializer)
        jobs.enqueue("shop.close", "a", retry=Retry(max=2))
        jobs.enqueue("shop.close", order="b")
        jobs.enqueue_at(duly_time(3600), "shop.close", "c")
        RqQueue(queue_name, connection=old).enqueue("shop.close", "pickled")
        with duly.Duly(url.removesuffix("/0") + "/1") as origin, duly.Duly(url) as app:
            queue = app.queue(queue_name)

            report = importing.move(importing.RqQueue(origin, queue_name, tasks={"shop.close": "end"}), queue)

            assert report.moved == {"ready": 2, "delayed": 1}
            assert report.left == {"pickled: reading a pickle runs it": 1}
            assert consume(queue) == [
                {"task": "end", "args": ["a"], "kwargs": {}},
                {"task": "end", "args": [], "kwargs": {"order": "b"}},
                {"task": "end", "args": ["c"], "kwargs": {}},
            ]
        assert len(jobs) == 1


def duly_time(seconds: float) -> Any:
    """Return the time in some seconds, as RQ takes it."""
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) + timedelta(seconds=seconds)
