"""Connections of kombu while the server does not answer."""

import time
from collections.abc import Iterator
from typing import Any

import kombu
import pytest

import duly
from duly._sync.outbox import Outbox, Publishes
from tests.kombu.conftest import Connect
from tests.kombu.test_messages import QUEUE, consume, publish
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture
def own_server() -> Iterator[Server]:
    with Server("valkey", {"appendonly": "yes", "appendfsync": "always"}) as server:
        yield server


def test_an_ack_during_an_outage_is_repeated_after_it(connect: Connect, own_server: Server, namespace: str) -> None:
    connection = connect(f"duly+{own_server.url}", patience=0.5)
    publish(connection, QUEUE, "done")
    with kombu.Consumer(connection.channel(), [kombu.Queue("other", routing_key="other")], on_message=print):
        (message,) = consume(connection, QUEUE, 1)
        own_server.kill9()

        message.ack()
        own_server.start()

        with duly.Duly(own_server.url, namespace=namespace) as app:
            wait_until(lambda: app.queue("q").stats().acked == 1, "it is acked", app.queue("q").stats)
            assert app.queue("q").stats().crashed == 0


def test_an_ack_without_a_consumer_raises_during_an_outage(connect: Connect, own_server: Server) -> None:
    connection = connect(f"duly+{own_server.url}", patience=0.5)
    publish(connection, QUEUE, "done")
    message = connection.default_channel.basic_get("q")
    own_server.kill9()

    with pytest.raises(connection.connection_errors):
        message.ack()
    own_server.start()


def test_a_consumer_goes_on_after_an_outage(connect: Connect, own_server: Server) -> None:
    connection = connect(f"duly+{own_server.url}", patience=0.5)
    found: list[kombu.Message] = []
    with kombu.Consumer(connection.channel(), [QUEUE], on_message=found.append):
        own_server.kill9()
        time.sleep(1.5)
        own_server.start()
        other = connect(f"duly+{own_server.url}")
        publish(other, QUEUE, "after")

        connection.drain_events(timeout=60)

    assert [message.payload for message in found] == ["after"]


def test_publishing_during_an_outage_raises_a_connection_error(connect: Connect, own_server: Server) -> None:
    connection = connect(f"duly+{own_server.url}", patience=0.5)
    publish(connection, QUEUE, "before")
    own_server.kill9()

    with pytest.raises(connection.connection_errors):
        publish(connection, QUEUE, "during")
    own_server.start()


def test_a_publish_whose_reply_was_lost_is_repeated_and_stored_once(
    connect: Connect, app: duly.Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connect()
    exchange = kombu.Exchange("x", type="direct")
    queues = [kombu.Queue(name, exchange, routing_key="k") for name in ("one", "two")]
    for queue in queues:
        queue(connection.default_channel).declare()
    send, replies = Outbox.send, [duly.Unavailable("the reply was lost")]

    def send_and_lose_a_reply(outbox: Outbox, message: Any) -> str | None:
        stored = send(outbox, message)
        if replies:
            raise replies.pop()
        return stored

    monkeypatch.setattr(Outbox, "send", send_and_lose_a_reply)

    connection.Producer(exchange=exchange).publish("body", routing_key="k", retry=True)

    assert not replies
    assert [app.queue(queue.name).stats().sent for queue in queues] == [1, 1]


def test_a_fanout_whose_reply_was_lost_is_repeated_and_stored_once(
    connect: Connect, app: duly.Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = kombu.Exchange("everyone", type="fanout")
    connection, lasting = connect(), kombu.Queue("lasting", exchange)
    listener = kombu.Queue("listener", exchange, auto_delete=True)
    found: list[kombu.Message] = []
    publish, replies = Publishes.publish, [duly.Unavailable("the reply was lost")]

    def publish_and_lose_a_reply(publishes: Publishes, entry: Any) -> str:
        stored = publish(publishes, entry)
        if replies:
            raise replies.pop()
        return stored

    monkeypatch.setattr(Publishes, "publish", publish_and_lose_a_reply)
    lasting(connection.default_channel).declare()
    with kombu.Consumer(connection.channel(), [listener], on_message=found.append, no_ack=True):
        publisher = connect().Producer(exchange=exchange)
        for body in ("first", "first", "last"):
            publisher.publish(body, retry=True)
        while not found or found[-1].payload != "last":
            connection.drain_events(timeout=60)

    assert not replies
    assert [message.payload for message in found] == ["first", "first", "last"]
    assert app.queue("lasting").stats().sent == 3


def test_a_message_that_a_program_publishes_twice_is_two_messages(connect: Connect, app: duly.Duly) -> None:
    connection = connect()
    exchange = kombu.Exchange("everyone", type="fanout", channel=connection.default_channel)
    listener, lasting = kombu.Queue("listener", exchange, auto_delete=True), kombu.Queue("lasting", exchange)
    found: list[kombu.Message] = []
    lasting(connection.default_channel).declare()
    message = exchange.Message("twice")
    with kombu.Consumer(connection.channel(), [listener], on_message=found.append, no_ack=True):
        exchange.publish(message)
        exchange.publish(message)
        while len(found) < 2:
            connection.drain_events(timeout=60)

    assert [each.payload for each in found] == ["twice", "twice"]
    assert app.queue("lasting").stats().sent == 2


def test_messages_that_share_their_properties_are_all_stored(connect: Connect, app: duly.Duly) -> None:
    channel, properties = connect().default_channel, dict[str, Any]()
    exchange = kombu.Exchange("x", type="direct", channel=channel)
    kombu.Queue("one", exchange, routing_key="k")(channel).declare()

    for body in ("first", "second"):
        exchange.publish(exchange.Message(body, properties=properties), routing_key="k")
    message = exchange.Message("third")
    for _ in range(2):
        exchange.publish(message, routing_key="k")

    assert app.queue("one").stats().sent == 4


def test_a_consumer_gets_broadcasts_from_before_and_after_an_outage(connect: Connect, own_server: Server) -> None:
    everyone = kombu.Exchange("everyone", type="fanout")
    listener = kombu.Queue("listener", everyone, auto_delete=True)
    connection, found = connect(f"duly+{own_server.url}", patience=0.5), list[kombu.Message]()
    with kombu.Consumer(connection.channel(), [listener], on_message=found.append, no_ack=True):
        connect(f"duly+{own_server.url}").Producer(exchange=everyone).publish("before")
        own_server.kill9()
        time.sleep(1.5)
        own_server.start()
        connect(f"duly+{own_server.url}").Producer(exchange=everyone).publish("after")

        while len(found) < 2:
            connection.drain_events(timeout=60)

    assert [message.payload for message in found] == ["before", "after"]
