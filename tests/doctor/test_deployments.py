"""Checks of several nodes together, and the examination of a cluster and of a sentinel service."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import duly
from duly._core.topology import Node, SlotMap, read_slots
from duly.doctor import Finding, Report, examine
from duly.doctor.deployment import (
    HEAVY,
    Deployment,
    SentinelView,
    findings_of_cluster,
    findings_of_service,
)
from duly.doctor.facts import Facts, Keyspace, Missing, Permissions, Skew, SlotLoad
from duly.doctor.nodes import Member
from tests.conftest import need
from tests.doctor.healthy import changed
from tests.scale.cluster import ClusterRig
from tests.scale.sentinels import SERVICE, SentinelRig

ONE, TWO, COPY, COPY_OF_TWO = (Node(f"10.0.0.{number}", 7000) for number in (1, 2, 3, 4))
SETTINGS = {"cluster-require-full-coverage": "no", "cluster-node-timeout": "5000"}
NODE = changed(settings=SETTINGS)


def slots_of(*ranges: tuple[int, int]) -> SlotMap:
    rows = zip(ranges, (ONE, TWO), (COPY, COPY_OF_TWO), strict=False)
    return read_slots(
        [[first, last, *([host.encode(), port, b"id"] for host, port in nodes)] for (first, last), *nodes in rows], ""
    )


WHOLE = slots_of((0, 8191), (8192, 16_383))


def members(**facts: Facts | Exception) -> list[Member]:
    """Two primaries with a replica each. Those that are named have other facts, or cannot be examined."""
    found = []
    for node, name in ((ONE, "one"), (TWO, "two"), (COPY, "copy"), (COPY_OF_TWO, "copy_of_two")):
        given = facts.get(name, NODE)
        is_primary = name in ("one", "two")
        found.append(
            Member(node, is_primary, None, given) if isinstance(given, Exception) else Member(node, is_primary, given)
        )
    return found


def of_cluster(
    *, slots: SlotMap = WHOLE, seeds: tuple[Node, ...] = (ONE,), copies: Any = None, **facts: Facts | Exception
) -> dict[str, Finding]:
    deployment = Deployment(members(**facts), {ONE: 1, TWO: 1} if copies is None else copies)
    return {each.name: each for each in findings_of_cluster(deployment, slots, seeds)}


VIEW = SentinelView(ONE, sentinels=3, quorum=2, down_after=5.0, replicas=(COPY,))


def of_service(*views: SentinelView, **facts: Facts | Exception) -> dict[str, Finding]:
    """A primary with a replica, watched by sentinels."""
    watched = [each for each in members(**facts) if each.node in (ONE, COPY)]
    found = findings_of_service(Deployment(watched, {ONE: 1}), "shop", views or (VIEW,))
    return {each.name: each for each in found}


def settings(**values: str) -> Facts:
    return changed(settings={**SETTINGS, **{name.replace("_", "-"): value for name, value in values.items()}})


def is_ahead(seconds: float) -> Facts:
    return changed(settings=SETTINGS, skew=Skew(seconds, 0.0005))


def without_roles(*roles: str) -> Facts:
    lacking = {"producer": (), "consumer": ("+claim",), **dict.fromkeys(roles, ("+send",))}
    return changed(settings=SETTINGS, permissions=Permissions(lacking))


def loaded(messages: int) -> Facts:
    return changed(settings=SETTINGS, keyspace=Keyspace(loads=(SlotLoad(7, ("orders",), messages),)))


HIDDEN = changed(settings=Missing("the user may not run CONFIG GET", "+config|get"))

CLUSTER_CASES = {
    "nodes-ok": ({}, "nodes", "ok", "2 primaries and 2 replicas answer", ""),
    "nodes-gap": ({"slots": slots_of((0, 100))}, "nodes", "bad", "no primary serves 16283", "TAKEOVER"),
    "nodes-primary": ({"two": ConnectionError("refused")}, "nodes", "bad", "10.0.0.2:7000 cannot be", "announce"),
    "nodes-replica": ({"copy": ConnectionError("WRONGPASS")}, "nodes", "warn", "10.0.0.3:7000 cannot be", "users"),
    "copies-ok": ({}, "copies", "ok", "each primary has 1 replica: durable=1 survives", ""),
    "copies-some": ({"copies": {ONE: 1, TWO: 2}}, "copies", "ok", "1 to 2 replicas: durable=1 can", ""),
    "copies-none": ({"copies": {ONE: 1, TWO: 0}}, "copies", "warn", "without a replica: 10.0.0.2:7000", "REPLICATE"),
    "coverage-ok": ({}, "full-coverage", "ok", "continue", ""),
    "coverage-one": (
        {"two": settings(cluster_require_full_coverage="yes")},
        "full-coverage",
        "bad",
        "10.0.0.2:7000: the loss",
        "# on 10.0.0.2:7000:\nCONFIG SET cluster-require-full-coverage no",
    ),
    "coverage-unknown": ({"one": HIDDEN}, "full-coverage", "unknown", "CONFIG GET", "+config|get"),
    "timeout-ok": ({}, "node-timeout", "ok", "5 s", ""),
    "timeout-long": (
        {"copy": settings(cluster_node_timeout="15000")},
        "node-timeout",
        "warn",
        "a fail-over takes about 30 s",
        "CONFIG SET cluster-node-timeout 5000",
    ),
    "timeout-unknown": ({"one": HIDDEN}, "node-timeout", "unknown", "CONFIG GET", "+config|get"),
    "versions-ok": ({}, "versions", "ok", "Redis 7.4.9 on every node", ""),
    "versions-two": (
        {"copy": changed({"redis_version": "7.2.1"}, SETTINGS)},
        "versions",
        "warn",
        "Redis 7.2.1 on 10.0.0.3:7000",
        "one version",
    ),
    "users-ok": ({}, "users", "ok", "user 'app' has the same roles", ""),
    "users-replica": (
        {"copy": without_roles("producer")},
        "users",
        "warn",
        "lacks permissions for producer on 10.0.0.3:7000",
        "every node",
    ),
    "users-primary": ({"two": without_roles("producer")}, "users", "bad", "producer on 10.0.0.2:7000", "every node"),
    "clocks-ok": ({"two": is_ahead(0.05)}, "node-clocks", "ok", "at most 50 ms apart", ""),
    "clocks-apart": ({"two": is_ahead(0.5)}, "node-clocks", "warn", "10.0.0.2:7000 is 0.50 s ahead of", "chrony"),
    "clocks-far": ({"copy": is_ahead(1.4)}, "node-clocks", "bad", "10.0.0.3:7000 is 1.40 s ahead of", "chrony"),
    "seeds-ok": ({"seeds": (ONE, Node("gone", 1))}, "seeds", "ok", "1 of 2 hosts", ""),
    "seeds-gone": ({"seeds": (Node("gone", 1),)}, "seeds", "warn", "gone:1", "10.0.0.1:7000, 10.0.0.2:7000"),
    "slots-ok": ({"one": loaded(HEAVY - 1)}, "heavy-slots", "ok", "no slot has 1,000,000 messages", ""),
    "slots-heavy": (
        {"two": loaded(HEAVY)},
        "heavy-slots",
        "warn",
        "10.0.0.2:7000: slot 7 has 1,000,000 messages of orders",
        "CLUSTER MIGRATESLOTS",
    ),
    "slots-unknown": (
        {"one": changed(settings=SETTINGS, keyspace=Missing("the user may not run SCAN", "+scan"))},
        "heavy-slots",
        "unknown",
        "SCAN",
        "+scan",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CLUSTER_CASES.values(), ids=CLUSTER_CASES)
def test_a_cluster(case: tuple[dict[str, Any], str, str, str, str]) -> None:
    changes, name, verdict, found, mend = case
    finding = of_cluster(**changes)[name]

    assert (finding.verdict, finding.why != "") == (verdict, True), finding
    assert found in finding.found
    assert mend in finding.fix


def view(number: int = 1, **values: Any) -> SentinelView:
    return SentinelView(**{"node": Node("s", number), "sentinels": 3, "quorum": 2, "down_after": 5.0, **values})


SERVICE_CASES: dict[str, Any] = {
    "sentinels-ok": ((view(1), view(2)), {}, "sentinels", "ok", "3 watch 'shop', quorum 2", ""),
    "sentinels-few": ((view(sentinels=2),), {}, "sentinels", "warn", "2 watch", "three sentinels"),
    "sentinels-quorum": ((view(quorum=4),), {}, "sentinels", "bad", "never agree", "SENTINEL SET shop quorum 2"),
    "sentinels-silent": ((view(1), view(2, trouble="refused")), {}, "sentinels", "warn", "s:2: refused", "address"),
    "sentinels-differ": ((view(1), view(2, quorum=3)), {}, "sentinels", "warn", "do not agree", "RESET shop"),
    "down-after-ok": ((view(),), {}, "down-after", "ok", "5 s", ""),
    "down-after-long": (
        (view(down_after=30.0),), {}, "down-after", "warn", "30 s", "SENTINEL SET shop down-after-milliseconds 5000",
    ),
    "nodes-ok": ((), {}, "nodes", "ok", "1 primary and 1 replica answer", ""),
    "nodes-replica": ((), {"copy": OSError("refused")}, "nodes", "warn", "10.0.0.3:7000 cannot be", "replica-announce"),
    "copies-ok": ((), {}, "copies", "ok", "each primary has 1 replica: durable=1", ""),
    "versions-two": ((), {"copy": changed({"redis_version": "6.2.1"})}, "versions", "warn", "Redis 6.2.1", "version"),
    "users-replica": ((), {"copy": without_roles("producer")}, "users", "warn", "producer on 10.0.0.3:7000", "every"),
    "clocks-apart": ((), {"copy": is_ahead(0.2)}, "node-clocks", "warn", "0.20 s ahead", "chrony"),
    "clocks-far": ((view(down_after=1.0),), {"copy": is_ahead(0.3)}, "node-clocks", "bad", "0.30 s ahead", "chrony"),
}  # fmt: skip


@pytest.mark.parametrize("case", SERVICE_CASES.values(), ids=SERVICE_CASES)
def test_a_service(case: tuple[tuple[SentinelView, ...], dict[str, Any], str, str, str, str]) -> None:
    views, changes, name, verdict, found, mend = case
    finding = of_service(*views, **changes)[name]

    assert (finding.verdict, finding.why != "") == (verdict, True), finding
    assert found in finding.found
    assert mend in finding.fix


def test_every_check_has_a_case() -> None:
    assert {name for _, name, *_ in CLUSTER_CASES.values()} == of_cluster().keys()
    assert {name for _, _, name, *_ in SERVICE_CASES.values()} == of_service().keys()


# On real nodes

LOADED = ("latency", "stalls", "disk", "known-flaws", "script-cache")
"""Checks that depend on the load of the machine, and on the age of the server."""


def verdicts(report: Report) -> dict[str, str]:
    return {each.name: each.verdict for each in report.findings if each.name not in LOADED and each.verdict != "ok"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterRig]:
    need("valkey")
    with ClusterRig("valkey") as found:
        yield found


@pytest.fixture(scope="module")
def service() -> Iterator[SentinelRig]:
    need("valkey")
    with SentinelRig("valkey") as found:
        yield found


def examined(url: str) -> Report:
    with duly.Duly(url) as app:
        return examine(app)


@pytest.mark.fault
class TestCluster:
    """A real cluster."""

    def test_a_good_cluster_is_ok(self, cluster: ClusterRig) -> None:
        with duly.Duly(cluster.url) as app:
            for number in range(5):
                app.queue(f"q{number}").send("x")
        report = examined(cluster.url)

        assert verdicts(report) == {}
        assert report.finding("nodes").found == "3 primaries and 3 replicas answer"
        assert "durable=1" in report.finding("copies").found

    def test_settings_of_one_node_are_found(self, cluster: ClusterRig) -> None:
        node, replica = cluster.primaries[1], cluster.replicas_of(cluster.primaries[2])[0]
        with ExitStack() as undo:
            for where, name, bad, good in (
                (node, "cluster-require-full-coverage", "yes", "no"),
                (node, "cluster-node-timeout", "15000", "2000"),
                (replica, "maxmemory-policy", "allkeys-lru", "noeviction"),
            ):
                where.run("CONFIG", "SET", name, bad)
                undo.callback(where.run, "CONFIG", "SET", name, good)
            report = examined(cluster.url)

        assert verdicts(report) == {"full-coverage": "bad", "node-timeout": "warn", "eviction": "bad"}
        assert str(node.node) in report.finding("full-coverage").fix
        assert str(replica.node) in report.finding("eviction").found

    def test_a_user_that_a_replica_lacks_is_found(self, cluster: ClusterRig) -> None:
        *most, last = cluster.nodes
        user = ("ACL", "SETUSER", "app", "on", ">sesame", "~*", "+@all")
        for node in most:
            node.run(*user)
        url = cluster.url.replace("://", "://app:sesame@")
        lacks = examined(url)
        last.run(*user, "-blpop")
        may_less = examined(url)
        for node in cluster.nodes:
            node.run("ACL", "DELUSER", "app")

        assert (lacks.finding("nodes").verdict, "WRONGPASS" in lacks.finding("nodes").found) == ("warn", True)
        assert may_less.finding("nodes").verdict == "ok"
        assert f"consumer, producer on {last.node}" in may_less.finding("users").found

    def test_an_address_without_a_node_of_today_is_found(self, cluster: ClusterRig) -> None:
        url = cluster.url.replace("127.0.0.1", "localhost")

        assert examined(url).finding("seeds").verdict == "warn"


@pytest.mark.fault
class TestService:
    """A real primary with two replicas and three sentinels."""

    def test_a_good_service_is_ok(self, service: SentinelRig) -> None:
        report = examined(service.url)

        assert set(verdicts(report)) <= {"replicas"}  # min-replicas-to-write
        assert report.finding("sentinels").found == f"3 watch {SERVICE!r}, quorum 2"
        assert report.finding("down-after").found == "1 s"
        assert report.finding("nodes").found == "1 primary and 2 replicas answer"
        assert "2 replicas: durable=2" in report.finding("copies").found
        assert "node-clocks" in {each.name for each in report.findings}

    def test_settings_of_sentinels_and_replicas_are_found(self, service: SentinelRig) -> None:
        replica = service.replicas[0]
        try:
            for sentinel in service.sentinels:
                sentinel.run("SENTINEL", "SET", SERVICE, "down-after-milliseconds", 30_000)
                sentinel.run("SENTINEL", "SET", SERVICE, "quorum", 4)
            replica.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            report = examined(service.url)
        finally:
            for sentinel in service.sentinels:
                sentinel.run("SENTINEL", "SET", SERVICE, "quorum", 2)
                sentinel.run("SENTINEL", "SET", SERVICE, "down-after-milliseconds", 1000)
            replica.run("CONFIG", "SET", "maxmemory-policy", "noeviction")

        assert report.finding("down-after").verdict == "warn"
        assert report.finding("sentinels").verdict == "bad"
        assert str(replica.node) in report.finding("eviction").found

    def test_a_replica_and_a_sentinel_that_are_away_are_found(self, service: SentinelRig) -> None:
        replica, sentinel = service.replicas[0], service.sentinels[2]
        replica.kill9()
        sentinel.kill9()
        try:
            report = examined(service.url)
        finally:
            replica.start()
            sentinel.start()

        assert report.finding("nodes").verdict == report.finding("sentinels").verdict == "warn"
        assert str(replica.node) in report.finding("nodes").found
        assert str(sentinel.node) in report.finding("sentinels").found
