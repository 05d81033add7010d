"""A queue and a group to damage on each real server, and the connection of another program."""

from collections.abc import Iterator

import pytest
import redis

from duly import Delivery, Duly, Keep
from tests.client._sync.given import take
from tests.client.conftest import OpenPlace
from tests.client.place import ServerPlace
from tests.client.repair.judge import LANES, LATER, LEASE, PLAIN, UNKEYED, Healthy
from tests.clock import miss_the_shim
from tests.conftest import need
from tests.matrix import SCRIPT_SERVERS


@pytest.fixture(params=SCRIPT_SERVERS)
def server(request: pytest.FixtureRequest, server_place: OpenPlace) -> Iterator[ServerPlace]:
    """Run the test on each real server."""
    need(request.param)
    found = server_place(request.param)
    if found._clock is None:
        miss_the_shim()
    yield found
    found.reset()


@pytest.fixture
def app(server: ServerPlace) -> Iterator[Duly]:
    with Duly(server.url) as app:
        yield app


@pytest.fixture
def stranger(server: ServerPlace) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def given_states(ids: dict[str, str], held: list[Delivery]) -> dict[str, Delivery]:
    """Settle deliveries, so that every state has a message."""
    out = {ids[delivery.id]: delivery for delivery in held}
    assert sorted(out) == sorted([*UNKEYED, "k1", "n1", "r1"])
    out["failed"].retry(LATER, error="no answer")
    out["r1"].retry(LATER, error="no answer")
    out["dead"].reject("no use")
    out["done"].ack()
    out["n1"].ack()
    return {name: out[name] for name in ("held", "k1")}


@pytest.fixture
def healthy(app: Duly, queue_name: str, stranger: redis.Redis) -> Healthy:
    queue = app.queue(queue_name, done=Keep(count=100), lease=LEASE)
    for key, names in LANES.items():
        for name in names:
            queue.send(name, id=name, key=key)
    for name in UNKEYED:
        queue.send(name, id=name)
    every = {name: name for name in [*(name for lane in LANES.values() for name in lane), *UNKEYED, *PLAIN]}
    held = given_states(every, take(queue))
    queue.send("ready", id="ready")
    queue.send("delayed", id="delayed", delay=LATER)
    queue.send("urgent", id="urgent", priority=5)
    queue.send("mortal", id="mortal", ttl=10 * LATER)
    queue.send("single", id="single", dedup="once", dedup_for=10 * LATER)
    return Healthy(queue, every, stranger, f"duly:{{{queue_name}}}:", held)


@pytest.fixture
def healthy_group(app: Duly, queue_name: str, stranger: redis.Redis) -> Healthy:
    topic = app.topic(queue_name, lease=LEASE)
    group = topic.group("archive")
    group.create()
    names: dict[str, str] = {}
    for key, lane in LANES.items():
        for name in lane:
            names[topic.publish(name, key=key)] = name
    for name in UNKEYED:
        names[topic.publish(name)] = name
    held = given_states(names, take(group))
    return Healthy(group, names, stranger, f"duly:{{@{queue_name}}}:group:archive:", held)
