"""The examination of a sentinel service: its sentinels, its primary, and the replicas that may take over."""

from collections.abc import Sequence
from typing import Any

from duly._core.address import Address
from duly._core.resp import ReplyError
from duly._core.sentinel import read_role
from duly._core.topology import Node, UnreadableReply, fields_of
from duly._sync.sentinels import Sentinels
from duly._sync.wire import Wire
from duly.doctor.checks import network
from duly.doctor.client import Client
from duly.doctor.deployment import Deployment, SentinelView, findings_of_service
from duly.doctor.facts import Missing, number
from duly.doctor.nodes import Collect, Member, examined, findings_of_checks
from duly.doctor.report import Report
from duly.errors import DulyError


def examine_service(address: Address, namespace: str, collect: Collect, collect_of_replica: Collect) -> Report:
    """Examine the sentinels of the address, the primary and all replicas. One that is away is a finding."""
    views = [_ask(address, node) for node in address.seeds]
    sentinels = Sentinels(address)
    try:
        primary = sentinels.primary()
    finally:
        sentinels.close()
    if primary is None:
        why = ConnectionError(f"no sentinel names the primary: {sentinels.silence}")
        return Report(address.shown, (network.unreachable(address, why),))
    first = examined(address, primary, namespace, collect, is_primary=True)
    replicas = [node for node in _replicas(address, views, first) if node != primary]
    members = [first, *(examined(address, node, namespace, collect_of_replica, is_primary=False) for node in replicas)]
    reached = network.reachable(address) if first.error is None else network.unreachable(address, first.error)
    found = findings_of_service(Deployment(members, {primary: len(replicas)}), address.service, views)
    return Report(address.shown, (reached, *found, *findings_of_checks(members)))


def _ask(address: Address, node: Node) -> SentinelView:
    """Ask a sentinel for the service that it watches. One that is away, or does not know the service, has a trouble."""
    wire = Wire(address.kind, {**address.sentinel_options, "host": node.host, "port": node.port})
    try:
        wire.open()
        client = Client(wire, "")
        master = client.ask("SENTINEL", "MASTER", address.service)
        if isinstance(master, Missing):
            return SentinelView(node, trouble=master.reason)
        return _view(node, fields_of(master), client.ask("SENTINEL", "REPLICAS", address.service))
    except (ReplyError, OSError, DulyError, ValueError) as error:
        return SentinelView(node, trouble=str(error) or type(error).__name__)
    finally:
        wire.close()


def _view(node: Node, master: dict[str, str], replicas: Any) -> SentinelView:
    return SentinelView(
        node,
        sentinels=int(number(master.get("num-other-sentinels"))) + 1,
        quorum=int(number(master.get("quorum"))),
        down_after=number(master.get("down-after-milliseconds")) / 1000,
        replicas=() if isinstance(replicas, Missing) else _nodes_in(replicas),
    )


def _nodes_in(replicas: Any) -> tuple[Node, ...]:
    """Read the reply to SENTINEL REPLICAS. One that cannot be read names none."""
    try:
        rows = [fields_of(row) for row in replicas]
        return tuple(Node(row["ip"], int(row["port"])) for row in rows)
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()


def _replicas(address: Address, views: Sequence[SentinelView], primary: Member) -> list[Node]:
    """Return all replicas that a sentinel knows. If none may list them, those that are connected to the primary."""
    known = list(dict.fromkeys(node for view in views for node in view.replicas))
    if known or primary.facts is None:
        return known
    options = {**address.options, "host": primary.node.host, "port": primary.node.port}
    wire = Wire(address.kind, options)
    try:
        wire.open()
        return list(read_role(wire.ask(["ROLE"])).replicas)
    except (ReplyError, OSError, UnreadableReply):
        return []
    finally:
        wire.close()
