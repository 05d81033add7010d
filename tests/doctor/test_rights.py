"""Users with few permissions: their roles are reported, and facts that they may not read are unknown."""

from collections.abc import Iterator

import pytest
import redis

import duly
from duly.acl import ROLES, rules
from duly.doctor import Report, examine
from tests.binaries import Kind
from tests.doctor.fixes import run
from tests.servers import Server

pytestmark = pytest.mark.fault

ASKED = ("valkey", "redis7")
"""Servers that can check the permissions of a user. Redis 6.2 cannot."""


@pytest.fixture
def server(kind: Kind) -> Iterator[Server]:
    with Server(kind, {"appendonly": "yes"}) as started:
        yield started


def given_user(server: Server, *given: str) -> str:
    """Create a user, and return the address with which it connects."""
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">sesame", *given)
    return server.url.replace("redis://", "redis://app:sesame@")


def rules_of(role: str, server: Server) -> list[str]:
    with redis.Redis.from_url(server.url) as client:
        return rules(role, {name: str(value) for name, value in client.info("server").items()})


def examined(url: str) -> Report:
    with duly.Duly(url) as app:
        return examine(app)


@pytest.mark.parametrize("role", ROLES)
def test_a_user_of_a_role_can_be_that_role(server: Server, role: str) -> None:
    finding = examined(given_user(server, *rules_of(role, server))).finding("rights")

    if server.kind == "redis6":  # which cannot check permissions
        assert finding.verdict == "unknown"
        return
    assert finding.verdict == "ok", finding
    roles = finding.found.removeprefix("user 'app' can be ").split(", ")
    assert role in roles
    assert ("admin" in roles) == (role == "admin")


def test_facts_that_a_consumer_may_not_read_are_unknown_until_it_has_the_named_rule(server: Server) -> None:
    url = given_user(server, *rules_of("consumer", server))
    with duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        app.queue("orders").send("x")
        app.topic("events").group("archive").receive(wait=0)
        client.zadd("duly:{~workers}:beats", {"host:1:aa": 1})
    report = examined(url)
    unknown = {each.name: each for each in report.findings if each.verdict == "unknown"}
    assert report.ok
    assert unknown["fsync"].found == "the user may not run CONFIG GET"
    assert unknown["fsync"].commands == ("ACL SETUSER app +config|get",)
    assert {"slow-log", "stalls", "orphans"} <= set(unknown)

    for _ in range(5):  # after SCAN is allowed, further rules are missing
        for each in examined(url).findings:
            if each.verdict == "unknown" and each.commands:
                run(each, server.url)

    left = {each.name for each in examined(url).findings if each.verdict == "unknown"}
    assert left == ({"rights"} if server.kind == "redis6" else set())


def test_a_user_without_permissions_gets_a_full_report(server: Server) -> None:
    report = examined(given_user(server, "+ping", "~duly:*"))

    verdicts = {each.name: each.verdict for each in report.findings}
    assert {verdicts[name] for name in verdicts if name not in ("connection", "rights", "keepalive")} == {"unknown"}
    assert report.finding("rights").verdict == "bad"
    assert "+eval" in report.finding("rights").found


@pytest.mark.parametrize("kind", ASKED, indirect=True)
def test_hidden_commands_are_found_without_command_info(kind: Kind) -> None:
    with Server(kind, {"appendonly": "yes", "rename-command": 'ZADD ""'}) as hiding, Server(kind) as whole:
        wanted = [rule for rule in rules_of("consumer", hiding) if rule != "+zadd"]
        hidden = examined(given_user(hiding, *wanted)).finding("commands")
        there = examined(given_user(whole, *rules_of("consumer", whole))).finding("commands")

    assert (hidden.verdict, "ZADD" in hidden.found) == ("bad", True), hidden
    assert there.verdict == "ok", there


@pytest.mark.parametrize("kind", ASKED, indirect=True)
def test_a_user_of_other_keys_lacks_the_keys(server: Server) -> None:
    finding = examined(given_user(server, "+@all", "~other:*")).finding("rights")

    assert finding.verdict == "bad"
    assert "which needs ~duly:{*}:*" in finding.found
    assert "duly acl --role" in finding.fix


@pytest.mark.parametrize("kind", ASKED, indirect=True)
def test_a_command_that_is_missing_is_named(server: Server) -> None:
    finding = examined(given_user(server, "+@all", "-zadd", "-hget", "~duly:*")).finding("rights")

    assert finding.verdict == "bad"
    assert "+hget" in finding.found
