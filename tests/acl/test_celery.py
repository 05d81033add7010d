"""The transport for kombu with the permissions that `duly acl --role consumer --celery` prints."""

import kombu
import pytest
import redis
from celery import Celery

import duly.celery
from duly.acl import rules
from tests.acl.conftest import NewUser
from tests.acl.test_worker import refusals


def test_a_consumer_for_celery_declares_sends_receives_and_redrives(
    new_user: NewUser, root: "redis.Redis", queue_name: str
) -> None:
    url = new_user("consumer", celery=True)
    queue = kombu.Queue(queue_name, kombu.Exchange("shop", type="topic"), routing_key="orders.#")
    everyone = kombu.Exchange("everyone", type="fanout")
    listener = kombu.Queue("listener", everyone, auto_delete=True)
    found: list[kombu.Message] = []
    with kombu.Connection(f"duly+{url}") as connection:
        with kombu.Consumer(connection, [queue, listener], on_message=found.append):
            producer = connection.Producer()
            producer.publish("an order", exchange="shop", routing_key="orders.new")
            producer.publish("for all", exchange="everyone")
            while len(found) < 2:
                connection.drain_events(timeout=60)
        for message in found:
            message.reject()
        app = Celery("shop", broker=f"duly+{url}")
        tasks = duly.celery.setup(app)
        assert tasks.redrive(queue_name) == 1
        channel = connection.default_channel
        assert channel.queue_declare(queue_name, passive=True).message_count == 1
        assert channel.queue_purge(queue_name) == 1
        channel.queue_delete(queue_name)
        app.close()

    assert refusals(root, url) == []


def test_only_a_consumer_can_have_the_permissions_of_celery() -> None:
    with pytest.raises(duly.UsageError, match="so it needs the role consumer"):
        rules("producer", "valkey-9.1", celery=True)
