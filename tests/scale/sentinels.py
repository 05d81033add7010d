"""A primary with replicas, and the sentinels that watch it, on this machine."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self

from duly._core.sentinel import QUESTIONS, Announcement, read_announcement, read_role
from duly._core.topology import Node, fields_of
from tests.binaries import Kind
from tests.scale.network import Network
from tests.scale.nodes import SETTINGS, YEARS, Refused, RigNode
from tests.waiting import wait_until

SERVICE: Final = "mymaster"
DOWN_AFTER_MS: Final = 1000
FAILOVER_TIMEOUT_MS: Final = 5000
"""A sentinel that fails to make a replica the primary tries again after twice this time."""
_OTHERS: Final = ("REPLICAS", "SENTINELS")
_ids: Final = itertools.count(1)


class DataNode(RigNode):
    """A primary or a replica."""

    @property
    def is_primary(self) -> bool:
        return read_role(self.run("ROLE")).is_primary

    @property
    def follows(self) -> Node | None:
        """The primary that it replicates. A sentinel that changes it closes all connections: then it is not known."""
        try:
            return read_role(self.run("ROLE")).primary
        except ConnectionError:
            return None


class SentinelNode(RigNode):
    """A sentinel. Its configuration lists the replicas and the other sentinels, so that it need not find them."""

    _arguments = ("--sentinel",)

    def __init__(self, kind: Kind, config: Mapping[str, str], network: Network | None) -> None:
        self.id = f"{next(_ids):040x}"
        super().__init__(kind, config, None if network is None else network.add_host())

    def start(self) -> None:
        """Start, unless `watch` is still to come."""
        if self._config_file.exists():
            super().start()

    @property
    def _config_file(self) -> Path:
        return self.directory / "server.conf"

    @staticmethod
    def watch(primary: DataNode, others: list[DataNode], sentinels: list["SentinelNode"]) -> None:
        """Start sentinels that watch a primary. One that does not reach another at first tries again after 1 s."""
        for sentinel in sentinels:
            sentinel._configure(primary, others, sentinels)
            sentinel._launch()
        for sentinel in sentinels:
            sentinel._wait_until_up()

    def _configure(self, primary: DataNode, others: list[DataNode], sentinels: list["SentinelNode"]) -> None:
        self._use_tls_port()
        needed = (
            "bind",
            "port",
            "unixsocket",
            "dir",
            "protected-mode",
            *(n for n in self.config if n.startswith("tls-")),
        )
        quorum = len(sentinels) // 2 + 1
        lines = [
            *(f"{name} {self.config[name]}" for name in needed),
            f"sentinel myid {self.id}",
            f"sentinel monitor {SERVICE} {primary.host} {primary.port} {quorum}",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}",
            f"sentinel parallel-syncs {SERVICE} {len(others) or 1}",
            *(f"sentinel known-replica {SERVICE} {each.host} {each.port}" for each in others),
            *(f"sentinel known-sentinel {SERVICE} {s.host} {s.port} {s.id}" for s in sentinels if s is not self),
        ]
        self._config_file.write_text("\n".join([*lines, ""]))

    @property
    def announcement(self) -> Announcement | None:
        """Its answer to the question for the primary."""
        return read_announcement(*(self.run("SENTINEL", question, SERVICE) for question in QUESTIONS))

    def described(self) -> str:
        """Return what it knows of all others."""
        rows = [fields_of(row) for what in _OTHERS for row in self.run("SENTINEL", what, SERVICE)]
        return "\n".join(f"  {row['name']} {row['flags']} {row.get('master-link-status', '')}" for row in rows)

    def is_ready_for(self, replicas: list[DataNode], sentinels: int) -> bool:
        """Return whether it reaches all other sentinels, and could make any of these replicas the primary."""
        known, others = ([fields_of(row) for row in self.run("SENTINEL", what, SERVICE)] for what in _OTHERS)
        good = {each["name"] for each in known if each["flags"] == "slave" and each["master-link-status"] == "ok"}
        reached = [each for each in others if not {"disconnected", "s_down"} & set(each["flags"].split(","))]
        return {str(each.node) for each in replicas} <= good and len(reached) == sentinels - 1


class SentinelRig:
    """One primary, replicas, and sentinels that decide by majority. Up in about 1.5 s."""

    def __init__(
        self,
        kind: Kind = "valkey",
        *,
        replicas: int = 2,
        sentinels: int = 3,
        config: Mapping[str, str] = {},
        network: Network | None = None,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.kind = kind
        self._environment = environment
        self._config = {**SETTINGS, **config}
        self._network = network
        self.nodes: list[DataNode] = []
        self.sentinels: list[SentinelNode] = []
        try:
            self._build(replicas, sentinels)
        except BaseException:
            self.close()
            raise

    def _build(self, replicas: int, sentinels: int) -> None:
        for _ in range(1 + replicas):
            self.nodes.append(self._data_node())
        primary, *others = self.nodes
        for node in others:
            node.run("REPLICAOF", primary.host, primary.port)
            node.run("CONFIG", "REWRITE")
        for _ in range(sentinels):
            tls = {name: value for name, value in self._config.items() if name.startswith("tls-")}
            self.sentinels.append(SentinelNode(self.kind, tls, self._network))
        SentinelNode.watch(primary, others, self.sentinels)
        self.wait_until_ready()

    def _data_node(self) -> DataNode:
        host = None if self._network is None else self._network.add_host()
        return DataNode(self.kind, self._config, host, self._environment)

    # Views

    @property
    def url(self) -> str:
        """The address for Duly, with all sentinels."""
        return f"redis+sentinel://{','.join(str(each.node) for each in self.sentinels)}/{SERVICE}"

    @property
    def primary(self) -> DataNode:
        """The primary that most running sentinels name."""
        named = [said.node for each in self._running_sentinels if (said := each.announcement)]
        return self.at(max(named, key=named.count))

    @property
    def replicas(self) -> list[DataNode]:
        """All other nodes."""
        primary = self.primary
        return [node for node in self.nodes if node is not primary]

    @property
    def _running_sentinels(self) -> list[SentinelNode]:
        return [each for each in self.sentinels if each.is_running]

    def at(self, node: Node) -> DataNode:
        """Find a node by its address."""
        return next(each for each in self.nodes if each.node == node)

    # Waiting

    def wait_until_ready(self) -> None:
        """Wait until all sentinels agree, and know all nodes and each other, and all replicas are in step."""
        wait_until(self._is_ready, "the sentinels are ready", self._described)

    def _is_ready(self) -> bool:
        primary = self.primary
        others = [node for node in self.nodes if node.is_running and node is not primary]
        return (
            primary.is_primary
            and self.is_agreed_on(primary)
            and all(node.follows == primary.node and node.is_in_step for node in others)
            and all(each.is_ready_for(others, len(self._running_sentinels)) for each in self._running_sentinels)
        )

    def _described(self) -> str:
        said = [f"{each}: {each.announcement}\n{each.described()}" for each in self._running_sentinels]
        return "\n".join([*said, *(f"{node}: {node.run('ROLE')}" for node in self.nodes if node.is_running)])

    def is_agreed_on(self, node: DataNode) -> bool:
        """Return whether all running sentinels name a node as the primary."""
        said = [each.announcement for each in self._running_sentinels]
        return all(each is not None and each.node == node.node for each in said)

    def wait_for_other_primary(self, old: DataNode) -> DataNode:
        """Wait until all running sentinels name another primary than the old one, and return it."""
        wait_until(
            lambda: (new := self.primary) is not old and self.is_agreed_on(new) and new.is_primary,
            f"another primary than {old}",
            self._described,
        )
        return self.primary

    # Fail-overs

    def hold_still(self) -> None:
        """Have the sentinels start no fail-over, even if the clock of all nodes moves by years."""
        for sentinel in self._running_sentinels:
            sentinel.run("SENTINEL", "SET", SERVICE, "down-after-milliseconds", YEARS * 1000)
        for node in self.nodes:
            if node.is_running:
                node.run("CONFIG", "SET", "repl-timeout", YEARS)

    def fail_over(self, how: Literal["", "COORDINATED"] = "") -> DataNode:
        """Have a sentinel make a replica the primary, and return it. COORDINATED needs Valkey 9."""
        old = self.primary
        wait_until(lambda: self._begins_to_fail_over(how), "a fail-over begins", self._described)
        return self.wait_for_other_primary(old)

    def _begins_to_fail_over(self, how: str) -> bool:
        """Ask for a fail-over. On a busy machine, an earlier one may still be in progress."""
        try:
            self.sentinels[0].run("SENTINEL", "FAILOVER", SERVICE, *filter(None, [how]))
        except Refused as refusal:
            if "INPROG" not in str(refusal):
                raise
            return False
        return True

    def fail_over_by_hand(self, primary: DataNode, to: DataNode) -> None:
        """Make a replica the primary with FAILOVER TO, which sentinels do not follow."""
        wait_until(lambda: to.node in read_role(primary.run("ROLE")).replicas, f"{to} is online", self._described)
        primary.run("FAILOVER", "TO", to.host, to.port)
        wait_until(lambda: to.is_primary and primary.follows == to.node, f"{to} is the primary", self._described)

    # Cuts

    def cut(self, *nodes: RigNode) -> None:
        """Cut nodes, sentinels among them, off from the others. The test process reaches both sides."""
        assert self._network is not None, "this rig has no network that can be cut"
        others = [each.network_host for each in (*self.nodes, *self.sentinels) if each not in nodes]
        self._network.cut([each.network_host for each in nodes], others)

    def heal(self) -> None:
        """End all cuts."""
        assert self._network is not None
        self._network.heal()

    def close(self) -> None:
        """End all processes. Safe to repeat."""
        for node in (*self.sentinels, *self.nodes):
            node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
