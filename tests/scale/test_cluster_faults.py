"""Faults of a cluster of real processes under load: each loss and each redelivery has a cause, which the client names.

Each test runs senders and consumers of one queue on each primary, and one queue that is only sent to, on the node of
the fault. A test fails unless its fault has fired.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import duly
from duly._core.keys import QueueKeys
from duly.errors import ServerError, Unavailable
from tests.binaries import Kind
from tests.conftest import need
from tests.matrix import SERVERS
from tests.scale import network
from tests.scale.cluster import NODE_TIMEOUT_MS, ClusterNode, ClusterRig
from tests.scale.load import Load, load
from tests.scale.network import Network
from tests.waiting import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

each_server = pytest.mark.parametrize("kind", SERVERS)
long = pytest.mark.long


def names_on(rig: ClusterRig, queue_name: str) -> tuple[list[str], str]:
    """Return the name of one queue on each primary, and that of the kept queue, which is on the first primary."""
    names = [rig.name_on(node, queue_name) for node in rig.primaries]
    return names, rig.name_on(rig.primaries[0], f"{queue_name}-kept")


def slot_of(name: str) -> int:
    return QueueKeys("duly", name).slot


def errors_of(nodes: list[ClusterNode], code: str) -> int:
    """Count the errors of one kind that nodes have returned."""
    found = [node.info("errorstats").get(f"errorstat_{code}", "count=0") for node in nodes]
    return sum(int(each.split("=")[1]) for each in found)


def announced_by(node: ClusterNode) -> str:
    """Return the slot map as clients see it that connect by TCP."""
    with redis.Redis(host=node.host, port=node.port) as client:
        slots: Any = client.execute_command("CLUSTER SLOTS")
    return str([f"{primary[0].decode()}:{primary[1]}" for _first, _last, primary, *_ in slots])


@pytest.fixture
def rig(kind: Kind) -> Iterator[ClusterRig]:
    need(kind)
    with ClusterRig(kind) as found:
        yield found


# Nodes that fail


@each_server
def test_a_killed_primary_loses_only_what_the_client_reports(rig: ClusterRig, queue_name: str) -> None:
    names, kept = names_on(rig, queue_name)
    victim = rig.primaries[0]
    with load(rig.url, names, kept=kept) as work:
        killed_at = time.monotonic()
        victim.kill9()
        work.wait_for_more(*names[1:])
        wait_until(lambda: rig.owner_of(slot_of(names[0])) is not victim, "a replica serves")
        work.wait_for_more()
        work.note_rollback(killed_at)
        outcome = work.end()

    outcome.assert_only_rolled_back(**{"fail-over": int(rig.owner_of(slot_of(kept)) is not victim)})
    assert max(outcome.pauses[name] for name in names[1:]) < outcome.pauses[names[0]]


@long
@pytest.mark.skipif(not network.is_allowed(), reason="network namespaces need the rights of root")
def test_a_primary_that_is_cut_off_loses_what_the_client_reports(queue_name: str) -> None:
    """Clients reach both sides. The old primary confirms sends until it knows that it is in the minority."""
    need("valkey")
    with Network() as net, ClusterRig(network=net) as rig:
        names, kept = names_on(rig, queue_name)
        victim = rig.primaries[0]
        others = [node for node in rig.nodes if node is not victim]
        with load(rig.url, names, kept=kept) as work:
            cut_at = time.monotonic()
            rig.cut(victim)
            wait_until(
                lambda: all(node.slots.node_of(slot_of(kept)) != victim.node for node in others), "a replica serves"
            )
            was_split = victim.is_primary
            work.wait_for_more()
            rig.heal()
            rig.wait_until_whole()
            work.wait_for_more()
            work.note_rollback(cut_at)
            outcome = work.end()

    outcome.assert_only_rolled_back(split=int(was_split), losses=outcome.kept_lost)


@long
@each_server
def test_a_primary_that_hangs_is_replaced_and_comes_back(rig: ClusterRig, queue_name: str) -> None:
    """At its thaw the old primary runs the calls that it has received, before it learns that it is a replica now."""
    names, kept = names_on(rig, queue_name)
    victim = rig.primaries[0]
    with load(rig.url, names, kept=kept) as work:
        frozen_at = time.monotonic()
        victim.freeze()
        try:
            others = [node for node in rig.nodes if node is not victim]
            wait_until(
                lambda: all(node.slots.node_of(slot_of(kept)) != victim.node for node in others), "a replica serves"
            )
            work.wait_for_more()
        finally:
            victim.thaw()
        rig.wait_until_whole()
        work.wait_for_more()
        work.note_rollback(frozen_at)
        outcome = work.end()

    outcome.assert_only_rolled_back(**{"fail-over": int(not victim.is_primary)})


@each_server
def test_a_fail_over_by_hand_loses_nothing(rig: ClusterRig, queue_name: str) -> None:
    names, kept = names_on(rig, queue_name)
    old = rig.primaries[0]
    with load(rig.url, names, kept=kept) as work:
        (replica,) = rig.replicas_of(old)
        for new, before in ((replica, old), (old, replica)):
            rig.fail_over(new)
            wait_until(lambda: not before.is_primary, "the old primary follows")  # noqa: B023
            rig.wait_until_whole()
            work.wait_for_more()
        outcome = work.end()

    outcome.assert_nothing_lost(**{"fail-over": int(old.is_primary and not replica.is_primary)})


@long
def test_a_node_that_is_lost_without_a_replica_stops_its_own_queues_only(queue_name: str) -> None:
    """Its files survive: all messages are there when it starts again."""
    need("valkey")
    with ClusterRig(replicas=0) as rig:
        names, kept = names_on(rig, queue_name)
        victim = rig.primaries[0]
        with load(rig.url, names, kept=kept) as work:
            victim.kill9()
            wait_until(lambda: rig.running[0].view["cluster_slots_fail"] != "0", "the loss is known")
            before = work.confirmed(names[0])
            work.wait_for_more(*names[1:], count=200)
            assert work.confirmed(names[0]) == before, "the lost node has answered"
            victim.start()
            rig.wait_until_whole()
            work.wait_for_more()
            outcome = work.end()

    outcome.assert_nothing_lost(outage=int(outcome.pauses[names[0]] > NODE_TIMEOUT_MS / 1000))
    assert max(outcome.pauses[name] for name in names[1:]) < outcome.pauses[names[0]]


@long
@each_server
def test_a_node_that_forgets_its_scripts_gets_them_again(rig: ClusterRig, queue_name: str) -> None:
    names, kept = names_on(rig, queue_name)
    node = rig.primaries[0]
    with load(rig.url, names, kept=kept) as work:
        before = errors_of([node], "NOSCRIPT")
        for _ in range(10):
            node.run("SCRIPT", "FLUSH")
            work.wait_for_more(names[0], kept, count=10)
        missing = errors_of([node], "NOSCRIPT") - before
        outcome = work.end()

    outcome.assert_nothing_lost(NOSCRIPT=missing)


# Slots that move

Move = Callable[[ClusterRig, int, ClusterNode], None]


def key_by_key(rig: ClusterRig, slot: int, to: ClusterNode) -> None:
    rig.migrate(slot, to)


def at_once(rig: ClusterRig, slot: int, to: ClusterNode) -> None:
    rig.migrate_at_once(slot, slot, to)


def move_back_and_forth(rig: ClusterRig, work: Load, names: list[str], move: Move, rounds: int) -> int:
    """Move the slots of queues to another primary and back, under load, and return how often one has moved."""
    moves = 0
    for _ in range(rounds):
        for name in names:
            home = rig.owner_of(slot_of(name))
            away = next(node for node in rig.primaries if node is not home)
            for to in (away, home):
                move(rig, slot_of(name), to)
                moves += int(rig.owner_of(slot_of(name)) is to)
                work.wait_for_more(name, count=5)
    return moves


def assert_moves_lose_nothing(rig: ClusterRig, queue_name: str, move: Move) -> None:
    names, kept = names_on(rig, queue_name)
    with load(rig.url, names, kept=kept) as work:
        before = errors_of(rig.primaries, "MOVED")
        moves = move_back_and_forth(rig, work, [kept, names[0]], move, 3)
        moved = errors_of(rig.primaries, "MOVED") - before
        outcome = work.end()

    assert moves == 12
    outcome.assert_nothing_lost(MOVED=moved)


@each_server
def test_slots_that_move_key_by_key_lose_nothing(rig: ClusterRig, queue_name: str) -> None:
    assert_moves_lose_nothing(rig, queue_name, key_by_key)


@long
@pytest.mark.parametrize("kind", ["valkey"])
def test_slots_that_move_at_once_lose_nothing(rig: ClusterRig, queue_name: str) -> None:
    assert_moves_lose_nothing(rig, queue_name, at_once)


@long
@each_server
def test_a_node_is_added_and_taken_away(rig: ClusterRig, queue_name: str) -> None:
    names, kept = names_on(rig, queue_name)
    with load(rig.url, names, kept=kept) as work:
        home = {name: rig.owner_of(slot_of(name)) for name in (*names, kept)}
        added = rig.add_node()
        for name in home:
            rig.migrate(slot_of(name), added)
        work.wait_for_more()
        served = int(added.info("stats")["total_commands_processed"])
        assert added.node in rig.running[0].slots.primaries
        for name, node in home.items():
            rig.migrate(slot_of(name), node)
        rig.remove_node(added)
        work.wait_for_more()
        outcome = work.end()

    assert added.node not in rig.running[0].slots.nodes
    outcome.assert_nothing_lost(calls_to_the_added_node=served)


@long
def test_all_seeds_are_replaced_while_programs_run(queue_name: str) -> None:
    """The address names the first three nodes. After they are gone, calls still follow a slot that moves."""
    need("valkey")
    with ClusterRig() as rig:
        seeds = rig.primaries
        url = f"redis+cluster://{','.join(str(each.node) for each in seeds)}"
        names, kept = names_on(rig, queue_name)
        with load(url, names, kept=kept) as work:
            for seed in seeds:
                (replica,) = rig.replicas_of(seed)
                rig.fail_over(replica)
                wait_until(lambda: not seed.is_primary, "the seed follows")  # noqa: B023
                rig.wait_until_whole()
                rig.remove_node(seed)
                work.wait_for_more()
            moves = move_back_and_forth(rig, work, [names[0]], at_once, 1)
            outcome = work.end()
        gone = sum(1 for seed in seeds if not seed.is_running)

        assert gone == 3
        outcome.assert_nothing_lost(seeds=gone, moves=moves)


# Nodes that cannot be used


@long
def test_an_error_names_an_announced_address_that_cannot_be_reached(queue_name: str) -> None:
    """The nodes reach each other. Clients are sent to an address of another network."""
    need("valkey")
    with ClusterRig(replicas=0) as rig:
        names, _ = names_on(rig, queue_name)
        hidden, *others = rig.primaries
        hidden.run("CONFIG", "SET", "cluster-announce-client-ipv4", "127.255.0.9")
        wrong = f"127.255.0.9:{hidden.port}"
        wait_until(lambda: all(wrong in announced_by(node) for node in others), "it is announced")
        seeds = ",".join(str(node.node) for node in others)
        url = f"redis+cluster://{seeds}"
        with load(url, names[1:]) as work:
            with duly.Duly(url, patience=1) as app, pytest.raises(Unavailable) as raised:
                app.queue(names[0]).send("x")
            outcome = work.end()

    outcome.assert_nothing_lost(refused=1)
    text = str(raised.value)
    assert any(f"{node.node} announces {wrong}" in text for node in others), text
    assert "cluster-announce-ip" in text
    assert "was not carried out" in text


@long
def test_an_error_names_the_promoted_node_that_lacks_the_user(queue_name: str) -> None:
    """Users are not replicated. Queues of the other nodes go on, and those of this node as soon as it has the user."""
    need("valkey")
    rules = ("ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all")
    with ClusterRig() as rig:
        names, _ = names_on(rig, queue_name)
        old = rig.primaries[0]
        (replica,) = rig.replicas_of(old)
        for node in rig.nodes:
            if node is not replica:
                node.run(*rules)
        url = rig.url.replace("://", "://shop:secret@", 1)
        with load(url, names, bears=(ServerError,)) as work:
            rig.fail_over(replica)
            wait_until(lambda: not old.is_primary, "the old primary follows")
            wait_until(lambda: work.errors, "a send is refused")
            work.wait_for_more(*names[1:], count=100)
            with duly.Duly(url) as app, pytest.raises(ServerError) as raised:
                app.queue(names[0]).send("x")
            replica.run(*rules)
            work.wait_for_more()
            outcome = work.end()

    outcome.assert_confirmed_survive(refused=len(work.errors))
    assert set(outcome.report.causes) <= {"lease expired"}  # of a consumer whose ack was refused
    for error in (raised.value, *work.errors):
        assert f"at {replica.node} refused the connection: WRONGPASS" in str(error)
