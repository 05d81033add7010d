"""What does a message cost on a cluster of three primaries, compared with one server, and how even is their work?

A cluster of one primary shows how much of the difference comes with the cluster mode of the server.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing

import duly
from benchmarks.rig import BODY, Result, Rig, alternately, median
from tests.scale.cluster import ClusterNode, ClusterRig

PRIMARIES = 3
QUEUES = 1_000
BATCH = 20
"""Messages of each queue in a sample."""


def measure(rig: Rig) -> list[Result]:
    """Send, claim and ack in many queues, on one server and on two clusters in turn. A name decides on the node."""
    queues = rig.count(QUEUES)
    parts: list[list[float]] = []

    def alone() -> float:
        before = rig.server_cpu()
        _lives(rig.app, queues)
        return (rig.server_cpu() - before) / queues / BATCH * 1e6

    def spread(cluster: ClusterRig, app: duly.Duly) -> float:
        before = [_cpu(node) for node in cluster.nodes]
        _lives(app, queues)
        spent = [_cpu(node) - was for node, was in zip(cluster.nodes, before, strict=True)]
        parts.append(spent)
        return sum(spent) / queues / BATCH * 1e6

    with ExitStack() as stack:
        sides: list[Callable[[], float]] = [alone]
        for primaries in (1, PRIMARIES):
            cluster = stack.enter_context(closing(ClusterRig(primaries=primaries, replicas=0)))
            app = stack.enter_context(duly.Duly(cluster.url))
            sides.append(lambda cluster=cluster, app=app: spread(cluster, app))  # type: ignore[misc]
        for side in sides:  # load the scripts
            side()
        parts.clear()
        ones, single, three = alternately(5, *sides)
    busiest = [max(each) / sum(each) * PRIMARIES for each in parts if len(each) == PRIMARIES]
    return [
        _ratio("server CPU of a message on three primaries / on one server", three, ones, 1.05),
        _ratio("server CPU of a message on three primaries / on a cluster of one", three, single, None),
        Result(
            "three primaries: CPU of the busiest, of an equal part", median(busiest), "x", 1.1, higher_is_better=False,
            samples=busiest, beside={"queues": float(queues)},
        ),
    ]  # fmt: skip


def _ratio(question: str, ours: list[float], theirs: list[float], bar: float | None) -> Result:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return Result(
        question, median(ratios), "x", bar, higher_is_better=False, samples=ratios,
        beside={"us": round(median(ours), 2), "compared with us": round(median(theirs), 2)},
    )  # fmt: skip


def _lives(app: duly.Duly, queues: int) -> None:
    """Send messages to each queue, claim them and ack them."""
    for number in range(queues):
        queue = app.queue(f"cluster-{number}")
        queue.send_many([BODY] * BATCH)
        queue.ack_many(queue.receive(BATCH, wait=0))


def _cpu(node: ClusterNode) -> float:
    """Seconds of processor time that a node has used."""
    lines = node.run("INFO", "cpu").decode().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])
