"""The nodes of a cluster or of a sentinel service: examined one by one, and their findings merged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from duly._core.address import Address
from duly._core.resp import ReplyError
from duly._core.topology import Node
from duly._sync.wire import Wire
from duly.doctor.checks import CHECKS
from duly.doctor.client import connected
from duly.doctor.facts import Facts
from duly.doctor.report import Finding, Verdict
from duly.errors import DulyError

Collect = Callable[[Wire, Address, str], Facts]
"""Collects the facts of one server."""

_OF_REPLICAS: Final = ("eviction", "persistence")
"""Checks that count for replicas as well, since each of them may become the primary."""
_SEVERITY: Final[Sequence[Verdict]] = ("ok", "unknown", "warn", "bad")


@dataclass(frozen=True)
class Member:
    """One node, as far as it could be examined."""

    node: Node
    is_primary: bool
    facts: Facts | None
    error: Exception | None = None
    """Why it could not be examined."""

    @property
    def trouble(self) -> str:
        """The reason as a text, or an empty one."""
        return "" if self.error is None else str(self.error) or type(self.error).__name__


def examined(address: Address, node: Node, namespace: str, collect: Collect, *, is_primary: bool) -> Member:
    """Examine a node. One that cannot be examined has an error, and nothing is raised."""
    options = {**address.options, "host": node.host, "port": node.port}
    at = replace(address, topology="single", seeds=(), options=options, shown=str(node))
    try:
        with connected(at) as wire:
            return Member(node, is_primary, collect(wire, at, namespace))
    except (ReplyError, OSError, DulyError) as error:
        return Member(node, is_primary, None, error)


def findings_of_checks(members: Sequence[Member], without: Sequence[str] = ()) -> Iterable[Finding]:
    """Run the checks of one server on each primary, and some on replicas, and merge their findings."""
    for name, check in CHECKS.items():
        facts = {
            each.node: each.facts
            for each in members
            if each.facts is not None and (each.is_primary or name in _OF_REPLICAS)
        }
        if facts and name not in without:
            yield merged({node: check(found) for node, found in facts.items()})


def merged(findings: Mapping[Node, Finding]) -> Finding:
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
            fixes.setdefault(each.fix, []).append(str(node))
    found = "; ".join(f"{', '.join(nodes)}: {text}" for text, nodes in nodes_of.items())
    fix = "\n".join(f"# on {', '.join(nodes)}:\n{lines}" for lines, nodes in fixes.items() if lines)
    return replace(first, verdict=worst, found=found, fix=fix)
