"""One of three nodes hangs for half a minute: the queues of the other nodes do not notice."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from statistics import quantiles
from typing import Any, Final

import pytest

import duly
from duly.worker import Worker
from tests.scale.cluster import ClusterNode, ClusterRig
from tests.waiting import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.measure, pytest.mark.timeout(240)]

SECONDS: Final = 30.0
"""Seconds of the measurement before the fault, and of the fault."""
LEASE: Final = 6.0
RATE: Final = 50.0
"""Messages per second and queue."""
QUEUES: Final = 6


@pytest.fixture
def rig() -> Iterator[ClusterRig]:
    """Nodes that do not replace each other, and serve their own slots while another one is away."""
    with ClusterRig(replicas=0, config={"cluster-node-timeout": "60000"}) as found:
        yield found


async def test_a_node_that_hangs_delays_no_queue_of_the_others(rig: ClusterRig, queue_name: str) -> None:
    async with duly.AsyncDuly(rig.url, patience=120) as app:
        queues = [app.queue(f"{queue_name}-{number}", lease=LEASE) for number in range(QUEUES)]
        node_of = {queue.name: rig.owner_of(queue._keys.slot) for queue in queues}
        hanging = node_of[queues[0].name]
        others = [queue for queue in queues if node_of[queue.name] is not hanging]
        assert len(others) < len(queues)
        assert {node_of[queue.name] for queue in others} == set(rig.primaries) - {hanging}

        latencies: dict[str, list[float]] = defaultdict(list)
        attempts: list[int] = []
        for queue in queues:
            queue.handler()(handler_of(queue.name, latencies, attempts))
        async with Worker(app) as worker:
            await asyncio.gather(*(feed(queue, SECONDS) for queue in queues))
            await asyncio.sleep(2)
            before = p99([each for queue in others for each in latencies.pop(queue.name)])
            threads = names_of_threads()
            connections = {node: clients_of(node) for node in rig.primaries}

            hanging.freeze()
            stuck = [asyncio.create_task(queue.send(time.time())) for queue in queues if queue not in others]
            try:
                await asyncio.gather(*(feed(queue, SECONDS) for queue in others))
            finally:
                hanging.thaw()
            during = p99([each for queue in others for each in latencies[queue.name]])
            await asyncio.gather(*stuck)
            pools = [*app._link.connections.router.pools, *worker._async_app._link.connections.router.pools]
            permits = app._link.connections.router.pools[0].gate._value
            await asyncio.to_thread(
                wait_until, lambda: all(pool.gate._value == permits for pool in pools), "no permit is left behind"
            )
            await asyncio.to_thread(
                wait_until, lambda: names_of_threads() <= threads, "no thread is left", names_of_threads
            )
            await asyncio.to_thread(
                wait_until,
                lambda: all(clients_of(node) <= count + 2 for node, count in connections.items()),
                "no connection is left",
                lambda: {node: (clients_of(node), count) for node, count in connections.items()},
            )

        print(f"p99 of the queues on other nodes: {before * 1000:.1f} ms before, {during * 1000:.1f} ms during")  # noqa: T201
        assert during <= max(2 * before, before + 0.005)
        for queue in others:
            stats = await queue.stats()
            assert (stats.crashed, stats.delivered) == (0, stats.acked), queue.name
        assert sum(attempts) == len(attempts)


def handler_of(name: str, latencies: dict[str, list[float]], attempts: list[int]) -> Any:
    async def handle(delivery: duly.AsyncDelivery[Any]) -> None:
        latencies[name].append(time.time() - delivery.body)
        attempts.append(delivery.attempt)

    return handle


async def feed(queue: duly.AsyncQueue[Any], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        await queue.send(time.time())
        await asyncio.sleep(1 / RATE)


def p99(times: list[float]) -> float:
    assert len(times) > 100
    return quantiles(times, n=100)[98]


def clients_of(node: ClusterNode) -> int:
    return int(node.info("clients")["connected_clients"])


def names_of_threads() -> set[str]:
    """Return the names of all threads but those of asyncio.to_thread, which the test itself uses."""
    return {thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}
