"""A cluster under examination: its nodes, and checks of all of them together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from duly._core.topology import Node, SlotMap
from duly.doctor.facts import Facts, Missing, Skew, number, product_of
from duly.doctor.report import Finding, Subject, listed, milliseconds, setting_fix

NODES: Final = Subject(
    "nodes",
    "Queues on a node that cannot be reached stand still. Clients use the addresses that the nodes announce.",
)
COVERAGE: Final = Subject(
    "full-coverage",
    "With cluster-require-full-coverage yes, the loss of one node stops all queues, also on the others.",
)
NODE_TIMEOUT: Final = Subject(
    "node-timeout",
    "A replica takes over after about twice cluster-node-timeout. Until then, the queues of the node stand still. That "
    "should be shorter than `patience` (20 s) and a lease (30 s).",
)
COPIES: Final = Subject(
    "copies", "A primary without a replica is not replaced when it fails, and its messages are on one machine only."
)
VERSIONS: Final = Subject("versions", "A script or command that one node lacks fails for the queues of that node.")
CLOCKS: Final = Subject(
    "node-clocks",
    "Due times and leases follow the clock of the primary. If the clock of a new primary is ahead, leases end early.",
)
SEEDS: Final = Subject(
    "seeds", "A program that starts needs one of the hosts in its address. One that runs knows all nodes."
)
_LONGEST_TIMEOUT: Final = 5_000
_CLOCK_WARN: Final = 0.1


@dataclass(frozen=True)
class Member:
    """One node, as far as it could be examined."""

    node: Node
    info: Mapping[str, str] | Missing
    skew: Skew | Missing
    is_primary: bool
    trouble: str = ""
    """Why it could not be examined."""


@dataclass(frozen=True)
class Deployment:
    """All nodes of a cluster, and the hosts that the address of the app names."""

    slots: SlotMap
    members: Sequence[Member]
    seeds: Sequence[Node]
    facts: Facts | None
    """Those of the first primary that could be examined."""

    @property
    def reached(self) -> list[Member]:
        """The nodes that answer."""
        return [each for each in self.members if not each.trouble]


def findings_of(deployment: Deployment) -> list[Finding]:
    """Run all checks of a cluster."""
    checks = (_nodes, _copies, _coverage, _node_timeout, _versions, _clocks, _seeds)
    return [found for check in checks if (found := check(deployment)) is not None]


def _nodes(deployment: Deployment) -> Finding:
    primaries, gaps = deployment.slots.primaries, deployment.slots.gaps
    away = [each for each in deployment.members if each.trouble]
    if gaps:
        return NODES.bad(
            f"no primary serves {gaps} of the slots: calls for their queues fail",
            "# start the missing node, or make its replica the primary: CLUSTER FAILOVER TAKEOVER on the replica",
        )
    if away:
        verdict = NODES.bad if any(each.is_primary for each in away) else NODES.warn
        return verdict(
            "; ".join(f"{each.node} cannot be examined: {each.trouble}" for each in away),
            "# users, passwords and certificates must be the same on every node. If the address is of another network, "
            "set cluster-announce-ip or cluster-announce-hostname on that node",
        )
    return NODES.ok(f"{len(primaries)} primaries and {len(deployment.members) - len(primaries)} replicas answer")


def _copies(deployment: Deployment) -> Finding:
    slots = deployment.slots
    single = [str(node) for node in slots.primaries if not slots.replicas.get(node)]
    if single:
        return COPIES.warn(
            f"without a replica: {listed(single)}", "# add a node: CLUSTER REPLICATE on it, with the id of the primary"
        )
    least = min((len(slots.replicas[node]) for node in slots.primaries), default=0)
    most = max((len(slots.replicas[node]) for node in slots.primaries), default=0)
    return COPIES.ok(
        f"each primary has {least if least == most else f'{least} to {most}'}: durable={most} survives a fail-over"
    )


def _coverage(deployment: Deployment) -> Finding | None:
    facts = deployment.facts
    if facts is None:
        return None
    setting = facts.setting("cluster-require-full-coverage")
    if isinstance(setting, Missing):
        return COVERAGE.unknown(facts, setting)
    if setting == "no":
        return COVERAGE.ok("the other nodes go on when one is lost")
    return COVERAGE.bad("the loss of one node stops all", setting_fix(facts, ("cluster-require-full-coverage", "no")))


def _node_timeout(deployment: Deployment) -> Finding | None:
    facts = deployment.facts
    if facts is None:
        return None
    setting = facts.setting("cluster-node-timeout")
    if isinstance(setting, Missing):
        return NODE_TIMEOUT.unknown(facts, setting)
    timeout = number(setting)
    if timeout <= _LONGEST_TIMEOUT:
        return NODE_TIMEOUT.ok(f"{timeout / 1000:g} s")
    return NODE_TIMEOUT.warn(
        f"{timeout / 1000:g} s: a fail-over takes about {2 * timeout / 1000:g} s",
        setting_fix(facts, ("cluster-node-timeout", str(_LONGEST_TIMEOUT))),
    )


def _versions(deployment: Deployment) -> Finding | None:
    found: dict[str, list[str]] = {}
    for each in deployment.reached:
        if not isinstance(each.info, Missing):
            found.setdefault(" ".join(product_of(each.info)), []).append(str(each.node))
    if not found:
        return None
    if len(found) == 1:
        return VERSIONS.ok(f"{next(iter(found))} on every node")
    return VERSIONS.warn(
        "; ".join(f"{version} on {listed(nodes)}" for version, nodes in found.items()),
        "# upgrade all nodes to one version",
    )


def _clocks(deployment: Deployment) -> Finding | None:
    """Compare the clocks of all nodes. The round trips limit how well they can be compared."""
    skews = {each.node: each.skew for each in deployment.reached if isinstance(each.skew, Skew)}
    if len(skews) < 2:
        return None
    ahead, behind = max(skews, key=lambda node: skews[node].seconds), min(skews, key=lambda node: skews[node].seconds)
    margin = skews[ahead].margin + skews[behind].margin
    apart = max(skews[ahead].seconds - skews[behind].seconds - margin, 0.0)
    if apart < _CLOCK_WARN:
        return CLOCKS.ok(f"at most {milliseconds(apart + margin)} apart")
    timeout = number(_text(deployment.facts, "cluster-node-timeout")) / 1000
    verdict = CLOCKS.bad if timeout and apart >= timeout / 4 else CLOCKS.warn
    return verdict(
        f"{ahead} is {apart:.2f} s ahead of {behind}",
        "# run a time service (chrony, ntpd, systemd-timesyncd) on every node",
    )


def _seeds(deployment: Deployment) -> Finding:
    gone = [str(seed) for seed in deployment.seeds if seed not in deployment.slots.nodes]
    if len(gone) < len(deployment.seeds):
        return SEEDS.ok(
            f"{len(deployment.seeds) - len(gone)} of {len(deployment.seeds)} hosts in the address are nodes"
        )
    today = listed([str(node) for node in deployment.slots.primaries])
    return SEEDS.warn(
        f"no host in the address is a node under that name: {listed(gone)}",
        f"# if they are not other names of nodes, use nodes of today: {today}",
    )


def _text(facts: Facts | None, name: str) -> str | None:
    setting = None if facts is None else facts.setting(name)
    return setting if isinstance(setting, str) else None
