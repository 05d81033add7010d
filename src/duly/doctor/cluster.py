"""The examination of a cluster: every primary as a server, and all nodes together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from duly._core.address import Address
from duly._core.resp import ReplyError
from duly._core.server import read_info
from duly._core.topology import Node
from duly._sync.slots import Slots
from duly._sync.wire import Wire
from duly.doctor import measurements
from duly.doctor.checks import CHECKS, network
from duly.doctor.client import Client, connected
from duly.doctor.deployment import Deployment, Member, findings_of
from duly.doctor.facts import Facts, Missing
from duly.doctor.report import Finding, Report, Verdict
from duly.errors import DulyError

Collect = Callable[[Wire, Address, str], Facts]

_LEFT_OUT: Final = ("cluster",)
"""Checks of one server that do not apply."""
_SEVERITY: Final[Sequence[Verdict]] = ("ok", "unknown", "warn", "bad")


def examine_cluster(address: Address, namespace: str, collect: Collect) -> Report:
    """Examine all nodes. A node that cannot be examined is a finding, and the rest goes on."""
    slots = Slots(address)
    if not slots.primaries():
        why = slots.silence or ConnectionError("the nodes know no slots")
        return Report(address.shown, (network.unreachable(address, why),))
    facts: dict[Node, Facts] = {}
    members = [_primary(address, node, namespace, collect, facts) for node in slots.known.primaries]
    replicas = (node for nodes in slots.known.replicas.values() for node in nodes)
    members += [_replica(address, node) for node in dict.fromkeys(replicas)]
    deployment = Deployment(slots.known, members, address.seeds, next(iter(facts.values()), None))
    return Report(address.shown, (network.reachable(address), *findings_of(deployment), *_of_primaries(facts)))


def _at(address: Address, node: Node) -> Address:
    options = {**address.options, "host": node.host, "port": node.port}
    return replace(address, topology="single", seeds=(), options=options, shown=str(node))


def _primary(address: Address, node: Node, namespace: str, collect: Collect, facts: dict[Node, Facts]) -> Member:
    try:
        with connected(_at(address, node)) as wire:
            found = facts[node] = collect(wire, _at(address, node), namespace)
    except (ReplyError, OSError, DulyError) as error:
        return _away(node, error, is_primary=True)
    return Member(node, found.info, found.skew, is_primary=True)


def _replica(address: Address, node: Node) -> Member:
    try:
        with connected(_at(address, node)) as wire:
            client = Client(wire, "")
            info = client.ask("INFO", "server")
            skew, _ = measurements.compare_clocks(client)
    except (ReplyError, OSError, DulyError) as error:
        return _away(node, error, is_primary=False)
    return Member(node, info if isinstance(info, Missing) else read_info(info), skew, is_primary=False)


def _away(node: Node, error: Exception, *, is_primary: bool) -> Member:
    reason = Missing(str(error))
    return Member(node, reason, reason, is_primary=is_primary, trouble=str(error) or type(error).__name__)


def _of_primaries(facts: Mapping[Node, Facts]) -> Iterable[Finding]:
    """Run the checks of one server on each primary, and merge their findings."""
    for name, check in CHECKS.items():
        if name not in _LEFT_OUT and facts:
            yield _merged({node: check(each) for node, each in facts.items()})


def _merged(findings: Mapping[Node, Finding]) -> Finding:
    """Make one finding of those of all nodes. The worst verdict counts, and only nodes with it need a fix."""
    first, *_ = findings.values()
    if len({(each.verdict, each.found) for each in findings.values()}) == 1:
        return first
    worst = max((each.verdict for each in findings.values()), key=_SEVERITY.index)
    nodes_of: dict[str, list[str]] = {}
    fixes: dict[str, list[str]] = {}
    for node, each in findings.items():
        if each.verdict == worst:
            nodes_of.setdefault(each.found, []).append(str(node))
            fixes.setdefault(each.mend, []).append(str(node))
    found = "; ".join(f"{', '.join(nodes)}: {text}" for text, nodes in nodes_of.items())
    mend = "\n".join(f"# on {', '.join(nodes)}:\n{fix}" for fix, nodes in fixes.items() if fix)
    return replace(first, verdict=worst, found=found, mend=mend)
