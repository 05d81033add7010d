"""Clusters on this machine, of one node or of two."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from tests.binaries import Kind
from tests.servers import LOOPBACK, Server

CONFIG = {"appendonly": "yes", "cluster-enabled": "yes"}
ALL_SLOTS = 16_384


@contextmanager
def one_node(kind: Kind) -> Iterator[Server]:
    """Yield a node that has all slots."""
    with Server(kind, CONFIG) as server:
        _give(server, 0, ALL_SLOTS)
        _wait_until_up(server, nodes=1)
        yield server


@contextmanager
def two_nodes(kind: Kind) -> Iterator[tuple[Server, Server]]:
    """Yield two nodes: the first has the lower half of the slots, the second the upper."""
    with Server(kind, CONFIG) as first, Server(kind, CONFIG) as second:
        _give(first, 0, ALL_SLOTS // 2)
        _give(second, ALL_SLOTS // 2, ALL_SLOTS)
        with redis.Redis.from_url(second.url) as client:
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", 2)
            client.execute_command("CLUSTER", "MEET", LOOPBACK, first.port)
        for each in (first, second):
            _wait_until_up(each, nodes=2)
        yield first, second


def _give(server: Server, start: int, end: int) -> None:
    with redis.Redis.from_url(server.url) as client:
        for begin in range(start, end, 4096):  # 6.2 does not accept ranges
            client.execute_command("CLUSTER", "ADDSLOTS", *range(begin, begin + 4096))


def _wait_until_up(server: Server, nodes: int) -> None:
    deadline = time.monotonic() + 30
    with redis.Redis.from_url(server.url) as client:
        while True:
            reply = client.execute_command("CLUSTER", "INFO")
            if b"cluster_state:ok" in reply and b"cluster_size:%d" % nodes in reply:
                return
            assert time.monotonic() < deadline, reply
            time.sleep(0.02)
