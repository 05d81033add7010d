"""How much a group has not read is right after a restart and after a fail-over.

Redis 7.0 stores the reads of a group in a base file or in a full sync, and does not carry them over from then on.
Entries that were read since are reported as a lag that does not go away.
"""

from typing import Any

import pytest
import redis

import duly
from tests.binaries import Kind
from tests.conftest import need
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault


@pytest.fixture(params=["redis7", "valkey"])
def kind(request: pytest.FixtureRequest) -> Kind:
    need(request.param)
    return request.param  # type: ignore[no-any-return]


def publish_and_read(url: str, topic_name: str, entries: int, *, left: int = 0) -> None:
    """Publish entries, and have the group read and finish all but the last `left`."""
    with duly.Duly(url) as app:
        topic = app.topic(topic_name, keep=duly.Keep(count=1000))
        group = topic.group("readers")
        group.create()
        topic.publish_many(list(range(entries)))
        to_read = entries - left
        while to_read and (batch := group.receive(min(to_read, 30), wait=5)):
            assert group.ack_many(batch) == []
            to_read -= len(batch)
        assert to_read == 0


def assert_unread(url: str, topic_name: str, unread: int) -> None:
    with duly.Duly(url) as app:
        topic = app.topic(topic_name, keep=duly.Keep(count=1000))
        group = topic.group("readers")
        (seen,) = topic.groups()
        stats = group.stats()
        assert (seen.unread, stats.unread, stats.ready, stats.live) == (unread, unread, unread, unread)
        assert group.purge("ready") == unread
        assert group.receive(wait=0) == []


@pytest.mark.parametrize("left", [0, 7])
def test_unread_is_right_after_a_restart_from_the_append_only_file(kind: Kind, queue_name: str, left: int) -> None:
    with Server(kind, {"appendonly": "yes", "appendfsync": "always"}) as server:
        publish_and_read(server.url, queue_name, 40)
        with redis.Redis.from_url(server.url) as client:
            client.bgrewriteaof()
            wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        publish_and_read(server.url, queue_name, 20, left=left)
        server.kill9()
        server.start()
        assert_unread(server.url, queue_name, left)


@pytest.mark.parametrize("left", [0, 7])
def test_unread_is_right_on_a_promoted_replica(kind: Kind, queue_name: str, left: int) -> None:
    with (
        Server(kind, {"repl-diskless-sync-delay": "0"}) as primary,
        Server(kind) as replica,
        redis.Redis.from_url(primary.url) as above,
        redis.Redis.from_url(replica.url) as below,
    ):
        publish_and_read(primary.url, queue_name, 40)
        below.replicaof("127.0.0.1", primary.port)
        wait_until(lambda: is_in_step(above, below))
        publish_and_read(primary.url, queue_name, 20, left=left)
        wait_until(lambda: is_in_step(above, below))
        below.replicaof("NO", "ONE")
        assert_unread(replica.url, queue_name, left)


def is_in_step(primary: Any, replica: Any) -> bool:
    seen = replica.info("replication")
    return bool(
        seen.get("master_link_status") == "up"
        and seen["slave_repl_offset"] == primary.info("replication")["master_repl_offset"]
    )
