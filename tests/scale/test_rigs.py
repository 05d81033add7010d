"""The rigs: they come up, fail over, move slots, are cut and healed, and leave nothing behind."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.cluster import RedisCluster

from duly._core import address
from duly._core.sentinel import read_role
from duly._core.topology import read_redirection, slot_of
from tests.binaries import Kind
from tests.conftest import need
from tests.matrix import SERVERS
from tests.scale import network
from tests.scale.cluster import ClusterRig
from tests.scale.network import Network
from tests.scale.nodes import SETTINGS, Refused, RigNode, is_alive
from tests.scale.sentinels import SERVICE, SentinelRig
from tests.servers import LOOPBACK, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

needs_network = pytest.mark.skipif(not network.is_allowed(), reason="network namespaces need the rights of root")


@pytest.fixture(scope="module", params=SERVERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterRig]:
    need(request.param)
    with ClusterRig(request.param) as rig:
        yield rig


@pytest.fixture(scope="module", params=SERVERS)
def sentinels(request: pytest.FixtureRequest) -> Iterator[SentinelRig]:
    need(request.param)
    with SentinelRig(request.param) as rig:
        yield rig


def client_of(rig: ClusterRig) -> Any:
    return RedisCluster(host=LOOPBACK, port=rig.nodes[0].port)


def test_a_cluster_comes_up(cluster: ClusterRig) -> None:
    primaries = cluster.primaries

    assert [len(cluster.replicas_of(each)) for each in primaries] == [1, 1, 1]
    assert address.parse(cluster.url).seeds == tuple(each.node for each in cluster.nodes)
    with client_of(cluster) as client:
        for number in range(30):
            assert client.set(f"up-{number}", number)
            key = f"up-{number}".encode()
            assert cluster.owner_of(key).run("GET", key) == b"%d" % number


def test_a_slot_moves_key_by_key(cluster: ClusterRig) -> None:
    slot = slot_of(b"tag")
    source = cluster.owner_of(slot)
    to = next(each for each in cluster.primaries if each is not source)
    for number in range(250):
        source.run("SET", f"{{tag}}{number}", number)

    cluster.begin_migration(slot, to)
    assert cluster.move_keys(slot, to, most=10) == 10
    with pytest.raises(Refused, match=f"ASK {slot} {to.node}"):
        source.run("GET", "{tag}gone")
    cluster.move_keys(slot, to)
    cluster.end_migration(slot, to)

    with pytest.raises(Refused, match="MOVED") as refused:
        source.run("GET", "{tag}1")
    error = read_redirection(str(refused.value).partition(": ")[2], "")
    assert error is not None
    assert (error.kind, error.slot, error.node) == ("moved", slot, to.node)
    with client_of(cluster) as client:
        assert [client.get(f"{{tag}}{number}") for number in (0, 249)] == [b"0", b"249"]


def test_slots_move_at_once(cluster: ClusterRig) -> None:
    if cluster.kind != "valkey":
        pytest.skip("CLUSTER MIGRATESLOTS is a command of Valkey 9")
    slot = slot_of(b"atomic")
    source = cluster.owner_of(slot)
    to = next(each for each in cluster.primaries if each is not source)
    source.run("SET", "{atomic}1", "x")

    cluster.migrate_at_once(slot, slot, to)

    assert to.run("GET", "{atomic}1") == b"x"


@pytest.mark.long
def test_a_node_joins_and_leaves(cluster: ClusterRig) -> None:
    slot = slot_of(b"guest")
    home = cluster.owner_of(slot)
    home.run("SET", "guest", "x")

    node = cluster.add_node()
    cluster.migrate(slot, node)
    assert node.run("GET", "guest") == b"x"
    cluster.migrate(slot, home)
    cluster.remove_node(node)

    cluster.wait_until_whole()
    assert home.run("GET", "guest") == b"x"
    assert len(cluster.nodes) == 6


@pytest.mark.long
def test_a_replica_takes_over_by_hand_and_after_a_kill(cluster: ClusterRig) -> None:
    first = cluster.owner_of(0)
    (second,) = cluster.replicas_of(first)

    cluster.fail_over(second)
    cluster.wait_until_whole()
    assert not first.is_primary

    second.kill9()
    cluster.wait_until_served_by(0, first)
    second.start()
    cluster.wait_until_whole()
    assert not second.is_primary


def test_sentinels_come_up(sentinels: SentinelRig) -> None:
    found = address.parse(sentinels.url)
    assert (found.seeds, found.service) == (tuple(each.node for each in sentinels.sentinels), SERVICE)

    client: Any = redis.Sentinel([tuple(seed) for seed in found.seeds])  # type: ignore[no-untyped-call]

    assert client.discover_master(SERVICE) == sentinels.primary.node
    assert set(client.discover_slaves(SERVICE)) == {each.node for each in sentinels.replicas}
    role = read_role(sentinels.primary.run("ROLE"))
    assert set(role.replicas) == {each.node for each in sentinels.replicas}


@pytest.mark.long
def test_a_killed_primary_is_replaced(sentinels: SentinelRig) -> None:
    old = sentinels.primary
    old.kill9()

    new = sentinels.wait_for_other_primary(old)

    assert new.is_primary
    sentinels.wait_until_ready()
    old.start()
    assert old.is_primary  # until a sentinel notices it, after some 10 s


def test_sentinels_fail_over(sentinels: SentinelRig) -> None:
    old = sentinels.primary
    old.run("SET", "kept", "x")
    before = sentinels.sentinels[0].announcement

    new = sentinels.fail_over("COORDINATED" if sentinels.kind == "valkey" else "")

    assert new is not old
    assert new.run("GET", "kept") == b"x"
    after = sentinels.sentinels[0].announcement
    assert before is not None
    assert after is not None
    assert after.epoch > before.epoch


@pytest.mark.long
def test_sentinels_do_not_follow_a_fail_over_by_hand(kind: Kind) -> None:
    with SentinelRig(kind, replicas=1) as rig:  # not shared: sentinels that have just failed over still send REPLICAOF
        old, (to,) = rig.primary, rig.replicas

        rig.fail_over_by_hand(old, to)

        assert rig.is_agreed_on(old)


def test_a_frozen_server_answers_again() -> None:
    with Server("valkey") as server, redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as client:
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.thaw()
        wait_until(client.ping)


@needs_network
@pytest.mark.long
def test_a_cut_makes_two_primaries_until_it_heals() -> None:
    with Network() as net, SentinelRig("valkey", replicas=1, network=net) as rig:
        old = rig.primary
        rig.cut(old)
        new = rig.wait_for_other_primary(old)

        with redis.Redis(*old.node) as one, redis.Redis(*new.node) as other:
            assert one.set("side", "old")
            assert other.set("side", "new")
        rig.heal()

        wait_until(lambda: old.follows == new.node and old.run("GET", "side") == b"new", "the old primary follows")


def test_two_servers_never_share_a_port_or_a_bus() -> None:
    servers = [Server("valkey") for _ in range(3)]
    try:
        for port in (number for each in servers for number in (each.port, each.port + 10_000)):
            with socket.socket(type=socket.SOCK_DGRAM) as other, pytest.raises(OSError, match="in use"):
                other.bind((LOOPBACK, port))
    finally:
        for each in servers:
            each.close()
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind((LOOPBACK, servers[0].port))


def files_in(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


@needs_network
def test_a_network_is_cut_and_heals_and_nothing_is_left_behind() -> None:
    descriptors = files_in("/proc/self/fd")
    with Network() as net:
        primary, replica = nodes = [RigNode("valkey", SETTINGS, net.add_host()) for _ in range(2)]
        hosts, pids, folders = zip(*((each.network_host, each.pid, each.directory) for each in nodes), strict=True)
        replica.run("REPLICAOF", *primary.node)
        wait_until(lambda: replica.is_in_step)

        net.cut([hosts[0]], [hosts[1]])
        with redis.Redis(*primary.node) as client:
            client.set("side", "primary")
            assert client.wait(1, 300) == 0
        net.heal()
        wait_until(lambda: replica.run("GET", "side") == b"primary", "the replica catches up")

        for each in nodes:
            each.close()
    assert not any(map(is_alive, pids))
    assert not any(map(Path.exists, folders))
    assert not {host.name for host in hosts} & (files_in("/run/netns") | {name for _, name in socket.if_nameindex()})
    assert files_in("/proc/self/fd") == descriptors


@pytest.mark.parametrize("kind", ["valkey"])
def test_a_rig_that_does_not_come_up_ends_its_servers(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = list[int]()

    def fail(rig: ClusterRig) -> None:
        pids.extend(each.pid for each in rig.nodes)
        raise RuntimeError("on purpose")

    monkeypatch.setattr(ClusterRig, "wait_until_whole", fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        ClusterRig(kind, primaries=1)

    assert len(pids) == 2
    assert not any(map(is_alive, pids))
