"""What does a message cost on a cluster of three primaries, compared with one server, and how even is their work?"""

from collections.abc import Callable

import duly
from benchmarks.rig import BODY, Result, Rig, alternately, median
from tests.scale.cluster import ClusterNode, ClusterRig

PRIMARIES = 3
QUEUES = 1_000
BATCH = 20
"""Messages of each queue in a sample."""


def measure(rig: Rig) -> list[Result]:
    """Send, claim and ack in many queues, on one server and on the cluster in turn. A name decides on the node."""
    queues = rig.count(QUEUES)
    cluster = ClusterRig(primaries=PRIMARIES, replicas=0)
    try:
        with duly.Duly(cluster.url) as app:
            parts: list[list[float]] = []

            def alone() -> float:
                return _spent(rig.server_cpu, lambda: _lives(rig.app, queues)) / queues / BATCH * 1e6

            def spread() -> float:
                before = [_cpu(node) for node in cluster.nodes]
                _lives(app, queues)
                parts.append([_cpu(node) - was for node, was in zip(cluster.nodes, before, strict=True)])
                return sum(parts[-1]) / queues / BATCH * 1e6

            for side in (alone, spread):  # load the scripts
                side()
            parts.clear()
            ones, spreads = alternately(5, alone, spread)
    finally:
        cluster.close()
    return [
        Result(
            "server CPU of a message on three primaries / on one server",
            median(ratios := [many / one for many, one in zip(spreads, ones, strict=True)]),
            "x",
            1.05,
            higher_is_better=False,
            samples=ratios,
            beside={"one server us": round(median(ones), 2)},
        ),
        Result(
            "three primaries: CPU of the busiest, of an equal part",
            median(busiest := [max(each) / sum(each) * PRIMARIES for each in parts]),
            "x",
            1.1,
            higher_is_better=False,
            samples=busiest,
            beside={"queues": float(queues)},
        ),
    ]


def _lives(app: duly.Duly, queues: int) -> None:
    """Send messages to each queue, claim them and ack them."""
    for number in range(queues):
        queue = app.queue(f"cluster-{number}")
        queue.send_many([BODY] * BATCH)
        queue.ack_many(queue.receive(BATCH, wait=0))


def _spent(cpu: Callable[[], float], act: Callable[[], None]) -> float:
    before = cpu()
    act()
    return cpu() - before


def _cpu(node: ClusterNode) -> float:
    """Seconds of processor time that a node has used."""
    lines = node.run("INFO", "cpu").decode().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])
