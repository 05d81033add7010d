"""What does a worker of up to ten thousand queues cost when idle, and how long do messages take to reach it?"""

from collections.abc import Iterator

from benchmarks.rig import Result, Rig
from benchmarks.worker_fairness import of_many_queues

ROUNDS = 1
"""A round of one size takes half a minute, most of which is waiting. All sizes take less than three minutes."""
QUEUES = (1, 10, 100, 1_000, 10_000)


def measure(rig: Rig) -> Iterator[Result]:
    """Measure a growing number of queues, as the worker's questions measure a thousand. There are no targets."""
    for queues in dict.fromkeys(rig.count(step) for step in QUEUES):
        print(f"     {queues:,} queues ...", flush=True)
        for result in of_many_queues(rig, min(ROUNDS, rig.rounds), queues):
            result.bar = None
            result.beside["queues"] = queues
            yield result
