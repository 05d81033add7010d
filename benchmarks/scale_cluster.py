"""What does a message cost on a cluster of three primaries, compared with one server, and how even is their work?

A cluster of one primary shows how much of the difference comes with the cluster mode of the server. All servers keep
their data in memory only. The queues are used in the order of their slots, so one primary after the other has work. In
mixed order, most queues are on another node than the queue before, and the three servers share the two cores of this
machine and their caches. A machine per server would not have this cost. It is measured too, and has no target.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Final

import duly
from benchmarks.rig import BODY, Result, Rig, alternately, median
from duly._core.topology import slot_of
from tests.scale.cluster import ClusterNode, ClusterRig

PRIMARIES = 3
QUEUES = 1_000
BATCH = 20
"""Messages of each queue in a sample."""
_IN_MEMORY: Final = {"appendonly": "no"}
"""Like the single server. A `ClusterRig` writes an append-only file by default."""


def measure(rig: Rig) -> list[Result]:
    """Send, claim and ack in many queues, on one server and on two clusters in turn. A name decides on the node."""
    mixed = [f"cluster-{number}" for number in range(rig.count(QUEUES))]
    by_slot = sorted(mixed, key=lambda name: slot_of(b"{%b}" % name.encode()))
    parts: list[list[float]] = []

    def alone() -> float:
        return _spent(rig.app, by_slot, rig.server_cpu)

    def spread(cluster: ClusterRig, app: duly.Duly, names: Sequence[str]) -> float:
        before = [_cpu(node) for node in cluster.nodes]
        cost = _spent(app, names, lambda: sum(map(_cpu, cluster.nodes)))
        if names is by_slot:
            parts.append([_cpu(node) - was for node, was in zip(cluster.nodes, before, strict=True)])
        return cost

    with ExitStack() as stack:
        sides: list[Callable[[], float]] = [alone]
        for primaries, names in ((1, by_slot), (PRIMARIES, by_slot), (PRIMARIES, mixed)):
            cluster = stack.enter_context(closing(ClusterRig(primaries=primaries, replicas=0, config=_IN_MEMORY)))
            app = stack.enter_context(duly.Duly(cluster.url))
            sides.append(partial(spread, cluster, app, names))
        for side in sides:  # load the scripts
            side()
        parts.clear()
        server, of_one, slot_order, mixed_order = alternately(5, *sides)
    busiest = [max(each) / sum(each) * PRIMARIES for each in parts if len(each) == PRIMARIES]
    return [
        _ratio("server CPU of a message on three primaries / on one server", slot_order, server, 1.05),
        _ratio("server CPU of a message on three primaries / on a cluster of one", slot_order, of_one, None),
        _ratio("server CPU of a message on three primaries, in mixed order / on one server", mixed_order, server, None),
        Result(
            "three primaries: CPU of the busiest, of an equal part", median(busiest), "x", 1.1, higher_is_better=False,
            samples=busiest, beside={"queues": float(len(mixed))},
        ),
    ]  # fmt: skip


def _ratio(question: str, ours: list[float], theirs: list[float], bar: float | None) -> Result:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Result(
        question, median(ratios), "x", bar, higher_is_better=False, samples=ratios,
        beside={"us": round(median(ours), 2), "compared with us": round(median(theirs), 2)},
    )  # fmt: skip


def _spent(app: duly.Duly, names: Sequence[str], cpu: Callable[[], float]) -> float:
    """Send messages to each queue, claim them and ack them. Returns the microseconds of the servers per message."""
    before = cpu()
    for name in names:
        queue = app.queue(name)
        queue.send_many([BODY] * BATCH)
        queue.ack_many(queue.receive(BATCH, wait=0))
    return (cpu() - before) / len(names) / BATCH * 1e6


def _cpu(node: ClusterNode) -> float:
    """Seconds of processor time that a node has used."""
    lines = node.run("INFO", "cpu").decode().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])
