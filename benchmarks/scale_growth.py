"""Does a claim cost more, or a message take more memory, when up to ten million messages wait?"""

from benchmarks.rig import BODY, Result, Rig, median
from duly import Queue
from duly._core import ops

WAITING = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
PER_SEND = 10_000
PER_CLAIM = 100
CLAIMS, ROUNDS = 100, 7


def measure(rig: Rig) -> list[Result]:
    """Fill one queue in steps. At each, claim 100 and release them, many times."""
    queue = rig.app.queue("growth")
    empty = rig.settled_memory()
    results, there = [], 0
    for waiting in dict.fromkeys(rig.count(step) for step in WAITING):
        while there < waiting:
            bodies = [BODY] * min(PER_SEND, waiting - there)
            queue.send_many(bodies)
            there += len(bodies)
        memory = (rig.settled_memory() - empty) / waiting
        samples = [_server_us(rig, queue) for _ in range(ROUNDS)]
        results.append(
            Result(
                f"claim and release 100 with {waiting:,} waiting, server CPU",
                median(samples),
                "us",
                None,
                higher_is_better=False,
                samples=[round(sample, 2) for sample in samples],
                beside={"waiting": waiting, "bytes a message": round(memory, 1)},
            )
        )
    rig.raw.flushall()
    return results


def _server_us(rig: Rig, queue: Queue) -> float:
    """Microseconds of the server for one claim and one release."""
    before = rig.server_cpu()
    for _ in range(CLAIMS):
        deliveries = queue.receive(limit=PER_CLAIM, wait=0)
        rig.app._link.run(ops.release(queue._keys, deliveries))
    return (rig.server_cpu() - before) / CLAIMS * 1e6
