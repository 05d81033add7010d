"""Which node serves a key: nodes, hash slots, the slot map of a cluster, and redirections. Opens no connection."""

from binascii import crc_hqx
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

SLOTS: Final = 16_384
_UNKNOWN: Final = "?"
"""The host of a node that should be reached by its host name, but has announced none."""


class UnreadableReply(ValueError):
    """A reply about the topology does not have the expected form."""


class Node(NamedTuple):
    """The address of one server process, as clients reach it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Placed(Protocol):
    """Keys that are in one slot."""

    @property
    def slot(self) -> int:
        """The slot."""


class Part(NamedTuple):
    """The slots of one primary, by one of them. Whichever node serves that slot later has probably taken over all."""

    slot: int
    node: Node | None
    """The primary. None: no node serves the slot."""


class Away(NamedTuple):
    """A node that does not answer."""

    node: Node | None
    """None: no node serves some of the slots."""
    reason: str

    def __str__(self) -> str:
        who = "a part of the cluster" if self.node is None else str(self.node)
        return f"{who} does not answer ({self.reason}): its queues and topics are missing"


def slot_of(key: bytes) -> int:
    """Return the hash slot of a key: that of its hash tag, the text in its first braces, if there is one."""
    begin = key.find(b"{") + 1
    if begin:
        end = key.find(b"}", begin)
        if end > begin:
            key = key[begin:end]
    return crc_hqx(key, 0) % SLOTS


class SlotMap:
    """The primaries of a cluster by slot, and their replicas, as far as they are known."""

    __slots__ = ("_nodes", "_primaries", "_replicas")

    def __init__(self) -> None:
        self._nodes: list[Node | None] = [None] * SLOTS
        self._primaries: tuple[Node, ...] | None = ()
        self._replicas: dict[Node, tuple[Node, ...]] = {}

    def node_of(self, slot: int) -> Node | None:
        """Return the primary of a slot. None if no node serves it, or its address is unknown."""
        return self._nodes[slot]

    def moved(self, slot: int, node: Node) -> None:
        """Record that a node serves a slot, as a MOVED error states."""
        self._nodes[slot] = node
        self._primaries = None

    @property
    def primaries(self) -> tuple[Node, ...]:
        """All nodes that serve a slot, in the order of their first slots."""
        if self._primaries is None:
            self._primaries = tuple(dict.fromkeys(node for node in self._nodes if node is not None))
        return self._primaries

    @property
    def nodes(self) -> frozenset[Node]:
        """All primaries and replicas."""
        return frozenset(self.primaries).union(*self._replicas.values())

    @property
    def replicas(self) -> Mapping[Node, tuple[Node, ...]]:
        """The replicas of each primary, as of the last reply to CLUSTER SLOTS."""
        return self._replicas

    def successors(self, before: "SlotMap", node: Node) -> set[Node]:
        """Return the nodes that serve the slots of a node in an earlier map."""
        pairs = zip(before._nodes, self._nodes, strict=True)
        return {now for then, now in pairs if then == node and now is not None}

    @property
    def parts(self) -> tuple[Part, ...]:
        """Each primary with its first slot, and the first slot that no node serves, if there is one."""
        return tuple(Part(self._nodes.index(node), node) for node in dict.fromkeys(self._nodes))

    def is_like(self, other: "SlotMap") -> bool:
        """Return whether all slots have the same primaries in both maps."""
        return self._nodes == other._nodes

    def copy(self) -> "SlotMap":
        """Return a copy that later MOVED errors do not change."""
        found = SlotMap()
        found._nodes, found._primaries, found._replicas = list(self._nodes), self._primaries, self._replicas
        return found

    @property
    def gaps(self) -> int:
        """The number of slots without a known primary."""
        return self._nodes.count(None)

    def _assign(self, first: int, last: int, nodes: Sequence[Node | None]) -> None:
        """Assign a range of slots to a primary, which comes first, and its replicas."""
        primary, *replicas = nodes
        self._nodes[first : last + 1] = [primary] * (last - first + 1)
        self._primaries = None
        if primary is not None:
            known = self._replicas.get(primary, ())
            self._replicas[primary] = tuple(dict.fromkeys((*known, *(each for each in replicas if each is not None))))


def read_slots(reply: Any, asked_host: str) -> SlotMap:
    """Read the reply to CLUSTER SLOTS of a node at `asked_host`. Raise UnreadableReply if it cannot be read."""
    found = SlotMap()
    try:
        for first, last, *nodes in reply:
            if not 0 <= first <= last < SLOTS:
                raise ValueError(f"there are no slots {first} to {last}")  # noqa: TRY301, with all other surprises
            found._assign(first, last, [_node(each, asked_host) for each in nodes])
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise UnreadableReply(f"the reply to CLUSTER SLOTS cannot be read: {error!r}") from error
    return found


class ClusterView(NamedTuple):
    """A cluster as one of its nodes sees it."""

    slots: SlotMap
    epoch: int
    """It grows with each fail-over. A node that was cut off shows an old one."""
    is_serving: bool
    """Whether the node accepts calls. A node that was cut off does not, after a while."""


def read_view(info: bytes, slots: Any, asked_host: str) -> ClusterView:
    """Read the replies to CLUSTER INFO and CLUSTER SLOTS of a node at `asked_host`."""
    try:
        fields = dict(line.split(":", 1) for line in text_of(info).split())
        epoch, state = int(fields["cluster_current_epoch"]), fields["cluster_state"]
    except (AttributeError, KeyError, ValueError) as error:
        raise UnreadableReply(f"the reply to CLUSTER INFO cannot be read: {error!r}") from error
    return ClusterView(read_slots(slots, asked_host), epoch, state == "ok")


def _node(row: Sequence[Any], asked_host: str) -> Node | None:
    """Read a row of host, port, id and, since Redis 7, other addresses of the node."""
    host, port = text_of(row[0]), int(row[1])
    if host == _UNKNOWN and len(row) > 3:
        host = fields_of(row[3]).get("ip", _UNKNOWN)
    return _reachable(host, port, asked_host)


def _reachable(host: str, port: int, asked_host: str) -> Node | None:
    """Return an address that a client can use. A node without a known host has that of the node that was asked.

    The port is 0 if the node has no port for this kind of connection, TLS or not.
    """
    return None if host == _UNKNOWN or not port else Node(host or asked_host, port)


class Redirection(NamedTuple):
    """A MOVED or ASK error: another node serves the slot, permanently or for this call only."""

    kind: Literal["moved", "ask"]
    slot: int
    node: Node | None
    """None if the node that answered does not know the address of the other node."""


def read_redirection(error: str, asked_host: str) -> Redirection | None:
    """Read an error like `MOVED 3999 127.0.0.1:6381` of a node at `asked_host`. None: it is another error."""
    words = error.split(" ")
    if words[0] not in ("MOVED", "ASK") or len(words) < 3:
        return None
    host, _, port = words[2].rpartition(":")  # an IPv6 address is not in brackets
    if not (_is_number(words[1]) and _is_number(port)) or int(words[1]) >= SLOTS:
        return None
    node = _reachable(host.strip("[]"), int(port), asked_host)
    return Redirection("moved" if words[0] == "MOVED" else "ask", int(words[1]), node)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def text_of(value: bytes | None) -> str:
    """Read a text of a reply. A missing one is empty."""
    return "" if value is None else value.decode(errors="replace")


def fields_of(row: Sequence[bytes]) -> dict[str, str]:
    """Read names and values that follow each other."""
    texts = [text_of(value) for value in row]
    return dict(zip(texts[0::2], texts[1::2], strict=True))
