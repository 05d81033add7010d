"""The examination of a cluster: every node, and all of them together."""

from duly._core.address import Address
from duly._sync.slots import Slots
from duly.doctor.checks import network
from duly.doctor.deployment import Deployment, findings_of_cluster
from duly.doctor.nodes import Collect, examined, findings_of_checks
from duly.doctor.report import Report

_LEFT_OUT = ("cluster",)
"""Checks of one server that do not apply."""


def examine_cluster(address: Address, namespace: str, collect: Collect, collect_of_replica: Collect) -> Report:
    """Examine all nodes. A node that cannot be examined is a finding, and the rest goes on."""
    slots = Slots(address)
    if not slots.primaries():
        why = slots.silence or ConnectionError("the nodes know no slots")
        return Report(address.shown, (network.unreachable(address, why),))
    primaries = slots.known.primaries
    replicas = dict.fromkeys(node for nodes in slots.known.replicas.values() for node in nodes)
    members = [
        *(examined(address, node, namespace, collect, is_primary=True) for node in primaries),
        *(examined(address, node, namespace, collect_of_replica, is_primary=False) for node in replicas),
    ]
    copies = {node: len(slots.known.replicas.get(node, ())) for node in primaries}
    deployment = Deployment(members, copies)
    found = findings_of_cluster(deployment, slots.known, address.seeds)
    return Report(address.shown, (network.reachable(address), *found, *findings_of_checks(members, _LEFT_OUT)))
