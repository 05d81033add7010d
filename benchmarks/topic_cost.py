"""Do three groups of a topic cost the server less than three queues that get the same messages?"""

from collections.abc import Callable
from typing import Any

import duly
from benchmarks.rig import BODY, Result, Rig, alternately, median

MESSAGES = 20_000
BATCH = 100
READERS = 3


def measure(rig: Rig) -> list[Result]:
    """Send or publish all, then claim and ack in batches, everything three times."""
    kept = _topic(rig, "cost-kept", duly.Keep(age=7 * 86400))
    freed = _topic(rig, "cost-freed", None)
    queues, topics, freeing = alternately(7, _queues(rig), kept, freed)
    beside = {"three queues us": round(median(queues), 2)}
    return [_ratio("kept for 7 days", topics, queues, beside), _ratio("freed when acked", freeing, queues, beside)]


def _ratio(what: str, topics: list[float], queues: list[float], beside: dict[str, float]) -> Result:
    ratios = [one / other for one, other in zip(topics, queues, strict=True)]
    return Result(
        f"server CPU, three groups / three queues, {what}", median(ratios), "x", 1.0, higher_is_better=False,
        samples=ratios, beside={**beside, "three groups us": round(median(topics), 2)},
    )  # fmt: skip


def _drain(inbox: Any) -> None:
    done = 0
    while done < MESSAGES:
        deliveries = inbox.receive(limit=BATCH, wait=0)
        done += len(deliveries)
        inbox.ack_many(deliveries)


def _queues(rig: Rig) -> Callable[[], float]:
    queues = [rig.app.queue(f"cost-{number}") for number in range(READERS)]

    def life() -> float:
        before = rig.server_cpu()
        for _ in range(0, MESSAGES, BATCH):
            for queue in queues:
                queue.send_many([BODY] * BATCH)
        for queue in queues:
            _drain(queue)
        spent = rig.server_cpu() - before
        for queue in queues:
            queue.delete()
        return spent / MESSAGES * 1e6

    return life


def _topic(rig: Rig, name: str, keep: duly.Keep | None) -> Callable[[], float]:
    topic = rig.app.topic(name, keep=keep)
    groups = [topic.group(f"group-{number}") for number in range(READERS)]

    def life() -> float:
        for group in groups:
            group.create()
        before = rig.server_cpu()
        for _ in range(0, MESSAGES, BATCH):
            topic.publish_many([BODY] * BATCH)
        for group in groups:
            _drain(group)
        spent = rig.server_cpu() - before
        topic.delete()
        return spent / MESSAGES * 1e6

    return life
