"""Checks of several nodes together: those of a cluster, or those that sentinels watch. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from duly._core.topology import Node, SlotMap
from duly.doctor.facts import Facts, Missing, Skew, number, product_of
from duly.doctor.nodes import Member, merged
from duly.doctor.report import Finding, Subject, listed, milliseconds, setting_fix

SENTINELS: Final = Subject(
    "sentinels",
    "A fail-over needs the quorum to agree that the primary is away, and a majority of all sentinels to start it.",
)
DOWN_AFTER: Final = Subject(
    "down-after",
    "A replica takes over after down-after-milliseconds and about a second. Until then, all queues stop. That "
    "should be shorter than `patience` (20 s) and a lease (30 s).",
)
NODES: Final = Subject(
    "nodes",
    "Queues on a node that cannot be reached stop. A replica that cannot be reached cannot take over.",
)
COVERAGE: Final = Subject(
    "full-coverage",
    "With cluster-require-full-coverage yes, the loss of one node stops all queues, also on the others.",
)
NODE_TIMEOUT: Final = Subject(
    "node-timeout",
    "A replica takes over after about twice cluster-node-timeout. Until then, the queues of the node stop. That "
    "should be shorter than `patience` (20 s) and a lease (30 s).",
)
COPIES: Final = Subject(
    "copies", "A primary without a replica is not replaced when it fails, and its messages are on one machine only."
)
VERSIONS: Final = Subject("versions", "A script or command that one node lacks fails for the queues of that node.")
USERS: Final = Subject(
    "users", "Users are not replicated. A node that becomes the primary refuses calls of other users."
)
CLOCKS: Final = Subject(
    "node-clocks",
    "Due times and leases follow the clock of the primary. If the clock of a new primary is ahead, leases end early.",
)
SEEDS: Final = Subject(
    "seeds", "A program that starts needs one of the hosts in its address. One that runs knows all nodes."
)
HEAVY_SLOTS: Final = Subject(
    "heavy-slots",
    "A slot that moves key by key (MIGRATE) stops its node for about a second per million messages.",
)
LONGEST: Final = 5.0
"""Seconds of node-timeout and of down-after that are not too long."""
CLOCK_WARN: Final = 0.1
"""Seconds between two clocks."""
FEWEST_SENTINELS: Final = 3
HEAVY: Final = 1_000_000
"""Messages in one slot."""


@dataclass(frozen=True)
class Deployment:
    """All nodes, and the number of replicas of each primary."""

    members: Sequence[Member]
    copies: Mapping[Node, int]

    def facts(self, *, of_primaries: bool = False) -> dict[Node, Facts]:
        """Return the facts of the nodes that answer."""
        asked = [each for each in self.members if each.is_primary or not of_primaries]
        return {each.node: each.facts for each in asked if each.facts is not None}


@dataclass(frozen=True)
class SentinelView:
    """The report of one sentinel of the address about the service."""

    node: Node
    sentinels: int = 0
    """Sentinels that watch the service, this one included."""
    quorum: int = 0
    down_after: float = 0.0
    """Seconds."""
    replicas: tuple[Node, ...] = ()
    trouble: str = ""
    """Why it does not report."""


def findings_of_cluster(deployment: Deployment, slots: SlotMap, seeds: Sequence[Node]) -> list[Finding]:
    """Run all checks of a cluster."""
    primaries, everywhere = deployment.facts(of_primaries=True), deployment.facts()
    timeout = min((_node_timeout_of(facts) for facts in primaries.values()), default=0.0)
    return [
        _gaps(slots) or _nodes(deployment),
        _copies(deployment),
        *([merged({node: _coverage(facts) for node, facts in everywhere.items()})] if everywhere else []),
        *([merged({node: _node_timeout(facts) for node, facts in everywhere.items()})] if everywhere else []),
        *_of_all_nodes(deployment, timeout),
        _seeds(slots, seeds),
        *([merged({node: _heavy_slots(facts) for node, facts in primaries.items()})] if primaries else []),
    ]


def findings_of_service(deployment: Deployment, service: str, views: Sequence[SentinelView]) -> list[Finding]:
    """Run all checks of a service that sentinels watch."""
    answers = [view for view in views if not view.trouble]
    down_after = min((view.down_after for view in answers), default=0.0)
    return [
        _sentinels(service, views),
        *([_down_after(service, answers)] if answers else []),
        _nodes(deployment),
        _copies(deployment),
        *_of_all_nodes(deployment, down_after),
    ]


def _of_all_nodes(deployment: Deployment, timeout: float) -> list[Finding]:
    found = (_versions(deployment), _users(deployment), _clocks(deployment, timeout))
    return [each for each in found if each is not None]


# Sentinels


def _sentinels(service: str, views: Sequence[SentinelView]) -> Finding:
    answers = [view for view in views if not view.trouble]
    silent = [f"{view.node}: {view.trouble}" for view in views if view.trouble]
    count, quorum = (
        max((view.sentinels for view in answers), default=0),
        max((view.quorum for view in answers), default=0),
    )
    found = f"{count} watch {service!r}, quorum {quorum}"
    if quorum > count:
        return SENTINELS.bad(
            f"{found}: they never agree on a fail-over",
            f"# on every sentinel:\nSENTINEL SET {service} quorum {count // 2 + 1}\n# or start the missing sentinels",
        )
    if silent:
        return SENTINELS.warn(f"{found}; {listed(silent)}", "# start them, or take them out of the address")
    if len({(view.sentinels, view.quorum, view.down_after) for view in answers}) > 1:
        return SENTINELS.warn(
            f"{found}; they do not agree on number, quorum and down-after-milliseconds",
            "# use the same configuration for all. To make a sentinel forget one that is gone:\n"
            f"SENTINEL RESET {service}",
        )
    if count < FEWEST_SENTINELS:
        return SENTINELS.warn(
            f"{found}: if one fails, the others lack a majority and start no fail-over",
            "# run three sentinels on three machines, with a quorum of 2",
        )
    return SENTINELS.ok(found)


def _down_after(service: str, answers: Sequence[SentinelView]) -> Finding:
    longest = max(view.down_after for view in answers)
    if longest <= LONGEST:
        return DOWN_AFTER.ok(f"{longest:g} s")
    return DOWN_AFTER.warn(
        f"{longest:g} s",
        f"# on every sentinel:\nSENTINEL SET {service} down-after-milliseconds {LONGEST * 1000:.0f}",
    )


# Nodes


def _gaps(slots: SlotMap) -> Finding | None:
    if not slots.gaps:
        return None
    return NODES.bad(
        f"no primary serves {slots.gaps} of the slots: calls for their queues fail",
        "# start the missing node, or make its replica the primary: CLUSTER FAILOVER TAKEOVER on the replica",
    )


def _nodes(deployment: Deployment) -> Finding:
    away = [each for each in deployment.members if each.trouble]
    if away:
        verdict = NODES.bad if any(each.is_primary for each in away) else NODES.warn
        return verdict(
            "; ".join(f"{each.node} cannot be examined: {each.trouble}" for each in away),
            "# users, passwords and certificates must be the same on every node. If the address is of another network, "
            "set cluster-announce-ip or cluster-announce-hostname on that node, with sentinels replica-announce-ip",
        )
    primaries = sum(each.is_primary for each in deployment.members)
    replicas = len(deployment.members) - primaries
    return NODES.ok(
        f"{_counted(primaries, 'primary', 'primaries')} and {_counted(replicas, 'replica', 'replicas')} answer"
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _copies(deployment: Deployment) -> Finding:
    single = [str(node) for node, count in deployment.copies.items() if not count]
    if single:
        return COPIES.warn(
            f"without a replica: {listed(single)}",
            "# add a node as a replica: REPLICAOF on it, or on a cluster CLUSTER REPLICATE with the id of the primary",
        )
    least, most = min(deployment.copies.values()), max(deployment.copies.values())
    if least == most:
        each = _counted(least, "replica", "replicas")
        return COPIES.ok(f"each primary has {each}: durable={most} survives a fail-over to any of them")
    fewest = listed([str(node) for node, count in deployment.copies.items() if count == least])
    return COPIES.ok(
        f"{least} to {most} replicas: durable={least} can be confirmed everywhere, but survives every fail-over only "
        f"at {fewest}. For the others, use durable=n with their number of replicas"
    )


def _versions(deployment: Deployment) -> Finding | None:
    found: dict[str, list[str]] = {}
    for node, facts in deployment.facts().items():
        if not isinstance(facts.info, Missing):
            found.setdefault(" ".join(product_of(facts.info)), []).append(str(node))
    if not found:
        return None
    if len(found) == 1:
        return VERSIONS.ok(f"{next(iter(found))} on every node")
    return VERSIONS.warn(
        "; ".join(f"{version} on {listed(nodes)}" for version, nodes in found.items()),
        "# upgrade all nodes to one version",
    )


def _users(deployment: Deployment) -> Finding | None:
    """Compare the permissions of the connected user. One that a node does not have cannot be examined there."""
    lacking = {
        node: facts.permissions.lacking
        for node, facts in deployment.facts().items()
        if not isinstance(facts.permissions, Missing)
    }
    if not lacking:
        return None
    user = next(iter(deployment.facts().values())).user
    may = {node: frozenset(role for role, rules in roles.items() if not rules) for node, roles in lacking.items()}
    every, common = frozenset().union(*may.values()), frozenset.intersection(*may.values())
    if every == common:
        return USERS.ok(f"user {user!r} has the same roles on every node")
    fewer = {node: sorted(every - roles) for node, roles in may.items() if roles != every}
    is_bad = any(each.is_primary for each in deployment.members if each.node in fewer)
    return (USERS.bad if is_bad else USERS.warn)(
        "; ".join(f"user {user!r} lacks permissions for {', '.join(roles)} on {node}" for node, roles in fewer.items()),
        "# run the line of `duly acl` on every node",
    )


def _clocks(deployment: Deployment, timeout: float) -> Finding | None:
    """Compare the clocks of all nodes. The round trips limit how well they can be compared."""
    skews = {node: facts.skew for node, facts in deployment.facts().items() if isinstance(facts.skew, Skew)}
    if len(skews) < 2:
        return None
    ahead, behind = max(skews, key=lambda node: skews[node].seconds), min(skews, key=lambda node: skews[node].seconds)
    margin = skews[ahead].margin + skews[behind].margin
    apart = max(skews[ahead].seconds - skews[behind].seconds - margin, 0.0)
    if apart < CLOCK_WARN:
        return CLOCKS.ok(f"at most {milliseconds(skews[ahead].seconds - skews[behind].seconds + margin)} apart")
    verdict = CLOCKS.bad if timeout and apart >= timeout / 4 else CLOCKS.warn
    return verdict(
        f"{ahead} is {apart:.2f} s ahead of {behind}",
        "# run a time service (chrony, ntpd, systemd-timesyncd) on every node",
    )


# Clusters


def _coverage(facts: Facts) -> Finding:
    setting = facts.setting("cluster-require-full-coverage")
    if isinstance(setting, Missing):
        return COVERAGE.unknown(facts, setting)
    if setting == "no":
        return COVERAGE.ok("the other nodes continue when one is lost")
    return COVERAGE.bad("the loss of one node stops all", setting_fix(facts, ("cluster-require-full-coverage", "no")))


def _node_timeout_of(facts: Facts) -> float:
    setting = facts.setting("cluster-node-timeout")
    return 0.0 if isinstance(setting, Missing) else number(setting) / 1000


def _node_timeout(facts: Facts) -> Finding:
    setting = facts.setting("cluster-node-timeout")
    if isinstance(setting, Missing):
        return NODE_TIMEOUT.unknown(facts, setting)
    timeout = _node_timeout_of(facts)
    if timeout <= LONGEST:
        return NODE_TIMEOUT.ok(f"{timeout:g} s")
    return NODE_TIMEOUT.warn(
        f"{timeout:g} s: a fail-over takes about {2 * timeout:g} s",
        setting_fix(facts, ("cluster-node-timeout", f"{LONGEST * 1000:.0f}")),
    )


def _seeds(slots: SlotMap, seeds: Sequence[Node]) -> Finding:
    gone = [str(seed) for seed in seeds if seed not in slots.nodes]
    if len(gone) < len(seeds):
        return SEEDS.ok(f"{len(seeds) - len(gone)} of {len(seeds)} hosts in the address are nodes")
    today = listed([str(node) for node in slots.primaries])
    return SEEDS.warn(
        f"no host in the address is a node under that name: {listed(gone)}",
        f"# if they are not other names of nodes, use current nodes: {today}",
    )


def _heavy_slots(facts: Facts) -> Finding:
    keyspace = facts.keys_for(HEAVY_SLOTS.name)
    if isinstance(keyspace, Missing):
        return HEAVY_SLOTS.unknown(facts, keyspace)
    heavy = [each for each in keyspace.loads if each.messages >= HEAVY]
    if not heavy:
        return HEAVY_SLOTS.ok(f"no slot has {HEAVY:,} messages{keyspace.coverage_note}")
    return HEAVY_SLOTS.warn(
        "; ".join(f"slot {each.slot} has {each.messages:,} messages of {listed(list(each.owners))}" for each in heavy),
        "# move such slots with CLUSTER MIGRATESLOTS (Valkey 9), or when they are shorter. Bound the queues by "
        "max_length=, or divide them",
    )
