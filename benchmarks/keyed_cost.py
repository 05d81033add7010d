"""How much more of the server's processor time does a message with a key take than one without, with 1,000 keys?"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import duly
from benchmarks.rig import BODY, Result, Rig, alternately, median

MESSAGES = 20_000
BATCH = 100
KEYS = 1_000


def measure(rig: Rig) -> list[Result]:
    """Send all, then claim and ack in batches: plain, with the keys in turn, and with keys at random."""
    dice = random.Random(7)
    in_turn = [duly.Send(BODY, key=f"user-{number % KEYS}") for number in range(MESSAGES)]
    at_random = [duly.Send(BODY, key=f"user-{dice.randrange(KEYS)}") for _ in range(MESSAGES)]
    sides = [_life(rig, "plain", [BODY] * MESSAGES), _life(rig, "in-turn", in_turn), _life(rig, "random", at_random)]
    plain, turn, scattered = alternately(15, *sides)
    beside = {"plain us": round(median(plain), 2)}
    return [_ratio("keys in turn", turn, plain, beside), _ratio("keys at random", scattered, plain, beside)]


def _ratio(what: str, keyed: Sequence[float], plain: Sequence[float], beside: dict[str, float]) -> Result:
    ratios = [one / other for one, other in zip(keyed, plain, strict=True)]
    return Result(
        f"server CPU with a key / without, 1,000 {what}", median(ratios), "x", 1.5, higher_is_better=False,
        samples=ratios, beside={**beside, "keyed us": round(median(keyed), 2)},
    )  # fmt: skip


def _life(rig: Rig, name: str, messages: Sequence[Any]) -> Callable[[], float]:
    queue = rig.app.queue(f"keyed-cost-{name}")

    def life() -> float:
        before = rig.server_cpu()
        for first in range(0, MESSAGES, BATCH):
            queue.send_many(messages[first : first + BATCH])
        done = 0
        while done < MESSAGES:
            deliveries = queue.receive(limit=BATCH, wait=0)
            done += len(deliveries)
            queue.ack_many(deliveries)
        spent = rig.server_cpu() - before
        queue.delete()
        return spent / MESSAGES * 1e6

    return life
