"""The client on a cluster: calls reach the node of their slot, follow slots that move, and name the node that fails."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio
from redis.cluster import RedisCluster

import duly
from duly._core.keys import RegistryKeys
from duly.errors import ServerError, Unavailable, UsageError
from tests.conftest import need
from tests.matrix import SERVERS
from tests.scale.cluster import ClusterNode, ClusterRig
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module", params=SERVERS)
def rig(request: pytest.FixtureRequest) -> Iterator[ClusterRig]:
    need(request.param)
    with ClusterRig(request.param, replicas=0) as found:
        yield found


@pytest.fixture
def app(rig: ClusterRig) -> Iterator[duly.Duly]:
    with duly.Duly(rig.url, patience=20) as found:
        yield found


def on_each_node(rig: ClusterRig, app: duly.Duly, queue_name: str) -> list[duly.Queue[Any]]:
    """One queue on each node."""
    return [app.queue(rig.name_on(node, queue_name)) for node in rig.primaries]


def another_node(rig: ClusterRig, queue: duly.Queue[Any]) -> ClusterNode:
    owner = rig.owner_of(queue._keys.slot)
    return next(node for node in rig.primaries if node is not owner)


def test_queues_on_all_nodes_are_listed_and_drained(rig: ClusterRig, app: duly.Duly, queue_name: str) -> None:
    queues = on_each_node(rig, app, queue_name)
    for queue in queues:
        queue.send_many(range(20))
        queue.send("later", delay=0.3)

    assert {queue.name for queue in queues} <= set(app.queues())
    for queue in queues:
        bodies: list[Any] = []
        while len(bodies) < 21:
            for delivery in queue.receive(10, wait=10):
                bodies.append(delivery.body)
                delivery.ack()
        assert bodies == [*range(20), "later"]


def test_a_client_of_redis_py_gives_its_nodes(rig: ClusterRig, queue_name: str) -> None:
    host, port = rig.nodes[0].node
    with RedisCluster(host=host, port=port) as client, duly.Duly(client) as app:
        app.queue(queue_name).send("x")
        (delivery,) = app.queue(queue_name).receive(1, wait=10)
        assert delivery.body == "x"


async def test_an_async_client_of_redis_py_gives_its_nodes(rig: ClusterRig, queue_name: str) -> None:
    host, port = rig.nodes[0].node
    client: Any = redis.asyncio.RedisCluster(host=host, port=port)
    async with duly.AsyncDuly(client) as app:
        await app.queue(queue_name).send("x")
        (delivery,) = await app.queue(queue_name).receive(1, wait=10)
        assert delivery.body == "x"


def test_calls_follow_a_slot_that_moves_key_by_key(rig: ClusterRig, app: duly.Duly, queue_name: str) -> None:
    """Before the last key has moved the server refuses calls, since a script needs all keys. They are repeated."""
    queue, slot = app.queue(queue_name), app.queue(queue_name)._keys.slot
    target = another_node(rig, queue)
    queue.send_many(range(10))
    rig.begin_migration(slot, target)
    rig.move_keys(slot, target, 2)
    outcome: list[str] = []
    sender = threading.Thread(target=lambda: outcome.append(queue.send("during")))
    sender.start()
    sender.join(0.3)
    assert not outcome
    rig.move_keys(slot, target)
    rig.end_migration(slot, target)
    sender.join(30)

    assert len(outcome) == 1
    bodies = [delivery.body for delivery in queue.receive(20, wait=10)]
    assert bodies == [*range(10), "during"]
    assert queue.stats().sent == 11


def test_records_that_have_not_moved_yet_are_not_reported_as_lost(
    rig: ClusterRig, app: duly.Duly, queue_name: str
) -> None:
    """Redis 6.2 sends calls to the new node as soon as a key is missing on the old one."""
    queue, slot = app.queue(queue_name), app.queue(queue_name)._keys.slot
    source, target = rig.owner_of(slot), another_node(rig, queue)
    queue.send("before")
    rig.begin_migration(slot, target)
    keys = [key for key in source.run("CLUSTER", "GETKEYSINSLOT", slot, 100) if b":call:" not in key]
    source.run("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)
    sender = threading.Thread(target=queue.send, args=("during",))
    sender.start()
    sender.join(0.3)
    assert sender.is_alive()
    assert rig.move_keys(slot, target) == 1, "the record of the calls has moved already"
    rig.end_migration(slot, target)
    sender.join(30)

    assert app._link.rolled_back == 0
    assert queue.stats().sent == 2


def test_a_call_is_sent_to_the_node_that_takes_over_its_slot(rig: ClusterRig, app: duly.Duly, queue_name: str) -> None:
    """All keys have moved, and the slot has not: the old node answers ASK."""
    queue, slot = app.queue(queue_name), app.queue(queue_name)._keys.slot
    target = another_node(rig, queue)
    queue.send("before")
    rig.begin_migration(slot, target)
    rig.move_keys(slot, target)
    asked = int(target.info("commandstats").get("cmdstat_asking", "calls=0,").split("=")[1].split(",")[0])

    queue.pause()  # a script whose only key exists on the new node
    after = int(target.info("commandstats")["cmdstat_asking"].split("=")[1].split(",")[0])
    assert after > asked
    rig.end_migration(slot, target)
    assert queue.stats().paused


def test_a_waiting_consumer_follows_its_slot(rig: ClusterRig, app: duly.Duly, queue_name: str) -> None:
    queue, slot = app.queue(queue_name), app.queue(queue_name)._keys.slot
    queue.send("first")
    (first,) = queue.receive(1, wait=10)
    first.ack()
    found: list[Any] = []
    consumer = threading.Thread(target=lambda: found.extend(queue.receive(1, wait=60)))
    consumer.start()
    source, target = rig.owner_of(slot), another_node(rig, queue)
    wait_until(lambda: source.info("clients")["blocked_clients"] == "1", "the consumer waits")
    rig.migrate(slot, target)
    wait_until(lambda: target.info("clients")["blocked_clients"] == "1", "the consumer waits on the new node")
    queue.send("second")
    consumer.join(30)

    assert [delivery.body for delivery in found] == ["second"]


def test_a_script_that_one_node_forgot_is_sent_again(rig: ClusterRig, app: duly.Duly, queue_name: str) -> None:
    queues = on_each_node(rig, app, queue_name)
    for queue in queues:
        queue.send("before")
    rig.owner_of(queues[1]._keys.slot).run("SCRIPT", "FLUSH")
    for queue in queues:
        queue.send("after")
        assert queue.stats().ready == 2


class TestSlots:
    """Calls that name several queues or keys."""

    def test_a_commit_that_sends_to_another_slot_is_refused(
        self, rig: ClusterRig, app: duly.Duly, queue_name: str
    ) -> None:
        one, other, *_ = on_each_node(rig, app, queue_name)
        one.send("x")
        (delivery,) = one.receive(1, wait=10)
        with pytest.raises(UsageError, match=f"cannot go to queue '{other.name}': .* namespace='{{shop}}'"):
            delivery.commit(send=[(other, "y")])
        with pytest.raises(UsageError, match="cannot go to topic 'elsewhere'"):
            delivery.commit(publish=[(app.topic("elsewhere"), "y")])
        delivery.commit(send=[(one, "y")])

        assert (one.stats().ready, one.stats().acked) == (1, 1)

    def test_a_commit_names_keys_with_the_tag_of_its_queue(
        self, rig: ClusterRig, app: duly.Duly, queue_name: str
    ) -> None:
        one, *_ = on_each_node(rig, app, queue_name)
        one.send("x")
        (delivery,) = one.receive(1, wait=10)
        tag = f"{{{one.name}}}"
        with pytest.raises(UsageError, match=f"Put {tag} into the name of the key, as in stock:{tag}:1"):
            delivery.commit(redis=[("INCRBY", "stock:1", 1)])
        delivery.commit(redis=[("INCRBY", f"stock:{tag}:1", 5)])

        assert rig.owner_of(one._keys.slot).run("GET", f"stock:{tag}:1") == b"5"

    def test_redrive_to_another_slot_is_refused(self, rig: ClusterRig, app: duly.Duly, queue_name: str) -> None:
        one, other, *_ = on_each_node(rig, app, queue_name)
        one.send("x")
        (delivery,) = one.receive(1, wait=10)
        delivery.reject("no")
        with pytest.raises(UsageError, match=r"redrive\(to=\) on .* cannot go to"):
            one.redrive(to=other)

        assert one.stats().dead == 1

    def test_a_namespace_in_braces_keeps_everything_in_one_slot(self, rig: ClusterRig, queue_name: str) -> None:
        with duly.Duly(rig.url, namespace=f"{{{queue_name}}}") as app:
            one, other = app.queue("one"), app.queue("other")
            one.send("x")
            (delivery,) = one.receive(1, wait=10)
            delivery.commit(send=[(other, "y")], redis=[("SET", f"{{{queue_name}}}:mine", 1)])
            (moved,) = other.receive(1, wait=10)
            moved.reject("no")

            assert other.redrive(to=one) == 1
            assert app.queues() == ["one", "other"]


def test_one_server_is_not_a_cluster(queue_name: str) -> None:
    with Server("valkey") as server:
        url = server.url.replace("redis://", "redis+cluster://").removesuffix("/0")
        with duly.Duly(url) as app, pytest.raises(ServerError, match="not a node of a cluster: use redis://"):
            app.queue(queue_name).send("x")


def test_a_node_is_not_used_as_one_server(rig: ClusterRig, queue_name: str) -> None:
    with duly.Duly(rig.url) as app:
        queues = on_each_node(rig, app, queue_name)
    node = rig.primaries[0]
    other = next(queue for queue in queues if rig.owner_of(queue._keys.slot) is not node)
    with duly.Duly(f"redis://{node.node}") as app, pytest.raises(ServerError, match=r"use redis\+cluster://"):
        app.queue(other.name).send("x")


def test_a_wrong_password_is_refused_at_once(rig: ClusterRig, queue_name: str) -> None:
    began = time.monotonic()
    with (
        duly.Duly(rig.url.replace("://", "://nobody:wrong@", 1), patience=60) as app,
        pytest.raises(ServerError, match="WRONGPASS"),
    ):
        app.queue(queue_name).send("x")
    assert time.monotonic() - began < 50


def test_a_stopped_node_delays_no_call_to_another(rig: ClusterRig, queue_name: str) -> None:
    """The permits of one node do not suffice for all callers. Calls to the others end while those still wait."""
    with duly.Duly(rig.url, patience=60) as app:
        queues = on_each_node(rig, app, queue_name)
        for queue in queues:
            queue.send("before")
        stopped, *others = queues
        node = rig.owner_of(stopped._keys.slot)
        senders = [threading.Thread(target=stopped.send, args=("during",)) for _ in range(40)]
        node.freeze()
        try:
            for sender in senders:
                sender.start()
            for queue in others:
                queue.send("during")
                assert queue.stats().ready == 2
            assert all(sender.is_alive() for sender in senders)
        finally:
            node.thaw()
        for sender in senders:
            sender.join(60)
        assert stopped.stats().ready == 41


def test_an_error_names_the_node_that_is_away(queue_name: str) -> None:
    with ClusterRig(primaries=3, replicas=0) as rig, duly.Duly(rig.url, patience=1) as app:
        queues = on_each_node(rig, app, queue_name)
        for queue in queues:
            queue.send("x")
        node = rig.owner_of(RegistryKeys(app.namespace).slot)  # the list of workers is there as well
        lost = next(queue for queue in queues if rig.owner_of(queue._keys.slot) is node)
        others = [queue for queue in queues if queue is not lost]
        node.kill9()

        with pytest.raises(Unavailable, match=f"at {node.node} did not answer within 1 s"):
            lost.send("y")
        for call in (app.queues, app.topics, app.workers):
            with pytest.raises(Unavailable, match=f"at {node.node}"):
                call()
        for queue in others:
            queue.send("y")
            assert queue.stats().ready == 2


async def test_waits_of_an_async_client_follow_their_slots(rig: ClusterRig, queue_name: str) -> None:
    async with duly.AsyncDuly(rig.url, patience=20) as app:
        queue = app.queue(queue_name)
        slot = queue._keys.slot
        waiting = asyncio.create_task(queue.receive(1, wait=60))
        source = rig.owner_of(slot)
        target = next(node for node in rig.primaries if node is not source)

        def blocked(node: ClusterNode) -> bool:
            return node.info("clients")["blocked_clients"] == "1"

        await asyncio.to_thread(wait_until, lambda: blocked(source), "the consumer waits")
        await asyncio.to_thread(rig.migrate, slot, target)
        await asyncio.to_thread(wait_until, lambda: blocked(target), "the consumer waits on the new node")
        await queue.send("x")
        (delivery,) = await waiting
        await delivery.ack()

        assert (await queue.stats()).acked == 1
