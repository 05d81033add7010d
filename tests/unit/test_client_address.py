"""A redis-py client of a `Sentinel` gives its sentinels, its service and its credentials, but not its connections."""

from typing import Any

import pytest
import redis.asyncio.sentinel
import redis.sentinel

from duly._client_address import address_of_client
from duly._core.topology import Node
from duly.errors import UsageError

Sentinel: Any = redis.sentinel.Sentinel  # redis-py has no types for it
SENTINELS = [("10.0.0.1", 26379), ("10.0.0.2", 26380)]


@pytest.mark.parametrize("sentinel", [Sentinel, redis.asyncio.sentinel.Sentinel], ids=["sync", "async"])
def test_a_client_of_a_sentinel_gives_its_sentinels_and_its_service(sentinel: Any) -> None:
    manager = sentinel(SENTINELS, sentinel_kwargs={"password": "watch"}, username="app", password="secret", db=3)

    found = address_of_client(manager.master_for("shop"))

    assert (found.topology, found.kind, found.service) == ("sentinel", "tcp", "shop")
    assert found.seeds == (Node("10.0.0.1", 26379), Node("10.0.0.2", 26380))
    assert found.options == {"username": "app", "password": "secret", "db": 3}
    assert found.sentinel_options["password"] == "watch"
    assert found.shown == "redis+sentinel://10.0.0.1:26379,10.0.0.2:26380/shop"


def test_tls_is_for_servers_and_sentinels_alike() -> None:
    manager = Sentinel(SENTINELS, sentinel_kwargs={"ssl": True}, ssl=True)
    assert address_of_client(manager.master_for("shop")).kind == "tls"

    mixed = Sentinel(SENTINELS, ssl=True)
    with pytest.raises(UsageError, match="must all use TLS"):
        address_of_client(mixed.master_for("shop"))


def test_a_client_of_replicas_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot write: pass one of master_for"):
        address_of_client(Sentinel(SENTINELS).slave_for("shop"))
