"""Does a claim of a group cost more with a million entries in the stream than with a thousand?"""

from typing import Any

from benchmarks.rig import BODY, Result, Rig, alternately, median, seconds

CLAIMS = 30
SMALL, LARGE = 10_000, 1_000_000


def measure(rig: Rig) -> list[Result]:
    """Claim 100 and ack them, behind few and behind many entries; then move the group back."""
    small, large = rig.app.topic("growth-small"), rig.app.topic("growth-large")
    for topic, size in ((small, SMALL), (large, LARGE)):
        for _ in range(size // 10_000):
            topic.publish_many([BODY] * 10_000)

    def claims(group: Any) -> float:
        def work() -> None:
            for _ in range(CLAIMS):
                group.ack_many(group.receive(limit=100, wait=0))

        taken = seconds(work)
        group.seek("beginning")
        return taken

    few, many = small.group("growth"), large.group("growth")
    smalls, larges = alternately(12, lambda: claims(few), lambda: claims(many))
    small.delete()
    large.delete()
    ratios = [big / little for big, little in zip(larges, smalls, strict=True)]
    return [
        Result(
            "claim + ack with 1,000,000 entries, of one with 10,000", median(ratios), "ratio", 1.3,
            higher_is_better=False, samples=ratios,
        )
    ]  # fmt: skip
