"""How much of the server's processor time does the whole life of a message take, in batches of 100?"""

from benchmarks.rig import BODY, Result, Rig, alternately, median

MESSAGES = 30_000
BATCH = 100


def measure(rig: Rig) -> list[Result]:
    """Send, claim and ack in batches, and read the server's CPU time. Compare with the least that Redis could do."""
    queue = rig.app.queue("server-cost")

    def life() -> float:
        before = rig.server_cpu()
        for _ in range(MESSAGES // BATCH):
            queue.send_many([BODY] * BATCH)
        done = 0
        while done < MESSAGES:
            deliveries = queue.receive(limit=BATCH, wait=0)
            done += len(deliveries)
            queue.ack_many(deliveries)
        return (rig.server_cpu() - before) / MESSAGES * 1e6

    def bare() -> float:
        """Write and remove a body and an index entry, variadic, without any guarantee."""
        before = rig.server_cpu()
        body = b"x" * 145
        for first in range(0, MESSAGES, BATCH):
            ids = [f"01M7GCVR7NNEGKDK0C{number:08d}" for number in range(first, first + BATCH)]
            rig.raw.hset("bare:msgs", mapping=dict.fromkeys(ids, body))
            rig.raw.zadd("bare:waiting", {id_: 1.79e15 + number for number, id_ in enumerate(ids)})
        for _ in range(MESSAGES // BATCH):
            ids = rig.raw.zrange("bare:waiting", 0, BATCH - 1)
            rig.raw.hmget("bare:msgs", ids)
            rig.raw.zrem("bare:waiting", *ids)
            rig.raw.hdel("bare:msgs", *ids)
        return (rig.server_cpu() - before) / MESSAGES * 1e6

    lives, bares = alternately(7, life, bare)
    queue.delete()
    beside = {"bare HSET+ZADD, ZRANGE+HMGET+ZREM+HDEL": round(median(bares), 2)}
    return [
        Result(
            "server CPU for a message's life, batches of 100",
            median(lives),
            "us",
            8,
            higher_is_better=False,
            samples=lives,
            beside=beside,
        )
    ]
