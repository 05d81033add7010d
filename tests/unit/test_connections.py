"""The pools of an app whose server sentinels name."""

import pytest

from duly._core.address import parse
from duly._core.topology import Node
from duly._sync.connections import Connections
from duly._sync.routing import SentinelRouter


def test_threads_that_learn_of_a_primary_at_once_share_its_pool() -> None:
    connections = Connections(parse("redis+sentinel://h1/mymaster"), allow_eviction=False)
    router = connections.router
    assert isinstance(router, SentinelRouter)
    router._switch(Node("a", 1))
    (first,) = router.pools

    router._switch(Node("a", 1))
    assert router.pools == [first]

    router._switch(Node("b", 1))
    assert router.pools != [first]
    with pytest.raises(ConnectionError, match="a:1 is no longer the primary"):
        first.take()
