"""Does a claim cost more with a million messages waiting than with a thousand?"""

from benchmarks.rig import BODY, Result, Rig, alternately, median, seconds
from duly._core import ops

CLAIMS = 30


def measure(rig: Rig) -> list[Result]:
    """Claim 10 and release them, on a small and a large queue in turn."""
    small, large = rig.app.queue("growth-small"), rig.app.queue("growth-large")
    small.send_many([BODY] * 1000)
    for _ in range(100):
        large.send_many([BODY] * 10_000)

    def claims(queue: object) -> float:
        def work() -> None:
            for _ in range(CLAIMS):
                deliveries = queue.receive(limit=100, wait=0)  # type: ignore[attr-defined]
                rig.app._link.run(ops.release(queue._keys, deliveries))  # type: ignore[attr-defined]

        return seconds(work)

    smalls, larges = alternately(12, lambda: claims(small), lambda: claims(large))
    small.delete()
    large.delete()
    ratios = [big / little for big, little in zip(larges, smalls, strict=True)]
    return [
        Result(
            "claim with 1,000,000 waiting, of one with 1,000",
            median(ratios),
            "ratio",
            1.3,
            higher_is_better=False,
            samples=ratios,
        )
    ]
