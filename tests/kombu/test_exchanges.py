"""Exchanges: bindings that processes share, and fanout to queues that last and to queues that do not."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import kombu
import pytest

import duly
from duly.kombu import declarations
from duly.kombu.subscription import Subscription
from tests.kombu.conftest import Connect, kept
from tests.waiting import wait_until


def bodies(connection: kombu.Connection, queue: kombu.Queue, count: int) -> list[Any]:
    found: list[Any] = []
    with kombu.Consumer(connection, [queue], on_message=lambda message: kept(found, message)):
        while len(found) < count:
            connection.drain_events(timeout=60)
    return found


def test_a_process_routes_by_bindings_of_another(connect: Connect) -> None:
    exchange = kombu.Exchange("events", type="topic")
    queue = kombu.Queue("orders", exchange, routing_key="order.*")
    consumer, producer = connect(), connect()
    queue(consumer.default_channel).declare()

    with producer.channel() as channel:
        publisher = kombu.Producer(channel, exchange=exchange)
        publisher.publish("other", routing_key="mail.sent")
        publisher.publish("order", routing_key="order.paid")

    assert bodies(consumer, queue, 1) == ["order"]


def test_an_unbound_queue_gets_no_more(connect: Connect, app: duly.Duly) -> None:
    exchange = kombu.Exchange("x", type="direct")
    queue = kombu.Queue("q", exchange, routing_key="k")
    connection = connect()
    bound = queue(connection.default_channel)
    bound.declare()

    bound.unbind_from(exchange, "k")
    kombu.Producer(connection.default_channel, exchange=exchange).publish("x", routing_key="k")

    assert app.queue("q").stats().ready == 0


def test_a_deleted_queue_leaves_nothing(connect: Connect, app: duly.Duly) -> None:
    exchange = kombu.Exchange("x", type="direct")
    queue = kombu.Queue("q", exchange, routing_key="k")
    connection = connect()
    queue(connection.default_channel).declare()
    producer = kombu.Producer(connection.default_channel, exchange=exchange)
    producer.publish("x", routing_key="k")

    queue(connection.default_channel).delete()
    producer.publish("x", routing_key="k")

    assert app.queues() == []


def test_durable_queues_of_a_fanout_exchange_get_copies(connect: Connect) -> None:
    exchange = kombu.Exchange("all", type="fanout")
    queues = [kombu.Queue(name, exchange) for name in ("one", "two")]
    connection = connect()
    for queue in queues:
        queue(connection.default_channel).declare()
    connection.release()

    producer = connect()
    kombu.Producer(producer.default_channel, exchange=exchange).publish("hello")

    assert [bodies(connect(), queue, 1) for queue in queues] == [["hello"], ["hello"]]


def test_transient_queues_of_a_fanout_exchange_get_messages_from_their_binding_on(
    connect: Connect, app: duly.Duly
) -> None:
    exchange = kombu.Exchange("all", type="fanout")
    producer = connect()
    publisher = kombu.Producer(producer.default_channel, exchange=exchange)
    publisher.publish("before")
    consumers = [(connect(), kombu.Queue(name, exchange, auto_delete=True)) for name in ("one", "two")]
    for connection, queue in consumers:
        queue(connection.default_channel).declare()

    publisher.publish("first")
    publisher.publish("second")

    for connection, queue in consumers:
        assert bodies(connection, queue, 2) == ["first", "second"]
    assert app.queues() == []


def test_broadcasts_for_a_consumer_that_died_do_not_pile_up(
    connect: Connect, app: duly.Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.kombu.channel.KEEP", duly.Keep(count=10))
    exchange = kombu.Exchange("all", type="fanout")
    dead = kombu.Queue("dead", exchange, auto_delete=True)
    dead(connect().default_channel).declare()
    publisher = connect().Producer(exchange=exchange)

    for number in range(500):
        publisher.publish(number)

    stats = app.topic("all").stats()
    assert (stats.published, stats.length < 150) == (500, True)
    assert app.topic("all").groups() == []
    assert app.queues() == []


def test_routing_keys_with_wildcards_filter_broadcasts(connect: Connect) -> None:
    """Celery's gossip binds with worker.#, and wants no events of tasks."""
    exchange = kombu.Exchange("celeryev", type="fanout")
    queue = kombu.Queue("gossip", exchange, routing_key="worker.#", auto_delete=True)
    connection = connect()
    queue(connection.default_channel).declare()
    publisher = kombu.Producer(connect().default_channel, exchange=exchange)

    for key in ("task.sent", "worker.heartbeat", "worker.a.b"):
        publisher.publish(key, routing_key=key)

    assert bodies(connection, queue, 2) == ["worker.heartbeat", "worker.a.b"]


def test_a_requeued_broadcast_is_delivered_again(connect: Connect) -> None:
    exchange = kombu.Exchange("all", type="fanout")
    queue = kombu.Queue("one", exchange, auto_delete=True)
    connection = connect()
    found: list[kombu.Message] = []
    with kombu.Consumer(connection, [queue], on_message=found.append, prefetch_count=1):
        kombu.Producer(connect().default_channel, exchange=exchange).publish("hello")
        connection.drain_events(timeout=60)
        found[0].requeue()
        connection.drain_events(timeout=60)

    assert [message.payload for message in found] == ["hello", "hello"]


def order_of(consumer: kombu.Connection, producer: kombu.Connection, broadcasts: int, *, waiting: bool) -> list[Any]:
    """Publish broadcasts, then a message to a queue, and return the bodies in the order of their delivery.

    As in a worker of Celery, each has a channel, and that of the queue is older. `waiting`: nothing is delivered until
    both wait.
    """
    everyone = kombu.Exchange("everyone", type="fanout")
    work, listener = kombu.Queue("work"), kombu.Queue("listener", everyone, auto_delete=True)
    found: list[Any] = []

    def on_message(message: kombu.Message) -> None:
        kept(found, message)

    with (
        kombu.Consumer(consumer.channel(), [work], on_message=on_message) as of_queue,
        kombu.Consumer(consumer.channel(), [listener], on_message=on_message, no_ack=True) as of_broadcasts,
    ):
        publisher = producer.Producer()
        for number in range(broadcasts):
            publisher.publish(number, exchange=everyone, declare=[everyone])
        publisher.publish("message", routing_key="work")
        if waiting:
            wait_until(lambda: of_queue.channel.mailbox.waiting and of_broadcasts.channel.mailbox.waiting)
        while len(found) < broadcasts + 1:
            consumer.drain_events(timeout=60)
    return found


def test_a_broadcast_that_waits_is_delivered_before_messages_of_queues(connect: Connect) -> None:
    assert order_of(connect(), connect(), 1, waiting=True) == [0, "message"]


def test_a_later_message_does_not_overtake_broadcasts_that_a_slow_thread_reads(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a worker starts a task that was revoked before it was sent."""
    read = duly.Topic.read

    def read_slowly(topic: duly.Topic[Any], after: Any, limit: int, wait: float) -> list[duly.Entry]:
        entries = read(topic, after, limit, wait)
        if threading.current_thread().name == "duly-kombu-fanout":
            time.sleep(0.5)
        return entries

    monkeypatch.setattr(duly.Topic, "read", read_slowly)

    assert order_of(connect(), connect(), 150, waiting=False) == [*range(150), "message"]


def test_a_backlog_is_delivered_without_a_read_of_broadcasts_for_each_message(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is sent later is delivered after the broadcasts before it."""
    everyone = kombu.Exchange("everyone", type="fanout")
    work, listener = kombu.Queue("work"), kombu.Queue("listener", everyone, auto_delete=True)
    found: list[Any] = []
    reads: list[bool] = []
    catch_up = Subscription.catch_up

    def counted(self: Subscription) -> bool:
        reads.append(catch_up(self))
        return reads[-1]

    def on_message(message: kombu.Message) -> None:
        kept(found, message)

    monkeypatch.setattr(Subscription, "catch_up", counted)
    consumer, publisher = connect(), connect().Producer()
    for number in range(30):
        publisher.publish(number, routing_key="work", declare=[work])
    with (
        kombu.Consumer(consumer.channel(), [listener], on_message=on_message, no_ack=True),
        kombu.Consumer(consumer.channel(), [work], on_message=on_message, prefetch_count=1),
    ):
        while len(found) < 30:
            consumer.drain_events(timeout=60)
        of_backlog = len(reads)
        for round_ in range(20):
            publisher.publish(f"broadcast {round_}", exchange=everyone, declare=[everyone])
            publisher.publish(f"message {round_}", routing_key="work")
            while len(found) < 32 + 2 * round_:
                consumer.drain_events(timeout=60)

    assert of_backlog == 1
    assert found == [*range(30), *(f"{what} {number}" for number in range(20) for what in ("broadcast", "message"))]


def test_a_binding_of_a_process_that_died_is_removed_with_its_queue(
    connect: Connect, app: duly.Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = kombu.Exchange("replies", type="direct")
    queue = kombu.Queue("of-the-dead", exchange, routing_key="k", auto_delete=True, expires=0.1, message_ttl=60)
    connection = connect()
    queue(connection.default_channel).declare()
    publisher = kombu.Producer(connect().default_channel, exchange=exchange)
    publisher.publish("reply", routing_key="k")
    assert app.queues() == ["of-the-dead"]
    later = time.time() + declarations._SLACK + 1
    monkeypatch.setattr(declarations, "time", SimpleNamespace(time=lambda: later))

    publisher.publish("another", routing_key="k")

    assert app.queues() == []


def test_a_binding_of_a_consumer_that_lives_is_extended(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.kombu.declarations._SLACK", 0.0)
    monkeypatch.setattr("duly.kombu.transport._EXTEND_EVERY", 0.05)
    monkeypatch.setattr("duly.kombu.fetcher._ROUND", 0.05)
    exchange = kombu.Exchange("replies", type="direct")
    queue = kombu.Queue("alive", exchange, routing_key="k", auto_delete=True, expires=1.5)
    connection, found = connect(), list[Any]()
    publisher = kombu.Producer(connect().default_channel, exchange=exchange)
    with kombu.Consumer(connection, [queue], on_message=lambda message: found.append(message.payload), no_ack=True):
        time.sleep(2.0)
        publisher.publish("reply", routing_key="k")
        connection.drain_events(timeout=60)

    assert found == ["reply"]


def test_a_queue_for_replies_ends_with_its_channel(connect: Connect, app: duly.Duly) -> None:
    exchange = kombu.Exchange("replies", type="direct")
    queue = kombu.Queue("own", exchange, routing_key="k", auto_delete=True, expires=10)
    connection = connect()
    publisher = kombu.Producer(connect().default_channel, exchange=exchange)
    channel = connection.channel()
    consumer = kombu.Consumer(channel, [queue], on_message=print)
    consumer.consume()
    publisher.publish("reply", routing_key="k")
    wait_until(app.queues, "the queue exists")

    channel.close()

    assert app.queues() == []
