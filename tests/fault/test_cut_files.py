"""A server that ends in the middle of a write: its file is cut at any byte, and every invariant holds."""

import random
from pathlib import Path
from typing import Final

import pytest

import duly
from tests.conftest import need
from tests.servers import Server

pytestmark = pytest.mark.fault

SETTINGS: Final = {"appendonly": "yes", "appendfsync": "always", "aof-load-truncated": "yes", "save": ""}
CUTS: Final = 24


def work(app: duly.Duly, name: str) -> None:
    """Use every way in which a message moves: delays, keys, retries, dead letters, recycling, a topic with a group."""
    queue = app.queue(name, dead=duly.Keep(count=3), done=duly.Keep(count=3))
    queue.send_many([duly.Send(number, key=f"k{number % 3}", priority=number % 10) for number in range(12)])
    queue.send("later", delay=3600, dedup="later")
    app.topic(name).publish_many(range(4))
    for number, delivery in enumerate(queue.receive(6, wait=0)):
        match number % 6:
            case 0:
                delivery.ack()
            case 1:
                delivery.retry(delay=0)
            case 2:
                delivery.reject("no use")
            case 3:
                delivery.recycle()
            case 4:
                delivery.commit(send=[(queue, "next")])
            case 5:
                delivery.release()
    group = app.topic(name).group("archive")
    for delivery in group.receive(2, wait=0):
        delivery.ack()
    queue.redrive()
    queue.purge("dead")


def file_of(server: Server) -> Path:
    (found,) = (server.directory / "appendonlydir").glob("*.incr.aof")
    return found


def test_a_file_that_is_cut_at_any_byte_keeps_every_invariant(queue_name: str, request: pytest.FixtureRequest) -> None:
    """Each script is one transaction in the file. One that is cut is left out whole."""
    need("valkey")
    seed = random.randrange(1 << 32)
    request.node.user_properties.append(("seed", seed))
    with Server("valkey", SETTINGS) as server, duly.Duly(server.url) as app:
        queue, group = app.queue(queue_name), app.topic(queue_name).group("archive")
        work(app, queue_name)
        server.kill9()
        whole = file_of(server).read_bytes()
        begin = whole.index(queue_name.encode())
        sent: list[int] = []
        for size in sorted(random.Random(seed).sample(range(begin, len(whole) + 1), CUTS)):
            file_of(server).write_bytes(whole[:size])
            server.start()
            for each in (queue, group, app.topic(queue_name)):
                audit = each.audit()
                assert audit.ok, (seed, size, audit)
            sent.append(queue.stats().sent)
            server.kill9()

    assert sent == sorted(sent), seed  # more of the file is a later state
    assert len(set(sent)) > 1, seed
