"""The everyday calls of each role on a cluster and with Sentinel, with the permissions of the role on every node."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import duly
from duly._sync.survey import survey_nodes
from duly.acl import PASSWORD, ROLES, rules, setuser
from duly.doctor import examine
from tests.acl.users import SECRET, url_as
from tests.conftest import need
from tests.scale.cluster import ClusterRig
from tests.scale.nodes import RigNode
from tests.scale.sentinels import SentinelRig

pytestmark = pytest.mark.fault

SENTINEL_USER: Final = ("+sentinel|master", "+sentinel|get-master-addr-by-name")
"""The rules that docs/acl.md names."""
QUEUES: Final = tuple(f"{'q' * length}{length}" for length in range(1, 10))
"""Names of different lengths, so that each node of a cluster has some."""


def give_rights(nodes: list[Any], *, cluster: bool) -> None:
    for role in ROLES:
        line = setuser(f"duly-{role}", rules(role, "valkey-9.1", cluster=cluster))
        for node in nodes:
            node.run(*line.replace(f">{PASSWORD}", f">{SECRET}").split(" "))


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterRig]:
    need("valkey")
    with ClusterRig("valkey") as rig:
        give_rights(rig.nodes, cluster=True)
        yield rig


@pytest.fixture(scope="module")
def service() -> Iterator[SentinelRig]:
    need("valkey")
    with SentinelRig("valkey", replicas=1) as rig:
        give_rights(rig.nodes, cluster=False)
        for sentinel in rig.sentinels:
            sentinel.run("ACL", "SETUSER", "duly", "on", f">{SECRET}", "-@all", *SENTINEL_USER)
        yield rig


@pytest.fixture(params=["cluster", "service"])
def rig(request: pytest.FixtureRequest) -> ClusterRig | SentinelRig:
    found: ClusterRig | SentinelRig = request.getfixturevalue(request.param)
    for node in found.nodes:
        node.run("ACL", "LOG", "RESET")
    return found


def url_of(rig: ClusterRig | SentinelRig, role: str) -> str:
    url = url_as(rig.url, f"duly-{role}")
    return url if isinstance(rig, ClusterRig) else f"{url}?sentinel_username=duly&sentinel_password={SECRET}"


def denied_at(node: RigNode) -> list[tuple[bytes, bytes]]:
    """Return the users and commands that a node has denied."""
    rows = [dict(zip(row[0::2], row[1::2], strict=True)) for row in node.run("ACL", "LOG")]
    return [(row[b"username"], row[b"object"]) for row in rows]


@pytest.fixture
def app_of(rig: ClusterRig | SentinelRig) -> Iterator[Callable[[str], duly.Duly]]:
    apps: list[duly.Duly] = []

    def make(role: str) -> duly.Duly:
        apps.append(duly.Duly(url_of(rig, role)))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


AppOf = Callable[[str], duly.Duly]


def test_a_producer_sends_on_every_node(rig: ClusterRig | SentinelRig, app_of: AppOf) -> None:
    app = app_of("producer")
    for name in QUEUES:
        queue = app.queue(name)
        assert queue.cancel(queue.send("a", delay=60))
        queue.send("b", durable=1, dedup=name)
        app.topic(name).publish("c")
        assert app.schedule(name, name, "tick", every=3600)
        assert app.unschedule(name)
        with app.lock(name, ttl=5):
            pass

    assert [denied_at(node) for node in rig.nodes] == [[]] * len(rig.nodes)


async def test_a_consumer_works_on_every_node(rig: ClusterRig | SentinelRig) -> None:
    handled = asyncio.Queue[str]()

    async with duly.AsyncDuly(url_of(rig, "consumer")) as app:
        for name in QUEUES:

            async def handle(body: str) -> None:
                handled.put_nowait(body)

            app.queue(f"work-{name}").handler(handle)
        async with duly.Worker(app):
            for name in QUEUES:
                await app.queue(f"work-{name}").send(name)
            assert sorted([await asyncio.wait_for(handled.get(), 60) for _ in QUEUES]) == sorted(QUEUES)
        waits = asyncio.create_task(app.queue("waits").receive(wait=60))
        await app.queue("waits").send("x")
        (found,) = await waits
        await found.ack()

    assert [denied_at(node) for node in rig.nodes] == [[]] * len(rig.nodes)


def test_an_observer_inspects_every_node(rig: ClusterRig | SentinelRig, app_of: AppOf) -> None:
    for name in QUEUES:
        app_of("admin").queue(f"seen-{name}").send("x")
    app = app_of("observer")

    assert {f"seen-{name}" for name in QUEUES} <= set(app.queues())
    assert {f"seen-{name}" for name in QUEUES} <= set(survey_nodes(app).queues())
    for name in QUEUES:
        queue = app.queue(f"seen-{name}")
        assert queue.stats().sent >= 1
        assert len(queue.list("ready")) >= 1
        assert queue.audit().ok
    app.topics()
    app.workers()
    app.schedules()
    assert [denied_at(node) for node in rig.nodes] == [[]] * len(rig.nodes)


def test_an_admin_manages_queues_on_every_node(rig: ClusterRig | SentinelRig, app_of: AppOf) -> None:
    app = app_of("admin")
    for name in QUEUES:
        queue = app.queue(f"managed-{name}")
        queue.send("x")
        (delivery,) = queue.receive()
        delivery.reject("no use")
        assert queue.redrive() == 1
        assert queue.audit(repair=True).ok
        assert queue.purge() == 1
        queue.delete()

    assert [denied_at(node) for node in rig.nodes] == [[]] * len(rig.nodes)


@pytest.mark.parametrize("role", ROLES)
def test_doctor_examines_with_the_rights_of_a_role(rig: ClusterRig | SentinelRig, app_of: AppOf, role: str) -> None:
    report = examine(app_of(role))

    assert report.finding("users").verdict == "ok", report.finding("users")
    assert report.finding("nodes").verdict == "ok"
    assert role in report.finding("rights").found
    assert any(denied_at(node) for node in rig.nodes)  # CONFIG GET, which no role has


def test_calls_of_a_producer_survive_a_fail_over(rig: ClusterRig | SentinelRig, app_of: AppOf) -> None:
    app = app_of("producer")
    app.queue("waits").send("before")
    if isinstance(rig, ClusterRig):
        owner = rig.owner_of(app.queue("waits")._keys.slot)
        rig.fail_over(rig.replicas_of(owner)[0])
    else:
        rig.fail_over("COORDINATED")
    app.queue("waits").send("after")

    assert app_of("admin").queue("waits").stats().sent >= 2
    assert [denied_at(node) for node in rig.nodes] == [[]] * len(rig.nodes)
