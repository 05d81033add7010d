"""The conformance suite as users: each call is sent by a user whose role may make it, never by the default user."""

import pytest
import redis

import duly
from duly._core.address import parse
from duly._sync.link import Link
from tests.acl.routed import LEAST_FIRST, create_users, routing, user_of
from tests.binaries import KINDS
from tests.conftest import StartedServer, need
from tests.servers import Server


@pytest.mark.fault
def test_each_call_is_sent_by_the_least_role_that_may(queue_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need("valkey")
    with Server("valkey") as own, redis.Redis.from_url(own.url) as client:
        create_users(own.url)
        monkeypatch.setattr("duly._sync.app.Link", routing(LEAST_FIRST))
        with duly.Duly(own.url) as app:
            seen = []
            for act in (
                lambda: app.queue(queue_name).stats(),
                lambda: app.queue(queue_name).send("body"),
                lambda: app.queue(queue_name).receive(),
                lambda: app.queue(queue_name).pause(),
            ):
                act()
                seen.append({row["user"] for row in client.client_list()} - {"default"})

    users = list(map(user_of, LEAST_FIRST))
    assert seen == [set(users[: count + 1]) for count in range(4)]


def test_a_url_with_a_user_keeps_its_user(server: StartedServer) -> None:
    address = parse(server(KINDS[0]).url.replace("://", "://nobody:wrong@"))
    link = routing(LEAST_FIRST)(address, patience=1, allow_eviction=False)

    assert isinstance(link, Link)
    link.close()
