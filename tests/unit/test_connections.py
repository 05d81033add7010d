"""The pools of an app whose nodes change."""

import pytest

from duly._core.address import parse
from duly._core.resp import ErrorReply
from duly._core.topology import Node
from duly._sync.connections import Connections
from duly._sync.routing import SentinelRouter
from duly.errors import UsageError


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


def test_a_call_that_is_redirected_after_the_end_opens_no_connection() -> None:
    connections = Connections(parse("redis+cluster://a:1"), allow_eviction=False)
    router = connections.router
    first = router.redirected(connections._new_pool(Node("a", 1)), ErrorReply("MOVED 7 b:1"))
    assert first is not None
    connections.close()

    later = router.redirected(first.pool, ErrorReply("MOVED 7 c:1"))
    assert later is not None
    with pytest.raises(UsageError, match="is closed"):
        later.pool.take()
