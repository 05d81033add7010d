"""Clusters, and servers that may become one: calls work or fail as the report states."""

import asyncio

import pytest
import redis
from redis.crc import key_slot

import duly
from duly.doctor import examine
from duly.doctor.client import Client, connected
from duly.doctor.facts import Missing
from duly.doctor.keyspace import layout, slots_of
from duly.doctor.scan import Scan, scan_keys
from duly.errors import ServerError
from tests.binaries import Kind
from tests.doctor.clusters import CONFIG, one_node, two_nodes
from tests.servers import Server

pytestmark = pytest.mark.fault


def fill(app: duly.Duly) -> None:
    """Use everything that has keys: two queues, a topic with a group, a schedule, a lock that is held."""
    orders = app.queue("orders", done=duly.Keep(count=10))
    orders.send("later", delay=60)
    orders.send("x", key="k", priority=7, dedup="once")
    app.queue("bills").send("x")
    app.topic("events").publish("x")
    app.topic("events").group("archive").receive(wait=0)
    app.schedule("nightly", "orders", "x", every=3600)


def scanned(app: duly.Duly) -> Scan:
    with connected(app._address) as wire:
        scan = scan_keys(Client(wire, app.namespace), app.namespace, 1000)
    assert not isinstance(scan, Missing)
    return scan


def name_in(slots: range) -> str:
    """Return a name whose queue is in one of these slots."""
    return next(name for number in range(1000) if key_slot((name := f"q{number}").encode()) in slots)


def test_every_queue_could_move_to_a_cluster_unchanged(kind: Kind) -> None:
    with Server(kind) as server, duly.Duly(server.url) as app:
        empty = examine(app).finding("slots")
        fill(app)
        with app.lock("stock:{42}"):
            report = examine(app)

    assert (empty.verdict, empty.found) == ("ok", "no keys yet")
    assert report.finding("cluster").found == "off"
    assert report.finding("slots").verdict == "ok"
    # two queues, the topic with its group, the list of schedules, the lock
    assert report.finding("slots").found.startswith("each of 5 queues, topics, locks and registries")
    assert "redrive(to=)" in report.finding("slots").why


def test_the_slots_are_those_of_the_server(kind: Kind) -> None:
    with one_node(kind) as server, duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        fill(app)
        scan = scanned(app)

        found = slots_of(scan.owners)

        expected = {
            owner: {client.execute_command("CLUSTER", "KEYSLOT", tag)}
            for owner, tag in {
                "orders": "orders",
                "bills": "bills",
                "topic events": "@events",
                "~schedules": "~schedules",
            }.items()
        }
        assert found == expected
        assert sum(map(len, scan.owners.values())) == client.dbsize()


def test_keys_without_their_tag_are_reported_in_several_slots() -> None:
    scan = Scan(None, "duly", 3, is_complete=True, ends_at=0.0)  # type: ignore[arg-type]
    scan.owners["queue", "whole"] = {"meta": b"duly:{whole}:meta", "msgs": b"duly:{whole}:msgs"}
    scan.owners["queue", "torn"] = {"meta": b"duly:torn:meta", "msgs": b"duly:torn:msgs"}
    scan.owners["topic", "events"] = {"stream": b"duly:{@events}:stream"}
    scan.owners["group", "events/archive"] = {"meta": b"duly:{archive}:meta"}

    assert layout(scan).owners == 3
    assert layout(scan).split == ("torn", "topic events")


def test_a_node_with_all_slots_refuses_only_calls_over_several(kind: Kind) -> None:
    with one_node(kind) as server, duly.Duly(server.url) as app:
        fill(app)
        report = examine(app)

        assert report.ok
        assert report.finding("cluster").verdict == "warn"
        assert "commit() beyond its own queue and redrive(to=) are refused" in report.finding("cluster").found
        assert "A worker for several queues is not woken" in report.finding("cluster").found
        assert report.finding("slots").verdict == "ok"

        orders = app.queue("orders")
        (first,) = orders.receive(wait=0)
        with pytest.raises(ServerError, match="slot"):
            first.commit(send=[(app.queue("bills"), "x")])
        with pytest.raises(ServerError, match="slot"):
            first.commit(redis=[("INCR", "stock")])
        first.commit(send=[(orders, "again")])
        (second,) = orders.receive(wait=0)
        second.reject("no")
        with pytest.raises(ServerError, match="slot"):
            orders.redrive(to="bills")
        assert (orders.stats().dead, app.queue("bills").stats().ready) == (1, 1)  # nothing moved
        assert orders.redrive() == 1
        with redis.Redis.from_url(server.url) as client, pytest.raises(redis.ResponseError, match="slot"):
            client.blpop(["duly:{orders}:wake", "duly:{bills}:wake"], timeout=1)  # like a worker that waits for both
        with app.lock("stock"):
            assert sorted(app.queues()) == ["bills", "orders"]


def test_a_namespace_in_braces_is_in_one_slot(kind: Kind) -> None:
    with one_node(kind) as server, duly.Duly(server.url, namespace="{shop}") as app:
        fill(app)
        orders, bills = app.queue("orders"), app.queue("bills")
        (first,) = orders.receive(wait=0)
        first.commit(send=[(bills, "x")], publish=[(app.topic("events"), "x")], redis=[("INCR", "stock:{shop}:1")])
        orders.send("dead")
        (second,) = orders.receive(wait=0)
        second.reject("no")
        assert orders.redrive(to="bills") == 1
        with app.lock("stock"):
            report, scan = examine(app), scanned(app)

    assert report.ok
    assert report.finding("slots").verdict == report.finding("orphans").verdict == "ok"
    assert report.finding("slots").found.startswith("each of 5 queues, topics, locks and registries")
    assert set(slots_of(scan.owners)) == {"bills", "orders", "topic events", "~lock:stock", "~schedules"}
    assert set.union(*slots_of(scan.owners).values()) == {key_slot(b"shop")}
    assert scan.unknown_keys == []


async def test_a_worker_of_many_queues_in_braces_is_woken(kind: Kind) -> None:
    handled = asyncio.Queue[str]()

    async def handle(body: str) -> None:
        handled.put_nowait(body)

    with one_node(kind) as server:
        async with duly.AsyncDuly(server.url, namespace="{shop}") as app:
            for name in ("orders", "bills"):
                app.queue(name).handler(handle)
            async with duly.Worker(app):
                for name in ("orders", "bills", "orders"):
                    await app.queue(name).send(name)
                    assert await asyncio.wait_for(handled.get(), 30) == name


def test_one_of_two_nodes_has_its_own_queues_and_no_others(kind: Kind) -> None:
    here, there = name_in(range(8192)), name_in(range(8192, 16_384))
    with two_nodes(kind) as (first, second), duly.Duly(first.url) as app, duly.Duly(second.url) as other:
        app.queue(here).send("x")
        other.queue(there).send("x")
        report = examine(app)

        assert not report.ok
        assert "one of 2 nodes" in report.finding("cluster").found
        assert "cluster-enabled no" in report.finding("cluster").fix
        assert report.finding("slots").found.startswith("each of 1 ")
        with pytest.raises(ServerError):
            app.queue(there).send("x")
        assert (app.queues(), other.queues()) == ([here], [there])


def test_a_node_without_slots_is_not_up(kind: Kind) -> None:
    with Server(kind, CONFIG) as server, duly.Duly(server.url, patience=0.1) as app:
        finding = examine(app).finding("cluster")

        assert finding.verdict == "bad"
        assert "not up: 0 of 16384 hash slots are served" in finding.found
        with pytest.raises(ServerError):
            app.queue("orders").send("x")


def test_a_user_without_permission_for_cluster_info_still_learns_of_the_cluster(kind: Kind) -> None:
    with one_node(kind) as server, redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">sesame", "~*", "+@all", "-cluster")
        with duly.Duly(server.url.replace("redis://", "redis://app:sesame@")) as app:
            finding = examine(app).finding("cluster")

    assert finding.verdict == "bad"
    assert "the number of nodes is unknown" in finding.found
