"""A cluster on this machine: primaries with replicas, which fail over, and whose slots move."""

import itertools
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Literal, Self

from duly._core.keys import QueueKeys
from duly._core.topology import SLOTS, Node, SlotMap, read_slots, slot_of
from tests.binaries import Kind
from tests.scale.network import Network
from tests.scale.nodes import SETTINGS, YEARS, Refused, RigNode
from tests.waiting import wait_until

NODE_TIMEOUT_MS: Final = 2000
_CONFIG: Final = {
    **SETTINGS,
    "cluster-enabled": "yes",
    "cluster-node-timeout": str(NODE_TIMEOUT_MS),
    "cluster-require-full-coverage": "no",
}
_KEYS_AT_ONCE: Final = 100


class ClusterNode(RigNode):
    """A node of a cluster."""

    @cached_property
    def id(self) -> str:
        return str(self.run("CLUSTER", "MYID").decode())

    @property
    def known_ids(self) -> set[str]:
        """The ids of the nodes that it has met."""
        lines = self.run("CLUSTER", "NODES").decode().splitlines()
        return {line.split(" ")[0] for line in lines if "handshake" not in line}

    @property
    def is_primary(self) -> bool:
        return bool(self.run("ROLE")[0] == b"master")

    @property
    def slots(self) -> SlotMap:
        """The slot map as this node sees it."""
        return read_slots(self.run("CLUSTER", "SLOTS"), self.host)

    @property
    def view(self) -> dict[str, str]:
        """The reply to CLUSTER INFO."""
        return dict(line.split(":", 1) for line in self.run("CLUSTER", "INFO").decode().splitlines())


class ClusterRig:
    """Primaries with equal shares of the slots, and replicas of each. Up in about 2.5 s.

    A primary waits 2 s after its start before it serves, and a node that starts again does as well.
    """

    def __init__(
        self,
        kind: Kind = "valkey",
        *,
        primaries: int = 3,
        replicas: int = 1,
        config: Mapping[str, str] = {},
        network: Network | None = None,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.kind = kind
        self._environment = environment
        self._config = {**_CONFIG, **config}
        self._network = network
        self.nodes: list[ClusterNode] = []
        try:
            self._build(primaries, replicas)
        except BaseException:
            self.close()
            raise

    def _build(self, primaries: int, replicas: int) -> None:
        firsts = [self._start() for _ in range(primaries)]
        for number, node in enumerate(firsts):
            _add_slots(node, SLOTS * number // primaries, SLOTS * (number + 1) // primaries)
            node.run("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        others = [(self._start(), primary) for _ in range(replicas) for primary in firsts]
        self._introduce(itertools.combinations(self.nodes, 2))
        for node, primary in others:
            node.run("CLUSTER", "REPLICATE", primary.id)
        self.wait_until_whole()

    def _start(self) -> ClusterNode:
        host = None if self._network is None else self._network.add_host()
        node = ClusterNode(self.kind, self._config, host, self._environment)
        self.nodes.append(node)
        return node

    def _introduce(self, pairs: Iterable[tuple[ClusterNode, ClusterNode]]) -> None:
        for one, other in pairs:
            one.run("CLUSTER", "MEET", other.host, other.port)
        ids = {node.id for node in self.running}
        wait_until(lambda: all(ids <= node.known_ids for node in self.running), "the nodes have met", self._described)

    # Views

    @property
    def url(self) -> str:
        """The address for Duly, with every node as a seed."""
        return f"redis+cluster://{','.join(str(each.node) for each in self.nodes)}"

    @property
    def running(self) -> list[ClusterNode]:
        """All nodes that were not killed."""
        return [node for node in self.nodes if node.is_running]

    @property
    def primaries(self) -> list[ClusterNode]:
        """The nodes with slots, in the order of their slots, as the first running node sees them."""
        return [self.at(node) for node in self.running[0].slots.primaries]

    def replicas_of(self, primary: ClusterNode) -> list[ClusterNode]:
        """The replicas of a primary, as it sees them."""
        return [self.at(node) for node in primary.slots.replicas[primary.node]]

    def at(self, node: Node) -> ClusterNode:
        """Find a node by its address."""
        return next(each for each in self.nodes if each.node == node)

    def owner_of(self, key: str | bytes | int) -> ClusterNode:
        """The primary of a key or slot, as the first running node sees it."""
        found = self.running[0].slots.node_of(_slot(key))
        assert found is not None, f"no node serves {key!r}"
        return self.at(found)

    def name_on(self, node: ClusterNode, prefix: str) -> str:
        """Return the name of a queue that a node serves."""
        slots = self.running[0].slots
        names = (f"{prefix}-{number}" for number in itertools.count())
        return next(name for name in names if slots.node_of(QueueKeys("duly", name).slot) == node.node)

    # Waiting

    def wait_until_whole(self) -> None:
        """Wait until all running nodes agree on all slots and replicas, serve, and are in step."""
        wait_until(self._is_whole, "the cluster is whole", self._described)

    def _is_whole(self) -> bool:
        views = [_shape(node.slots) for node in self.running]
        expected = {
            "cluster_state": "ok",
            "cluster_size": str(len(views[0][0])),
            "cluster_known_nodes": str(len(self.nodes)),
        }
        return (
            all(view == views[0] for view in views)
            and sum(count for _, count in views[0][0]) == SLOTS
            and all(node.view.items() >= expected.items() for node in self.running)
            and all(node.is_primary or node.is_in_step for node in self.running)
            and views[0][1] == frozenset(each.node for each in self.running)
        )

    def _described(self) -> str:
        return "\n".join(f"{node}\n{node.run('CLUSTER', 'NODES').decode()}" for node in self.running)

    def _wait_until_epochs_agree(self) -> None:
        """Wait until no node is behind: it would take a slot with an old epoch, and lose it again."""
        wait_until(lambda: len({node.view["cluster_current_epoch"] for node in self.running}) == 1, "epochs agree")

    def wait_until_served_by(self, slot: int, node: ClusterNode, seen_by: Iterable[ClusterNode] | None = None) -> None:
        """Wait until nodes (all that run, by default) agree that a node serves a slot."""
        viewers = self.running if seen_by is None else list(seen_by)
        wait_until(
            lambda: all(each.slots.node_of(slot) == node.node for each in viewers),
            f"{node} serves slot {slot}",
            self._described,
        )

    # Fail-overs

    def hold_still(self) -> None:
        """Have no node believe that another failed, even if the clock of all nodes moves by years."""
        for node in self.running:
            node.run("CONFIG", "SET", "cluster-node-timeout", YEARS * 1000)
            node.run("CONFIG", "SET", "repl-timeout", YEARS)

    def fail_over(self, replica: ClusterNode, how: Literal["", "FORCE", "TAKEOVER"] = "") -> None:
        """Make a replica the primary, by hand, and wait until all nodes agree."""
        primary = Node(*_follows(replica))
        slot = next(slot for slot in range(SLOTS) if replica.slots.node_of(slot) == primary)
        replica.run("CLUSTER", "FAILOVER", *filter(None, [how]))
        self.wait_until_served_by(slot, replica)

    # Slots that move

    def migrate(self, slot: int, to: ClusterNode) -> None:
        """Move a slot in the classic way, key by key."""
        self.begin_migration(slot, to)
        self.move_keys(slot, to)
        self.end_migration(slot, to)

    def begin_migration(self, slot: int, to: ClusterNode) -> None:
        """Begin to move a slot: from now on its node answers ASK for keys that it does not have."""
        source = self.owner_of(slot)
        self._wait_until_epochs_agree()
        to.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)

    def move_keys(self, slot: int, to: ClusterNode, most: int | None = None) -> int:
        """Move keys of a slot, and return how many: at most `most`, else all."""
        source, moved = self.owner_of(slot), 0
        while most is None or moved < most:
            count = _KEYS_AT_ONCE if most is None else min(_KEYS_AT_ONCE, most - moved)
            keys = source.run("CLUSTER", "GETKEYSINSLOT", slot, count)
            if not keys:
                break
            source.run("MIGRATE", to.host, to.port, "", 0, 5000, "KEYS", *keys)
            moved += len(keys)
        return moved

    def end_migration(self, slot: int, to: ClusterNode) -> None:
        """Make the new node of a slot known, after all keys have moved."""
        source = self.owner_of(slot)
        for node in (to, source, *(each for each in self.primaries if each not in (to, source))):
            try:
                node.run("CLUSTER", "SETSLOT", slot, "NODE", to.id)
            except Refused:
                if node.is_primary:  # one that has lost its last slot becomes a replica
                    raise
        self.wait_until_served_by(slot, to)

    def migrate_at_once(self, first: int, last: int, to: ClusterNode) -> None:
        """Move slots with all their keys in one step. Valkey 9 only."""
        source = self.owner_of(first)
        source.run("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", to.id)
        for slot in (first, last):
            self.wait_until_served_by(slot, to)

    # Nodes that come and go

    def add_node(self, replica_of: ClusterNode | None = None) -> ClusterNode:
        """Add a node: a replica, or a primary without slots."""
        present = self.running
        node = self._start()
        self._introduce((other, node) for other in present)
        if replica_of is not None:
            node.run("CLUSTER", "REPLICATE", replica_of.id)
            self.wait_until_whole()
        else:
            wait_until(lambda: node.view["cluster_state"] == "ok", f"{node} serves", self._described)
        return node

    def remove_node(self, node: ClusterNode) -> None:
        """End a node that has no slots, and make all others forget it."""
        name = node.id
        self.nodes.remove(node)
        node.close()
        for other in self.running:
            other.run("CLUSTER", "FORGET", name)

    # Cuts

    def cut(self, *nodes: ClusterNode) -> None:
        """Cut nodes off from the others. The test process reaches both sides."""
        assert self._network is not None, "this rig has no network that can be cut"
        others = [each.network_host for each in self.nodes if each not in nodes]
        self._network.cut([each.network_host for each in nodes], others)

    def heal(self) -> None:
        """End all cuts."""
        assert self._network is not None
        self._network.heal()

    def close(self) -> None:
        """End all nodes. Safe to repeat."""
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _slot(key: str | bytes | int) -> int:
    if isinstance(key, int):
        return key
    return slot_of(key.encode() if isinstance(key, str) else key)


def _add_slots(node: RigNode, start: int, end: int) -> None:
    for begin in range(start, end, 4096):  # 6.2 does not accept ranges
        node.run("CLUSTER", "ADDSLOTS", *range(begin, min(begin + 4096, end)))


def _shape(slots: SlotMap) -> tuple[Any, frozenset[Node]]:
    """How many slots each primary has, and all nodes."""
    counts = dict.fromkeys(slots.primaries, 0)
    for slot in range(SLOTS):
        node = slots.node_of(slot)
        if node is not None:
            counts[node] += 1
    replicas = (node for nodes in slots.replicas.values() for node in nodes)
    return tuple(sorted(counts.items())), frozenset((*counts, *replicas))


def _follows(replica: RigNode) -> tuple[str, int]:
    _, host, port, *_ = replica.run("ROLE")
    return host.decode(), port
