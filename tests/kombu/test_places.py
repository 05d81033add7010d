"""The transport with Sentinel, on a cluster, and on the embedded server."""

import threading
from pathlib import Path

import kombu
import pytest

from tests.kombu.conftest import Connect, kept
from tests.kombu.test_messages import consume, publish
from tests.scale.cluster import ClusterRig
from tests.scale.sentinels import SentinelRig

pytestmark = pytest.mark.slow

QUEUES = [kombu.Queue(name, routing_key=name) for name in ("alpha", "beta", "gamma", "delta")]
FANOUT = kombu.Exchange("all", type="fanout")


def check(connect: Connect, url: str) -> None:
    """Consume several queues with one connection, and hear a broadcast."""
    consumer, producer = connect(url, lease=5), connect(url, lease=5)
    listener = kombu.Queue("listener", FANOUT, auto_delete=True)
    found: list[str] = []
    wanted = {*(queue.name for queue in QUEUES), "broadcast"}
    with kombu.Consumer(consumer, [*QUEUES, listener], on_message=lambda message: kept(found, message)):

        def send() -> None:
            for queue in QUEUES:
                publish(producer, queue, queue.name)
            producer.Producer(exchange=FANOUT).publish("broadcast")

        sender = threading.Timer(0.3, send)
        sender.start()
        while set(found) != wanted:
            consumer.drain_events(timeout=60)
        sender.join()
    assert len(found) == len(wanted)


def test_the_embedded_server_works(connect: Connect, tmp_path: Path) -> None:
    check(connect, f"duly+embedded://{tmp_path / 'data'}")


@pytest.mark.long
@pytest.mark.parametrize("namespace", ["spread", "{together}"])
def test_a_cluster_works_with_queues_in_several_slots_or_in_one(connect: Connect, namespace: str) -> None:
    with ClusterRig(replicas=0) as rig:
        check(lambda url, **options: connect(url, **{**options, "namespace": namespace}), f"duly+{rig.url}")


@pytest.mark.long
def test_a_consumer_follows_a_fail_over_of_sentinels(connect: Connect) -> None:
    with SentinelRig() as rig:
        url = f"duly+{rig.url}"
        check(connect, url)
        consumer = connect(url, patience=60)
        publish(consumer, QUEUES[0], "before")
        consume(consumer, QUEUES[0], 1)[0].ack()

        rig.primary.kill9()

        publish(consumer, QUEUES[0], "after")
        (message,) = consume(consumer, QUEUES[0], 1)
        assert message.payload == "after"
