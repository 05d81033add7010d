"""Which node is the primary: the answers of sentinels, which of them to believe, and the roles that nodes report."""

from typing import Any, Final, Literal, NamedTuple, get_args

from duly._core.topology import Node, UnreadableReply, fields_of, text_of

QUESTIONS: Final = ("MASTER", "GET-MASTER-ADDR-BY-NAME")
"""The subcommands of SENTINEL that ask for a primary, for one pipeline and in this order.

If a fail-over happens between the two replies, the new address comes with the old epoch, and the next question
corrects that. In the other order, the old address would come with the new epoch, and be kept until the next fail-over.
"""


class Announcement(NamedTuple):
    """A sentinel's answer: the primary, and the epoch of the fail-over that made it the primary."""

    node: Node
    epoch: int
    flags: frozenset[str] = frozenset()
    """Flags like s_down, o_down or failover_in_progress."""


def read_announcement(master: Any, address: Any) -> Announcement | None:
    """Read the replies to QUESTIONS. None: the sentinel does not know the service. Raise UnreadableReply.

    `ip` and `port` in the reply to SENTINEL MASTER are those of the old primary when `config-epoch` is already new, so
    they are not used.
    """
    if address is None:
        return None
    try:
        host, port = address
        fields = fields_of(master)
        flags = frozenset(fields.get("flags", "").split(","))
        return Announcement(Node(text_of(host), int(port)), int(fields["config-epoch"]), flags)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableReply(f"the reply of the sentinel cannot be read: {error!r}") from error


def is_news(said: Announcement, known: Announcement | None, *, has_failed: bool) -> bool:
    """Return whether to go by an announcement instead of the known one.

    A sentinel that was cut off repeats an old epoch. `has_failed`: the known primary is unreachable or refuses writes.
    Then any announcement counts: epochs begin again at 0 when sentinels are set up again. Ask the node for its role
    before you use it.
    """
    return known is None or has_failed or said.epoch > known.epoch


RoleName = Literal["master", "slave", "sentinel"]


class Role(NamedTuple):
    """A node's reply to ROLE."""

    name: RoleName
    primary: Node | None = None
    """The primary that a replica follows."""
    replicas: tuple[Node, ...] = ()
    """The connected replicas of a primary."""

    @property
    def is_primary(self) -> bool:
        """Whether the node accepts writes."""
        return self.name == "master"


def read_role(reply: Any) -> Role:
    """Read the reply to ROLE. Raise UnreadableReply if it cannot be read."""
    try:
        name = text_of(reply[0])
        if name == "master":
            return Role("master", replicas=tuple(Node(text_of(host), int(port)) for host, port, _ in reply[2]))
        if name == "slave":
            return Role("slave", Node(text_of(reply[1]), int(reply[2])))
        if name == "sentinel":
            return Role("sentinel")
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise UnreadableReply(f"the reply to ROLE cannot be read: {error!r}") from error
    raise UnreadableReply(f"the role {name!r} is not one of {', '.join(get_args(RoleName))}")
