"""How much of the server's memory does a waiting message of 100 bytes take, and how much stays behind?"""

from benchmarks.rig import BODY, Result, Rig, median

MESSAGES = 100_000
ROUNDS = 3


def measure(rig: Rig) -> list[Result]:
    """Fill and measure, then drain and measure again."""
    queue = rig.app.queue("memory")
    queue.send(BODY)
    queue.ack_many(queue.receive(limit=10, wait=0))
    empty = rig.settled_memory()
    full, left = [], []
    for _ in range(ROUNDS):
        queue.send_many([BODY] * MESSAGES)
        full.append((rig.settled_memory() - empty) / MESSAGES)
        while deliveries := queue.receive(limit=1000, wait=0):
            queue.ack_many(deliveries)
        left.append((rig.settled_memory() - empty) / MESSAGES)
    keys = [key.decode() for key in rig.raw.scan_iter("duly:{memory}:*")]
    queue.delete()
    return [
        Result(
            "memory of a waiting message of 100 bytes", median(full), "bytes", 250, higher_is_better=False, samples=full
        ),
        Result(
            "memory left behind, a message",
            median(left),
            "bytes",
            1,
            higher_is_better=False,
            samples=left,
            beside={"keys left": float(len(keys))},
        ),
    ]
